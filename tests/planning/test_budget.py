"""A budget: never exceeded, the worst first, and some nights make the cluster even with the moves of one."""

from typing import Any

import pytest

from kafka_steward.assignment import Operation
from kafka_steward.errors import PlanError
from kafka_steward.planning.checker.check import check
from kafka_steward.planning.files.formats import PlanFolder
from kafka_steward.planning.files.options import Options
from kafka_steward.planning.solver.candidate import CandidatePlan
from kafka_steward.planning.solver.problem import Problem
from kafka_steward.planning.solver.sharded.plan import Movement, ShardedQuotas, balance_shard
from kafka_steward.planning.solver.sharded.quotas import ShardQuota
from tests.builders import cluster, planned
from tests.planning.integer_solver import carried_out, random_case, random_plan
from tests.rings import tried

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
