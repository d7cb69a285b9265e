"""No plan moves more than it must: every small case is solved again by a general integer solver."""

from typing import Any, TypedDict

import numpy as np
import pytest

from kafka_steward.assignment import Operation
from kafka_steward.planning.files.formats import SnapshotFolder
from kafka_steward.planning.files.options import Options
from kafka_steward.planning.solver import even
from kafka_steward.planning.solver.arrays import Ints
from kafka_steward.planning.solver.leaders import Slots, Tier, lead_evenly, tiers
from kafka_steward.planning.solver.rebalance import Bounds, Placed, Shape, place_evenly
from kafka_steward.planning.spark.kernels import Job
from tests.builders import planned
from tests.planning.solver import MIB, fewest, fewest_leader_changes, random_case
from tests.planning.test_heal import given_instances, snapshot_of_instance
from tests.rings import tried

CASES = tried(150)


class Seen(TypedDict, total=False):
    problem: tuple[Shape, Bounds]
    placed: Placed
    leaders: tuple[Ints, Slots, list[Tier], Ints, str]


def solved(snapshot: SnapshotFolder, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Seen:
    """The plan's own placement problem, and the answer that the planner gave."""
    seen: Seen = {}

    def spy(shape: Shape, bounds: Bounds) -> Placed:
        seen["problem"], seen["placed"] = (shape, bounds), place_evenly(shape, bounds)
        return seen["placed"]

    def lead_spy(topic: Ints, slots: Slots, choices: list[Tier]) -> tuple[Ints, str]:
        leader, tier = lead_evenly(topic, slots, choices)
        seen["leaders"] = (topic, slots, choices, leader, tier)
        return leader, tier

    monkeypatch.setattr(even, "place_evenly", spy)
    monkeypatch.setattr(even, "lead_evenly", lead_spy)
    job = Job(snapshot.brokers, Operation.REBALANCE, Options.of(Operation.REBALANCE, options))
    table = snapshot.partitions.sort_by([("topic", "ascending"), ("partition", "ascending")])
    even.even_out(job.case(table))
    return seen


def cost(shape: Shape, placed: Placed) -> tuple[int, int]:
    brokers = len(shape.group)
    new = ~np.isin(placed.row * brokers + placed.broker, shape.row * brokers + shape.broker)
    weight = -(-shape.size[placed.row[new]] // MIB)
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
        if best is None or not placed.within:
            infeasible.append(seed)
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
        topic, slots, choices, leader, name = seen["leaders"]
        changes = len(topic) - int((leader[slots.row] == slots.broker)[slots.leads].sum())
        best = [(tier.name, fewest_leader_changes(topic, slots, tier)) for tier in choices]
        first = next(one for one in best if one[1] is not None)
        wrong += [(seed, (name, changes), first)] if first != (name, changes) else []
    assert wrong == []


@pytest.mark.parametrize("instance", given_instances("rebalance", "expand", "drain"))
def test_given_instances_equal_the_proven_optimum(instance: dict[str, Any]) -> None:
    plan = planned(snapshot_of_instance(instance), instance["operation"], {"rackless": "own-rack"})
    assert plan.proof["replicas_moved"] == plan.proof["lower_bound"] == instance["optimal_added_replicas"]
    assert plan.proof["rack_violations"]["after"] == 0
    bounds = instance["constraints"]
    held = plan.proof["spread"]["replicas"]["after"]["by_broker"]
    for broker, low, high in zip(bounds["target_brokers"], bounds["broker_lo"], bounds["broker_hi"], strict=True):
        assert low <= held[str(broker)] <= high


@pytest.mark.parametrize("instance", given_instances("rebalance", "expand", "drain", "heal", "fill"))
def test_given_leader_problems_equal_the_proven_optimum(instance: dict[str, Any]) -> None:
    from kafka_steward.planning.solver.leaders import Slots

    given = instance["leader"]
    ids = instance["constraints"]["target_brokers"]
    topics = sorted({one["topic"] for one in instance["partitions"]})
    parts = instance["partitions"]
    pairs = [(row, ids.index(broker)) for row, held in enumerate(given["given_replica_sets"]) for broker in held]
    row, broker = (np.array(values) for values in zip(*pairs, strict=True))
    leads = np.array([parts[r]["replicas"][0] == ids[b] for r, b in pairs])
    slots = Slots(row, broker, leads, np.zeros(len(row), bool))
    topic = np.array([topics.index(one["topic"]) for one in parts])
    leader, name = lead_evenly(topic, slots, tiers(topic, slots, np.ones(len(ids), bool), alike=True))
    assert name == given["tier"]
    assert len(parts) - int((leader[row] == broker)[leads].sum()) == given["optimal_leader_changes"]
