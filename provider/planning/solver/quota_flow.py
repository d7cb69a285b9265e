"""Quotas of replicas per topic and broker, over all shards: a flow over topics and brokers, not over partitions.

::

    topic ─► (topic, rack) ──option──► broker ──[fair share]──► sink
                   ├──► contended cell ──► (topic, broker) ──► broker
                   └──uncontended, new──► (topic, broker)

The flow ignores which partition a replica belongs to, so that its cost is a lower bound of every plan's cost. If the
number of replicas per rack is given for each partition, a plan of that cost exists, because partitions of a topic can
be exchanged for one another in a rack. The cost has two components: moves first, mebibytes second. `tally` explains
contended cells, which the code calls knots.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from kafka_steward.planning.solver.arrays import Bools, Ints
from kafka_steward.planning.solver.flows import Network
from kafka_steward.planning.solver.tally import NO_OPTION, Tally

__all__ = ["Part", "QuotaFlow", "Quotas", "Solved", "Whole", "bound_of", "option_costs", "together", "whole_quotas"]

_MANY = 1 << 40


@dataclass(frozen=True)
class Whole:
    """The summaries of all shards as one, and the fewest and most replicas that each broker may hold."""

    tally: Tally
    group: Ints
    low: Ints
    high: Ints

    @cached_property
    def apart(self) -> Bools:
        """A mask of the separable topics, whose partitions all have a given number of replicas in every rack."""
        return np.asarray(self.tally.most.sum(axis=1) == self.tally.wants, bool)

    @cached_property
    def move(self) -> int:
        """The cost of a move: more than all mebibytes, and than twice the sum of any path through the network."""
        tally = self.tally
        ways = np.maximum(tally.value, 0).sum(dtype=np.int64) + tally.plain_weight.sum()
        return int(tally.wanted[1] + 2 * (ways + tally.knot_weight[tally.tie_knot].sum())) + 1


@dataclass(frozen=True)
class Part:
    """The part of all topics in a network: their racks, their open options, and what each rack has taken besides."""

    rows: Bools
    open: Bools
    taken: Ints


@dataclass(frozen=True)
class Quotas:
    """Replicas per topic and broker beyond the base, bounds on moves and on mebibytes, and the brokers' prices."""

    beyond: npt.NDArray[np.int32]
    moves: int
    weight: int
    prices: Ints


def together(parts: list[Tally]) -> Tally:
    """Combine the summaries of shards, in their order, into one."""
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


@dataclass(frozen=True)
class Solved:
    """A flow: replicas beyond the base per topic and broker, its cost, and the worth of a place by its potentials.

    `prices` of brokers are in moves, `full_prices` in costs; `worth`, in costs, is that of a place in a topic's rack.
    """

    beyond: npt.NDArray[np.int32]
    cost: int
    prices: Ints
    full_prices: Ints
    worth: Ints

    def dearer(self, by: int) -> Solved:
        """Return the same result with `by` added to the cost."""
        return replace(self, cost=self.cost + by)


class QuotaFlow:
    """The network over a part (all racks of a topic that is not separable), within the brokers' bounds."""

    def __init__(self, whole: Whole, part: Part, bounds: tuple[Ints, Ints]) -> None:
        self.tally, self.group, self.bounds, self.part = whole.tally, whole.group, bounds, part
        self.topics = np.flatnonzero(part.rows.any(axis=1))
        self.local = np.full(len(part.rows), -1)
        self.local[self.topics] = np.arange(len(self.topics))
        self.apart = whole.apart
        self.net = Network()
        racks = self.tally.least.shape[1]
        self.rack = self.net.nodes(len(self.topics) * racks).reshape(-1, racks)
        self.broker = self.net.nodes(len(self.group))
        self.sink = self.net.nodes(1)
        self.move = whole.move

    def solve(self) -> Solved:
        """Return the cheapest flow. Raises Infeasible."""
        self._supplies()
        self._options()
        self._knots()
        low, high = self.bounds
        self.net.connect_between(self.broker, np.broadcast_to(self.sink, self.broker.shape), (low, high), 0)
        flow = self.net.solve()
        beyond = np.zeros(self.tally.value.shape, np.int32)
        beyond[self.option_at] = flow[self.option]
        cells = flow[self.cell_out] + self.tally.cell_low[self.cells]
        beyond[self.tally.cell_topic[self.cells], self.tally.cell_broker[self.cells]] = cells
        potential = self.net.potentials(flow)
        worth = np.zeros(self.part.rows.shape, np.int64)
        worth[self.topics] = potential[self.sink[0]] - potential[self.rack]
        # A potential is a sum of moves and of mebibytes, which are worth less than half a move. Rounded, it is the
        # potential of the moves alone.
        moves = (potential + self.move // 2) // self.move
        prices, full = (found[self.sink[0]] - found[self.broker] for found in (moves, potential))
        return Solved(beyond, self.net.cost_of(flow), prices, full, worth)

    def _supplies(self) -> None:
        net, wants = self.net, self.tally.wants[self.topics]
        least, most = self.tally.least[self.topics], self.tally.most[self.topics]
        apart = self.apart[self.topics]
        # If only some racks are in the network, the replicas of the others are no part of it.
        here = np.where(self.part.rows[self.topics], most - self.part.taken[self.topics], 0)
        net.supply(self.rack[apart].ravel(), here[apart].ravel())
        loose = np.flatnonzero(~apart)
        # A topic needs a node of its own only if its numbers of replicas per rack are not given.
        source = net.nodes(len(loose))
        net.supply(source, wants[loose])
        tail = np.broadcast_to(source[:, None], (len(loose), self.rack.shape[1]))
        net.connect_between(tail.ravel(), self.rack[loose].ravel(), (least[loose].ravel(), most[loose].ravel()), 0)
        net.supply(self.sink, -int(here[apart].sum() + wants[~apart].sum()))

    def _options(self) -> None:
        self.option_at = np.nonzero(self.part.open)
        topic, broker = self.option_at
        cost = option_costs(self.tally.value[self.option_at], self.move)
        tail = self.rack[self.local[topic], self.group[broker]]
        self.option = self.net.connect(tail, self.broker[broker], 1, cost)

    def _knots(self) -> None:
        net, tally = self.net, self.tally
        self.cells = np.flatnonzero(self.part.rows[tally.cell_topic, self.group[tally.cell_broker]])
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
        chosen = np.flatnonzero(self.part.rows[tally.knot_topic, tally.knot_group])
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
    """Return the quotas of all topics, computed by one flow. Raises Infeasible."""
    tally = whole.tally
    everything = Part(np.ones(tally.most.shape, bool), tally.value > NO_OPTION, np.zeros_like(tally.most))
    found = QuotaFlow(whole, everything, (whole.low - tally.base, whole.high - tally.base)).solve()
    return Quotas(found.beyond, *bound_of(tally, whole.move, found.cost), found.prices)


def option_costs(value: npt.NDArray[np.int32], move: int) -> Ints:
    """Return the cost of an option of each value: a gain if there is a replica to keep."""
    return np.where(value >= 0, -(move + value.astype(np.int64)), 0)


def bound_of(tally: Tally, move: int, cost: int) -> tuple[int, int]:
    """Return the moves and mebibytes of a cost, which counts replicas kept beyond the base as a gain."""
    total = (tally.wanted - tally.kept) @ np.array([move, 1])
    moves, weight = divmod(int(total) + cost, move)
    return moves, weight
