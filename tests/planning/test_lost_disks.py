"""Heals of failed log directories of live brokers, and cordoned brokers: who gives, who gets, what the checker sees."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_steward.assignment import Move
from kafka_steward.planning.checker.check import check
from kafka_steward.planning.files.formats import (
    PlanFolder,
    SnapshotFolder,
    brokers_with_lost_replicas,
    cordoned_brokers,
)
from kafka_steward.planning.files.options import Options, find_operation
from tests.builders import cluster, plan_with, planned, snapshot_of
from tests.rings import tried


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


def after(plan: PlanFolder) -> dict[str, list[int]]:
    return {str(move.topic_partition): list(move.after) for move in plan.moves}


def test_only_what_was_in_the_failed_directory_is_replaced_and_not_on_the_same_broker() -> None:
    snapshot = lost(cluster("1a 2b 3c 4c", "t: 123 123 312"), t0=[3], t2=[3])
    plan = planned(snapshot)
    assert after(plan) == {"t-0": [1, 2, 4], "t-2": [2, 1, 4]}
    assert {move.purpose for move in plan.moves} == {"log_dir_failed"}
    assert (plan.proof["brokers_failed"], plan.proof["log_dirs_failed"]) == ([], [3])
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
    for move in plan.moves:
        row = by_name[move.topic, move.partition]
        dead = gone.intersection(row["replicas"]) | set(row["offline"] or ())
        assert move.removing == dead
        assert not move.adding & dead
        assert len(move.after) == len(move.before)


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
