"""Rebalance, expand and drain: even, spread over the racks, minimal, and proven so by one price per broker."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from kafka_steward.planning.checker.certificate import find_prices, topic_violations
from kafka_steward.planning.checker.check import check
from kafka_steward.planning.checker.constraints import PlacementOutcome, build_outcome
from kafka_steward.planning.files.formats import PlanFolder, SnapshotFolder, plan_table
from kafka_steward.planning.shards import SHARD_ROWS
from tests.builders import EVEN, cluster, plan_with, planned, snapshot_of
from tests.planning.integer_solver import carried_out, random_plan
from tests.planning.outcomes import bound_violations, price_objections, replicas_moved
from tests.rings import tried
from tests.strategies import OPTIONS, clusters

SLOW = settings(deadline=None, max_examples=tried(50), suppress_health_check=[HealthCheck.too_slow])


def test_a_new_broker_gets_its_share_and_nothing_else_moves() -> None:
    plan = planned(cluster("1 2 3 4+", "t: 12 23 31 12 23 31 12 23"), "expand")
    assert plan.proof["replicas_moved"] == plan.proof["lower_bound"] == 4
    assert plan.proof["spread"]["replicas"]["after"]["by_broker"] == {"1": 4, "2": 4, "3": 4, "4": 4}
    assert {move.purpose for move in plan.moves if move.adding} == {"balance"}


def test_a_draining_broker_ends_up_empty() -> None:
    plan = planned(cluster("1a 2b 3c 4a-", "t: 124 431 234"), "drain", EVEN)
    assert plan.proof["spread"]["replicas"]["after"]["by_broker"]["4"] == 0
    assert {move.purpose for move in plan.moves if move.adding} <= {"broker_draining", "rack_spread"}


def test_of_two_plans_with_as_few_moves_the_one_with_fewer_bytes_is_taken() -> None:
    snapshot = cluster("1 2+", "t: 1 1 1 1")
    sizes = snapshot.partitions.set_column(
        snapshot.partitions.column_names.index("bytes"), "bytes", [[9 << 20, 1 << 20, 7 << 20, 2 << 20]]
    )
    plan = planned(replace(snapshot, partitions=sizes), "rebalance")
    assert sorted(move.partition for move in plan.moves) == [1, 3]
    assert plan.proof["bytes_moved"] == 3 << 20


def test_excluded_brokers_receive_nothing_and_the_others_come_nearest() -> None:
    snapshot = cluster("1a 2b 3c 4a+", "t: 12 23 31 12 23 31")
    plan = planned(snapshot, "rebalance", {"exclude_brokers": [3]})
    assert not any(3 in move.adding for move in plan.moves)
    assert plan.proof["spread"]["replicas"]["after"]["by_broker"] == {"1": 3, "2": 3, "3": 3, "4": 3}
    emptier = cluster("1a 2b 3c", "t: 12 12 12")
    assert planned(emptier, "rebalance", {"exclude_brokers": [3]}).proof["replicas_moved"] == 0


def test_excluded_and_internal_topics_take_no_part_unless_asked() -> None:
    snapshot = cluster("1 2 3+", "t: 12 12 12", "__consumer_offsets: 12 12 12", "keep.this: 12 12 12")
    for options, topics in (
        ({"exclude": ["keep.*"]}, {"t"}),
        ({"include": ["t", "__.*"], "internal_topics": True}, {"t", "__consumer_offsets"}),
    ):
        plan = planned(snapshot, "expand", options)
        assert {move.topic for move in plan.moves} == topics
        assert (check(snapshot, plan).problems, check(snapshot, plan).unproven) == ([], ())
        assert plan.proof["pinned"] == []


@pytest.mark.parametrize("operation", ["rebalance", "expand", "drain"])
@pytest.mark.parametrize("shard_rows", [SHARD_ROWS, 2])
def test_partitions_of_more_replicas_than_brokers_are_left_named_and_in_nobodys_way(
    operation: str, shard_rows: int
) -> None:
    snapshot = cluster("1 2 3- 4", "t: 123 1234", "u: 12 12 13", "v: 12 12", "w: 12 12")
    options = {"exclude_brokers": [4], "pin": ["t-1"], **EVEN}
    plan = planned(snapshot, operation, options, shard_rows)
    assert plan.proof["unplaced"] == [{"topic": "t", "partition": 0, "reason": "too_few_brokers"}]
    assert {move.topic for move in plan.moves} >= {"u"}
    assert "t" not in {move.topic for move in plan.moves}
    assert check(snapshot, plan).problems == []
    silent = type(plan)(plan.digest, {**plan.proof, "unplaced": []}, plan.rows)
    assert check(snapshot, silent).problems == [
        "t-0 has 3 replicas, not its target number, and is neither in the plan nor listed."
    ]


@pytest.mark.parametrize("operation", ["rebalance", "drain"])
@pytest.mark.parametrize("shard_rows", [SHARD_ROWS, 2])
def test_a_partition_with_a_replica_out_of_sync_is_left_and_named_unless_that_replica_goes(
    operation: str, shard_rows: int
) -> None:
    snapshot = cluster("1 2 3- 4 5!", "t: 12/1 13/1 15/1", "u: 12 12 12 12", "v: 12/1")
    plan = planned(snapshot, operation, EVEN, shard_rows)
    assert plan.proof["pinned"] == [{"topic": topic, "partition": 0, "reason": "out_of_sync"} for topic in "tv"]
    moved = {str(move.topic_partition) for move in plan.moves}
    assert moved > {"t-1", "t-2"}
    assert not moved & {"t-0", "v-0"}
    assert (check(snapshot, plan).problems, check(snapshot, plan).unproven) == ([], ())
    by_bytes = planned(snapshot, operation, {"balance": "bytes", "tolerance": 0.01}, shard_rows)
    assert not {"t-0", "v-0"} & {str(move.topic_partition) for move in by_bytes.moves}
    crowded = cluster("1a 2a 3b", "t: 12/1 12")
    for_racks = planned(crowded, "rebalance", {"balance": "racks"}, shard_rows)
    assert ([move.partition for move in for_racks.moves], check(crowded, for_racks).problems) == ([1], [])


def test_a_drain_takes_internal_topics_along() -> None:
    snapshot = cluster("1 2 3-", "__consumer_offsets: 32")
    plan = planned(snapshot, "drain")
    assert plan.moves[0].after == (2, 1)
    assert check(snapshot, plan).ok


def test_takeover_is_spread_over_the_brokers() -> None:
    plan = planned(cluster("1 2 3 4", "t: " + " ".join(["1234"] * 12)), "rebalance")
    assert plan.proof["spread"]["next_in_line_most"]["after"] == 1
    assert plan.proof["replicas_moved"] == 0


@SLOW
@given(clusters(states=("live", "live", "new", "draining", "down", "failed")), OPTIONS)
def test_every_plan_is_valid_even_and_proven(snapshot: SnapshotFolder, options: dict[str, Any]) -> None:
    usable = sum(state in ("live", "new") for state in snapshot.brokers["state"].to_pylist())
    if max(snapshot.partitions["target_rf"].to_pylist()) > usable:
        return
    plan = planned(snapshot, "rebalance", options)
    verdict = check(snapshot, plan)
    assert (verdict.problems, verdict.unproven) == ([], ())
    assert plan.proof["gap"] == 0


def worse_outcome(outcome: PlacementOutcome, dice: random.Random) -> PlacementOutcome | None:
    """A valid position that needs one move more, found by trying; None if there is none near."""
    order = [(row, to) for row in range(len(outcome.topic)) for to in np.flatnonzero(~outcome.placed[row])]
    dice.shuffle(order)
    swaps = [(row, back, to) for row, to in order for back in np.flatnonzero(outcome.placed[row])]
    for row, back, to in swaps[:40]:
        for other, again, home in swaps[:40]:
            placed = outcome.placed.copy()
            placed[row, back], placed[row, to] = False, True
            if placed[other, again] and not placed[other, home] and (again, home) == (to, back):
                placed[other, again], placed[other, home] = False, True
            changed = replace(outcome, placed=placed)
            if replicas_moved(changed) > replicas_moved(outcome) and _fits(changed):
                return changed
    return None


def _fits(outcome: PlacementOutcome) -> bool:
    """Whether nothing is misplaced, by the bounds that the position brings along: the checker counts them anew."""
    (low, high), total = outcome.broker_bounds, outcome.placed.sum(axis=0)
    return bool(((low <= total) & (total <= high)).all()) and not topic_violations(outcome)


def test_worse_plans_are_never_certified_whatever_the_prices() -> None:
    judged, cases = 0, tried(400)
    for seed in range(cases):
        snapshot, plan = random_plan(seed)
        dice = random.Random(seed)
        lost = {(one["topic"], one["partition"]) for one in plan.proof["unplaced"]}
        names = zip(*(snapshot.partitions[name].to_pylist() for name in ("topic", "partition")), strict=True)
        touched = snapshot.partitions.filter([name not in lost for name in names])
        outcome = build_outcome(snapshot.brokers, touched, plan_table(plan.moves), plan.proof["options"])
        worse = worse_outcome(outcome, dice)
        if worse is None:
            continue
        judged += 1
        assert bound_violations(worse) == []
        good = find_prices(outcome)
        assert good is not None
        assert price_objections(outcome, good) == []
        assert find_prices(worse) is None
        # Often all prices are 0, and one guess does for three.
        guesses = {tuple(guess) for guess in (good, good * 0, -good, [dice.randint(-3, 3) for _ in good])}
        assert all(price_objections(worse, np.array(prices)) for prices in guesses)
    assert judged >= cases / 2


def test_an_uneven_plan_is_no_valid_plan() -> None:
    snapshot = cluster("1 2 3 4+", "t: 12 23 31 12 23 31 12 23")
    plan = planned(snapshot, "expand")
    moves = [move for move in plan.moves if move.adding][1:]
    moves = [replace(move, chunk=0, position=at) for at, move in enumerate(moves)]
    counts = {
        "replicas_moved": len(moves),
        "lower_bound": len(moves),
        "bytes_moved": 1000 * len(moves),
        "leader_changes": sum(move.before[0] != move.after[0] for move in moves),
    }
    verdict = check(snapshot, plan_with(plan.digest, {**plan.proof, **counts}, moves))
    assert "The topic t is not even." in verdict.problems


MIXED = "1a 2b 3a 4b 5"
SPREAD = " ".join(["125", "345", "145", "325", "215", "435", "235", "415", "125", "345"])


def crowded(
    snapshot: SnapshotFolder, plan: PlanFolder | None = None, *, excluded: Collection[int] = ()
) -> dict[tuple[str, int], int]:
    """How many replicas of each partition are in a named rack beyond its share, before the plan or after it."""
    rack = {row["broker"]: row["rack"] for row in snapshot.brokers.to_pylist()}
    racks = len({name for broker, name in rack.items() if name is not None and broker not in excluded}) or 1
    new = {(move.topic, move.partition): move.after for move in plan.moves} if plan else {}
    found = {}
    for row in snapshot.partitions.to_pylist():
        name = (row["topic"], row["partition"])
        held = Counter(rack[one] for one in new.get(name, row["replicas"]) if rack[one] is not None)
        found[name] = sum(max(0, count - math.ceil(len(row["replicas"]) / racks)) for count in held.values())
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
    assert "1 partition is not spread over the racks as could be." in problems


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


@settings(deadline=None, max_examples=tried(80), suppress_health_check=[HealthCheck.too_slow])
@given(clusters(states=("live", "live", "new")))
def test_no_partition_is_spread_worse(snapshot: SnapshotFolder) -> None:
    # Each partition takes part: none is in flight, and none is without a leader.
    rows = [
        {**row, "target_rf": len(row["replicas"]), "adding": None, "leader": row["replicas"][0]}
        for row in snapshot.partitions.to_pylist()
    ]
    snapshot = snapshot_of(snapshot.brokers.to_pylist(), rows)
    choices: tuple[dict[str, Any], ...] = ({}, {"balance": "bytes"}, {"max_moves": 2}, {"exclude_brokers": [10]})
    for options in choices:
        plan, excluded = planned(snapshot, "rebalance", options), options.get("exclude_brokers", ())
        before, after = (crowded(snapshot, each, excluded=excluded) for each in (None, plan))
        assert all(after[name] <= before[name] for name in before), options
        assert check(snapshot, plan).problems == []
        violations = plan.proof["rack_violations"]
        assert violations["after"] <= violations["before"]
        if not options:
            assert planned(carried_out(snapshot, plan), "rebalance").moves == []
