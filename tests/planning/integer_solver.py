"""An independent judge: the smallest plans, found by a general integer solver that knows nothing of flows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache

from ortools.sat.python import cp_model

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
    """The cluster once every move has ended, and every replica is in sync and led by its preferred leader."""
    new = {(move.topic, move.partition): list(move.after) for move in plan.moves}
    rows = snapshot.partitions.to_pylist()
    for row in rows:
        row["replicas"] = new.get((row["topic"], row["partition"]), row["replicas"])
        row |= {"isr": row["replicas"], "leader": row["replicas"][0]}
    return snapshot_of(snapshot.brokers.to_pylist(), rows)


def fewest(problem: PlacementProblem, bounds: Bounds) -> tuple[int, int] | None:
    """Moves and mebibytes of the best placement: fewest moves, then fewest mebibytes. None if there is none."""
    model = cp_model.CpModel()
    rows, brokers = len(problem.topic), len(problem.group)
    x = {(p, b): model.new_bool_var(f"{p},{b}") for p in range(rows) for b in range(brokers)}
    held = {(int(p), int(b)) for p, b in zip(problem.row, problem.broker, strict=True)}
    for p in range(rows):
        for b in range(brokers):
            if problem.receive_excluded[b] and (p, b) not in held:
                model.add(x[p, b] == 0)
        model.add(sum(x[p, b] for b in range(brokers)) == int(problem.factor[p]))
        for g in range(bounds.rack[0].shape[1]):
            here = sum(x[p, b] for b in range(brokers) if problem.group[b] == g)
            model.add(here >= int(bounds.rack[0][p, g]))
            model.add(here <= int(bounds.rack[1][p, g]))
    for b in range(brokers):
        for t in range(bounds.cell[0].shape[0]):
            here = sum(x[p, b] for p in range(rows) if problem.topic[p] == t)
            model.add(here >= int(bounds.cell[0][t, b]))
            model.add(here <= int(bounds.cell[1][t, b]))
        everything = sum(x[p, b] for p in range(rows))
        model.add(everything >= int(bounds.broker[0][b]))
        model.add(everything <= int(bounds.broker[1][b]))
    weight = [-(-int(size) // MIB) for size in problem.size]
    move = sum(weight) * brokers + 1
    model.minimize(sum((move + weight[p]) * x[p, b] for p, b in x if (p, b) not in held))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    if solver.solve(model) != cp_model.OPTIMAL:
        return None
    return divmod(round(solver.objective_value), move)


def fewest_leader_changes(topic: Ints, replicas: Replicas, bounds: LeaderBounds) -> int | None:
    """Preferred-leader changes of the best choice of leaders within a bounds; None if it cannot be met."""
    model = cp_model.CpModel()
    lead = [model.new_bool_var(str(replica)) for replica in range(len(replicas.row))]
    brokers = len(bounds.broker[0])
    where = list(zip(replicas.row.tolist(), replicas.broker.tolist(), strict=True))
    for p in range(len(topic)):
        model.add_exactly_one(lead[s] for s, (row, _) in enumerate(where) if row == p)
    for b in range(brokers):
        mine = [s for s, (_, broker) in enumerate(where) if broker == b]
        model.add_linear_constraint(
            sum(lead[s] for s in mine) + 0 * lead[0], int(bounds.broker[0][b]), int(bounds.broker[1][b])
        )
        for t in range(bounds.cell[0].shape[0]):
            total = sum(lead[s] for s in mine if topic[where[s][0]] == t) + 0 * lead[0]
            model.add_linear_constraint(total, int(bounds.cell[0][t, b]), int(bounds.cell[1][t, b]))
    model.minimize(sum(lead[s] for s in range(len(lead)) if not replicas.leads[s]))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    return round(solver.objective_value) if solver.solve(model) == cp_model.OPTIMAL else None
