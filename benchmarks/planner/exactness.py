"""Every small case is solved again by a general integer solver that knows nothing of flows."""

from __future__ import annotations

from collections import Counter
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.planner.table import table
from kafka_steward.planning.checker.check import check
from kafka_steward.planning.shards import PlanningJob
from kafka_steward.planning.solver import balance
from kafka_steward.planning.solver.balance import min_cost_placement
from kafka_steward.planning.solver.leaders import balanced_leaders
from tests.builders import planned
from tests.planning.integer_solver import MIB, fewest, fewest_leader_changes, random_case
from tests.planning.test_heal import instances, snapshot_of_instance

_EVEN = ("rebalance", "expand", "drain")


def exactness(cases: int) -> str:
    """Both tables."""
    head = ["instances", "n", "plans above the optimum", "bounds above it", "below it", "more MiB than the fewest"]
    head += ["leader changes above the minimum", "not proven by the checker"]
    return table(head, [_row("given", _given()), _row("random", _random(cases))]) + "\n\n" + _leaders(cases)


def _row(name: str, found: Counter[str]) -> list[object]:
    names = ("n", "above", "bound above", "bound below", "bytes", "leaders", "unproven")
    return [name, *(found[one] for one in names)]


def _given() -> Counter[str]:
    """The instances with known optima; heal and fill never move what is in place, even where that would be cheaper."""
    found: Counter[str] = Counter()
    for instance in instances(*_EVEN, "heal", "fill"):
        snapshot = snapshot_of_instance(instance)
        plan = planned(
            snapshot,
            instance["operation"],
            {"rackless": "own-rack"} | ({"balance": "replicas"} if instance["operation"] in _EVEN else {}),
        )
        best = instance["optimal_added_replicas"]
        found["n"] += 1
        found["above"] += plan.proof["replicas_moved"] > best
        found["bound above"] += plan.proof["lower_bound"] > best
        found["bound below"] += plan.proof["lower_bound"] < best and instance["operation"] in _EVEN
        verdict = check(snapshot, plan)
        found["unproven"] += bool(verdict.problems or verdict.unproven)
    return found


def _random(cases: int) -> Counter[str]:
    found: Counter[str] = Counter()
    for seed in range(cases):
        snapshot = random_case(seed)
        options = {"rackless": ("free", "own-rack")[seed % 2], "rack_aware": seed % 7 != 0}
        seen = _seen(snapshot, options)
        if "placement" in seen:
            found["n"] += 1
            problem, bounds, placed = seen["placement"]
            found.update(_judged(problem, bounds, placed, seen["leaders"]))
            verdict = check(snapshot, planned(snapshot, "rebalance", options))
            found["unproven"] += bool(verdict.problems or verdict.unproven)
    return found


def _judged(problem: Any, bounds: Any, placed: Any, leaders: Any) -> dict[str, int]:
    best = fewest(problem, bounds)
    if best is None or not placed.within_bounds:
        raise AssertionError("by the theorem there is always a plan within all bounds")
    brokers = len(problem.group)
    new = ~np.isin(placed.row * brokers + placed.broker, problem.row * brokers + problem.broker)
    moves, weight = int(new.sum()), int((-(-problem.size[placed.row[new]] // MIB)).sum())
    return {
        "above": int(moves > best[0]),
        "bound above": int(placed.bound > best[0]),
        "bound below": int(placed.bound < best[0]),
        "bytes": int(moves == best[0] and weight != best[1]),
        "leaders": int(_too_many_changes(*leaders)),
    }


def _too_many_changes(topic: Any, replicas: Any, choices: Any, leader: Any, name: str) -> bool:
    changes = len(topic) - int((leader[replicas.row] == replicas.broker)[replicas.leads].sum())
    best = ((bounds.name, fewest_leader_changes(topic, replicas, bounds)) for bounds in choices)
    return next(one for one in best if one[1] is not None) != (name, changes)


def _seen(snapshot: Any, options: dict[str, Any]) -> dict[str, Any]:
    """The plan's own placement and leader problems, and the planner's answers to them."""
    seen: dict[str, Any] = {}

    def place(problem: Any, bounds: Any) -> Any:
        placed = min_cost_placement(problem, bounds)
        seen["placement"] = (problem, bounds, placed)
        return placed

    def lead(topic: Any, replicas: Any, choices: Any) -> Any:
        leader, name = balanced_leaders(topic, replicas, choices)
        seen["leaders"] = (topic, replicas, choices, leader, name)
        return leader, name

    job = PlanningJob.of(snapshot, "rebalance", options)
    rows = snapshot.partitions.sort_by([("topic", "ascending"), ("partition", "ascending")])
    with mock.patch.object(balance, "min_cost_placement", place), mock.patch.object(balance, "balanced_leaders", lead):
        balance.balance_replicas(job.build_problem(rows))
    return seen


def _leaders(cases: int) -> str:
    """Leader changes beside the bound that holds for every plan with as many replicas of each topic on each broker."""
    changes, bounds, reached, plans = 0, 0, 0, 0
    for seed in range(min(cases, 500)):
        proof = planned(random_case(seed), "rebalance").proof
        plans += 1
        changes += proof["leader_changes"]
        bounds += proof["leader_changes_bound"]
        reached += proof["leader_changes"] == proof["leader_changes_bound"]
    head = ["random plans", "leader changes", "their bound over all placements", "plans that reach it"]
    return table(head, [[plans, changes, bounds, reached]])
