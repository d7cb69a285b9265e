"""The quotas of all shards by column generation: a flow over the few arcs whose outcome is uncertain.

If the number of replicas per rack is given for each partition, racks are independent of each other, and a topic's rack
is a row by itself: at given prices of the brokers it takes its cheapest options. Prices come from a sample of the rows.
Each row's options are ranked by them, and only options near the number that the row takes are open in the flow. Options
far ahead are taken, and options far behind are not. The flow's own prices then show which of the closed options should
change. Those are opened, and the flow is solved again, until there are none. At these prices no unit of the flow over
all arcs would be cheaper elsewhere, so that the flow is the cheapest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from kafka_steward.planning.solver.flow import Infeasible
from kafka_steward.planning.solver.problem import Bools, Ints, sum_by
from kafka_steward.planning.solver.sharded.quotas import (
    QuotaFlow,
    QuotaProblem,
    Quotas,
    QuotaSolution,
    SubProblem,
    lower_bound,
    option_costs,
    quotas_by_flow,
)
from kafka_steward.planning.solver.sharded.summary import NO_OPTION

Floats = npt.NDArray[np.float64]

#: Sample size: fraction of the topics, and at least so many topics per broker of the rack.
_SAMPLE, _PER_BROKER = 0.03, 4
#: Options on either side of the number that a row takes that are open to begin with.
_WINDOW = 2
#: For a broker that got too many or too few: options to open for each replica, the nearest first.
_OPENED_PER_NEED = 4
#: Topics that choose at once. Between the blocks, brokers that got less than their part become a little cheaper.
_BLOCK = 48
_NEVER = 1 << 60


def quotas_by_pricing(problem: QuotaProblem) -> Quotas:
    """Return the quotas of all topics. Raises Infeasible."""
    if not problem.separable.all():
        return quotas_by_flow(problem)
    summary = problem.summary
    extra = np.zeros(summary.value.shape, np.int32)
    prices, cost = np.zeros(len(problem.group), np.int64), 0
    for number in np.unique(problem.group).tolist():
        rack = _RackProblem(problem, number)
        found = rack.solved()
        extra[:, rack.columns] = found.extra[:, rack.columns]
        prices[rack.columns] = found.prices[rack.columns]
        cost += found.cost
    return Quotas(extra, *lower_bound(summary, problem.move, cost), prices)


@dataclass(frozen=True)
class _OptionRanks:
    """Each option's rank in its row at some prices, and its distance from the most expensive one that is taken."""

    rank: npt.NDArray[np.int16]
    distance: Floats


class _RackProblem:
    """The rows of one rack. Tables are per topic and broker of the rack."""

    def __init__(self, problem: QuotaProblem, number: int) -> None:
        self.problem, self.number, summary = problem, number, problem.summary
        self.columns = np.flatnonzero(problem.group == number)
        self.option = summary.value[:, self.columns] > NO_OPTION
        self.cost = option_costs(summary.value[:, self.columns], problem.move)
        self.wants = summary.most[:, number]
        self.contended = np.zeros(summary.topics, bool)
        self.contended[summary.contended_topic[summary.contended_group == number]] = True
        # Replicas that cells touched by a contended cell may take are not left for the options.
        mine = np.flatnonzero(problem.group[summary.cell_broker] == number)
        self.contended[summary.cell_topic[mine]] = True
        fewest, most = (
            sum_by(bound[mine], summary.cell_topic[mine], summary.topics)
            for bound in (summary.cell_low, summary.cell_high)
        )
        self.takes = (np.maximum(self.wants - most, 0), self.wants - fewest)
        self.middle = (self.takes[0] + self.takes[1]) // 2
        self.rng = np.random.default_rng(number)
        self.shuffled = self.rng.permutation(summary.topics)

    def solved(self) -> QuotaSolution:
        """Return the rack's cheapest flow. Raises Infeasible."""
        window, topics = _WINDOW, len(self.wants)
        sample = max(_PER_BROKER * len(self.columns), int(_SAMPLE * topics))
        opened, taken = self.option, np.zeros_like(self.option)
        if sample < topics:
            ranked = self._ranked(self._first_prices(self.shuffled[:sample]))
            opened, taken = self._filtered(ranked, window)
        while True:
            try:
                found = self._flow(opened, taken)
            except Infeasible:
                if (opened | ~self.option).all():
                    raise
                window *= 2
                opened = opened | self._filtered(ranked, window)[0]
                continue
            mispriced = self._mispriced(found, opened)
            if not mispriced.any():
                return found
            opened = opened | mispriced

    def _first_prices(self, topics: Ints) -> Ints:
        """Return the prices of a sample alone, in which brokers share the replicas as they share all."""
        rows = np.zeros(len(self.wants), bool)
        rows[topics] = True
        part, total = int(self.wants[rows].sum()), max(int(self.wants.sum()), 1)
        low, high = self.problem.extra_bounds
        slack = 1 + len(self.columns) // 16
        bounds = (np.maximum(low * part // total - slack, 0), -(-high * part // total) + slack)
        try:
            return self._network(rows, self.option & rows[:, None], self.wants * 0, bounds).solve().full_prices
        except Infeasible:
            # The sample is not representative; the first round finds better prices.
            return np.zeros(len(self.problem.group), np.int64)

    def _ranked(self, prices: Ints) -> _OptionRanks:
        """Return ranks at these prices.

        Among equals, options come first whose brokers got less than their part so far.
        """
        summary, cost = self.problem.summary, self.cost + prices[self.columns]
        room = ((self.problem.low + self.problem.high) / 2 - summary.guaranteed)[self.columns] / max(
            int(self.wants.sum()), 1
        )
        lack, middle = np.zeros(len(self.columns)), self.middle
        rank, distance = np.zeros(cost.shape, np.int16), np.zeros(cost.shape)
        for start in range(0, summary.topics, _BLOCK):
            topics = self.shuffled[start : start + _BLOCK]
            tie_break = 0.42 * np.tanh(lack / 24) + self.rng.uniform(0, 0.03, (len(topics), len(lack)))
            key = np.where(self.option[topics], cost[topics] - tie_break, float(_NEVER))
            order = np.argsort(key, axis=1, kind="stable")
            ranks = np.empty_like(order)
            np.put_along_axis(ranks, order, np.arange(len(lack))[None, :], axis=1)
            rank[topics] = ranks
            last = order[np.arange(len(topics)), np.clip(middle[topics] - 1, 0, len(lack) - 1)]
            distance[topics] = np.abs(key - key[np.arange(len(topics)), last][:, None])
            got = ((ranks < middle[topics][:, None]) & self.option[topics]).sum(axis=0)
            lack += int(got.sum()) * room - got
        return _OptionRanks(rank, distance)

    def _filtered(self, ranked: _OptionRanks, window: int) -> tuple[Bools, Bools]:
        """Return masks of the options that are open, and of the other options that are taken."""
        first, last = self.takes[0][:, None] - window, self.takes[1][:, None] + window
        opened = (ranked.rank >= first) & (ranked.rank < last) & self.option
        taken = (ranked.rank < first) & self.option
        return opened | self._needed(ranked, taken, window * _OPENED_PER_NEED // _WINDOW), taken

    def _needed(self, ranked: _OptionRanks, taken: Bools, times: int) -> Bools:
        """Return a mask of the cheapest options to change of brokers that got too many or too few replicas."""
        summary, opened = self.problem.summary, np.zeros_like(taken)
        got = ((ranked.rank < self.middle[:, None]) & self.option).sum(axis=0)
        middle = (summary.cell_low + summary.cell_high) // 2
        touched = sum_by(middle, summary.cell_broker, len(self.problem.group))
        total = got + (touched + summary.guaranteed)[self.columns]
        over, under = total - self.problem.high[self.columns], self.problem.low[self.columns] - total
        for column in np.flatnonzero(np.maximum(over, under) > 0).tolist():
            side = taken[:, column] if over[column] > 0 else self.option[:, column] & ~taken[:, column]
            rows = np.flatnonzero(side)
            need = min(times * int(max(over[column], under[column])), len(rows))
            near = np.argsort(ranked.distance[rows, column], kind="stable")[:need]
            opened[rows[near], column] = True
        return opened

    def _flow(self, opened: Bools, taken: Bools) -> QuotaSolution:
        """Return the flow over the open options, plus the closed options that are taken. Raises Infeasible."""
        closed = taken & ~opened
        left = self.problem.summary.guaranteed.copy()
        left[self.columns] += closed.sum(axis=0)
        bounds = (self.problem.low - left, self.problem.high - left)
        rows = opened.any(axis=1) | self.contended
        found = self._network(rows, opened, closed.sum(axis=1), bounds).solve()
        found.extra[:, self.columns] += closed
        return replace(found, cost=found.cost + int(self.cost[closed].sum()))

    def _network(self, rows: Bools, opened: Bools, taken: Ints, bounds: tuple[Ints, Ints]) -> QuotaFlow:
        racks, brokers = self.problem.summary.most.shape[1], len(self.problem.group)
        here = np.arange(racks) == self.number
        everywhere = np.zeros((len(rows), brokers), bool)
        everywhere[:, self.columns] = opened
        mine = self.problem.group == self.number
        part = SubProblem(rows[:, None] & here, everywhere, taken[:, None] * here)
        return QuotaFlow(self.problem, part, (np.where(mine, bounds[0], 0), np.where(mine, bounds[1], 0)))

    def _mispriced(self, found: QuotaSolution, opened: Bools) -> Bools:
        """Return a mask of the options that should change at the prices, and of those that could replace them."""
        cost = np.where(self.option, self.cost + found.full_prices[self.columns], _NEVER)
        taken = (found.extra[:, self.columns] > 0) & self.option
        dearest = np.sort(cost, axis=1)[np.arange(len(cost)), np.clip(self.wants - 1, 0, len(self.columns) - 1)]
        # In rows with a contended cell, the flow gives the worth of a place in the row.
        worth = np.where(self.contended, found.worth[:, self.number], dearest)[:, None]
        contended, takes = self.contended[:, None], (self.wants > 0)[:, None]
        may = np.where(contended, ~opened, takes) & self.option
        mispriced: Bools = np.where(taken, cost > worth, cost < worth) & may
        affected = mispriced.sum(axis=1)[:, None] > 0
        return np.asarray(mispriced | ((cost == worth) & affected & ~contended), bool)
