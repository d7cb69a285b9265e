"""Who holds how many replicas of which topic, over all slices: a flow over topics and brokers, not over partitions.

::

    topic ─► (topic, rack) ──option──► broker ──[fair share]──► sink
                   ├──► knot ──► (topic, broker) ──► broker
                   └──plain, new──► (topic, broker)

It forgets which partition a replica belongs to, so that its cost is a bound below every plan's; where every rack's
number is given for each partition, a plan of that cost exists, because partitions of a topic can be exchanged for one
another in a rack. The cost is of two kinds: moves first, mebibytes second.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from kafka_steward.planning.solver.arrays import Bools, Ints
from kafka_steward.planning.solver.flows import Network
from kafka_steward.planning.solver.tally import NO_OPTION, Tally

__all__ = ["QuotaFlow", "Quotas", "Whole", "bound_of", "together", "whole_quotas"]

_MAX_SCALED_COST = 1 << 61
_MANY = 1 << 40


@dataclass(frozen=True)
class Whole:
    """The tallies of all slices as one, and how many replicas each broker may hold, at least and at most."""

    tally: Tally
    group: Ints
    low: Ints
    high: Ints

    @cached_property
    def apart(self) -> Bools:
        """Topics of which every partition has a given number of replicas in every rack."""
        return np.asarray(self.tally.most.sum(axis=1) == self.tally.wants, bool)


@dataclass(frozen=True)
class Quotas:
    """Replicas per topic and broker beyond the base, the bound on moves and on mebibytes, and the brokers' prices."""

    beyond: npt.NDArray[np.int32]
    moves: int
    weight: int
    prices: Ints


def together(parts: list[Tally]) -> Tally:
    """The tallies of slices, in their order, as one."""
    topics = np.cumsum([0, *(part.topics for part in parts)])
    knots = np.cumsum([0, *(len(part.knot_topic) for part in parts)])
    cells = np.cumsum([0, *(len(part.cell_topic) for part in parts)])
    shifts = {"knot_topic": topics, "cell_topic": topics, "tie_knot": knots, "plain_cell": cells}
    sums = {"held", "base", "wanted", "kept"}
    values: dict[str, Any] = {}
    for name in parts[0].__dataclass_fields__:
        found = [getattr(part, name) for part in parts]
        if name == "topics":
            values[name] = int(topics[-1])
        elif name in sums:
            values[name] = np.sum(found, axis=0)
        elif name in shifts:
            values[name] = np.concatenate([one + by for one, by in zip(found, shifts[name], strict=False)])
        else:
            values[name] = np.concatenate(found)
    return Tally(**values)


class QuotaFlow:
    """The network over some racks of topics (all of a topic's that is not apart), within the brokers' bounds."""

    def __init__(self, whole: Whole, rows: Bools, bounds: tuple[Ints, Ints]) -> None:
        self.tally, self.group, self.bounds, self.rows = whole.tally, whole.group, bounds, rows
        self.topics = np.flatnonzero(rows.any(axis=1))
        self.local = np.full(len(rows), -1)
        self.local[self.topics] = np.arange(len(self.topics))
        self.apart = whole.apart
        self.net = Network()
        racks = self.tally.least.shape[1]
        self.rack = self.net.nodes(len(self.topics) * racks).reshape(-1, racks)
        self.broker = self.net.nodes(len(self.group))
        self.sink = self.net.nodes(1)
        # More than all mebibytes together, so that one move weighs more than any of them.
        self.move = int(self.tally.wanted[1]) + 1

    def solve(self) -> tuple[npt.NDArray[np.int32], int]:
        """Replicas beyond the base of the topics, and the cost. Raises Infeasible."""
        self._supplies()
        self._options()
        self._knots()
        low, high = self.bounds
        self.net.connect_between(self.broker, np.broadcast_to(self.sink, self.broker.shape), (low, high), 0)
        self.flow = self.net.solve()
        beyond = np.zeros((len(self.topics), len(self.group)), np.int32)
        beyond[self.option_at] = self.flow[self.option]
        cells = self.flow[self.cell_out] + self.tally.cell_low[self.cells]
        beyond[self.local[self.tally.cell_topic[self.cells]], self.tally.cell_broker[self.cells]] = cells
        return beyond, self.net.cost_of(self.flow)

    def moves(self) -> Ints:
        """What every arc costs in moves alone."""
        return np.asarray(-((-self.net.costs()) // self.move), np.int64)

    def prices(self, costs: Ints) -> Ints:
        """What a place on each broker is worth: at these, no unit of the flow would rather be elsewhere."""
        potential = self.net.potentials(self.flow, costs)
        return np.asarray(potential[self.sink[0]] - potential[self.broker], np.int64)

    def _supplies(self) -> None:
        net, wants = self.net, self.tally.wants[self.topics]
        least, most = self.tally.least[self.topics], self.tally.most[self.topics]
        apart = self.apart[self.topics]
        # Where only some racks are in the network, the others' replicas are no part of it.
        here = np.where(self.rows[self.topics], most, 0)
        net.supply(self.rack[apart].ravel(), here[apart].ravel())
        loose = np.flatnonzero(~apart)
        # A node of its own only where the racks' numbers are not given.
        source = net.nodes(len(loose))
        net.supply(source, wants[loose])
        tail = np.broadcast_to(source[:, None], (len(loose), self.rack.shape[1]))
        net.connect_between(tail.ravel(), self.rack[loose].ravel(), (least[loose].ravel(), most[loose].ravel()), 0)
        net.supply(self.sink, -int(here[apart].sum() + wants[~apart].sum()))

    def _options(self) -> None:
        value = self.tally.value[self.topics]
        self.option_at = np.nonzero((value > NO_OPTION) & self.rows[self.topics][:, self.group])
        topic, broker = self.option_at
        worth = value[self.option_at].astype(np.int64)
        cost = np.where(worth >= 0, -(self.move + worth), 0)
        self.option = self.net.connect(self.rack[topic, self.group[broker]], self.broker[broker], 1, cost)

    def _knots(self) -> None:
        net, tally = self.net, self.tally
        self.cells = np.flatnonzero(self.rows[tally.cell_topic, self.group[tally.cell_broker]])
        number = np.full(len(tally.cell_topic), -1)
        number[self.cells] = np.arange(len(self.cells))
        node = net.nodes(len(self.cells))
        topic, broker = self.local[tally.cell_topic[self.cells]], tally.cell_broker[self.cells]
        rack = self.rack[topic, self.group[broker]]
        plain = np.flatnonzero(number[tally.plain_cell] >= 0)
        at = number[tally.plain_cell[plain]]
        net.connect(rack[at], node[at], 1, -(self.move + tally.plain_weight[plain]))
        net.connect(rack, node, _MANY, 0)
        self._ties(node)
        low, high = tally.cell_low[self.cells], tally.cell_high[self.cells]
        self.cell_out = net.connect_between(node, self.broker[broker], (low, high), 0)

    def _ties(self, node: Ints) -> None:
        net, tally = self.net, self.tally
        chosen = np.flatnonzero(self.rows[tally.knot_topic, tally.knot_group])
        number = np.full(len(tally.knot_topic), -1)
        number[chosen] = np.arange(len(chosen))
        knot = net.nodes(len(chosen))
        topic = self.local[tally.knot_topic[chosen]]
        net.connect(self.rack[topic, tally.knot_group[chosen]], knot, tally.knot_most[chosen], 0)
        tie = np.flatnonzero(number[tally.tie_knot] >= 0)
        at = number[tally.tie_knot[tie]]
        brokers = len(self.group)
        key = self.local[tally.cell_topic[self.cells]] * brokers + tally.cell_broker[self.cells]
        cell = np.searchsorted(key, topic[at] * brokers + tally.tie_broker[tie])
        net.connect(knot[at], node[cell], 1, -(self.move + tally.knot_weight[chosen][at]))


def whole_quotas(whole: Whole) -> Quotas:
    """The quotas of all topics by one flow. Raises Infeasible."""
    tally = whole.tally
    everything = np.ones(tally.most.shape, bool)
    flow = QuotaFlow(whole, everything, (whole.low - tally.base, whole.high - tally.base))
    beyond, cost = flow.solve()
    return Quotas(beyond, *bound_of(tally, flow.move, cost), flow.prices(flow.moves()))


def bound_of(tally: Tally, move: int, cost: int) -> tuple[int, int]:
    """Moves and mebibytes of a cost, which counts what is kept beyond the base as a gain."""
    total = (tally.wanted - tally.kept) @ np.array([move, 1])
    moves, weight = divmod(int(total) + cost, move)
    return moves, weight
