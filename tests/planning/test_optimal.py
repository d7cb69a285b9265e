"""No plan moves more than it must: every small case is solved again by a general integer solver."""

from __future__ import annotations

import random
from typing import Any, TypedDict

import numpy as np
import pytest

from kafka_steward.planning.checker.check import check
from kafka_steward.planning.files.formats import SnapshotFolder
from kafka_steward.planning.shards import PlanningJob
from kafka_steward.planning.solver import balance
from kafka_steward.planning.solver.balance import Bounds, Placement, PlacementProblem, min_cost_placement
from kafka_steward.planning.solver.leaders import LeaderBounds, Replicas, balanced_leaders, leader_bounds
from kafka_steward.planning.solver.problem import Ints, is_pair_in
from tests.builders import planned
from tests.planning.integer_solver import MIB, fewest, fewest_leader_changes, random_case
from tests.planning.test_heal import given_instances, snapshot_of_instance
from tests.rings import tried

CASES = tried(150)


class Seen(TypedDict, total=False):
    problem: tuple[PlacementProblem, Bounds]
    placed: Placement
    leaders: tuple[Ints, Replicas, list[LeaderBounds], Ints, str]


def solved(snapshot: SnapshotFolder, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Seen:
    """The plan's own placement problem, and the answer that the planner gave."""
    seen: Seen = {}

    def spy(problem: PlacementProblem, bounds: Bounds) -> Placement:
        seen["problem"], seen["placed"] = (problem, bounds), min_cost_placement(problem, bounds)
        return seen["placed"]

    def lead_spy(topic: Ints, replicas: Replicas, choices: list[LeaderBounds]) -> tuple[Ints, str]:
        leader, tier = balanced_leaders(topic, replicas, choices)
        seen["leaders"] = (topic, replicas, choices, leader, tier)
        return leader, tier

    monkeypatch.setattr(balance, "min_cost_placement", spy)
    monkeypatch.setattr(balance, "balanced_leaders", lead_spy)
    job = PlanningJob.of(snapshot, "rebalance", options)
    table = snapshot.partitions.sort_by([("topic", "ascending"), ("partition", "ascending")])
    balance.balance_replicas(job.build_problem(table))
    return seen


def scarce_racks(snapshot: SnapshotFolder) -> bool:
    """Whether only brokers without a rack can keep some partition's replicas apart, beyond what is their share."""
    usable = [row["rack"] for row in snapshot.brokers.to_pylist() if row["state"] in ("live", "new")]
    return None in usable and len({*usable} - {None}) < max(snapshot.partitions["target_rf"].to_pylist())


def cost(problem: PlacementProblem, placed: Placement) -> tuple[int, int]:
    brokers = len(problem.group)
    new = ~np.isin(placed.row * brokers + placed.broker, problem.row * brokers + problem.broker)
    weight = -(-problem.size[placed.row[new]] // MIB)
    return int(new.sum()), int(weight.sum())


def test_random_cases_move_as_little_as_an_integer_solver_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    worse, loose, infeasible, refined = [], [], [], 0
    for seed in range(CASES):
        options = {"rackless": ["free", "own-rack"][seed % 2], "rack_aware": seed % 7 != 0}
        seen = solved(random_case(seed), monkeypatch, **options)
        if "problem" not in seen:
            continue
        best, placed = fewest(*seen["problem"]), seen["placed"]
        found = cost(seen["problem"][0], placed)
        if best is None or not placed.within_bounds:
            infeasible += [] if options["rackless"] == "free" and scarce_racks(random_case(seed)) else [seed]
            continue
        worse += [(seed, found, best)] if found != best else []
        loose += [(seed, placed.bound, best)] if placed.bound > best[0] else []
        refined += placed.bound == best[0]
    assert (worse, loose, infeasible) == ([], [], [])
    assert refined > CASES * 0.9


def test_random_cases_change_as_few_leaders_as_an_integer_solver_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = []
    for seed in range(CASES):
        seen = solved(random_case(seed), monkeypatch)
        if "leaders" not in seen:
            continue
        topic, replicas, choices, leader, name = seen["leaders"]
        changes = len(topic) - int((leader[replicas.row] == replicas.broker)[replicas.leads].sum())
        best = [(bounds.name, fewest_leader_changes(topic, replicas, bounds)) for bounds in choices]
        first = next(one for one in best if one[1] is not None)
        wrong += [(seed, (name, changes), first)] if first != (name, changes) else []
    assert wrong == []


@pytest.mark.parametrize("instance", given_instances("rebalance", "expand", "drain"))
def test_given_instances_equal_the_proven_optimum(instance: dict[str, Any]) -> None:
    snapshot = snapshot_of_instance(instance)
    plan = planned(snapshot, instance["operation"], {"rackless": "own-rack"})
    verdict = check(snapshot, plan)
    assert (verdict.problems, verdict.unproven) == ([], ())
    assert plan.proof["replicas_moved"] == plan.proof["lower_bound"] == instance["optimal_added_replicas"]
    assert plan.proof["rack_violations"]["after"] == 0
    bounds = instance["constraints"]
    held = plan.proof["spread"]["replicas"]["after"]["by_broker"]
    for broker, low, high in zip(bounds["target_brokers"], bounds["broker_lo"], bounds["broker_hi"], strict=True):
        assert low <= held[str(broker)] <= high


@pytest.mark.parametrize("instance", given_instances("rebalance", "expand", "drain", "heal", "fill"))
def test_given_leader_problems_equal_the_proven_optimum(instance: dict[str, Any]) -> None:
    from kafka_steward.planning.solver.leaders import Replicas

    given = instance["leader"]
    ids = instance["constraints"]["target_brokers"]
    topics = sorted({one["topic"] for one in instance["partitions"]})
    parts = instance["partitions"]
    pairs = [(row, ids.index(broker)) for row, held in enumerate(given["given_replica_sets"]) for broker in held]
    row, broker = (np.array(values) for values in zip(*pairs, strict=True))
    leads = np.array([parts[r]["replicas"][0] == ids[b] for r, b in pairs])
    replicas = Replicas(row, broker, leads, np.zeros(len(row), bool))
    topic = np.array([topics.index(one["topic"]) for one in parts])
    leader, name = balanced_leaders(
        topic, replicas, leader_bounds(topic, replicas, np.ones(len(ids), bool), alike=True)
    )
    assert name == given["tier"]
    assert len(parts) - int((leader[row] == broker)[leads].sum()) == given["optimal_leader_changes"]


@pytest.mark.parametrize("many", [0, 1 << 26], ids=["by sorting", "by a table"])
def test_a_pair_is_found_among_others(monkeypatch: pytest.MonkeyPatch, many: int) -> None:
    monkeypatch.setattr("kafka_steward.planning.solver.problem._MANY_PAIRS", many)
    for seed in range(50):
        dice = random.Random(seed)
        mine, others = ([(dice.randrange(9), dice.randrange(9)) for _ in range(dice.randrange(30))] for _ in range(2))
        columns = [np.array([pair[at] for pair in pairs], np.int64) for pairs in (mine, others) for at in (0, 1)]
        assert is_pair_in(*columns).tolist() == [pair in others for pair in mine]
