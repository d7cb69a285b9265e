"""A budget: never exceeded, the worst first, and some nights make the cluster even with the moves of one."""

import pytest

from kafka_steward.assignment import Operation
from kafka_steward.errors import PlanError
from kafka_steward.planning.checker.check import check
from kafka_steward.planning.files.formats import PlanFolder
from kafka_steward.planning.files.options import Options
from tests.builders import cluster, planned
from tests.planning.integer_solver import carried_out, random_plan
from tests.rings import tried

UNEVEN = cluster("1a 2b 3c 4a+", "t: " + " ".join(["12", "23", "31"] * 6), "u: 14 21")


def squares(plan: PlanFolder, when: str) -> int:
    held = plan.proof["spread"]["replicas"][when]["by_broker"].values()
    return sum(value * value for value in held)


def test_rack_violations_come_first() -> None:
    plan = planned(UNEVEN, "rebalance", {"max_moves": 1})
    assert [(move.topic, move.partition) for move in plan.moves if move.adding] == [("u", 0)]


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 100])
def test_a_budget_is_never_exceeded_and_every_move_helps(limit: int) -> None:
    plan = planned(UNEVEN, "rebalance", {"max_moves": limit})
    assert plan.proof["replicas_moved"] == min(limit, planned(UNEVEN, "rebalance").proof["replicas_moved"])
    assert plan.proof["gap"] == 0
    assert squares(plan, "after") < squares(plan, "before")
    assert check(UNEVEN, plan).problems == []


def test_a_budget_of_bytes() -> None:
    plan = planned(UNEVEN, "rebalance", {"max_bytes": 2500})
    assert plan.proof["bytes_moved"] == 2000


@pytest.mark.parametrize("seed", range(tried(20)))
def test_nights_add_up_to_the_moves_of_one_plan(seed: int) -> None:
    snapshot, plan = random_plan(seed)
    needed = plan.proof["replicas_moved"]
    moved = 0
    # A partition moves as a whole, so that a budget of four always lets one through.
    for _ in range(needed + 1):
        plan = planned(snapshot, "rebalance", {"max_moves": 4})
        moved += plan.proof["replicas_moved"]
        snapshot = carried_out(snapshot, plan)
    assert moved == needed
    assert planned(snapshot, "rebalance").proof["replicas_moved"] == 0


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


def test_a_budget_of_nothing_is_refused() -> None:
    with pytest.raises(PlanError, match="The option max_moves is 0; it must be at least 1"):
        planned(UNEVEN, "rebalance", {"max_moves": 0})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), True])
def test_a_tolerance_is_a_finite_number(value: object) -> None:
    with pytest.raises(PlanError, match=rf"^The option tolerance is {value}; it takes a number\.$"):
        Options.of(Operation.REBALANCE, {"tolerance": value})
