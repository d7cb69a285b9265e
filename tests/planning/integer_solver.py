"""An independent judge: the smallest plans, found by a general integer solver that knows nothing of flows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import Any

import highspy

from kafka_steward.planning.files.formats import PlanFolder, SnapshotFolder
from kafka_steward.planning.solver.balance import Bounds, PlacementProblem
from kafka_steward.planning.solver.leaders import LeaderBounds, Replicas
from kafka_steward.planning.solver.problem import Ints
from tests.builders import planned, snapshot_of

MIB = 1 << 20


def random_case(seed: int, *, racks: Sequence[int | None] = (None, 1, 2, 3, 4), sized: bool = True) -> SnapshotFolder:
    """2-7 brokers, 1-3 topics, at most 18 partitions, RF 1-4 mixed, any racks, lost and extra replicas."""
    dice = random.Random(seed)
    count = dice.randint(2, 7)
    kinds = dice.choice(racks)
    brokers = [
        {
            "broker": 100 + number,
            "rack": None if kinds is None or dice.random() < 0.1 else f"r{dice.randrange(kinds)}",
            "state": dice.choice(["live"] * 6 + ["new", "draining", "failed"]),
        }
        for number in range(count)
    ]
    brokers[0]["state"] = brokers[1]["state"] = "live"
    room = sum(one["state"] in ("live", "new") for one in brokers)
    ids = [one["broker"] for one in brokers]
    parts = []
    for topic in range(dice.randint(1, 3)):
        for number in range(dice.randint(1, 6)):
            target = min(dice.randint(1, 4), room)
            held = dice.sample(ids, max(1, min(count, target + dice.choice([0, 0, 0, 0, -1, 1]))))
            size = dice.choice([0, 1, 5, 5, 40, 300]) * MIB if sized else 0
            parts.append(
                {"topic": f"t{topic}", "partition": number, "replicas": held, "target_rf": target, "bytes": size}
            )
    return snapshot_of(brokers, parts)


@cache
def random_plan(seed: int) -> tuple[SnapshotFolder, PlanFolder]:
    """A random case and its rebalance, made once for all the tests that judge it. Not to be changed."""
    snapshot = random_case(seed)
    return snapshot, planned(snapshot, "rebalance")


def carried_out(snapshot: SnapshotFolder, plan: PlanFolder) -> SnapshotFolder:
    """The cluster once every move has ended, its replicas in sync, and each partition led by its preferred leader.

    A partition without a leader is moved by no plan, and still has none. What was out of sync and not moved still is.
    """
    new = {(move.topic, move.partition): list(move.after) for move in plan.moves}
    rows = snapshot.partitions.to_pylist()
    for row in rows:
        if (moved := new.get((row["topic"], row["partition"]))) is not None:
            row.update(isr=moved, replicas=moved)
        if row["leader"] >= 0:
            row["leader"] = row["replicas"][0]
    return snapshot_of(snapshot.brokers.to_pylist(), rows)


def fewest(problem: PlacementProblem, bounds: Bounds) -> tuple[int, int] | None:
    """Moves and mebibytes of the best placement: fewest moves, then fewest mebibytes. None if there is none."""
    model = integer_model()
    rows, brokers = len(problem.topic), len(problem.group)
    x = {(p, b): model.addBinary() for p in range(rows) for b in range(brokers)}
    held = {(int(p), int(b)) for p, b in zip(problem.row, problem.broker, strict=True)}
    for p in range(rows):
        for b in range(brokers):
            if problem.receive_excluded[b] and (p, b) not in held:
                model.addConstr(x[p, b] == 0)
        _within(model, [x[p, b] for b in range(brokers)], int(problem.factor[p]), int(problem.factor[p]))
        for g in range(bounds.rack[0].shape[1]):
            here = [x[p, b] for b in range(brokers) if problem.group[b] == g]
            _within(model, here, int(bounds.rack[0][p, g]), int(bounds.rack[1][p, g]))
    for b in range(brokers):
        for t in range(bounds.cell[0].shape[0]):
            here = [x[p, b] for p in range(rows) if problem.topic[p] == t]
            _within(model, here, int(bounds.cell[0][t, b]), int(bounds.cell[1][t, b]))
        _within(model, [x[p, b] for p in range(rows)], int(bounds.broker[0][b]), int(bounds.broker[1][b]))
    weight = [-(-int(size) // MIB) for size in problem.size]
    move = sum(weight) * brokers + 1
    least = minimum(model, [(move + weight[p], x[p, b]) for p, b in x if (p, b) not in held])
    return None if least is None else divmod(least, move)


def fewest_leader_changes(topic: Ints, replicas: Replicas, bounds: LeaderBounds) -> int | None:
    """Preferred-leader changes of the best choice of leaders within a bounds; None if it cannot be met."""
    model = integer_model()
    lead = [model.addBinary() for _ in range(len(replicas.row))]
    brokers = len(bounds.broker[0])
    where = list(zip(replicas.row.tolist(), replicas.broker.tolist(), strict=True))
    for p in range(len(topic)):
        _within(model, [lead[s] for s, (row, _) in enumerate(where) if row == p], 1, 1)
    for b in range(brokers):
        mine = [s for s, (_, broker) in enumerate(where) if broker == b]
        _within(model, [lead[s] for s in mine], int(bounds.broker[0][b]), int(bounds.broker[1][b]))
        for t in range(bounds.cell[0].shape[0]):
            here = [lead[s] for s in mine if topic[where[s][0]] == t]
            _within(model, here, int(bounds.cell[0][t, b]), int(bounds.cell[1][t, b]))
    return minimum(model, [(1, lead[s]) for s in range(len(lead)) if not replicas.leads[s]])


def integer_model() -> Any:
    """An empty program, to be solved exactly."""
    model: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    # By default the best solution may be worse than the optimum by a ten-thousandth.
    for option, value in (("output_flag", False), ("threads", 1), ("mip_rel_gap", 0.0), ("mip_abs_gap", 0.0)):
        model.setOptionValue(option, value)
    return model


def _within(model: Any, variables: Sequence[Any], low: int, high: int) -> None:
    """Add a constraint on the sum of variables; one that no variable can change is met or makes all impossible."""
    count = len(variables)
    model.addRow(low, high, count, [each.index for each in variables], [1.0] * count)


def minimum(model: Any, costs: Sequence[tuple[int, Any]]) -> int | None:
    """The least cost of variables; None if there is no solution."""
    for cost, variable in costs:
        model.changeColCost(variable.index, float(cost))
    model.run()
    if model.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    value: float = model.getInfo().objective_function_value
    return round(value)
