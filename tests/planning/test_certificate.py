"""The proof without a solver: quick and exact pictures agree, worse plans are never proven, whatever the prices."""

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kafka_steward.assignment import Move
from kafka_steward.planning.checker import certificate
from kafka_steward.planning.checker.certificate import (
    exact_exchanges,
    find_prices,
    pooled_exchanges,
    unproven_topics,
)
from kafka_steward.planning.checker.check import check, touchable_partitions
from kafka_steward.planning.checker.constraints import PlacementOutcome, build_outcome
from kafka_steward.planning.checker.rules import build_context
from kafka_steward.planning.files.formats import PlanFolder, SnapshotFolder, plan_table
from kafka_steward.planning.solver.problem import Ints
from tests.builders import cluster, plan_with, planned, snapshot_of
from tests.planning.integer_solver import MIB, random_plan
from tests.planning.outcomes import price_objections
from tests.rings import tried


def outcome_after(snapshot: SnapshotFolder, plan: PlanFolder) -> PlacementOutcome:
    options = plan.proof["options"]
    context = build_context(snapshot.brokers, snapshot.partitions, {"options": options})
    touched = touchable_partitions(context, snapshot.partitions)
    return build_outcome(snapshot.brokers, touched, plan_table(plan.moves), options)


def open_by_pairs(outcome: PlacementOutcome, price: Ints) -> list[str]:
    """The topics that are open in the picture that forgets nothing."""
    every = np.arange(len(outcome.topics))
    worse = certificate._improvable_topics(outcome, exact_exchanges(outcome), every, price.astype(np.int32))
    return [outcome.topics[topic] for topic in np.flatnonzero(worse)]


def test_pooled_exchanges_prove_nothing_that_exact_exchanges_do_not() -> None:
    dice, seen = random.Random(5), 0
    for seed in range(tried(120)):
        outcome = outcome_after(*random_plan(seed))
        # A random placement besides the planned one: most of its topics are open.
        mixed = replace(outcome, placed=np.roll(outcome.placed, dice.randrange(3), axis=1))
        for one in (outcome, mixed):
            price = np.array([dice.randint(-2, 2) for _ in one.constraints.ids])
            assert unproven_topics(one, price) == open_by_pairs(one, price)
            seen += len(one.topics)
    assert seen > 2.5 * tried(120)


@pytest.mark.parametrize("prices", [{}, {"1": 5, "2": -3, "3": 0, "4": 7}, {"1": 1 << 30}, {"1": "x"}, {"9": 0}])
def test_wrong_prices_prove_nothing_and_missing_prices_are_recomputed(prices: dict[str, object]) -> None:
    snapshot = cluster("1 2 3 4+", "t: 12 23 31 12 23 31 12")
    plan = planned(snapshot, "expand")
    verdict = check(snapshot, plan_with(plan.digest, {**plan.proof, "prices": prices}, plan.moves))
    assert verdict.problems == []
    # Prices for all brokers are taken at their word and found wanting; anything else is as good as none.
    assert bool(verdict.unproven) == (len(prices) == 4)


def test_prices_found_by_pooled_exchanges_prove_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificate, "_FEW_CELLS", 0)
    found = 0
    for seed in range(tried(60)):
        outcome = outcome_after(*random_plan(seed))
        quick = certificate._prices_from_exchanges(outcome, pooled_exchanges(outcome))
        found += quick is not None
        prices = find_prices(outcome)
        assert prices is not None
        assert price_objections(outcome, prices) == []
    assert found >= tried(60) * 5 / 6


def _exchanges(snapshot: SnapshotFolder, plan: PlanFolder) -> Iterator[list[Move]]:
    """The plan, with a broker exchanged between a partition that moves and one that does not: as even as before."""
    moved = {move.partition for move in plan.moves}
    for one in plan.moves:
        for number in sorted(set(range(len(snapshot.partitions))) - moved):
            before = tuple(snapshot.partitions["replicas"][number].as_py())
            for home, leaves in itertools.product(set(one.after) - set(before), set(before) - set(one.after)):
                first = replace(one, after=tuple(leaves if broker == home else broker for broker in one.after))
                after = tuple(home if broker == leaves else broker for broker in before)
                second = replace(one, partition=number, before=before, after=after)
                yield [first if move is one else move for move in plan.moves] + [second]


def test_a_worse_plan_with_any_prices_is_valid_and_not_proven() -> None:
    snapshot = cluster("1 2 3 4+", "t: 12 23 31 12 23 31 12 23")
    plan = planned(snapshot, "expand")
    least = plan.proof["replicas_moved"]
    moves = next(moves for moves in _exchanges(snapshot, plan) if sum(len(each.adding) for each in moves) > least)
    moves = [replace(move, chunk=0, position=at) for at, move in enumerate(moves)]
    counts: dict[str, Any] = {
        "replicas_moved": sum(len(move.adding) for move in moves),
        "bytes_moved": sum(len(move.adding) * 1000 for move in moves),
        "leader_changes": sum(move.before[0] != move.after[0] for move in moves),
        # What it says of leaders and order is another matter.
        "leader_evenness": None,
        "spread": {},
    }
    dice = random.Random(2)
    guesses = [plan.proof["prices"], {}, *({str(b): dice.randint(-9, 9) for b in (1, 2, 3, 4)} for _ in range(50))]
    for prices in guesses:
        verdict = check(snapshot, plan_with(plan.digest, {**plan.proof, **counts, "prices": prices}, moves))
        assert [problem for problem in verdict.problems if "how even leaders are" not in problem] == []
        assert verdict.unproven


def test_a_plan_of_bytes_is_checked_for_room_and_its_bound_is_stated() -> None:
    brokers = [{"broker": one, "state": "live", "usable_bytes": 40 * MIB} for one in (1, 2, 3)]
    rows = [{"topic": "t", "partition": at, "replicas": [1], "bytes": MIB} for at in range(60)]
    snapshot = snapshot_of(brokers, rows)
    plan = planned(snapshot, "rebalance", {"balance": "bytes"})
    verdict = check(snapshot, plan)
    assert (verdict.problems, verdict.unproven) == ([], ())
    brokers[1]["usable_bytes"] = MIB
    tight = snapshot_of(brokers, rows)
    proof = {**plan.proof, "snapshot_digest": tight.digest}
    problems = check(tight, plan_with(plan.digest, proof, plan.moves)).problems
    assert len(problems) == 1
    assert problems[0].endswith("bytes and has room for 1048576.")


def test_within_a_budget_whatever_moves_ends_up_right() -> None:
    snapshot = cluster("1a 2b 3c 4a+", "t: " + " ".join(["12", "23", "31"] * 6), "u: 14 21")
    plan = planned(snapshot, "rebalance", {"max_moves": 3})
    assert check(snapshot, plan).problems == []
    assert "that no other leaves less to do is not proven" in check(snapshot, plan).unproven[0]
    move = next(move for move in plan.moves if 4 in move.adding)
    # Both are on rack a.
    wrong = replace(move, after=(1, 4))
    moves = [wrong if one is move else one for one in plan.moves]
    verdict = check(snapshot, plan_with(plan.digest, plan.proof, moves))
    assert any("ends up on the wrong racks" in problem for problem in verdict.problems)
    beyond = {**plan.proof, "options": {**plan.proof["options"], "max_moves": 2}}
    assert "beyond max_moves = 2" in " ".join(check(snapshot, plan_with(plan.digest, beyond, plan.moves)).problems)
    roomy = planned(snapshot, "rebalance", {"max_moves": 1000})
    assert (check(snapshot, roomy).problems, check(snapshot, roomy).unproven) == ([], ())
