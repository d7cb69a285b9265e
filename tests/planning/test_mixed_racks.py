"""Racks where some brokers have none: those collide with nobody, and a rebalance spreads no partition worse."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from kafka_steward.planning.checker.check import check
from kafka_steward.planning.files.formats import PlanFolder, SnapshotFolder
from tests.builders import cluster, plan_with, planned, snapshot_of
from tests.planning.integer_solver import carried_out
from tests.rings import tried
from tests.strategies import clusters

MIXED = "1a 2b 3a 4b 5"
SPREAD = " ".join(["125", "345", "145", "325", "215", "435", "235", "415", "125", "345"])


def crowded(snapshot: SnapshotFolder, plan: PlanFolder | None = None) -> dict[tuple[str, int], int]:
    """How many replicas of each partition share a named rack with another, before the plan or after it."""
    rack = {row["broker"]: row["rack"] for row in snapshot.brokers.to_pylist()}
    new = {(move.topic, move.partition): move.after for move in plan.moves} if plan else {}
    found = {}
    for row in snapshot.partitions.to_pylist():
        name = (row["topic"], row["partition"])
        held = Counter(rack[one] for one in new.get(name, row["replicas"]) if rack[one] is not None)
        found[name] = sum(count - 1 for count in held.values())
    return found


@pytest.mark.parametrize("rackless", ["free", "own-rack"])
@pytest.mark.parametrize("balance", ["replicas", "bytes"])
def test_what_only_a_broker_without_a_rack_keeps_apart_stays_there(rackless: str, balance: str) -> None:
    snapshot = cluster(MIXED, f"t: {SPREAD}")
    plan = planned(snapshot, "rebalance", {"rackless": rackless, "balance": balance})
    assert plan.proof["replicas_moved"] == 0
    assert plan.proof["rack_violations"] == {"before": 0, "after": 0}
    assert check(snapshot, plan).problems == []
    if balance == "replicas":
        assert check(snapshot, plan).unproven == ()


@pytest.mark.parametrize(
    ("brokers", "replicas", "violations"),
    [
        ("1a 2b 3a 4 5", "452", 0),
        ("1a 2b 3a 4 5", "315", 1),
        ("1a 2b 3a 4b 5", "315", 1),
        ("1a 2b 3a 4b", "312", 0),
        ("1a 2b 3a 4b 5", "312", 1),
        ("1a 2b 3c 4", "124", 0),
    ],
)
@pytest.mark.parametrize("rackless", ["free", "own-rack"])
def test_a_violation_is_a_rack_that_holds_two_and_need_not(
    brokers: str, replicas: str, violations: int, rackless: str
) -> None:
    snapshot = cluster(brokers, f"t: {replicas}")
    proof = planned(snapshot, "rebalance", {"rackless": rackless, "pin": ["t-0"]}).proof
    assert proof["rack_violations"] == {"before": violations, "after": violations}


def test_as_racks_of_their_own_they_repair_all_and_hold_more() -> None:
    snapshot = cluster(MIXED, "t: 132 132 132 241")
    free, own = (planned(snapshot, "rebalance", {"rackless": word}) for word in ("free", "own-rack"))
    assert free.proof["rack_violations"] == {"before": 4, "after": 4}
    assert own.proof["rack_violations"] == {"before": 4, "after": 0}
    held = [plan.proof["spread"]["replicas"]["after"]["by_broker"]["5"] for plan in (free, own)]
    assert held == [2, 4]
    assert free.proof["replicas_moved"] < own.proof["replicas_moved"]


def test_a_move_that_spreads_a_partition_worse_is_refused() -> None:
    snapshot = cluster(MIXED, f"t: {SPREAD}")
    other = cluster(MIXED, f"t: {SPREAD.replace('125', '123', 1)}")
    plan = planned(other, "apply", {"reassignment": {"partitions": [_entry([1, 2, 5])]}})
    move = plan.moves[0]
    back = [type(move)(**{**_fields(move), "before": (1, 2, 5), "after": (1, 2, 3), "purpose": "balance"})]
    even = planned(snapshot, "rebalance")
    counts = {"replicas_moved": 1, "lower_bound": 0, "bytes_moved": 1000, "leader_changes": 0}
    proof = {**even.proof, **counts, "leader_evenness": None, "spread": {}}
    problems = check(snapshot, plan_with(even.digest, proof, back)).problems
    assert "1 partitions are not spread over the racks as they could be." in problems


def _entry(replicas: list[int]) -> dict[str, Any]:
    return {"topic": "t", "partition": 0, "replicas": replicas}


def _fields(move: Any) -> dict[str, Any]:
    return {name: getattr(move, name) for name in type(move).__dataclass_fields__}


def test_the_largest_factor_is_that_of_the_snapshot() -> None:
    snapshot = cluster(MIXED, f"t: {SPREAD}", "u: 12")
    plan = planned(snapshot, "rebalance")
    assert plan.proof["largest_factor"] == 3
    for claimed in (2, 4):
        problems = check(
            snapshot, plan_with(plan.digest, {**plan.proof, "largest_factor": claimed}, plan.moves)
        ).problems
        assert f"The proof says largest_factor = {claimed}; the snapshot says 3." in problems


@settings(deadline=None, max_examples=tried(80, least=27), suppress_health_check=[HealthCheck.too_slow])
@given(clusters(states=("live", "live", "new")))
def test_no_partition_is_spread_worse(snapshot: SnapshotFolder) -> None:
    # Each partition takes part: none is in flight, and none is without a leader.
    rows = [
        {**row, "target_rf": len(row["replicas"]), "adding": None, "leader": row["replicas"][0]}
        for row in snapshot.partitions.to_pylist()
    ]
    snapshot = snapshot_of(snapshot.brokers.to_pylist(), rows)
    before = crowded(snapshot)
    for options in ({}, {"balance": "bytes"}, {"max_moves": 2}, {"exclude_brokers": [10]}):
        plan = planned(snapshot, "rebalance", options)
        after = crowded(snapshot, plan)
        assert all(after[name] <= before[name] for name in before), options
        assert check(snapshot, plan).problems == []
        violations = plan.proof["rack_violations"]
        assert violations["after"] <= violations["before"]
        if not options:
            assert planned(carried_out(snapshot, plan), "rebalance").moves == []
