"""An independent judge of room: the best even placement within it, goal after goal, by a general integer solver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kafka_steward.planning.solver.balance import Bounds, PlacementProblem
from kafka_steward.planning.solver.problem import Brokers
from tests.planning.integer_solver import MIB, integer_model, minimum

__all__ = ["BestWithinRoom"]

#: A partition and a broker.
Pair = tuple[int, int]


class BestWithinRoom:
    """The placements of some partitions. Brokers have one log directory at most.

    A placement is measured by unplaced replicas, steps off the rack rule, steps off even, moves and mebibytes.
    """

    def __init__(self, problem: PlacementProblem, bounds: Bounds, brokers: Brokers) -> None:
        self.problem, self.brokers = problem, brokers
        self.rows, self.count = range(len(problem.topic)), range(len(problem.group))
        self.held = {(int(p), int(b)) for p, b in zip(problem.row, problem.broker, strict=True)}
        self.size = [-(-int(size) // MIB) for size in problem.size]
        self.factor = [int(factor) for factor in problem.factor]
        self.sums = {"racks": list(self._racks(bounds)), "even": list(self._even(bounds))}

    def _racks(self, bounds: Bounds) -> Iterator[tuple[set[Pair], int, int]]:
        for p, g in np.ndindex(bounds.rack[0].shape):
            here = {(p, b) for b in self.count if self.problem.group[b] == g}
            yield here, int(bounds.rack[0][p, g]), int(bounds.rack[1][p, g])

    def _even(self, bounds: Bounds) -> Iterator[tuple[set[Pair], int, int]]:
        for t, b in np.ndindex(bounds.cell[0].shape):
            here = {(p, b) for p in self.rows if self.problem.topic[p] == t}
            yield here, int(bounds.cell[0][t, b]), int(bounds.cell[1][t, b])
        for b in self.count:
            yield {(p, b) for p in self.rows}, int(bounds.broker[0][b]), int(bounds.broker[1][b])

    def has(self, p: int) -> int:
        """The usable replicas of a partition."""
        return sum((p, b) in self.held for b in self.count)

    def measure(self, placed: Sequence[frozenset[int]]) -> tuple[int, ...]:
        """The measure of a placement, given as the brokers of each partition."""
        on = {(p, b) for p, ids in enumerate(placed) for b in ids if self.brokers.usable[b]}
        missing = sum(max(self.factor[p] - sum((p, b) in on for b in self.count), 0) for p in self.rows)
        off = []
        for sums in self.sums.values():
            counts = [(len(on & members), low, high) for members, low, high in sums]
            off.append(sum(max(number - high, 0) + max(low - number, 0) for number, low, high in counts))
        new = [key for key in on if key not in self.held]
        return (missing, *off, len(new), sum(self.size[p] for p, _ in new))

    def optimum(self, *, leaving: bool) -> tuple[int, ...]:
        """The best measure. With `leaving`, what leaves a broker makes room there, in whatever order."""
        model = integer_model()
        x = {(p, b): model.addBinary() for p in self.rows for b in self.count}
        z = [model.addBinary() for _ in self.rows]
        self._add_rows(model, x, z)
        for b, rooms in enumerate(self.brokers.rooms):
            if rooms is not None:
                coming = sum(self.size[p] * x[p, b] for p in self.rows if (p, b) not in self.held)
                going = sum(self.size[p] * (1 - x[p, b]) for p in self.rows if (p, b) in self.held)
                model.addConstr(coming - (going if leaving else 0) <= rooms[0] // MIB)
        off = [self._add_steps_off(model, x, sums) for sums in self.sums.values()]
        lacks = [max(self.factor[p] - self.has(p), 0) for p in self.rows]
        fresh = [key for key in x if key not in self.held]
        goals = [
            [(-lack, placed) for lack, placed in zip(lacks, z, strict=True)],
            *off,
            [(1, x[key]) for key in fresh],
            [(self.size[key[0]], x[key]) for key in fresh],
        ]
        found = [_keep_least(model, goal) for goal in goals]
        return (found[0] + sum(lacks), *found[1:])

    def _add_rows(self, model: Any, x: dict[Pair, Any], z: list[Any]) -> None:
        for p in self.rows:
            has, factor = self.has(p), self.factor[p]
            model.addConstr(sum(x[p, b] for b in self.count) == has + (factor - has) * z[p])
            if factor <= has:
                model.addConstr(1 * z[p] == 1)
        for (p, b), variable in x.items():
            model.addConstr(variable + z[p] >= 1 if (p, b) in self.held else variable <= z[p])
            if (p, b) not in self.held and not self.brokers.receivers[b]:
                model.addConstr(1 * variable == 0)

    @staticmethod
    def _add_steps_off(
        model: Any, x: dict[Pair, Any], sums: Sequence[tuple[set[Pair], int, int]]
    ) -> list[tuple[int, Any]]:
        steps = []
        for members, low, high in sums:
            if members:
                over, under = model.addVariable(), model.addVariable()
                total = sum(x[member] for member in sorted(members))
                model.addConstr(total - over <= high)
                model.addConstr(total + under >= low)
                steps += [(1, over), (1, under)]
        return steps


def _keep_least(model: Any, goal: Sequence[tuple[int, Any]]) -> int:
    """Return the least cost of a goal, which later goals keep."""
    least = minimum(model, goal)
    assert least is not None
    if goal:
        model.addConstr(sum(cost * variable for cost, variable in goal) <= least + 0.5)
    for _, variable in goal:
        model.changeColCost(variable.index, 0.0)
    return least
