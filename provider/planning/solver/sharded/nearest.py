"""Quotas of replicas per topic and broker where some brokers receive nothing, so that fair shares may be out of reach.

The flow is that of `quotas`, but its bounds give way: each replica of a topic or a broker beyond its bounds is a step,
and costs more than any chain of moves that could avoid it. The quotas are therefore the nearest to the fair shares, and
of these need the fewest moves, then the fewest mebibytes. A replica that is in place on a broker that receives nothing
may stay, and no other comes.

Few pairs of topic and broker make a step, of a number that is the product of both. The flow is solved with the steps
of topics that cannot do without, and again with those that its prices show to be worth their cost, until there are
none: at these prices no step that was left out could lower the cost, so that the quotas are those of all steps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from kafka_steward.planning.solver.flow import UNLIMITED
from kafka_steward.planning.solver.problem import Bools, Ints
from kafka_steward.planning.solver.sharded.quotas import (
    QuotaFlow,
    QuotaProblem,
    Quotas,
    QuotaSolution,
    QuotaSubproblem,
    lower_bound_of_cost,
)
from kafka_steward.planning.solver.sharded.summary import NO_OPTION

#: Cost of a step, in moves. The checker counts with the same number, so that prices prove the quotas.
_STEP = 1 << 10


def nearest_quotas(problem: QuotaProblem) -> Quotas:
    """Return the quotas of all topics that are nearest to the fair shares. Raises Infeasible."""
    summary, racks = problem.summary, range(problem.summary.most.shape[1])
    # If the number of replicas per rack is given for each partition, racks are independent of each other.
    parts = [[rack] for rack in racks] if problem.separable.all() else [list(racks)]
    extra = np.zeros(summary.value.shape, np.int32)
    prices = np.zeros(len(problem.group), np.int64)
    cost = steps = 0
    for part in parts:
        mine = np.isin(problem.group, part)
        found = _RackSteps(problem, part).solve()
        extra[:, mine], prices[mine] = found.solution.extra[:, mine], found.solution.prices[mine]
        cost, steps = cost + found.solution.cost, steps + found.steps
    return Quotas(extra, *lower_bound_of_cost(summary, problem.move_cost, cost), prices, steps)


@dataclass(frozen=True)
class _Nearest:
    """A cheapest flow: its cost is that of moves and mebibytes alone. `up` and `down` are the steps to open."""

    solution: QuotaSolution
    steps: int
    up: Bools
    down: Bools


class _RackSteps:
    """The steps that are open in the flow of some racks.

    Masks of steps up, beyond a ceiling, are per topic and broker; those of steps down are per guaranteed replica.
    """

    def __init__(self, problem: QuotaProblem, racks: list[int]) -> None:
        summary = problem.summary
        self.problem, self.racks = problem, np.isin(np.arange(summary.most.shape[1]), racks)
        listed = np.zeros(summary.value.shape, bool)
        listed[summary.cell_topic, summary.cell_broker] = True
        mine = self.racks[problem.group]
        self.may_rise = ~listed & problem.receivers & mine
        self.may_fall = mine[summary.guaranteed_broker]

    def solve(self) -> _Nearest:
        """Return the cheapest flow of all steps. Raises Infeasible."""
        up, down = self._open_at_first()
        while True:
            found = _NearestFlow(self.problem, self.racks, up, down).solve_nearest()
            missing = (found.up & self.may_rise & ~up, found.down & self.may_fall & ~down)
            if not (missing[0].any() or missing[1].any()):
                return found
            up, down = up | missing[0], down | missing[1]

    def _open_at_first(self) -> tuple[Bools, Bools]:
        return self.may_rise & self._short_topics()[:, None], np.zeros_like(self.may_fall)

    def _short_topics(self) -> Bools:
        """Return a mask of the topics that may have too few places without a step."""
        summary, group = self.problem.summary, self.problem.group
        rack = group[:, None] == np.arange(len(self.racks))
        room = (summary.value > NO_OPTION).astype(np.int64) @ rack
        listed = np.where(self.problem.receivers[summary.cell_broker], summary.cell_high, 0)
        np.add.at(room, (summary.cell_topic, group[summary.cell_broker]), listed)
        needed = np.where(self.problem.separable[:, None], summary.most, summary.least)
        lacks: Bools = (room < needed).any(axis=1) | (np.minimum(room, summary.most).sum(axis=1) < summary.wants)
        return lacks


class _NearestFlow(QuotaFlow):
    """The network over some racks of all topics, with steps at brokers, at listed cells, and where they are open."""

    def __init__(self, problem: QuotaProblem, racks: Bools, up: Bools, down: Bools) -> None:
        summary, mine = problem.summary, racks[problem.group]
        rows = np.broadcast_to(racks, summary.most.shape)
        part = QuotaSubproblem(rows, (summary.value > NO_OPTION) & mine, np.zeros_like(summary.most))
        super().__init__(problem, part, (np.where(mine, problem.low, 0), np.where(mine, problem.high, 0)))
        self.fixed = np.where(mine, summary.guaranteed, 0)
        self.up_at, self.down_at = np.nonzero(up), np.flatnonzero(down)
        self.step = _STEP * self.move
        weight = summary.guaranteed_weight
        self.release_cost = self.step + np.where(weight >= 0, self.move + weight, 0)

    def solve_nearest(self) -> _Nearest:
        """Return the cheapest flow with the steps that are open. Raises Infeasible."""
        found = self.solve()
        up, down = self.flow[self.up], self.flow[self.down]
        np.add.at(found.extra, self.up_at, up)
        at = (self.summary.guaranteed_topic[self.down_at], self.summary.guaranteed_broker[self.down_at])
        np.subtract.at(found.extra, at, down)
        paid = int(up.sum() + down.sum())
        for below, above in (self.cell_steps, self.broker_steps):
            paid += int(self.flow[above].sum() - self.flow[below].sum())
        # Each replica up to a floor was paid for as a step that it saves.
        floors = int(self.summary.cell_low[self.cells].sum() + self.bounds[0].sum())
        cost = found.cost - paid * self.step
        return _Nearest(replace(found, cost=cost), paid + floors, *self._worthwhile_steps(found))

    def _add_option_arcs(self) -> None:
        super()._add_option_arcs()
        topic, broker = self.up_at
        tail = self.rack[self.local[topic], self.group[broker]]
        self.up = self.net.add_arcs(tail, self.broker[broker], UNLIMITED, self.step)
        topic, broker = self.summary.guaranteed_topic[self.down_at], self.summary.guaranteed_broker[self.down_at]
        head = self.rack[self.local[topic], self.group[broker]]
        self.down = self.net.add_arcs(self.broker[broker], head, 1, self.release_cost[self.down_at])

    def _add_cell_arcs(self, node: Ints, broker: Ints) -> None:
        low, high = self.summary.cell_low[self.cells], self.summary.cell_high[self.cells]
        self.cell_out, self.cell_steps = self._add_soft_arcs(node, broker, (low, high))

    def _replicas_of_cells(self) -> Ints:
        below, above = self.cell_steps
        return np.asarray(self.flow[self.cell_out] + self.flow[below] + self.flow[above], np.int64)

    def _add_broker_arcs(self) -> None:
        # What is guaranteed passes through the brokers, so that their prices count it.
        self.net.add_supply(self.broker, self.fixed)
        self.net.add_supply(self.sink, -int(self.fixed.sum()))
        _, self.broker_steps = self._add_soft_arcs(self.broker, self.sink, self.bounds)

    def _add_soft_arcs(self, tail: Ints, head: Ints, bounds: tuple[Ints, Ints]) -> tuple[slice, tuple[slice, slice]]:
        """Add arcs whose flow misses its bounds at the price of steps: those within, below, and above the bounds."""
        low, high = bounds
        within = self.net.add_arcs(tail, head, high - low, 0)
        below = self.net.add_arcs(tail, head, low, -self.step)
        return within, (below, self.net.add_arcs(tail, head, UNLIMITED, self.step))

    def _worthwhile_steps(self, found: QuotaSolution) -> tuple[Bools, Bools]:
        """Return masks of the steps up and down that would lower the cost at the prices of the flow."""
        up = found.worth[:, self.group] > self.step + found.full_prices
        topic, broker = self.summary.guaranteed_topic, self.summary.guaranteed_broker
        loss = found.full_prices[broker] - found.worth[topic, self.group[broker]]
        return up, loss > self.release_cost
