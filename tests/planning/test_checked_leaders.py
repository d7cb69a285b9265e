"""The checker counts leaders and pairs next in line by itself, and believes no proof that says otherwise."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from kafka_steward.assignment import Move
from kafka_steward.planning.checker.check import check
from kafka_steward.planning.checker.leaders import LeaderCounts, LeftExchanges
from kafka_steward.planning.files.formats import PlanFolder, SnapshotFolder
from tests.builders import cluster, plan_with, planned
from tests.planning.integer_solver import random_plan
from tests.rings import tried

RING = cluster("1 2 3 4", "t: " + " ".join(["12 23 34 41"] * 3), "u: 12 23 34 41")


def with_order(plan: PlanFolder, after: Mapping[tuple[str, int], tuple[int, ...]]) -> PlanFolder:
    """The plan with other orders of some partitions' replicas, and the number of leader changes to match."""
    moves: list[Move] = [
        replace(move, after=after.get((move.topic, move.partition), move.after)) for move in plan.moves
    ]
    changes = sum(move.before[0] != move.after[0] for move in moves)
    return plan_with(plan.digest, {**plan.proof, "leader_changes": changes}, moves)


def told(plan: PlanFolder, *path: str, value: Any) -> PlanFolder:
    """The plan with another value at a path of its proof's `spread`."""
    proof = copy.deepcopy(dict(plan.proof))
    found = proof["spread"]
    for name in path[:-1]:
        found = found[name]
    found[path[-1]] = value
    return plan_with(plan.digest, proof, plan.moves)


def expanded() -> tuple[SnapshotFolder, PlanFolder]:
    snapshot = cluster("1 2 3 4+", "t: 12 23 31 12 23 31 12 23")
    return snapshot, planned(snapshot, "expand")


def test_a_plan_with_other_leaders_than_it_says_is_refused() -> None:
    snapshot, plan = expanded()
    assert check(snapshot, plan).ok
    moves = {(move.topic, move.partition): (*move.after[1:], move.after[0]) for move in plan.moves}
    problems = check(snapshot, with_order(plan, moves)).problems
    uneven = [one for one in problems if one.startswith("The proof says that leaders are even;")]
    assert uneven[0].endswith("partitions of t, which is not between 2 and 2.")
    assert any("partitions after the plan; the rows say" in one for one in problems)


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (
            ("next_in_line", "after", "squares"),
            1,
            "The proof says that the squares of the pairs next in line add up to 1; the rows say {squares}.",
        ),
        (
            ("leaders", "after", "by_broker"),
            {"1": 2, "2": 2, "3": 2, "4": 1},
            "The proof says that broker 4 leads 1 partitions after the plan; the rows say 2.",
        ),
    ],
)
def test_figures_that_are_not_those_of_the_rows_are_refused(path: tuple[str, ...], value: Any, problem: str) -> None:
    snapshot, plan = expanded()
    squares = plan.proof["spread"]["next_in_line"]["after"]["squares"]
    assert check(snapshot, told(plan, *path, value=value)).problems == [problem.format(squares=squares)]


def test_a_topic_may_be_even_and_the_cluster_not() -> None:
    # Each topic is led by one broker each; broker 1 leads all of them.
    snapshot = cluster("1 2", "t: 12", "u: 12", "v: 21", "w: 21")
    plan = planned(snapshot, "rebalance")
    assert plan.moves == []
    uneven = cluster("1 2", "t: 12", "u: 12", "v: 12", "w: 21")
    proof = {**plan.proof, "snapshot_digest": uneven.digest, "spread": {}}
    for word, problems in (
        ("even", 2),
        ("global-even", 2),
        ("topic-even", 0),
        ("proportional", 0),
    ):
        found = check(uneven, plan_with(plan.digest, {**proof, "leader_evenness": word}, [])).problems
        assert len(found) == problems, word
        assert all(one.startswith(f"The proof says that leaders are {word}; broker") for one in found)
    wrong = check(uneven, plan_with(plan.digest, {**proof, "leader_evenness": "nearly"}, [])).problems
    assert wrong == [
        "The proof's leader_evenness 'nearly' is unknown; there are even, topic-even, global-even, proportional."
    ]


def test_leaders_in_proportion_to_replicas_are_those_of_each_brokers_share() -> None:
    rows = {"t": [(1, 2)] * 4}
    snapshot = cluster("1 2 3", "t: " + " ".join(f"{one}{other}" for one, other in rows["t"]))
    plan = planned(snapshot, "rebalance", {"exclude_brokers": [3]})
    assert plan.proof["leader_evenness"] == "even"
    # Broker 3 holds nothing, and leads nothing.
    assert check(snapshot, plan).problems == []
    lopsided = {("t", at): (1, 2) for at in range(4)}
    moves = with_order(plan, lopsided)
    kept = [move for move in moves.moves if move.after != move.before]
    bare = {**moves.proof, "leader_evenness": "proportional", "spread": {}, "leader_changes": 0}
    problems = check(snapshot, plan_with(plan.digest, bare, kept)).problems
    assert problems == [
        "The proof says that leaders are proportional; broker 1 leads 4 partitions of t, which is not between 2 and 2."
    ]


def test_counts_add_up_over_shards_in_json_or_not() -> None:
    one = LeaderCounts({"1": 1}, {}, {"1 2": 1})
    other = {"led": {"1": 2, "3": 1}, "planned": {"3": 1}, "pairs": {"1 2": 1, "2 1": 3}}
    summed = LeaderCounts({"1": 3, "3": 1}, {"3": 1}, {"1 2": 2, "2 1": 3})
    assert LeaderCounts.combine([one, other]) == summed


def test_a_budget_promises_no_even_leaders() -> None:
    snapshot = cluster("1 2 3 4+", "t: " + " ".join(["12", "23", "31"] * 4))
    assert planned(snapshot, "rebalance", {"max_moves": 1}).proof["leader_evenness"] is None
    assert planned(snapshot, "rebalance", {"max_moves": 99}).proof["leader_evenness"] == "even"
    assert planned(RING, "heal").proof["leader_evenness"] is None


def test_an_even_plan_that_does_not_say_how_even_its_leaders_are_is_refused() -> None:
    snapshot, plan = expanded()
    silent = plan_with(plan.digest, {**plan.proof, "leader_evenness": None}, plan.moves)
    assert check(snapshot, silent).problems == [
        "The proof does not say how even leaders are, and its plan is to even them out."
    ]
    # Within a budget, and of other operations, leaders are what they are.
    within = planned(snapshot, "expand", {"max_moves": 1})
    assert (within.proof["leader_evenness"], check(snapshot, within).problems) == (None, [])
    assert check(RING, planned(RING, "heal")).problems == []


def test_a_plan_of_one_shard_leaves_no_exchange_within_a_partition_to_improve_its_order_or_leaders() -> None:
    for seed in range(tried(45)):
        snapshot, plan = random_plan(seed)
        left = check(snapshot, plan).left
        assert left is not None
        assert (seed, left.order) == (seed, 0)
        assert plan.proof["leader_evenness"] != "even" or left.leaders == 0


def test_an_order_that_an_exchange_of_two_followers_would_improve_is_counted_with_what_it_would_gain() -> None:
    snapshot = cluster("1 2 3 4 5 6+", "t: " + " ".join(["123", "231", "312", "451", "514", "145"] * 4))
    plan = planned(snapshot, "expand")
    assert check(snapshot, plan).left == LeftExchanges(leaders=0, order=0)
    # The same leaders and replicas; the lowest broker of the others is next in line.
    rows = {(row["topic"], row["partition"]): row["replicas"] for row in snapshot.partitions.to_pylist()}
    after = {(move.topic, move.partition): (move.after[0], *sorted(move.after[1:])) for move in plan.moves}
    moved = [move for move in plan.moves if after[move.topic, move.partition] != move.before]
    moved = [replace(move, chunk=0, position=at) for at, move in enumerate(moved)]
    worse = with_order(plan_with(plan.digest, plan.proof, moved), after)
    pairs = Counter(after.get(name, tuple(replicas))[:2] for name, replicas in rows.items())
    told_truly = told(worse, "next_in_line", "after", "squares", value=sum(count**2 for count in pairs.values()))
    verdict = check(snapshot, told_truly)
    assert verdict.problems == []
    assert verdict.left is not None
    assert verdict.left.order >= 2


def test_leaders_that_another_replica_could_lead_more_evenly_are_counted() -> None:
    # Broker 1 leads all: three of the four would rather be led by others, if any word but "even" were believed.
    snapshot = cluster("1 2 3 4", "t: 12 13 14 12")
    proof = {**planned(snapshot, "rebalance").proof, "leader_evenness": "proportional", "spread": {}}
    verdict = check(snapshot, plan_with("", {**proof, "leader_changes": 0, "replicas_moved": 0, "bytes_moved": 0}, []))
    assert verdict.left is not None
    assert verdict.left.leaders == 4
