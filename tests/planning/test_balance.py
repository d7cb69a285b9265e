"""Rebalance, expand and drain: even, spread over the racks, minimal, and proven so by one price per broker."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from kafka_steward.errors import PlanError
from kafka_steward.planning.checker.certificate import find_prices, topic_violations
from kafka_steward.planning.checker.check import check
from kafka_steward.planning.checker.constraints import PlacementOutcome, build_outcome
from kafka_steward.planning.files.formats import SnapshotFolder, plan_table
from tests.builders import cluster, plan_with, planned
from tests.planning.integer_solver import random_plan
from tests.planning.outcomes import bound_violations, price_objections, replicas_moved
from tests.planning.test_heal import given_instances, snapshot_of_instance
from tests.rings import tried
from tests.strategies import OPTIONS, clusters

SLOW = settings(deadline=None, max_examples=tried(50), suppress_health_check=[HealthCheck.too_slow])


def test_a_new_broker_gets_its_share_and_nothing_else_moves() -> None:
    plan = planned(cluster("1 2 3 4+", "t: 12 23 31 12 23 31 12 23"), "expand")
    assert plan.proof["replicas_moved"] == plan.proof["lower_bound"] == 4
    assert plan.proof["spread"]["replicas"]["after"]["by_broker"] == {"1": 4, "2": 4, "3": 4, "4": 4}
    assert {move.purpose for move in plan.moves if move.adding} == {"balance"}


def test_a_draining_broker_ends_up_empty() -> None:
    plan = planned(cluster("1a 2b 3c 4a-", "t: 124 431 234"), "drain")
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


def test_partitions_wanting_more_replicas_than_there_are_brokers_are_refused() -> None:
    with pytest.raises(PlanError, match="t-0 is to have 3 replicas, and only 2 brokers may hold one"):
        planned(cluster("1 2 3-", "t: 123"), "drain")


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
@given(clusters(states=("live", "live", "new", "draining", "failed")), OPTIONS)
def test_every_plan_is_valid_even_and_proven(snapshot: SnapshotFolder, options: dict[str, Any]) -> None:
    usable = sum(state in ("live", "new") for state in snapshot.brokers["state"].to_pylist())
    if max(snapshot.partitions["target_rf"].to_pylist()) > usable:
        return
    plan = planned(snapshot, "rebalance", options)
    verdict = check(snapshot, plan)
    assert (verdict.problems, verdict.unproven) == ([], ())
    assert plan.proof["gap"] == 0


@pytest.mark.parametrize("instance", given_instances("rebalance", "expand", "drain"))
def test_given_instances_are_proven(instance: dict[str, Any]) -> None:
    snapshot = snapshot_of_instance(instance)
    verdict = check(snapshot, planned(snapshot, instance["operation"], {"rackless": "own-rack"}))
    assert (verdict.problems, verdict.unproven) == ([], ())


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


@pytest.mark.parametrize("cases", [80, pytest.param(400, marks=pytest.mark.ci)])
def test_worse_plans_are_never_certified_whatever_the_prices(cases: int) -> None:
    judged = 0
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
