"""The quotas of `quota_flow` by column generation: a flow over the few arcs whose outcome is uncertain.

If the number of replicas per rack is given for each partition, racks are independent of each other, and a topic's rack
is a row by itself: at given prices of the brokers it takes its cheapest options. Prices come from a sample of the rows.
Each row's options are ranked by them, and only options near the number that the row takes are open in the flow. Options
far ahead are taken, and options far behind are not. The flow's own prices then show which of the closed options should
change. Those are opened, and the flow is solved again, until there are none. At these prices no unit of the flow over
all arcs would be cheaper elsewhere, so that the flow is the cheapest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kafka_steward.planning.solver.arrays import Bools, Ints
from kafka_steward.planning.solver.flows import Infeasible
from kafka_steward.planning.solver.quota_flow import (
    Part,
    QuotaFlow,
    Quotas,
    Solved,
    Whole,
    bound_of,
    option_costs,
    whole_quotas,
)
from kafka_steward.planning.solver.tally import NO_OPTION

__all__ = ["sifted_quotas"]

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


def sifted_quotas(whole: Whole) -> Quotas:
    """Return the quotas of all topics. Raises Infeasible."""
    if not whole.apart.all():
        return whole_quotas(whole)
    tally = whole.tally
    beyond = np.zeros(tally.value.shape, np.int32)
    prices, cost = np.zeros(len(whole.group), np.int64), 0
    for number in np.unique(whole.group).tolist():
        rack = _Rack(whole, number)
        found = rack.solved()
        beyond[:, rack.columns] = found.beyond[:, rack.columns]
        prices[rack.columns] = found.prices[rack.columns]
        cost += found.cost
    return Quotas(beyond, *bound_of(tally, whole.move, cost), prices)


@dataclass(frozen=True)
class _Ranked:
    """Each option's rank in its row at some prices, and its distance from the most expensive one that is taken."""

    rank: npt.NDArray[np.int16]
    distance: Floats


class _Rack:
    """The rows of one rack. Tables are per topic and broker of the rack."""

    def __init__(self, whole: Whole, number: int) -> None:
        self.whole, self.number, tally = whole, number, whole.tally
        self.columns = np.flatnonzero(whole.group == number)
        self.option = tally.value[:, self.columns] > NO_OPTION
        self.cost = option_costs(tally.value[:, self.columns], whole.move)
        self.wants = tally.most[:, number]
        self.tied = np.zeros(tally.topics, bool)
        self.tied[tally.knot_topic[tally.knot_group == number]] = True
        # Replicas that cells touched by a contended cell may take are not left for the options.
        fewest, most = np.zeros((2, tally.topics), np.int64)
        mine = np.flatnonzero(whole.group[tally.cell_broker] == number)
        self.tied[tally.cell_topic[mine]] = True
        np.add.at(fewest, tally.cell_topic[mine], tally.cell_low[mine])
        np.add.at(most, tally.cell_topic[mine], tally.cell_high[mine])
        self.takes = (np.maximum(self.wants - most, 0), self.wants - fewest)
        self.middle = (self.takes[0] + self.takes[1]) // 2
        self.dice = np.random.default_rng(number)
        self.shuffled = self.dice.permutation(tally.topics)

    def solved(self) -> Solved:
        """Return the rack's cheapest flow. Raises Infeasible."""
        window, topics = _WINDOW, len(self.wants)
        sample = max(_PER_BROKER * len(self.columns), int(_SAMPLE * topics))
        opened, taken = self.option, np.zeros_like(self.option)
        if sample < topics:
            ranked = self._ranked(self._first_prices(self.shuffled[:sample]))
            opened, taken = self._sifted(ranked, window)
        while True:
            try:
                found = self._flow(opened, taken)
            except Infeasible:
                if (opened | ~self.option).all():
                    raise
                window *= 2
                opened = opened | self._sifted(ranked, window)[0]
                continue
            wrong = self._wrong(found, opened)
            if not wrong.any():
                return found
            opened = opened | wrong

    def _first_prices(self, topics: Ints) -> Ints:
        """Return the prices of a sample alone, in which brokers share the replicas as they share all."""
        rows = np.zeros(len(self.wants), bool)
        rows[topics] = True
        part, total = int(self.wants[rows].sum()), max(int(self.wants.sum()), 1)
        low, high = self.whole.low - self.whole.tally.base, self.whole.high - self.whole.tally.base
        slack = 1 + len(self.columns) // 16
        bounds = (np.maximum(low * part // total - slack, 0), -(-high * part // total) + slack)
        try:
            return self._network(rows, self.option & rows[:, None], self.wants * 0, bounds).solve().full_prices
        except Infeasible:
            # The sample is not representative; the first round finds better prices.
            return np.zeros(len(self.whole.group), np.int64)

    def _ranked(self, prices: Ints) -> _Ranked:
        """Return ranks at these prices.

        Among equals, options come first whose brokers got less than their part so far.
        """
        tally, cost = self.whole.tally, self.cost + prices[self.columns]
        room = ((self.whole.low + self.whole.high) / 2 - tally.base)[self.columns] / max(int(self.wants.sum()), 1)
        lack, middle = np.zeros(len(self.columns)), self.middle
        rank, distance = np.zeros(cost.shape, np.int16), np.zeros(cost.shape)
        for start in range(0, tally.topics, _BLOCK):
            topics = self.shuffled[start : start + _BLOCK]
            tie = 0.42 * np.tanh(lack / 24) + self.dice.uniform(0, 0.03, (len(topics), len(lack)))
            key = np.where(self.option[topics], cost[topics] - tie, float(_NEVER))
            order = np.argsort(key, axis=1, kind="stable")
            ranks = np.empty_like(order)
            np.put_along_axis(ranks, order, np.arange(len(lack))[None, :], axis=1)
            rank[topics] = ranks
            last = order[np.arange(len(topics)), np.clip(middle[topics] - 1, 0, len(lack) - 1)]
            distance[topics] = np.abs(key - key[np.arange(len(topics)), last][:, None])
            got = ((ranks < middle[topics][:, None]) & self.option[topics]).sum(axis=0)
            lack += int(got.sum()) * room - got
        return _Ranked(rank, distance)

    def _sifted(self, ranked: _Ranked, window: int) -> tuple[Bools, Bools]:
        """Return masks of the options that are open, and of the other options that are taken."""
        first, last = self.takes[0][:, None] - window, self.takes[1][:, None] + window
        opened = (ranked.rank >= first) & (ranked.rank < last) & self.option
        taken = (ranked.rank < first) & self.option
        return opened | self._needed(ranked, taken, window * _OPENED_PER_NEED // _WINDOW), taken

    def _needed(self, ranked: _Ranked, taken: Bools, times: int) -> Bools:
        """Return a mask of the cheapest options to change.

        They belong to brokers that got too many or too few replicas.
        """
        tally, opened = self.whole.tally, np.zeros_like(taken)
        got = ((ranked.rank < self.middle[:, None]) & self.option).sum(axis=0)
        touched = np.zeros(len(self.whole.group), np.int64)
        np.add.at(touched, tally.cell_broker, (tally.cell_low + tally.cell_high) // 2)
        total = got + (touched + tally.base)[self.columns]
        over, under = total - self.whole.high[self.columns], self.whole.low[self.columns] - total
        for column in np.flatnonzero(np.maximum(over, under) > 0).tolist():
            side = taken[:, column] if over[column] > 0 else self.option[:, column] & ~taken[:, column]
            rows = np.flatnonzero(side)
            need = min(times * int(max(over[column], under[column])), len(rows))
            near = np.argsort(ranked.distance[rows, column], kind="stable")[:need]
            opened[rows[near], column] = True
        return opened

    def _flow(self, opened: Bools, taken: Bools) -> Solved:
        """Return the flow over the open options, plus the closed options that are taken. Raises Infeasible."""
        closed = taken & ~opened
        left = self.whole.tally.base.copy()
        left[self.columns] += closed.sum(axis=0)
        bounds = (self.whole.low - left, self.whole.high - left)
        rows = opened.any(axis=1) | self.tied
        found = self._network(rows, opened, closed.sum(axis=1), bounds).solve()
        found.beyond[:, self.columns] += closed
        return found.dearer(int(self.cost[closed].sum()))

    def _network(self, rows: Bools, opened: Bools, taken: Ints, bounds: tuple[Ints, Ints]) -> QuotaFlow:
        racks, brokers = self.whole.tally.most.shape[1], len(self.whole.group)
        here = np.arange(racks) == self.number
        everywhere = np.zeros((len(rows), brokers), bool)
        everywhere[:, self.columns] = opened
        mine = self.whole.group == self.number
        part = Part(rows[:, None] & here, everywhere, taken[:, None] * here)
        return QuotaFlow(self.whole, part, (np.where(mine, bounds[0], 0), np.where(mine, bounds[1], 0)))

    def _wrong(self, found: Solved, opened: Bools) -> Bools:
        """Return a mask of the options that should change at the prices, and of those that could replace them."""
        cost = np.where(self.option, self.cost + found.full_prices[self.columns], _NEVER)
        taken = (found.beyond[:, self.columns] > 0) & self.option
        dearest = np.sort(cost, axis=1)[np.arange(len(cost)), np.clip(self.wants - 1, 0, len(self.columns) - 1)]
        # In rows with a contended cell, the flow gives the worth of a place in the row.
        worth = np.where(self.tied, found.worth[:, self.number], dearest)[:, None]
        tied, takes = self.tied[:, None], (self.wants > 0)[:, None]
        may = np.where(tied, ~opened, takes) & self.option
        wrong: Bools = np.where(taken, cost > worth, cost < worth) & may
        unhappy = wrong.sum(axis=1)[:, None] > 0
        return np.asarray(wrong | ((cost == worth) & unhappy & ~tied), bool)
