"""Leaders that are even by what producers bring: within 1.1 times the mean or a bound, without a copy, few change."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import replace

import pytest

from kafka_steward.planning.checker.check import check
from kafka_steward.planning.files.formats import PlanFolder, SnapshotFolder
from tests.builders import cluster, plan_with, planned, snapshot_of
from tests.rings import tried

TARGET = 1.1


def with_rates(snapshot: SnapshotFolder, *rates: float | None) -> SnapshotFolder:
    rows = [row | {"bytes_per_s": rate} for row, rate in zip(snapshot.partitions.to_pylist(), rates, strict=True)]
    return snapshot_of(snapshot.brokers.to_pylist(), rows)


def evened(snapshot: SnapshotFolder) -> PlanFolder:
    """The plan, which the checker finds valid, and which copies nothing."""
    plan = planned(snapshot, "leaders")
    assert check(snapshot, plan).problems == []
    assert (plan.proof["replicas_moved"], plan.proof["bytes_moved"]) == (0, 0)
    return plan


def led(snapshot: SnapshotFolder, plan: PlanFolder) -> dict[int, float]:
    """The bytes per second that each broker leads after the plan."""
    after = {(move.topic, move.partition): move.after[0] for move in plan.moves}
    found = Counter[int]()
    for row in snapshot.partitions.to_pylist():
        found[after.get((row["topic"], row["partition"]), row["replicas"][0])] += row["bytes_per_s"]
    return dict(found)


def test_a_skewed_topic_is_led_within_a_tenth_of_the_mean_and_nothing_is_copied() -> None:
    dice = random.Random(5)
    brokers = [{"broker": broker, "rack": "abc"[broker % 3], "state": "live"} for broker in range(1, 10)]
    rows = [
        {
            "topic": "zipf",
            "partition": at,
            "replicas": dice.sample(range(1, 10), 3),
            "bytes_per_s": 9e6 / (1 + at) ** 0.7,
        }
        for at in range(120)
    ]
    snapshot = snapshot_of(brokers, rows)
    plan = evened(snapshot)
    before, after = (plan.proof["load"]["leaders"][when]["highest_over_mean"] for when in ("before", "after"))
    assert before > 1.3 > TARGET >= after
    assert plan.proof["leader_evenness"] == "bytes-in"
    assert plan.proof["leader_changes"] < 30
    again = planned(carried_out(snapshot, plan), "leaders")
    assert again.moves == []


def carried_out(snapshot: SnapshotFolder, plan: PlanFolder) -> SnapshotFolder:
    after = {(move.topic, move.partition): list(move.after) for move in plan.moves}
    rows = [
        row | {"replicas": now, "leader": now[0]}
        for row in snapshot.partitions.to_pylist()
        for now in [after.get((row["topic"], row["partition"]), row["replicas"])]
    ]
    return snapshot_of(snapshot.brokers.to_pylist(), rows)


def test_one_partition_alone_may_be_more_than_the_mean() -> None:
    snapshot = with_rates(cluster("1 2 3", "t: 12 12 23 31"), 900.0, 50.0, 20.0, 10.0)
    plan = evened(snapshot)
    assert plan.proof["leader_evenness"] == "bytes-in"
    assert led(snapshot, plan)[1] == 900.0
    assert [str(move.topic_partition) for move in plan.moves] == ["t-1"]


def test_what_only_two_brokers_hold_is_led_by_these_and_proven_so() -> None:
    snapshot = with_rates(cluster("1 2 3 4", "t: 12 12 12 12 12 34"), *[100.0] * 5, 10.0)
    plan = evened(snapshot)
    # Of five equal partitions one broker leads three: no whole number of them is nearer to the mean of the two.
    assert sorted(led(snapshot, plan).values()) == [10.0, 200.0, 300.0]
    assert plan.proof["leader_evenness"] == "near-bytes-in"
    even = with_rates(cluster("1 2 3 4", "t: 12 12 12 12 34"), *[100.0] * 4, 10.0)
    assert evened(even).proof["leader_evenness"] == "bytes-in"


def test_a_chain_of_brokers_gives_on_what_the_last_one_can_take() -> None:
    # Broker 1 leads two, and shares partitions with 2 alone, which shares with 3.
    snapshot = with_rates(cluster("1 2 3", "t: 12 12 23 3"), 100.0, 100.0, 100.0, 1.0)
    plan = evened(snapshot)
    assert {broker: rate // 100 for broker, rate in led(snapshot, plan).items()} == {1: 1, 2: 1, 3: 1}
    assert len(plan.moves) == 2


def test_larger_brokers_lead_more() -> None:
    snapshot = with_rates(cluster("1 2", "t: " + "12 " * 12), *[100.0] * 12)
    brokers = [row | {"capacity": float(row["broker"])} for row in snapshot.brokers.to_pylist()]
    snapshot = snapshot_of(brokers, snapshot.partitions.to_pylist())
    assert led(snapshot, evened(snapshot)) == {1: 400.0, 2: 800.0}


@pytest.mark.parametrize("rates", [(None,) * 4, (0.0,) * 4, (float("nan"), -1.0, None, None)])
def test_without_a_rate_leaders_are_even_by_count(rates: tuple[float | None, ...]) -> None:
    snapshot = with_rates(cluster("1 2", "t: 12 12 12 12"), *rates)
    plan = evened(snapshot)
    assert (plan.proof["leader_evenness"], len(plan.moves)) == ("even", 2)


def test_rates_that_are_not_known_count_as_their_topics_mean() -> None:
    snapshot = with_rates(cluster("1 2", "t: 12 12 12 12"), 100.0, None, None, 100.0)
    plan = evened(snapshot)
    assert (plan.proof["load"]["assumed"], len(plan.moves)) == (2, 2)


def test_demoted_brokers_lead_nothing_and_count_for_nothing() -> None:
    snapshot = with_rates(cluster("1 2 3", "t: 123 123 213 312"), 100.0, 100.0, 100.0, 100.0)
    brokers = [row | {"demoted": row["broker"] == 1} for row in snapshot.brokers.to_pylist()]
    snapshot = snapshot_of(brokers, snapshot.partitions.to_pylist())
    assert led(snapshot, evened(snapshot)) == {2: 200.0, 3: 200.0}


def test_what_a_demoted_broker_led_is_taken_over_evenly_by_bytes_in() -> None:
    snapshot = with_rates(cluster("1 2 3", "t: 123 132 123 132 213 312"), 90.0, 10.0, 10.0, 10.0, 60.0, 20.0)
    plan = planned(snapshot, "demote", {"demote": [1]})
    assert (check(snapshot, plan).problems, plan.proof["replicas_moved"]) == ([], 0)
    assert led(snapshot, plan) == {2: 90.0, 3: 110.0}, "by their number, broker 2 would lead 150"
    worse = [move if move.after[0] == 2 else replace(move, after=(2, 3, 1)) for move in plan.moves]
    found = check(snapshot, plan_with(plan.digest, plan.proof, worse)).problems
    assert "What broker 2 would take over, broker 3 could lead with fewer bytes in." in found
    nothing = planned(with_rates(snapshot, *[None] * 6), "demote", {"demote": [1]})
    assert sorted(move.after[0] for move in nothing.moves if move.before[0] == 1) == [2, 2, 3, 3]


def random_loads(seed: int) -> SnapshotFolder:
    dice = random.Random(seed)
    ids = range(1, dice.randint(2, 4) + 1)
    brokers = [{"broker": broker, "state": "live", "capacity": dice.choice([1.0, 1.0, 2.0])} for broker in ids]
    rows = [
        {
            "topic": "t",
            "partition": at,
            "replicas": dice.sample(ids, dice.randint(1, min(3, len(ids)))),
            "bytes_per_s": float(dice.choice([0, 1, 3, 5, 10, 40])),
        }
        for at in range(dice.randint(3, 8))
    ]
    return snapshot_of(brokers, rows)


def test_nearly_all_random_cases_are_as_even_as_they_can_be_with_the_fewest_changes() -> None:
    cases, missed, more = tried(400, least=80), 0, 0
    for seed in range(cases):
        snapshot = random_loads(seed)
        rows = snapshot.partitions.to_pylist()
        if not any(row["bytes_per_s"] for row in rows):
            continue
        plan = evened(snapshot)
        capacity = {row["broker"]: row["capacity"] for row in snapshot.brokers.to_pylist()}
        mean = sum(row["bytes_per_s"] for row in rows) / sum(capacity.values())
        ways = []
        for choice in itertools.product(*(row["replicas"] for row in rows)):
            found = Counter[int]()
            for broker, row in zip(choice, rows, strict=True):
                found[broker] += row["bytes_per_s"]
            changes = sum(broker != row["replicas"][0] for broker, row in zip(choice, rows, strict=True))
            ways.append((max(rate / capacity[broker] for broker, rate in found.items()), changes))
        target = max(min(level for level, _ in ways), TARGET * mean) + 1e-6
        reached = max(rate / capacity[broker] for broker, rate in led(snapshot, plan).items())
        missed += reached > target
        more += len(plan.moves) > min(changes for level, changes in ways if level <= max(target, reached))
    assert missed <= 0.03 * cases
    assert more <= 0.12 * cases


def test_the_checker_finds_leaders_that_are_less_even_than_the_proof_says() -> None:
    snapshot = with_rates(cluster("1 2 3", "t: 12 13 12 13 12 13"), *[100.0] * 6)
    plan = evened(snapshot)
    verdict = check(snapshot, plan)
    assert verdict.unproven == ("That no leaders as even by bytes in need fewer changes is not proven.",)
    lazy = check(snapshot, plan_with(plan.digest, plan.proof, plan.moves[:1])).problems
    sentence = "leaders are even by bytes in; broker 1 leads 500 bytes/s, and 220 would do."
    assert any(sentence in each for each in lazy)
    # A set of brokers that proves nothing: what they lead could be led by another one.
    closed = {**plan.proof, "prices": {"1": 1, "2": 1, "3": 0}}
    assert any(sentence in each for each in check(snapshot, plan_with(plan.digest, closed, plan.moves[:1])).problems)
    by_count = {**plan.proof, "leader_evenness": "even"}
    found = check(snapshot, plan_with(plan.digest, by_count, plan.moves)).problems
    assert any("in the sense 'even', which is not what the snapshot asks for" in each for each in found)
    near = {**plan.proof, "leader_evenness": "near-bytes-in"}
    unproven = check(snapshot, plan_with(plan.digest, near, plan.moves)).unproven
    assert unproven[0] == "That a broker must lead more than 1.1 times the mean of the bytes in is not proven."
