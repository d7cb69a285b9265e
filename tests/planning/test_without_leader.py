"""Partitions without a leader, failed log directories and cordoned brokers: what moves, what stays and is listed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_steward.assignment import EVEN_OPERATIONS, Move
from kafka_steward.errors import PlanError
from kafka_steward.planning.checker.check import check
from kafka_steward.planning.files.formats import (
    PlanFolder,
    SnapshotFolder,
    brokers_with_lost_replicas,
    cordoned_brokers,
    digest_with_proof,
)
from kafka_steward.planning.local import plan_apply_locally, plan_topics_locally
from kafka_steward.planning.options import Options, find_operation
from tests.builders import cluster, plan_with, planned, snapshot_of
from tests.planning.manual_plans import move
from tests.rings import tried
from tests.strategies import OPTIONS

LOST, NO_LEADER = "all_replicas_lost", "no_leader"
#: The state of broker 4, and the options, with which an operation has work to do.
ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "heal": ("!", {}),
    "fill": ("!", {}),
    "rebalance": ("", {}),
    "expand": ("+", {}),
    "drain": ("-", {"balance": "replicas"}),
    "set-replication-factor": ("", {"topics": ["t", "u"], "replication_factor": 3}),
    "apply": ("", {"reassignment": {"version": 1, "partitions": []}}),
}
EVEN = sorted(EVEN_OPERATIONS)


def changed(snapshot: SnapshotFolder, **rows: Mapping[str, Any]) -> SnapshotFolder:
    """`snapshot`, with other columns of some partitions: `t0={"leader": -1}`."""
    found = [{**row, **rows.get(f"{row['topic']}{row['partition']}", {})} for row in snapshot.partitions.to_pylist()]
    return snapshot_of(snapshot.brokers.to_pylist(), found)


def without(snapshot: SnapshotFolder, name: str) -> SnapshotFolder:
    """`snapshot` without a partition."""
    topic, _, number = name.rpartition("-")
    other = pc.or_(
        pc.not_equal(snapshot.partitions["topic"], topic), pc.not_equal(snapshot.partitions["partition"], int(number))
    )
    return snapshot_of(snapshot.brokers.to_pylist(), snapshot.partitions.filter(other).to_pylist())


def listed(plan: PlanFolder) -> dict[str, str]:
    return {f"{one['topic']}-{one['partition']}": one["reason"] for one in plan.proof["unplaced"]}


def document(**targets: list[int]) -> dict[str, Any]:
    """A reassignment: `t0=[2, 3]`."""
    parts = [{"topic": name[0], "partition": int(name[1:]), "replicas": ids} for name, ids in targets.items()]
    return {"reassignment": {"version": 1, "partitions": parts}}


def asked(operation: str) -> tuple[SnapshotFolder, dict[str, Any]]:
    """A cluster that the operation has work in. Broker 7 is dead and has not failed yet: it counts as draining."""
    state, options = ASKED[operation]
    held = "41 42 14" if operation in ("heal", "fill", "drain") else "12 23 13"
    snapshot = cluster(f"1 2 3 4{state} 5 7-", f"t: 12 {held} 7", f"u: 23 {held}")
    if operation == "apply":
        options = document(t0=[1, 5], t4=[5], u1=[3, 5])
    return snapshot, options


#: How a partition comes to have nothing to copy from: what its row says of it, and the reason that a plan gives.
GONE: dict[str, tuple[dict[str, Any], str]] = {
    "the only broker is dead": ({"leader": -1, "all_offline": True}, LOST),
    "its log directory has failed": ({"leader": -1, "isr": [], "offline": [7]}, LOST),
    "what is live may not lead": ({"leader": -1, "replicas": [7, 3], "isr": [7], "target_rf": 2}, NO_LEADER),
    "no replica was in sync last": ({"leader": -1, "isr": []}, NO_LEADER),
}


@pytest.mark.parametrize("operation", ASKED)
@pytest.mark.parametrize("gone", GONE)
def test_nothing_moves_what_nothing_can_be_copied_from_and_the_rest_is_planned(operation: str, gone: str) -> None:
    row, reason = GONE[gone]
    whole, options = asked(operation)
    snapshot = changed(whole, t4=row)
    plan = planned(snapshot, operation, options)
    found = check(snapshot, plan)
    assert (found.problems, found.unproven) == ([], ())
    moved = {str(each.topic_partition): (each.before, each.after) for each in plan.moves}
    assert moved
    assert "t-4" not in moved
    # It takes no part: the others get what they would get if it did not exist.
    if operation in EVEN_OPERATIONS:
        other = planned(without(snapshot, "t-4"), operation, options)
        assert moved == {str(each.topic_partition): (each.before, each.after) for each in other.moves}
        assert plan.proof["lower_bound"] == other.proof["lower_bound"]
    # A heal and a fill replace what was on failed brokers, and broker 7 is none.
    needs_nothing = operation in ("heal", "fill") and "offline" not in row
    assert listed(plan) == ({} if needs_nothing else {"t-4": reason})
    if not needs_nothing:
        hidden = plan_with(plan.digest, {**plan.proof, "unplaced": []}, plan.moves)
        assert any("t-4" in problem for problem in check(snapshot, hidden).problems)
    # And the checker refuses a plan that moves it, and the rollback of a given reassignment.
    words = {LOST: "all its replicas are lost", NO_LEADER: "it has no leader"}
    for checked in (operation, "rollback") if operation == "apply" else (operation,):
        proof = {**plan.proof, "operation": checked}
        wrong = plan_with(plan.digest, proof, [*plan.moves, move(snapshot, "t-4 5", len(plan.moves))])
        assert any(f"t-4: {words[reason]}" in problem for problem in check(snapshot, wrong).problems)


@pytest.mark.parametrize(
    ("brokers", "topic", "row", "reason"),
    [
        # Broker 7 is dead, and was not declared failed.
        ("1 2 3! 7-", "t: 37 31", {"leader": -1, "all_offline": True}, LOST),
        ("1 2 3!", "t: 31 31", {"leader": -1, "isr": [3]}, NO_LEADER),
    ],
)
def test_a_heal_leaves_what_has_no_broker_or_no_leader_to_copy_from(
    brokers: str, topic: str, row: dict[str, Any], reason: str
) -> None:
    snapshot = changed(cluster(brokers, topic), t0=row)
    plan = planned(snapshot)
    assert [str(each.topic_partition) for each in plan.moves] == ["t-1"]
    assert listed(plan) == {"t-0": reason}
    assert check(snapshot, plan).problems == []


def test_a_drained_broker_keeps_what_it_cannot_give_away_and_gives_the_rest() -> None:
    snapshot = changed(cluster("1- 2 3", "t: 1 1 12", "u: 21"), t0={"leader": -1, "all_offline": True})
    plan = planned(snapshot, "drain")
    assert {str(each.topic_partition) for each in plan.moves} == {"t-1", "t-2", "u-0"}
    assert not [each for each in plan.moves if 1 in each.after]
    assert listed(plan) == {"t-0": LOST}
    assert check(snapshot, plan).problems == []


@pytest.mark.parametrize("operation", EVEN)
@pytest.mark.parametrize(
    "options", [{"max_moves": 2}, {"max_bytes": 2000}, {"balance": "bytes"}, {"prefer": "isr-order"}]
)
@pytest.mark.parametrize("shard_rows", [30_000, 4])
def test_budgets_disks_failover_and_shards_leave_it_too(
    operation: str, options: dict[str, Any], shard_rows: int
) -> None:
    state = {"drain": "-", "expand": "+"}.get(operation, "")
    held = "1 12 13" if operation == "expand" else "4 42 43 41"
    whole = cluster(f"1 2 3 4{state} 7-", f"t: {held} 7", f"u: {held} 7 74", "v: 1 12")
    gone: dict[str, Any] = {"leader": -1, "all_offline": True, "bytes": None}
    number = len(held.split())
    rows: dict[str, dict[str, Any]] = {f"{topic}{number}": gone for topic in "tu"}
    snapshot = changed(whole, **rows, **{f"u{number + 1}": {"leader": -1, "isr": []}})
    plan = planned(snapshot, operation, options, shard_rows)
    left = {f"t-{number}": LOST, f"u-{number}": LOST, f"u-{number + 1}": NO_LEADER}
    assert listed(plan) == left
    assert plan.moves
    assert not left.keys() & {str(each.topic_partition) for each in plan.moves}
    assert check(snapshot, plan).problems == []


def test_topics_that_are_not_selected_and_partitions_in_flight_are_no_news() -> None:
    gone = {"leader": -1, "all_offline": True}
    whole = cluster("1 2 7-", "t: 12 1 7", "u: 7 7")
    snapshot = changed(whole, t2=gone, u0=gone, u1={**gone, "adding": [1], "replicas": [7, 1]})
    plan = planned(snapshot, "rebalance", {"exclude": ["t"], "pin": ["u-0"]})
    assert listed(plan) == {}
    assert {(one["partition"], one["reason"]) for one in plan.proof["pinned"]} == {(0, "pinned"), (1, "in_flight")}
    assert check(snapshot, plan).problems == []


@pytest.mark.parametrize("target", [[2], [3, 2], [7, 3]])
@pytest.mark.parametrize(
    ("row", "reason"), [({"all_offline": True}, LOST), ({"replicas": [7, 1], "isr": [7], "target_rf": 2}, NO_LEADER)]
)
def test_a_given_reassignment_leaves_it_out_and_says_so(
    tmp_path: Path, row: dict[str, Any], reason: str, target: list[int]
) -> None:
    snapshot = changed(cluster("1 2 3 7-", "t: 12 7"), t1={"leader": -1, "min_isr": 2, **row})
    asked_for = document(t0=[1, 3], t1=target)["reassignment"]
    plan = plan_apply_locally(snapshot, str(tmp_path / "plan"), asked_for, {})
    assert [(str(each.topic_partition), each.after) for each in plan.moves] == [("t-0", (1, 3))]
    assert listed(plan) == {"t-1": reason}
    assert check(snapshot, plan).problems == []


@pytest.mark.parametrize("operation", ["apply", "rollback"])
@pytest.mark.parametrize("row", [{"leader": -1, "isr": [7]}, {"leader": -1, "all_offline": True}, {"offline": [1]}, {}])
def test_a_given_order_of_the_same_replicas_is_planned_whoever_is_live(
    tmp_path: Path, row: dict[str, Any], operation: str
) -> None:
    snapshot = changed(cluster("1 2 3 7-", "t: 12 71"), t1={"min_isr": 2, **row})
    brokers = [one | {"state": "down"} if one["broker"] == 7 else one for one in snapshot.brokers.to_pylist()]
    snapshot = snapshot_of(brokers, snapshot.partitions.to_pylist())
    plan = plan_apply_locally(snapshot, str(tmp_path / "plan"), document(t1=[1, 7])["reassignment"], {})
    assert [(each.after, each.purpose) for each in plan.moves] == [((1, 7), "given")]
    assert (plan.proof["replicas_moved"], listed(plan)) == (0, {})
    given = plan_with(plan.digest, {**plan.proof, "operation": operation}, plan.moves)
    assert check(snapshot, given).problems == []
    balanced = plan_with(plan.digest, {**plan.proof, "operation": "rebalance"}, plan.moves)
    assert any("t-1: " in problem for problem in check(snapshot, balanced).problems)


def test_a_given_reassignment_of_what_moves_is_refused_also_without_a_leader(tmp_path: Path) -> None:
    snapshot = changed(cluster("1 2 7-", "t: 12 71"), t1={"leader": -1, "adding": [1]})
    with pytest.raises(PlanError, match="t-1 is already being reassigned"):
        plan_apply_locally(snapshot, str(tmp_path / "plan"), document(t1=[2])["reassignment"], {})


def test_a_given_reassignment_that_changes_nothing_of_it_has_nothing_to_leave_out(tmp_path: Path) -> None:
    snapshot = changed(cluster("1 2 3 7-", "t: 12 7"), t1={"leader": -1, "all_offline": True})
    plan = plan_apply_locally(snapshot, str(tmp_path / "plan"), document(t0=[1, 3], t1=[7])["reassignment"], {})
    assert (len(plan.moves), listed(plan)) == (1, {})


def test_a_given_reassignment_is_refused_as_before_where_a_broker_of_a_living_partition_is_dead(tmp_path: Path) -> None:
    snapshot = changed(cluster("1 2 3 7-", "t: 17 7"), t1={"leader": -1, "all_offline": True})
    with pytest.raises(PlanError, match="t-0 is refused: broker 7 is not live"):
        plan_apply_locally(snapshot, str(tmp_path / "plan"), document(t0=[7, 2])["reassignment"], {})


@pytest.mark.parametrize(("brokers", "options"), [([2, 3], {}), ([1, 2, 3], {"exclude_brokers": [3]})])
def test_no_assignment_is_generated_on_fewer_brokers_than_replicas(brokers: list[int], options: dict[str, Any]) -> None:
    with pytest.raises(
        PlanError, match=r"^The partition t-0 is to have 3 replicas, and only 2 of the brokers may hold"
    ):
        plan_topics_locally(cluster("1 2 3 4", "t: 124"), ["t"], brokers, options)


def test_generated_assignments_leave_it_out_and_the_proof_names_it() -> None:
    snapshot = changed(cluster("1 2 3 7-", "t: 12 7"), t1={"leader": -1, "all_offline": True})
    moves, proof = plan_topics_locally(snapshot, ["t"], [2, 3], {})
    assert {str(each.topic_partition) for each in moves} == {"t-0"}
    assert [(one["partition"], one["reason"]) for one in proof["unplaced"]] == [(1, LOST)]


@settings(max_examples=tried(150))
@given(st.integers(0, 100_000), st.sampled_from(list(ASKED)), OPTIONS)
def test_no_plan_of_a_random_cluster_moves_what_has_no_leader(
    seed: int, operation: str, options: dict[str, Any]
) -> None:
    dice = random.Random(seed)
    count = dice.randint(4, 8)
    states = ["live", "live", "live", "failed", "draining", "down", "new"]
    brokers = [
        {"broker": one, "rack": dice.choice([None, "a", "b"]), "state": "live" if one < 4 else dice.choice(states)}
        for one in range(count)
    ]
    rows: list[dict[str, Any]] = []
    for number in range(dice.randint(1, 12)):
        replicas = dice.sample(range(count), dice.randint(1, 3))
        row: dict[str, Any] = {"topic": dice.choice("tu"), "partition": number, "replicas": replicas, "bytes": 1000}
        row |= dice.choice([{}, {}, {"leader": -1}, {"leader": -1, "all_offline": True}])
        rows.append(row)
    if operation == "apply":
        chosen = [row for row in rows if dice.random() < 0.7] or rows[:1]
        parts = [{"topic": row["topic"], "partition": row["partition"], "replicas": [0, 1]} for row in chosen]
        options = {"reassignment": {"version": 1, "partitions": parts}}
    if operation == "set-replication-factor":
        options = {**options, "topics": sorted({row["topic"] for row in rows}), "replication_factor": 2}
    snapshot = snapshot_of(brokers, rows)
    plan = planned(snapshot, operation, options)
    assert check(snapshot, plan).problems == []
    still = {
        (row["topic"], row["partition"])
        for row in rows
        if row.get("leader") == -1 and not (operation == "apply" and sorted(row["replicas"]) == [0, 1])
    }
    assert not still & {(each.topic, each.partition) for each in plan.moves}
    assert plan.digest == digest_with_proof(plan.proof, plan.rows)


def lost(snapshot: SnapshotFolder, **offline: list[int]) -> SnapshotFolder:
    """`snapshot`, of whose partitions t-0, t-1, … these replicas are in failed log directories: `t0=[1]`."""
    rows = snapshot.partitions.to_pylist()
    for row in rows:
        row["offline"] = offline.get(f"{row['topic']}{row['partition']}")
        row["isr"] = [broker for broker in row["isr"] if broker not in (row["offline"] or ())]
    return snapshot_of(snapshot.brokers.to_pylist(), rows)


def cordoned(snapshot: SnapshotFolder, *brokers: int) -> SnapshotFolder:
    rows = [row | {"cordoned": row["broker"] in brokers or None} for row in snapshot.brokers.to_pylist()]
    return snapshot_of(rows, snapshot.partitions.to_pylist())


def disk_failed(snapshot: SnapshotFolder, *brokers: int) -> SnapshotFolder:
    rows = [row | {"disk_failed": row["broker"] in brokers or None} for row in snapshot.brokers.to_pylist()]
    return snapshot_of(rows, snapshot.partitions.to_pylist())


def after(plan: PlanFolder) -> dict[str, list[int]]:
    return {str(move.topic_partition): list(move.after) for move in plan.moves}


def test_only_what_was_in_the_failed_directory_is_replaced_and_not_on_the_same_broker() -> None:
    snapshot = lost(cluster("1a 2b 3c 4c", "t: 123 123 312"), t0=[3], t2=[3])
    plan = planned(snapshot)
    assert after(plan) == {"t-0": [1, 2, 4], "t-2": [2, 1, 4]}
    assert {move.purpose for move in plan.moves} == {"log_dir_failed"}
    assert (plan.proof["brokers_failed"], plan.proof["log_dirs_failed"]) == ([], [3])
    assert check(snapshot, plan).problems == []


@pytest.mark.parametrize("operation", ["heal", "fill", "rebalance", "drain", "expand", "set-replication-factor"])
def test_a_broker_with_a_failed_disk_receives_nothing_while_the_others_suffice(operation: str) -> None:
    """Kafka would create no replica that was in the failed directory, and does not say which those are."""
    state, options = ASKED[operation]
    others = "1 2! 3 4 5 6" if operation in {"heal", "fill"} else f"1 2{'-' if operation == 'drain' else ''} 3 4 5+ 6+"
    options = {**options, "topics": ["t"]} if "topics" in options else options
    snapshot = cluster(others, "t: 123 231 312 124 241 412" if operation != "set-replication-factor" else "t: 12 23 31")
    assert any(4 in move.adding or 6 in move.adding for move in planned(snapshot, operation, options).moves), state
    failing = disk_failed(snapshot, 4, 6)
    plan = planned(failing, operation, options)
    assert plan.moves
    assert not any(broker in move.adding for move in plan.moves for broker in (4, 6))
    assert [note for note in plan.proof["notes"] if "log directory of brokers 4 and 6 has failed" in note]
    assert check(failing, plan).problems == []


def test_the_only_broker_of_a_rack_takes_part_although_a_disk_of_it_has_failed() -> None:
    snapshot = disk_failed(cluster("1a 2b! 3a 4b 5a", "t: 12 32"), 4)
    assert after(planned(snapshot)) == {"t-0": [1, 4], "t-1": [3, 4]}


def test_a_given_target_on_a_broker_with_a_failed_disk_is_taken() -> None:
    snapshot = disk_failed(cluster("1 2 3 4", "t: 12"), 4)
    wanted = {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 4]}]}
    plan = planned(snapshot, "apply", {"reassignment": wanted})
    assert after(plan) == {"t-0": [1, 4]}
    assert check(snapshot, plan).problems == []


def test_a_broker_with_a_failed_disk_goes_on_receiving_what_others_lost() -> None:
    snapshot = lost(cluster("1 2! 3", "t: 12 13"), t1=[3])
    plan = planned(snapshot)
    assert after(plan) == {"t-0": [1, 3]}  # and t-1 has nowhere to go: 3 is lost to it, 2 is dead
    assert [(left["partition"], left["reason"]) for left in plan.proof["unplaced"]] == [(1, "too_few_brokers")]
    assert check(snapshot, plan).problems == []


def test_the_only_copy_of_a_partition_is_not_thrown_away() -> None:
    snapshot = lost(cluster("1 2 3", "t: 1 12"), t0=[1])
    plan = planned(snapshot)
    assert plan.moves == []
    assert [(left["partition"], left["reason"]) for left in plan.proof["unplaced"]] == [(0, "all_replicas_lost")]
    assert check(snapshot, plan).problems == []


@pytest.mark.parametrize(
    ("target", "word"),
    [
        ((1, 2, 3), "it changes nothing"),
        ((2, 1, 3), "keeps a replica in a failed log directory"),
        ((1, 4), "its target has 2 replicas; 3 are due"),
    ],
)
def test_the_checker_refuses_a_plan_that_keeps_what_is_lost(target: tuple[int, ...], word: str) -> None:
    snapshot = lost(cluster("1a 2b 3c 4c", "t: 123"), t0=[3])
    move = Move("t", 0, (1, 2, 3), target, 0, 0, "log_dir_failed", None, 1000)
    assert word in " ".join(check(snapshot, other(planned(snapshot), move)).problems)


def other(plan: PlanFolder, move: Move) -> PlanFolder:
    return plan_with(plan.digest, plan.proof, [move])


@settings(max_examples=tried(120))
@given(st.integers(0, 10_000))
def test_every_plan_of_lost_disks_checks_and_adds_one_replica_for_each_that_is_lost(seed: int) -> None:
    dice = random.Random(seed)
    count = dice.randint(4, 8)
    brokers = [
        {"broker": n, "rack": dice.choice([None, "a", "b", "c"]), "state": "failed" if dice.random() < 0.15 else "live"}
        for n in range(count)
    ]
    brokers[0]["state"] = "live"
    rows: list[dict[str, Any]] = []
    for number in range(dice.randint(1, 12)):
        replicas = dice.sample(range(count), dice.randint(1, 3))
        broken = [b for b in replicas if brokers[b]["state"] == "live" and dice.random() < 0.3]
        rows.append({"topic": dice.choice("tu"), "partition": number, "replicas": replicas, "offline": broken or None})
    snapshot = snapshot_of(brokers, rows)
    plan = planned(snapshot)
    assert check(snapshot, plan).problems == []
    gone = {b["broker"] for b in brokers if b["state"] == "failed"}
    by_name = {(row["topic"], row["partition"]): row for row in rows}
    for each in plan.moves:
        row = by_name[each.topic, each.partition]
        dead = gone.intersection(row["replicas"]) | set(row["offline"] or ())
        assert each.removing == dead
        assert not each.adding & dead
        assert len(each.after) == len(each.before)


@pytest.mark.parametrize("operation", ["heal", "rebalance", "drain", "expand"])
def test_a_cordoned_broker_keeps_what_it_has_and_receives_nothing(operation: str) -> None:
    state = {"heal": "2!", "drain": "2-"}.get(operation, "2")
    new = "6+" if operation == "expand" else "6"
    snapshot = cordoned(cluster(f"1 {state} 3 4 5 {new}", "t: 12 23 31 24 42 41"), 4, 6)
    plan = planned(snapshot, operation)
    assert plan.moves
    assert plan.proof["options"]["exclude_brokers"] == [4, 6]
    assert not {4, 6} & {broker for move in plan.moves for broker in move.adding}
    if operation == "heal":
        assert not {4, 6} & {broker for move in plan.moves for broker in move.removing}
    assert check(snapshot, plan).problems == []


def test_the_checker_knows_who_is_cordoned_whatever_the_options_say() -> None:
    whole = cluster("1 2! 3 4", "t: 12")
    plan = planned(whole)
    (move,) = plan.moves
    (taker,) = move.adding
    barred = cordoned(whole, taker)
    problems = " ".join(check(barred, plan).problems)
    assert f"broker {taker} may not receive a replica: it is cordoned or excluded" in problems


def test_exclusions_and_cordons_add_up() -> None:
    options = Options.of(find_operation("heal"), {"exclude_brokers": [7, 2]})
    assert options.with_excluded([3, 2]).exclude_brokers == (2, 3, 7)
    assert options.with_excluded([]) is options


def test_what_a_snapshot_says_of_disks_and_cordons_is_in_its_digest() -> None:
    snapshot = cluster("1 2", "t: 12")
    assert lost(snapshot, t0=[1]).digest != snapshot.digest != cordoned(snapshot, 2).digest
    assert cordoned_brokers(cordoned(snapshot, 2).brokers) == [2]
    assert brokers_with_lost_replicas(lost(snapshot, t0=[2]).partitions) == [2]
    gone = changed(snapshot, t0={"all_offline": True})
    assert gone.digest != snapshot.digest
    assert brokers_with_lost_replicas(gone.partitions) == []
