"""The even placement with the fewest moves: one exact flow behind rebalance, expand and drain (KAFKA-19048).

::

    partition ─[rack bounds]─► its share of a rack ──keep──► (topic, broker) ─[fair share]─► broker ─[fair share]─► sink
                                        └──new──► pool of (topic, rack) ──┘

Rows and columns are two laminar families, so the network has an integral solution that meets every floor and ceiling at
once, and the cheapest flow is the cheapest plan: a new replica costs one move, then its mebibytes, and keeping the
preferred leader is worth the least. A pool does not record which partition a unit came from, so the flow can only be
too cheap. If its units can then be dealt to distinct brokers, its cost is reached, and the plan is optimal. A topic
whose units cannot be dealt is modelled again with an arc for each of its partitions and brokers, which loses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kafka_steward.planning.solver.arrays import Bools, Ints, equal_pairs
from kafka_steward.planning.solver.costs import costs_of
from kafka_steward.planning.solver.flows import Infeasible, Network

__all__ = ["Bounds", "Placed", "Shape", "place_evenly", "place_exactly"]

_MANY = 1 << 40


@dataclass(frozen=True)
class Shape:
    """Partitions to place: per row topic, replicas wanted, bytes; per slot held, row, broker and a flag for leaders.

    `group` is each broker's rack, and one number more for brokers without; the brokers are all that may hold a replica.
    """

    topic: Ints
    factor: Ints
    size: Ints
    row: Ints
    broker: Ints
    leads: Bools
    group: Ints
    #: Receive-excluded brokers: they keep their replicas and receive none.
    barred: Bools


@dataclass(frozen=True)
class Bounds:
    """The fewest and most replicas: per row and group, per topic and broker, per broker."""

    rack: tuple[Ints, Ints]
    cell: tuple[Ints, Ints]
    broker: tuple[Ints, Ints]


@dataclass(frozen=True)
class Placed:
    """Row and broker of every replica, the fewest moves of any placement, and a flag for all bounds met."""

    row: Ints
    broker: Ints
    bound: int
    within: bool


def place_evenly(shape: Shape, bounds: Bounds) -> Placed:
    """Return the placement of fewest moves, then fewest bytes, within the bounds.

    If the bounds cannot all be met, return the placement that comes nearest to them.
    """
    if len(shape.topic) == 0:
        return Placed(np.zeros(0, np.int64), np.zeros(0, np.int64), 0, within=True)
    try:
        return _place(shape, bounds, soft=False)
    except Infeasible:
        return _place(shape, bounds, soft=True)


def place_exactly(shape: Shape, bounds: Bounds) -> Placed:
    """Return the same placement, but only within the bounds. Raises Infeasible."""
    return _place(shape, bounds, soft=False)


def _place(shape: Shape, bounds: Bounds, *, soft: bool) -> Placed:
    dense = np.zeros(int(shape.topic.max()) + 1, bool)
    # Each round makes at least one more topic dense, and the units of a dense topic need no dealing.
    for _ in range(len(dense) + 1):
        flow = _Flow(shape, bounds, dense, soft=soft)
        row, broker, bound, undealt = flow.solved()
        if len(undealt) == 0:
            order = np.lexsort((broker, row))
            return Placed(row[order], broker[order], bound, within=not soft)
        dense[undealt] = True
    raise Infeasible


class _Flow:
    """The network of one placement. `dense` marks the topics that are modelled without pools."""

    def __init__(self, shape: Shape, bounds: Bounds, dense: Bools, *, soft: bool) -> None:
        self.shape, self.bounds, self.dense, self.soft = shape, bounds, dense, soft
        self.groups = bounds.rack[0].shape[1]
        self.brokers = len(shape.group)
        self.net = Network()
        self.part = self.net.nodes(len(shape.topic))
        self.share = self.net.nodes(len(shape.topic) * self.groups).reshape(-1, self.groups)
        self.pool = self.net.nodes(len(dense) * self.groups).reshape(-1, self.groups)
        self.cell = self.net.nodes(len(dense) * self.brokers).reshape(-1, self.brokers)
        self.broker = self.net.nodes(self.brokers)
        self.sink = self.net.nodes(1)
        self.price, self.lead, self.far = costs_of(shape.size, shape.factor, int(self.sink[0]), soft=soft)

    def solved(self) -> tuple[Ints, Ints, int, Ints]:
        """Return rows, brokers, the bound, and the topics whose pooled units cannot be dealt to distinct brokers."""
        self._arcs()
        flow = self.net.solve()
        kept = flow[self.keep] > 0
        fresh = flow[self.fresh] > 0
        units = flow[self.to_pool]
        bound = int(fresh.sum() + units.sum())
        row = [self.shape.row[kept], self.fresh_row[fresh]]
        broker = [self.shape.broker[kept], self.fresh_broker[fresh]]
        held = (row[0], broker[0])
        amounts = flow[self.from_pool]
        dealt_row, dealt_broker, undealt = self._deal(units, amounts, held)
        return np.concatenate([*row, dealt_row]), np.concatenate([*broker, dealt_broker]), bound, undealt

    def _arcs(self) -> None:
        net, shape = self.net, self.shape
        net.supply(self.part, shape.factor)
        net.supply(self.sink, -int(shape.factor.sum()))
        low, high = self.bounds.rack
        row, group = np.nonzero(high)
        net.connect_between(self.part[row], self.share[row, group], (low[row, group], high[row, group]), 0)
        at = (shape.row, shape.group[shape.broker])
        head = self.cell[shape.topic[shape.row], shape.broker]
        self.keep = net.connect(self.share[at], head, 1, np.where(shape.leads, -self.lead, 0))
        pooled = ~self.dense[shape.topic[row]]
        self.pool_row, self.pool_group = row[pooled], group[pooled]
        topic = shape.topic[self.pool_row]
        self.to_pool = net.connect(
            self.share[self.pool_row, self.pool_group],
            self.pool[topic, self.pool_group],
            high[self.pool_row, self.pool_group],
            self.price[self.pool_row],
        )
        self._new_arcs()
        self._level_arcs()

    def _new_arcs(self) -> None:
        shape, most = self.shape, self.bounds.cell[1]
        topic, broker = np.nonzero((most > 0) & ~self.dense[:, None] & ~shape.barred)
        self.from_topic, self.from_broker = topic, broker
        self.from_pool = self.net.connect(
            self.pool[topic, shape.group[broker]],
            self.cell[topic, broker],
            _MANY if self.soft else most[topic, broker],
            0,
        )
        rows = np.flatnonzero(self.dense[shape.topic])
        open_cells = (most[shape.topic[rows]] > 0) & ~shape.barred & (self.bounds.rack[1][rows][:, shape.group] > 0)
        place = np.full(len(shape.topic), -1)
        place[rows] = np.arange(len(rows))
        mine = place[shape.row] >= 0
        open_cells[place[shape.row[mine]], shape.broker[mine]] = False
        index, self.fresh_broker = np.nonzero(open_cells)
        self.fresh_row = rows[index]
        self.fresh = self.net.connect(
            self.share[self.fresh_row, shape.group[self.fresh_broker]],
            self.cell[shape.topic[self.fresh_row], self.fresh_broker],
            1,
            self.price[self.fresh_row],
        )

    def _level_arcs(self) -> None:
        topic, broker = np.nonzero(self.bounds.cell[1] > 0)
        low, high = (bound[topic, broker] for bound in self.bounds.cell)
        for tail, head, pair in (
            (self.cell[topic, broker], self.broker[broker], (low, high)),
            (self.broker, np.broadcast_to(self.sink, self.broker.shape), self.bounds.broker),
        ):
            if not self.soft:
                self.net.connect_between(tail, head, pair, 0)
                continue
            self.net.connect(tail, head, pair[0], -self.far)
            self.net.connect(tail, head, pair[1] - pair[0], 0)
            self.net.connect(tail, head, _MANY, self.far)

    def _deal(self, units: Ints, amounts: Ints, held: tuple[Ints, Ints]) -> tuple[Ints, Ints, Ints]:
        """Deal pooled units to brokers, so that no partition meets a broker twice.

        Return rows and brokers, and the topics for which this is impossible.
        """
        used = units > 0
        row, group, units = self.pool_row[used], self.pool_group[used], units[used]
        simple = self._simple_pools()[self.shape.topic[row] * self.groups + group]
        easy = self._deal_in_turns(row[simple], group[simple], amounts)
        if simple.all():
            return *easy, np.zeros(0, np.int64)
        hard = self._deal_apart((row[~simple], group[~simple], units[~simple]), amounts, held)
        return np.concatenate([easy[0], hard[0]]), np.concatenate([easy[1], hard[1]]), hard[2]

    def _deal_in_turns(self, row: Ints, group: Ints, amounts: Ints) -> tuple[Ints, Ints]:
        """Deal the units of partitions that take one unit at most.

        Any broker will do; neighbours get different brokers.
        """
        wanted = np.unique(self.shape.topic[row] * self.groups + group)
        arc = np.repeat(np.arange(len(amounts)), amounts)
        turn = np.arange(len(arc)) - np.repeat(np.cumsum(amounts) - amounts, amounts)
        broker = self.from_broker[arc]
        pool = self.from_topic[arc] * self.groups + self.shape.group[broker]
        mine = np.isin(pool, wanted) & self._simple_pools()[pool]
        order = np.lexsort((broker[mine], turn[mine], pool[mine]))
        rows = row[np.lexsort((row, self.shape.topic[row] * self.groups + group))]
        return rows, broker[mine][order]

    def _simple_pools(self) -> Bools:
        """Return a mask of the pools from which no partition may take more than one unit."""
        most = np.zeros(len(self.dense) * self.groups, np.int64)
        row, group = np.nonzero(self.bounds.rack[1])
        np.maximum.at(most, self.shape.topic[row] * self.groups + group, self.bounds.rack[1][row, group])
        return most <= 1

    def _deal_apart(
        self, wants: tuple[Ints, Ints, Ints], amounts: Ints, held: tuple[Ints, Ints]
    ) -> tuple[Ints, Ints, Ints]:
        row, group, units = wants
        giving = np.flatnonzero((amounts > 0) & ~self._simple_pools()[self._pool_of_arcs()])
        net = Network()
        asks, gives, sink = net.nodes(len(row)), net.nodes(len(giving)), net.nodes(1)
        pool = self.shape.topic[row] * self.groups + group
        ask, give = equal_pairs(pool, self._pool_of_arcs()[giving])
        pack = np.int64(self.brokers)
        apart = ~np.isin(row[ask] * pack + self.from_broker[giving[give]], held[0] * pack + held[1])
        ask, give = ask[apart], give[apart]
        dealt = net.connect(asks[ask], gives[give], 1, 0)
        left = net.connect(asks, np.broadcast_to(sink, asks.shape), _MANY, 1)
        net.connect(gives, np.broadcast_to(sink, gives.shape), amounts[giving], 0)
        net.supply(asks, units)
        net.supply(sink, -int(units.sum()))
        flow = net.solve()
        hit = flow[dealt] > 0
        undealt = np.unique(self.shape.topic[row[flow[left] > 0]])
        return row[ask[hit]], self.from_broker[giving[give[hit]]], undealt

    def _pool_of_arcs(self) -> Ints:
        return np.asarray(self.from_topic * self.groups + self.shape.group[self.from_broker], np.int64)
