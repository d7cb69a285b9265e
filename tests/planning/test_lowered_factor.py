"""Lowering a replication factor keeps what is in sync: the leader first, then the ISR, then as evenly as it can be."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_steward.planning.checker.check import check
from kafka_steward.planning.files.formats import PlanFolder, SnapshotFolder
from tests.builders import cluster, plan_with, planned, snapshot_of
from tests.planning.manual_plans import move
from tests.rings import tried

SIX = "1 2 3 4 5 6"


def lagging(brokers: str, *replicas: str, isr: list[int], leader: int) -> SnapshotFolder:
    """Partitions of `t`, all with the same ISR and leader."""
    whole = cluster(brokers, f"t: {' '.join(replicas)}")
    rows = [row | {"isr": isr, "leader": leader} for row in whole.partitions.to_pylist()]
    return snapshot_of(whole.brokers.to_pylist(), rows)


def lowered(snapshot: SnapshotFolder, factor: int, **options: Any) -> PlanFolder:
    plan = planned(snapshot, "set-replication-factor", {"replication_factor": factor, "topics": ["t"], **options})
    found = check(snapshot, plan)
    assert (found.problems, found.unproven) == ([], ())
    assert plan.proof["replicas_moved"] == plan.proof["lower_bound"] == 0
    return plan


def kept(plan: PlanFolder) -> list[set[int]]:
    return [set(each.after) for each in plan.moves]


def test_what_is_in_sync_is_kept() -> None:
    plan = lowered(lagging(SIX, *["456123"] * 3, isr=[1, 2, 3], leader=1), 3)
    assert kept(plan) == [{1, 2, 3}] * 3
    assert plan.proof["notes"] == []
    assert kept(lowered(lagging("1 2 3", "123", isr=[2, 3], leader=2), 1)) == [{2}]


@pytest.mark.parametrize(
    ("replicas", "isr", "leader", "factor", "held"),
    [
        ("1234", [2, 3, 4], 4, 1, {4}),
        ("1234", [2, 3, 4], 4, 2, {2, 4}),
        # All are in sync, and another than the preferred leader leads.
        ("123", [1, 2, 3], 3, 1, {3}),
        ("123", [1, 2, 3], 3, 2, {1, 3}),
        ("123", [1, 2, 3], 1, 1, {1}),
        # An ISR that is not known is no reason, and neither is a leader outside of it.
        ("123", [], 3, 1, {1}),
        ("123", [2, 3], 1, 1, {2}),
    ],
)
def test_the_leader_is_kept_first_and_the_preferred_leader_if_it_is_in_sync(
    replicas: str, isr: list[int], leader: int, factor: int, held: set[int]
) -> None:
    assert kept(lowered(lagging(SIX, replicas, isr=isr, leader=leader), factor)) == [held]


@pytest.mark.parametrize("how", ["factor", "given"])
def test_the_bytes_of_one_that_must_stay_out_of_sync_are_counted(how: str) -> None:
    snapshot = lagging(SIX, "4125", isr=[1, 2], leader=1)
    size = snapshot.partitions.to_pylist()[0]["bytes"]
    if how == "factor":
        plan = lowered(snapshot, 3, throttle=100)
        assert kept(plan) == [{4, 1, 2}]
    else:
        given = {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [4, 1, 2]}]}
        plan = planned(snapshot, "apply", {"reassignment": given, "throttle": 100})
        assert check(snapshot, plan).problems == []
    assert size > 0
    assert (plan.proof["replicas_moved"], plan.proof["bytes_moved"]) == (0, size)
    assert plan.proof["predicted_seconds"] == round(size / 100, 1)
    assert plan.proof["notes"] == ["t-0 keeps broker 4, which is not in sync: Kafka completes the move once it is."]
    wrong = plan_with(plan.digest, {**plan.proof, "bytes_moved": 0}, plan.moves)
    assert f"The proof says bytes_moved = 0; the rows say {size}." in check(snapshot, wrong).problems


def test_what_would_fall_below_min_isr_is_left_and_listed() -> None:
    whole = cluster(SIX, "t: 123 12")
    rows = [row | {"min_isr": 2} for row in whole.partitions.to_pylist()]
    snapshot = snapshot_of(whole.brokers.to_pylist(), rows)
    plan = lowered(snapshot, 1)
    assert plan.moves == []
    left = [(each["partition"], each["reason"]) for each in plan.proof["unplaced"]]
    assert left == [(0, "below_min_isr"), (1, "below_min_isr")]
    assert [each.partition for each in lowered(snapshot, 2).moves] == [0]
    forged = plan_with(plan.digest, {**plan.proof, "unplaced": []}, [move(snapshot, "t-0 1")])
    assert any("fewer replicas than min.insync.replicas" in each for each in check(snapshot, forged).problems)


def test_only_what_is_copied_is_counted() -> None:
    assert lowered(lagging(SIX, "1245", isr=[1, 2], leader=1), 2).proof["bytes_moved"] == 0
    assert lowered(lagging(SIX, "1245", isr=[], leader=1), 3).proof["bytes_moved"] == 0


def test_notes_name_ten_partitions_and_count_the_others() -> None:
    plan = lowered(lagging(SIX, *["4125"] * 13, isr=[1, 2], leader=1), 3)
    assert len(plan.proof["notes"]) == 11
    assert plan.proof["notes"][-1] == "3 more partitions keep a broker that is not in sync."


def test_among_those_in_sync_the_racks_and_the_load_decide() -> None:
    plan = lowered(lagging("1a 2a 3b 4b", "1234", isr=[1, 2, 3], leader=1), 2)
    assert kept(plan) == [{1, 3}]
    plan = lowered(lagging(SIX, *["61234"] * 6, isr=[1, 2, 3, 4], leader=1), 2)
    assert sorted(sum(broker in one for one in kept(plan)) for broker in (2, 3, 4)) == [2, 2, 2]


def test_what_may_receive_nothing_goes_first_unless_what_is_out_of_sync_would_stay_for_it() -> None:
    assert kept(lowered(lagging("1 2 3", "123", isr=[1, 2, 3], leader=1), 2, exclude_brokers=[1])) == [{2, 3}]
    assert kept(lowered(lagging("1 2 3", "123", isr=[1, 2], leader=1), 2, exclude_brokers=[1])) == [{1, 2}]
    assert kept(lowered(lagging("1 2 3", "123", isr=[1, 2], leader=1), 1, exclude_brokers=[1])) == [{2}]
    assert kept(lowered(lagging("1- 2 3", "123", isr=[1, 2], leader=2), 2)) == [{2, 3}]


@pytest.mark.parametrize(
    ("isr", "leader", "after", "problem"),
    [
        ([1, 2, 3], 1, "45", "t-0: it drops broker 1, which is in sync, and keeps broker 4, which is not."),
        ([1, 2, 3], 1, "14", "t-0: it drops broker 2, which is in sync, and keeps broker 4, which is not."),
        ([1, 2, 3], 2, "13", "t-0: it drops its leader 2, which is in sync."),
    ],
)
def test_the_checker_refuses_a_plan_that_drops_what_is_in_sync_for_what_is_not(
    isr: list[int], leader: int, after: str, problem: str
) -> None:
    snapshot = lagging(SIX, "45123", isr=isr, leader=leader)
    plan = lowered(snapshot, 2)
    wrong = plan_with(plan.digest, plan.proof, [move(snapshot, f"t-0 {after}")])
    assert problem in check(snapshot, wrong).problems


@settings(max_examples=tried(150))
@given(st.integers(0, 100_000), st.integers(1, 4), st.sampled_from([{}, {"exclude_brokers": [3]}]))
def test_no_plan_drops_what_is_in_sync_for_what_is_not(seed: int, factor: int, options: dict[str, Any]) -> None:
    dice = random.Random(seed)
    brokers = [
        {"broker": one, "rack": dice.choice([None, "a", "b"]), "state": dice.choice(["live", "live", "live", "failed"])}
        for one in range(4, 11)
    ] + [{"broker": one, "rack": dice.choice("ab"), "state": "live"} for one in range(4)]
    rows: list[dict[str, Any]] = []
    for number in range(dice.randint(1, 12)):
        replicas = dice.sample(range(11), dice.randint(1, 6))
        isr = [one for one in replicas if dice.random() < 0.6]
        leader = dice.choice(isr) if isr else replicas[0]
        rows.append(
            {"topic": dice.choice("tu"), "partition": number, "replicas": replicas, "isr": isr, "leader": leader}
        )
    topics = sorted({row["topic"] for row in rows})
    snapshot = snapshot_of(brokers, rows)
    asked = {"replication_factor": factor, "topics": topics, **options}
    plan = planned(snapshot, "set-replication-factor", asked)
    found = check(snapshot, plan)
    assert (found.problems, found.unproven) == ([], ())
    by_name: dict[tuple[str, int], dict[str, Any]] = {(row["topic"], row["partition"]): row for row in rows}
    usable = {each["broker"] for each in brokers if each["state"] == "live"}
    for each in plan.moves:
        row = by_name[each.topic, each.partition]
        lost = (set(each.before) - set(each.after)) & set(row["isr"]) & usable
        late = set(each.after) & set(row["replicas"]) - set(row["isr"])
        assert not (row["isr"] and lost and late)
