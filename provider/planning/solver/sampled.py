"""The same quotas without a flow over all topics: prices from a sample, most topics by price alone, and a check.

Where every rack's number is given for each partition, a topic's rack is a row by itself: at given prices of the
brokers it takes the options of least cost and price. Only the rows of a sample, and those with knots, go through the
flow, which evens out the brokers; its own prices then tell which of the other rows would rather choose otherwise, and
by how much. Those join the flow, and it is solved again. What they could gain in all is all that the quotas can be
above the bound: nothing, when none would.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kafka_steward.planning.solver.arrays import Bools, Ints
from kafka_steward.planning.solver.flows import Infeasible
from kafka_steward.planning.solver.quota_flow import QuotaFlow, Quotas, Whole, bound_of, whole_quotas
from kafka_steward.planning.solver.tally import NO_OPTION

__all__ = ["sampled_quotas"]

Floats = npt.NDArray[np.float64]

#: Topics times brokers up to which one flow over all is as fast.
_FEW_CELLS = 2_000_000
#: Of the rows: how many are in the sample, and at least how many per broker.
_SAMPLE, _PER_BROKER = 0.1, 10
#: Topics that choose at once; between, brokers that got less than their part become a little cheaper.
_BLOCK = 48
_ROUNDS = 10
#: Part of the rows that is too many to join the flow at once, and how often all choose anew for that.
_TOO_MANY, _ANEW = 0.3, 1
#: Topics times brokers from which on quotas will do that are proven for moves, and for mebibytes up to this part.
_MANY_CELLS = 5_000_000
_GOOD_ENOUGH = 1e-3
_NEVER = 1 << 60


def sampled_quotas(whole: Whole) -> Quotas:
    """Quotas of all topics. Raises Infeasible."""
    if whole.tally.value.size <= _FEW_CELLS or not whole.apart.all():
        return whole_quotas(whole)
    rows = _Rows(whole)
    near: Quotas | None = None
    for _ in range(_ROUNDS):
        try:
            found, exact = rows.solved()
        except Infeasible:
            rows.sample_more()
            continue
        if found and exact:
            return found
        near = found or near
    # One flow over that many would take minutes.
    return near if near and whole.tally.value.size > _MANY_CELLS else whole_quotas(whole)


class _Rows:
    """Which rows are in the flow, at which prices the others choose, and what they chose."""

    def __init__(self, whole: Whole) -> None:
        self.whole, self.tally = whole, whole.tally
        self.dice = np.random.default_rng(0)
        self.shuffled = self.dice.permutation(self.tally.topics)
        racks = self.tally.most.shape[1]
        self.knotted = np.zeros((self.tally.topics, racks), bool)
        self.knotted[self.tally.knot_topic, self.tally.knot_group] = True
        self.knotted[self.tally.cell_topic, whole.group[self.tally.cell_broker]] = True
        self.size = max(_PER_BROKER * len(whole.group), int(_SAMPLE * self.tally.topics))
        self.flowing = self._sample()
        self.anew = 0
        self.price = self._first_prices()
        self.beyond = self._chosen()

    def sample_more(self) -> None:
        """Four times the sample: a small one cannot even out what the others leave."""
        self.size *= 4
        self.flowing |= self._sample()

    def _sample(self) -> Bools:
        rows = np.zeros(self.knotted.shape, bool)
        rows[self.shuffled[: self.size]] = True
        return rows

    def _first_prices(self) -> Ints:
        """The prices of the sample alone, where brokers share its replicas as they share all."""
        units, total = self.tally.wants, max(int(self.tally.wants.sum()), 1)
        part = int(units[self.shuffled[: self.size]].sum())
        low, high = self.whole.low - self.tally.base, self.whole.high - self.tally.base
        slack = 1 + len(self.whole.group) // 50
        bounds = (np.maximum(low * part // total - slack, 0), -(-high * part // total) + slack)
        flow = QuotaFlow(self.whole, self.flowing, bounds)
        try:
            flow.solve()
        except Infeasible:
            # The sample is not like the whole; the first round finds better prices.
            return np.zeros(len(low), np.int64)
        return flow.prices(flow.net.costs())

    def _chosen(self) -> npt.NDArray[np.int32]:
        """What every row takes at the prices; of equals, what brokers lack that got less than their part so far."""
        tally, group = self.tally, self.whole.group
        beyond = np.zeros(tally.value.shape, np.int32)
        room = ((self.whole.low + self.whole.high) / 2 - tally.base) / max(int(tally.wants.sum()), 1)
        lack = np.zeros(len(group))
        free = ~self.knotted
        for start in range(0, tally.topics, _BLOCK):
            topics = self.shuffled[start : start + _BLOCK]
            tie = 0.42 * np.tanh(lack / 24)[None, :] + self.dice.uniform(0, 0.03, (len(topics), len(group)))
            taken = self._cheapest(topics, self._cost(topics, self.price) - tie) & free[topics][:, group]
            beyond[topics] = taken
            lack += int(taken.sum()) * room - taken.sum(axis=0)
        return beyond

    def _cost(self, topics: Ints | slice, price: Ints) -> Floats:
        """Cost and price of every option. Never that of what is none."""
        value = self.tally.value[topics].astype(np.float64)
        move = float(self.tally.wanted[1] + 1)
        return np.where(value > NO_OPTION, np.where(value >= 0, -(move + value), 0.0) + price, float(_NEVER))

    def _cheapest(self, topics: Ints, cost: Floats) -> Bools:
        taken = np.zeros(cost.shape, bool)
        for rack in range(self.knotted.shape[1]):
            columns = np.flatnonzero(self.whole.group == rack)
            if len(columns) == 0:
                continue
            order = np.argsort(cost[:, columns], axis=1, kind="stable")
            wanted = self.tally.most[topics, rack]
            row, rank = np.nonzero(np.arange(len(columns)) < wanted[:, None])
            taken[row, columns[order[row, rank]]] = True
        return taken

    def solved(self) -> tuple[Quotas | None, bool]:
        """The quotas with what flows solved anew, if they are near the bound, and whether at it."""
        flowing = self.flowing | self.knotted
        fixed = np.where(flowing[:, self.whole.group], 0, self.beyond)
        taken = self.tally.base + fixed.sum(axis=0)
        flow = QuotaFlow(self.whole, flowing, (self.whole.low - taken, self.whole.high - taken))
        solved, cost = flow.solve()
        prices = flow.prices(flow.net.costs())
        beyond = fixed.astype(np.int32)
        beyond[flow.topics] += solved
        paid = self._cost(slice(None), prices * 0)
        cost += int(paid[fixed > 0].sum())
        gain = self._gains(fixed, prices, flowing)
        moves, weight = bound_of(self.tally, flow.move, cost - int(gain.sum()))
        most = bound_of(self.tally, flow.move, cost)
        self._join(gain > 0, prices)
        if moves != most[0] or most[1] - weight > _GOOD_ENOUGH * most[1]:
            return None, False
        return Quotas(beyond, moves, weight, flow.prices(flow.moves())), not gain.any()

    def _join(self, unhappy: Bools, prices: Ints) -> None:
        """Rows that would choose otherwise join the flow; where they are many, all choose anew at its prices."""
        if unhappy.mean() > _TOO_MANY and self.anew < _ANEW:
            self.anew += 1
            self.price = prices
            self.beyond = self._chosen()
        else:
            self.flowing |= unhappy

    def _gains(self, fixed: npt.NDArray[np.int32], prices: Ints, flowing: Bools) -> Ints:
        """What each row outside the flow could save by choosing anew at the prices."""
        gain = np.zeros(flowing.shape, np.int64)
        everything = np.arange(self.tally.topics)
        cost = self._cost(everything, prices)
        best = self._cheapest(everything, cost)
        for rack in range(flowing.shape[1]):
            columns = self.whole.group == rack
            mine = np.where(fixed[:, columns] > 0, cost[:, columns], 0).sum(axis=1)
            least = np.where(best[:, columns], cost[:, columns], 0).sum(axis=1)
            gain[:, rack] = np.where(flowing[:, rack], 0, np.rint(mine - least))
        return gain
