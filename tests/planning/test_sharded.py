"""An even plan put together from shards, as few moves and mebibytes as in one piece; and plans within a budget."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from kafka_steward.assignment import Operation
from kafka_steward.errors import PlanError
from kafka_steward.planning.checker.check import check
from kafka_steward.planning.files.formats import PlanFolder
from kafka_steward.planning.options import Options
from kafka_steward.planning.shards import shard_boundaries
from kafka_steward.planning.solver.candidate import CandidatePlan
from kafka_steward.planning.solver.problem import Problem
from kafka_steward.planning.solver.sharded.plan import Movement, ShardedQuotas, balance_shard
from kafka_steward.planning.solver.sharded.quotas import (
    QuotaProblem,
    Quotas,
    ShardQuota,
    quotas_by_flow,
    quotas_by_pricing,
)
from tests.builders import EVEN, cluster, planned
from tests.planning.integer_solver import MIB, carried_out, random_case, random_plan
from tests.rings import tried

TOPICS = [f"{name}: " + " ".join(["124", "341", "213", "432"] * 5) for name in "tuvw"]
SNAPSHOT = cluster("1a 2b 3c 4a- 5b 6c+ 7a", *TOPICS)


def cost(plan: PlanFolder) -> tuple[int, int, int, dict[str, int]]:
    weight = sum(len(move.adding) * -(-(move.size_bytes or 0) // MIB) for move in plan.moves)
    return plan.proof["replicas_moved"], weight, plan.proof["lower_bound"], plan.proof["rack_violations"]


@dataclass(frozen=True)
class Cut:
    """Random cases, each planned in one piece and cut into its topics; and how many were put together from shards."""

    pairs: dict[int, tuple[PlanFolder, PlanFolder]]
    put_together: int


@pytest.fixture(scope="module")
def cut() -> Cut:
    closed, pairs = [], {}
    needs_one_flow = ShardedQuotas.needs_one_flow

    def spy(parts: ShardedQuotas, movement: Movement) -> bool:
        closed.append(parts.meets_bound(movement))
        return needs_one_flow(parts, movement)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(ShardedQuotas, "needs_one_flow", spy)
        for seed in range(1000, 1000 + tried(75, least=25)):
            options = {"rackless": ["free", "own-rack"][seed % 2], "rack_aware": seed % 7 != 0}
            snapshot = random_case(seed)
            problem, pieces = (planned(snapshot, "rebalance", options, shard_rows=rows) for rows in (30_000, 1))
            pairs[seed] = (problem, pieces)
    return Cut(pairs, sum(closed))


def test_random_cases_in_shards_of_one_topic_move_as_little_as_in_one_shard(cut: Cut) -> None:
    different = [seed for seed, (problem, pieces) in cut.pairs.items() if cost(problem) != cost(pieces)]
    assert different == []
    # Else nothing was put together at all.
    assert cut.put_together >= tried(75, least=25) / 3


def test_random_cases_in_shards_of_one_topic_change_hardly_more_leaders_than_in_one_shard(cut: Cut) -> None:
    changes = [[plan.proof["leader_changes"] for plan in pair] for pair in cut.pairs.values()]
    problem, pieces = (sum(counts) for counts in zip(*changes, strict=True))
    assert pieces <= 1.06 * problem, (problem, pieces)


@pytest.mark.parametrize("operation", ["rebalance", "expand", "drain"])
def test_several_shards_are_even_and_proven_together(operation: str) -> None:
    plan = planned(SNAPSHOT, operation, EVEN, 20)
    verdict = check(SNAPSHOT, plan)
    assert (verdict.problems, verdict.unproven) == ([], ())
    leaders = plan.proof["spread"]["leaders"]["after"]
    assert leaders["most"] - leaders["least"] <= 1


def test_leaders_that_are_even_over_all_shards_are_unchanged() -> None:
    # In each shard by itself half of the brokers lead nothing.
    plan = planned(cluster("1 2 3 4 5 6", "t: 14 25 36", "u: 41 52 63"), "rebalance", shard_rows=3)
    assert plan.moves == []


def test_leaders_that_are_even_stay_where_each_shard_is_led_by_one_broker() -> None:
    # Broker 1 leads every topic of the first shard, and broker 2 every topic of the second.
    snapshot = cluster("1 2", *(f"t{at:02d}: {'12' if at < 20 else '21'}" for at in range(40)))
    assert planned(snapshot, "rebalance", shard_rows=20).moves == []


def test_a_gap_is_noted_if_all_shards_are_not_planned_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_steward.planning.solver.sharded.plan.MAX_UNSHARDED_PARTITIONS", 0)
    gaps = [planned(random_case(seed), "rebalance", shard_rows=1).proof for seed in range(1000, 1000 + tried(60))]
    said = [proof for proof in gaps if any("Slices were planned apart" in note for note in proof["notes"])]
    assert said
    assert all(proof["lower_bound"] <= proof["replicas_moved"] for proof in gaps)


def test_quotas_by_pricing_cost_as_little_as_those_of_one_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    quotas = []

    def both(problem: QuotaProblem) -> Quotas:
        sifted, flow = quotas_by_pricing(problem), quotas_by_flow(problem)
        quotas.append([(one.moves, one.weight) for one in (sifted, flow)])
        return sifted

    monkeypatch.setattr("kafka_steward.planning.solver.sharded.quotas._SAMPLE", 0.3)
    monkeypatch.setattr("kafka_steward.planning.solver.sharded.quotas._PER_BROKER", 0)
    monkeypatch.setattr("kafka_steward.planning.solver.sharded.plan.quotas_by_pricing", both)
    clusters = ("1a 2b 3c 4a 5b 6c", "1a 2b 3c 4a 5b 6c 7a+ 8b+ 9c+", "1 2 3 4 5 6 7+", "1a 2b 3c 4a 5b 6c-")
    for seed, brokers in enumerate(clusters * tried(6)):
        snapshot = cluster(brokers, *_topics(random.Random(seed)))
        plan = planned(snapshot, "rebalance", shard_rows=50)
        verdict = check(snapshot, plan)
        assert (verdict.problems, verdict.unproven) == ([], ())
    assert len(quotas) == 4 * tried(6)
    assert all(sifted == flow for sifted, flow in quotas)


def _topics(dice: random.Random) -> list[str]:
    """Forty topics on six brokers, some of whose partitions have two or three replicas in one rack."""
    return [f"t{at:02d}: " + " ".join("".join(dice.sample("123456", 3)) for _ in range(7)) for at in range(40)]


def sizes(counts: dict[str, int], rows: int) -> list[int]:
    topics = [topic for topic, count in counts.items() for _ in range(count)]
    random.Random(0).shuffle(topics)
    firsts = ["", *shard_boundaries(pa.chunked_array([topics], pa.string()), rows), "~"]
    assert firsts == sorted(set(firsts))
    ends = pairwise(firsts)
    return [sum(count for topic, count in counts.items() if first <= topic < after) for first, after in ends]


@pytest.mark.parametrize(("topics", "shards"), [(0, 1), (1, 1), (40, 2), (41, 3), (100, 5), (101, 6)])
def test_there_are_as_many_shards_as_needed_and_they_are_equal(topics: int, shards: int) -> None:
    found = sizes({f"t{number:03d}": 5 for number in range(topics)}, 100)
    assert len(found) == shards
    assert sum(found) == 5 * topics
    assert max(found) - min(found) <= 5


def test_a_topic_is_never_cut() -> None:
    assert sizes({"a": 10, "b": 500, "c": 10, "d": 10}, 100) == [10, 500, 20]


UNEVEN = cluster("1a 2b 3c 4a+", "t: " + " ".join(["12", "23", "31"] * 6), "u: 14 21")


def squares(plan: PlanFolder, when: str) -> int:
    held = plan.proof["spread"]["replicas"][when]["by_broker"].values()
    return sum(value * value for value in held)


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 100])
def test_a_budget_is_never_exceeded_and_every_move_helps(limit: int) -> None:
    plan = planned(UNEVEN, "rebalance", {"max_moves": limit})
    assert plan.proof["replicas_moved"] == min(limit, planned(UNEVEN, "rebalance").proof["replicas_moved"])
    assert plan.proof["gap"] == 0
    assert squares(plan, "after") < squares(plan, "before")
    assert check(UNEVEN, plan).problems == []


@pytest.mark.parametrize("shard_rows", [30_000, 1], ids=["one shard", "a shard per topic"])
@pytest.mark.parametrize("seed", range(tried(20)))
def test_nights_add_up_to_the_moves_of_one_plan(seed: int, shard_rows: int) -> None:
    snapshot, plan = random_plan(seed)
    needed = plan.proof["replicas_moved"]
    moved = 0
    # A partition moves as a whole, so that a budget of four always lets one through.
    for _ in range(needed + 1):
        plan = planned(snapshot, "rebalance", {"max_moves": 4}, shard_rows=shard_rows)
        assert (check(snapshot, plan).problems, plan.proof["gap"]) == ([], 0)
        moved += plan.proof["replicas_moved"]
        assert plan.proof["lower_bound"] == plan.proof["replicas_moved"]
        snapshot = carried_out(snapshot, plan)
    assert moved == needed
    assert planned(snapshot, "rebalance").proof["replicas_moved"] == 0


#: Topics of several shards that a budget is spent on: broker 1 has too much of each, and of `u` there is most.
SKEWED = cluster(
    "1 2 3 4", *(f"{name}: {'12 13 14 ' * count}" for name, count in {"t": 2, "u": 8, "v": 2, "w": 4}.items())
)


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether one flow over all partitions was needed, each time that shards were planned."""
    found = []
    needs_one_flow = ShardedQuotas.needs_one_flow

    def spy(parts: ShardedQuotas, movement: Movement) -> bool:
        found.append(needs_one_flow(parts, movement))
        return found[-1]

    monkeypatch.setattr(ShardedQuotas, "needs_one_flow", spy)
    return found


@pytest.mark.parametrize("shard_rows", [30_000, 1], ids=["one shard", "a shard per topic"])
def test_rack_violations_come_first(shard_rows: int, pieces: list[bool]) -> None:
    plan = planned(UNEVEN, "rebalance", {"max_moves": 1}, shard_rows=shard_rows)
    assert [(move.topic, move.partition) for move in plan.moves if move.adding] == [("u", 0)]
    assert pieces == ([False] if shard_rows == 1 else [])


@pytest.mark.parametrize("budget", [{"max_moves": 3}, {"max_bytes": 7 * 1000}, {"max_moves": 4, "max_bytes": 3 * 1000}])
def test_a_budget_is_spent_over_all_shards_where_it_evens_out_most(budget: dict[str, int], pieces: list[bool]) -> None:
    whole, in_shards = (planned(SKEWED, "rebalance", budget, shard_rows=rows) for rows in (30_000, 1))
    assert pieces == [False], "four shards, and not one flow"
    names = ("replicas_moved", "bytes_moved", "lower_bound", "gap")
    assert [in_shards.proof[name] for name in names] == [whole.proof[name] for name in names]
    assert squares(in_shards, "after") == squares(whole, "after") < squares(whole, "before")
    assert check(SKEWED, in_shards).problems == []
    left = [note for note in in_shards.proof["notes"] if "later plans" in note]
    assert left == [note for note in whole.proof["notes"] if "later plans" in note]
    assert len(left) == 1


@pytest.mark.parametrize("options", [{"max_moves": 3}, {"max_moves": 3, "exclude_brokers": [4]}, {"max_moves": 1000}])
def test_no_shard_is_solved_twice_for_a_budget(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    solved: list[str] = []

    def counted(problem: Problem, quota: ShardQuota) -> CandidatePlan:
        solved.append(problem.rows.topics[0])
        return balance_shard(problem, quota)

    monkeypatch.setattr("kafka_steward.planning.shards.balance_shard", counted)
    assert planned(SKEWED, "rebalance", options, shard_rows=1).moves
    assert solved == ["t", "u", "v", "w"]


def test_a_budget_that_is_large_enough_in_shards_is_proven_like_the_plan_without_one(pieces: list[bool]) -> None:
    plan = planned(SKEWED, "rebalance", {"max_moves": 1000}, shard_rows=1)
    assert plan.moves == planned(SKEWED, "rebalance", shard_rows=1).moves
    verdict = check(SKEWED, plan)
    assert (verdict.problems, verdict.unproven, pieces) == ([], (), [False, False])


def test_in_shards_that_move_more_than_the_bound_a_budget_leaves_what_is_proven(
    monkeypatch: pytest.MonkeyPatch, pieces: list[bool]
) -> None:
    monkeypatch.setattr("kafka_steward.planning.solver.sharded.plan.MAX_UNSHARDED_PARTITIONS", 0)
    proofs = [
        planned(random_case(seed), "rebalance", {"max_moves": 5}, shard_rows=1).proof
        for seed in range(1000, 1000 + tried(60))
    ]
    assert pieces
    assert not any(pieces)
    assert all(0 <= proof["lower_bound"] <= proof["replicas_moved"] <= 5 for proof in proofs)
    assert any("Slices were planned apart" in note for proof in proofs for note in proof["notes"])


@pytest.mark.parametrize("seed", range(8))
def test_nights_with_a_budget_of_bytes_end_even_too(seed: int) -> None:
    snapshot, plan = random_plan(seed)
    largest = max([0, *(size or 0 for size in snapshot.partitions["bytes"].to_pylist())])
    # A partition moves as a whole, four replicas at most.
    budget = max(4 * largest, 1)
    for _ in range(plan.proof["replicas_moved"] + 1):
        plan = planned(snapshot, "rebalance", {"max_bytes": budget})
        assert plan.proof["bytes_moved"] <= budget
        snapshot = carried_out(snapshot, plan)
    assert planned(snapshot, "rebalance").proof["replicas_moved"] == 0


@pytest.mark.parametrize("value", [float("nan"), float("inf"), True])
def test_a_tolerance_is_a_finite_number(value: object) -> None:
    with pytest.raises(PlanError, match=rf"^The option tolerance is {value}; it takes a number\.$"):
        Options.of(Operation.REBALANCE, {"tolerance": value})
