"""The placement of one shard when every topic's number on every broker is given: replicas that stay, and new ones.

If each partition has one place in a rack, the choice is simple. Of a topic's replicas on a broker the heaviest stay.
Those that do not stay, and lost ones, take the places left in the rack in turns. A small flow decides which replicas
stay only on the brokers of partitions that have two replicas in the rack. Racks where partitions have several places go
through the flow of `rebalance`, one rack at a time. Whole partitions do so too if the numbers of replicas per rack are
not given.
"""

from __future__ import annotations

import numpy as np

from kafka_steward.planning.solver.arrays import Bools, Ints
from kafka_steward.planning.solver.costs import costs_of
from kafka_steward.planning.solver.flows import Network
from kafka_steward.planning.solver.rebalance import Bounds, Shape, place_exactly
from kafka_steward.planning.solver.tally import rack_table, weights

__all__ = ["place_within"]

Placement = tuple[Ints, Ints]


def place_within(shape: Shape, rack: tuple[Ints, Ints], quota: Ints) -> Placement:
    """Return row and broker of every replica, in that order.

    The placement has the fewest moves, then the fewest mebibytes. Raises Infeasible.
    """
    apart = _apart(shape, rack[1], len(quota))
    rows = np.flatnonzero(apart[shape.topic])
    pairs = _Pairs(shape, rows, rack[1], quota)
    parts = [pairs.single(), pairs.several(), _whole(shape, rack, quota, ~apart)]
    row, broker = (np.concatenate(found) for found in zip(*parts, strict=True))
    order = np.lexsort((broker, row))
    return row[order], broker[order]


def _apart(shape: Shape, high: Ints, topics: int) -> Bools:
    given = high.sum(axis=1) == shape.factor
    return np.asarray(np.bincount(shape.topic[~given], minlength=topics) == 0, bool)


def _whole(shape: Shape, rack: tuple[Ints, Ints], quota: Ints, chosen: Bools) -> Placement:
    """Place the topics in `chosen`, partition by partition."""
    rows = np.flatnonzero(chosen[shape.topic])
    if len(rows) == 0:
        return rows, rows
    topics, topic = np.unique(shape.topic[rows], return_inverse=True)
    index = np.full(len(shape.topic), -1)
    index[rows] = np.arange(len(rows))
    mine = index[shape.row] >= 0
    part = Shape(
        topic,
        shape.factor[rows],
        shape.size[rows],
        index[shape.row[mine]],
        shape.broker[mine],
        shape.leads[mine],
        shape.group,
        shape.barred,
    )
    cell = quota[topics]
    total = cell.sum(axis=0)
    placed = place_exactly(part, Bounds((rack[0][rows], rack[1][rows]), (cell, cell), (total, total)))
    return rows[placed.row], placed.broker


class _Pairs:
    """The places of partitions in racks, one entry per pair of partition and rack."""

    def __init__(self, shape: Shape, rows: Ints, high: Ints, quota: Ints) -> None:
        self.shape, self.quota = shape, quota
        groups = high.shape[1]
        at, self.group = np.nonzero(high[rows])
        self.row = rows[at]
        self.places = high[self.row, self.group]
        self.pool = shape.topic[self.row] * groups + self.group
        number = np.full(high.shape, -1)
        number[self.row, self.group] = np.arange(len(self.row))
        self.slot_pair = number[shape.row, shape.group[shape.broker]]
        self.has_several = np.bincount(self.pool[self.places > 1], minlength=len(quota) * groups) > 0
        self.chooses = rack_table(shape)[self.row, self.group] > self.places

    def single(self) -> Placement:
        """Place the pairs of the racks where each partition has one place."""
        mine = ~self.has_several[self.pool]
        slot = np.flatnonzero(self.slot_pair >= 0)
        keeps = self._kept(slot[mine[self.slot_pair[slot]]])
        homeless = mine.copy()
        homeless[self.slot_pair[keeps]] = False
        pairs = np.flatnonzero(homeless)
        pairs = pairs[np.argsort(self.pool[pairs], kind="stable")]
        # No row gets a place that it had: a broker has one left only if all replicas that it held stay.
        broker = self._places_left(keeps)
        shape = self.shape
        return np.concatenate([shape.row[keeps], self.row[pairs]]), np.concatenate([shape.broker[keeps], broker])

    def _kept(self, slot: Ints) -> Ints:
        cell = self._cell(slot)
        rivals = np.zeros(self.quota.size, bool)
        rivals[cell[self.chooses[self.slot_pair[slot]]]] = True
        plain, other = slot[~rivals[cell]], slot[rivals[cell]]
        return np.concatenate([plain[self._stays(plain)], other[self._settled(other)]])

    def _cell(self, slot: Ints) -> Ints:
        """Return the number of each slot's topic and broker."""
        shape = self.shape
        return np.asarray(shape.topic[shape.row[slot]] * self.quota.shape[1] + shape.broker[slot], np.int64)

    def _settled(self, slot: Ints) -> Bools:
        """Return a mask of the slots that stay, chosen so that the most can.

        The slots belong to pairs that have to choose, or compete with them.
        """
        if len(slot) == 0:
            return np.zeros(0, bool)
        shape, pair = self.shape, self.slot_pair[slot]
        cells, at = np.unique(self._cell(slot), return_inverse=True)
        chooses = self.chooses[pair]
        pairs, which = np.unique(pair[chooses], return_inverse=True)
        net = Network()
        source, sink, pair_node, cell_node = net.nodes(1), net.nodes(1), net.nodes(len(pairs)), net.nodes(len(cells))
        tail = np.full(len(slot), source[0])
        tail[chooses] = pair_node[which]
        ones = np.ones(len(slot), np.int64)
        price, lead, _ = costs_of(shape.size[shape.row[slot]], ones, int(cell_node[-1]), soft=False)
        stays = net.connect(tail, cell_node[at], 1, -(price + lead * shape.leads[slot]))
        net.connect(np.broadcast_to(source, pair_node.shape), pair_node, 1, 0)
        net.connect(cell_node, np.broadcast_to(sink, cell_node.shape), self.quota.ravel()[cells], 0)
        net.connect(source, sink, len(slot), 0)
        net.supply(source, len(slot))
        net.supply(sink, -len(slot))
        return np.asarray(net.solve()[stays] > 0, bool)

    def _stays(self, slot: Ints) -> Bools:
        """Return a mask of the slots that are among the heaviest of their topic on their broker.

        Among equals, slots that lead come first.
        """
        shape, cell = self.shape, self._cell(slot)
        order = np.lexsort((~shape.leads[slot], -weights(shape.size)[shape.row[slot]], cell))
        start = np.concatenate([[0], np.cumsum(np.bincount(cell, minlength=self.quota.size))])
        rank = np.empty(len(slot), np.int64)
        rank[order] = np.arange(len(slot)) - start[cell[order]]
        return np.asarray(rank < self.quota.ravel()[cell], bool)

    def _places_left(self, keeps: Ints) -> Ints:
        """Return the brokers of the places that no replica keeps, rack by rack of each topic, in turns."""
        shape, topics = self.shape, len(self.quota)
        left = self.quota - np.bincount(self._cell(keeps), minlength=self.quota.size).reshape(self.quota.shape)
        groups = len(self.has_several) // topics
        pool = np.arange(topics)[:, None] * groups + shape.group
        used = np.zeros(len(self.has_several), bool)
        used[self.pool] = True
        topic, broker = np.nonzero(np.where((used & ~self.has_several)[pool], left, 0))
        amount = left[topic, broker]
        which = np.repeat(np.arange(len(amount)), amount)
        turn = np.arange(len(which)) - np.repeat(np.cumsum(amount) - amount, amount)
        return broker[which][np.lexsort((broker[which], turn, pool[topic, broker][which]))]

    def several(self) -> Placement:
        """Place the pairs of the other racks by the flow, where a rack of a topic is a topic of its own."""
        pairs = np.flatnonzero(self.has_several[self.pool])
        if len(pairs) == 0:
            return pairs, pairs
        shape, brokers = self.shape, self.quota.shape[1]
        pools, topic = np.unique(self.pool[pairs], return_inverse=True)
        groups = len(self.has_several) // len(self.quota)
        index = np.full(len(self.pool), -1)
        index[pairs] = np.arange(len(pairs))
        mine = np.flatnonzero(self.slot_pair >= 0)
        mine = mine[index[self.slot_pair[mine]] >= 0]
        part = Shape(
            topic,
            self.places[pairs],
            shape.size[self.row[pairs]],
            index[self.slot_pair[mine]],
            shape.broker[mine],
            shape.leads[mine],
            shape.group,
            shape.barred,
        )
        rack = np.zeros((len(pairs), groups), np.int64)
        rack[np.arange(len(pairs)), self.group[pairs]] = self.places[pairs]
        inside = (pools % groups)[:, None] == shape.group
        cell = np.where(inside, self.quota[pools // groups], 0)
        total = cell.sum(axis=0) + np.zeros(brokers, np.int64)
        placed = place_exactly(part, Bounds((rack, rack), (cell, cell), (total, total)))
        return self.row[pairs[placed.row]], placed.broker
