"""Find the quotas nearest to the fair shares where some brokers receive nothing.

The fair shares may then be out of reach. The flow is that of `quotas`, but its bounds give way. Each replica of a topic
or a broker beyond its bounds is a step, and a step costs more than any chain of moves that could avoid it. The quotas
are therefore the nearest to the fair shares; of all such quotas they need the fewest moves, then the fewest mebibytes.
On a broker that receives nothing a replica may stay, and no replica is added.

Any pair of topic and broker could make a step, and few do. The flow is first solved with the steps of topics that
cannot do without. It is solved again with the steps that its prices show to be worth their cost, until no such step is
left. At these prices no step that was left out could lower the cost, so that the quotas are those of all steps. Where
racks are independent of each other, options are left out as well, as in `quotas`, and opened in the same way.
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
    RackProblem,
    quotas_by_rack,
)
from kafka_steward.planning.solver.sharded.summary import NO_OPTION

#: Cost of a step, in moves. The checker counts with the same number, so that prices prove the quotas.
_STEP = 1 << 10
#: Beyond every cost.
_NEVER = 1 << 62


def nearest_quotas(problem: QuotaProblem) -> Quotas:
    """Return the quotas of all topics that are nearest to the fair shares. Raises Infeasible."""
    # If the number of replicas per rack is given for each partition, racks are independent of each other.
    if problem.separable.all():
        return quotas_by_rack(problem, _SoftRack)
    return _all_racks(problem)


def _all_racks(problem: QuotaProblem) -> Quotas:
    """Return the quotas by one flow over all racks, with all options. Raises Infeasible."""
    everything = QuotaSubproblem.whole(problem)
    possible = _Steps.possible(problem, np.ones(len(problem.group), bool))
    opened = possible.open_at_first(problem, np.ones(problem.summary.most.shape[1], bool))
    while True:
        flow = _SoftFlow(problem, everything, opened, (problem.low, problem.high), problem.summary.guaranteed)
        solution = flow.solve()
        missing = _worthwhile_steps(problem, solution, (solution.worth, solution.worth), possible.without(opened))
        if not missing.any():
            return Quotas.of(problem, solution.extra, solution.cost, solution.prices, solution.steps)
        opened = opened.joined_with(missing)


@dataclass(frozen=True)
class _Steps:
    """Masks of steps: `up`, beyond a ceiling, per topic and broker; `down`, below a floor, per guaranteed replica."""

    up: Bools
    down: Bools

    @classmethod
    def possible(cls, problem: QuotaProblem, mine: Bools) -> _Steps:
        """Return all steps of the brokers in `mine`. Listed cells have soft bounds, and need no steps."""
        summary = problem.summary
        listed = np.zeros(summary.value.shape, bool)
        listed[summary.cell_topic, summary.cell_broker] = True
        return cls(~listed & problem.receivers & mine, mine[summary.guaranteed_broker])

    def open_at_first(self, problem: QuotaProblem, racks: Bools) -> _Steps:
        """Return the steps up of the topics that may have too few places without them."""
        return _Steps(self.up & _short_topics(problem, racks)[:, None], np.zeros_like(self.down))

    def without(self, opened: _Steps) -> _Steps:
        """Return the steps that are not yet opened."""
        return _Steps(self.up & ~opened.up, self.down & ~opened.down)

    def joined_with(self, steps: _Steps) -> _Steps:
        """Return the steps of both."""
        return _Steps(self.up | steps.up, self.down | steps.down)

    def any(self) -> bool:
        """Return whether there is a step."""
        return bool(self.up.any() or self.down.any())

    def topics(self, problem: QuotaProblem) -> Bools:
        """Return a mask of the topics with a step."""
        has_step = np.asarray(self.up.any(axis=1), bool)
        has_step[problem.summary.guaranteed_topic[self.down]] = True
        return has_step


def _short_topics(problem: QuotaProblem, racks: Bools) -> Bools:
    """Return a mask of the topics that may have too few places in `racks` without a step."""
    summary, group = problem.summary, problem.group
    rack = group[:, None] == np.arange(len(racks))
    room = (summary.value > NO_OPTION).astype(np.int64) @ rack
    # A listed cell on a broker that receives nothing is no place for a new replica.
    listed = np.where(problem.receivers[summary.cell_broker], summary.cell_high, 0)
    np.add.at(room, (summary.cell_topic, group[summary.cell_broker]), listed)
    needed = np.where(problem.separable[:, None], summary.most, summary.least)
    lacks: Bools = (room < needed)[:, racks].any(axis=1)
    lacks |= (np.minimum(room, summary.most).sum(axis=1) < summary.wants) & ~problem.separable
    return lacks


def _step_cost(problem: QuotaProblem) -> int:
    return _STEP * problem.move_cost


def _release_costs(problem: QuotaProblem) -> Ints:
    # A step down gives up a guaranteed replica, which then has to be copied elsewhere if it is in place.
    weight = problem.summary.guaranteed_weight
    return _step_cost(problem) + np.where(weight >= 0, problem.move_cost + weight, 0)


def _worthwhile_steps(
    problem: QuotaProblem, solution: QuotaSolution, worth: tuple[Ints, Ints], closed: _Steps
) -> _Steps:
    """Return those of the closed steps that would lower the cost at the prices of a flow.

    `worth` is that of a place per topic and rack: the least and the most that it may be.
    """
    summary, group, prices = problem.summary, problem.group, solution.full_prices
    up = worth[0][:, group] > _step_cost(problem) + prices
    topic, broker = summary.guaranteed_topic, summary.guaranteed_broker
    down = prices[broker] - worth[1][topic, group[broker]] > _release_costs(problem)
    return _Steps(up & closed.up, down & closed.down)


class _SoftFlow(QuotaFlow):
    """The network with steps at brokers, at listed cells, and where they are open.

    `fixed` is the number of replicas that each broker has besides; the bounds count them too.
    """

    def __init__(
        self, problem: QuotaProblem, part: QuotaSubproblem, opened: _Steps, bounds: tuple[Ints, Ints], fixed: Ints
    ) -> None:
        super().__init__(problem, part, bounds)
        self.fixed = fixed
        self.up_at, self.down_at = np.nonzero(opened.up), np.flatnonzero(opened.down)
        self.step, self.release_cost = _step_cost(problem), _release_costs(problem)

    def solve(self) -> QuotaSolution:
        """Return the cheapest flow. Raises Infeasible."""
        solution = super().solve()
        up, down = self.flow[self.up], self.flow[self.down]
        np.add.at(solution.extra, self.up_at, up)
        at = (self.summary.guaranteed_topic[self.down_at], self.summary.guaranteed_broker[self.down_at])
        np.subtract.at(solution.extra, at, down)
        paid = int(up.sum() + down.sum())
        for below, above in (self.cell_steps, self.broker_steps):
            paid += int(self.flow[above].sum() - self.flow[below].sum())
        # The flow gains a step for each replica up to a floor. The sum of the floors turns that into steps missed.
        floors = int(self.summary.cell_low[self.cells].sum() + self.bounds[0].sum())
        return replace(solution, cost=solution.cost - paid * self.step, steps=paid + floors)

    def _path_cost(self) -> int:
        """Return an upper bound of a path's cost, on which a step may come with each move."""
        return super()._path_cost() * (1 + _STEP)

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
        # The fixed replicas pass through the brokers, so that the brokers' prices count them.
        self.net.add_supply(self.broker, self.fixed)
        self.net.add_supply(self.sink, -int(self.fixed.sum()))
        _, self.broker_steps = self._add_soft_arcs(self.broker, self.sink, self.bounds)

    def _add_soft_arcs(self, tail: Ints, head: Ints, bounds: tuple[Ints, Ints]) -> tuple[slice, tuple[slice, slice]]:
        """Add arcs whose flow may miss its bounds at the price of steps; return those within, below and above them."""
        low, high = bounds
        within = self.net.add_arcs(tail, head, high - low, 0)
        below = self.net.add_arcs(tail, head, low, -self.step)
        return within, (below, self.net.add_arcs(tail, head, UNLIMITED, self.step))


class _SoftRack(RackProblem):
    """The rows of one rack, with soft bounds.

    A row that is neither contended nor has an open step has a range of worths: from the cost of the most expensive
    place that it takes to the cost of the cheapest other place. If the range is empty, options or steps are missing. In
    all other rows, the flow gives the worth of a place.
    """

    def __init__(self, problem: QuotaProblem, number: int) -> None:
        super().__init__(problem, number)
        self.racks = np.arange(problem.summary.most.shape[1]) == number
        self.possible = _Steps.possible(problem, self.mine)
        self.steps = self.possible.open_at_first(problem, self.racks)

    def _priced_rows(self) -> Bools:
        return self.contended | self.steps.topics(self.problem)

    def _flow(self, part: QuotaSubproblem, bounds: tuple[Ints, Ints], fixed: Ints) -> QuotaFlow:
        steps = replace(self.steps, up=self.steps.up & part.rows.any(axis=1, keepdims=True))
        return _SoftFlow(self.problem, part, steps, self._only_mine(bounds), np.where(self.mine, fixed, 0))

    def _missing_options(self, solution: QuotaSolution, opened: Bools) -> Bools | None:
        """Return a mask of the closed options that would lower the cost at the prices, and open such steps.

        None if there are neither options nor steps.
        """
        cost = self.cost + solution.full_prices[self.columns]
        taken = solution.taken[:, self.columns]
        least, most = self._worths(solution, cost, taken)
        empty = (least > most)[:, None]
        # Where the range is empty, options of equal cost are opened, too: any of them may take the place of another.
        options = np.where(taken, (cost > most[:, None]) | ((cost == most[:, None]) & empty), cost < least[:, None])
        options |= ~taken & (cost == least[:, None]) & empty
        options &= self.option & ~opened & (self._priced_rows()[:, None] | empty)
        least_here, most_here = (np.where(self.racks, bound[:, None], 0) for bound in (least, most))
        closed = self.possible.without(self.steps)
        steps = _worthwhile_steps(self.problem, solution, (least_here, most_here), closed)
        self.steps = self.steps.joined_with(steps)
        return options if options.any() or steps.any() else None

    def _worths(self, solution: QuotaSolution, cost: Ints, taken: Bools) -> tuple[Ints, Ints]:
        """Return the least and the most that a place in each row may be worth; the least may be above the most."""
        problem, summary = self.problem, self.problem.summary
        least = np.where(taken, cost, -_NEVER).max(axis=1, initial=-_NEVER)
        most = np.where(self.option & ~taken, cost, _NEVER).min(axis=1, initial=_NEVER)
        gain = solution.full_prices[summary.guaranteed_broker] - _release_costs(problem)
        down = self.possible.down
        np.maximum.at(least, summary.guaranteed_topic[down], gain[down])
        step = _step_cost(problem) + solution.full_prices[self.columns]
        rises = np.where(self.possible.up[:, self.columns], step, _NEVER)
        most = np.minimum(most, rises.min(axis=1, initial=_NEVER))
        known = self._priced_rows()
        worth = solution.worth[:, self.number]
        return np.where(known, worth, least), np.where(known, worth, most)
