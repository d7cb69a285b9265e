"""The placement of one slice when every topic's number on every broker is given: who stays, and who goes where.

Where each partition has one place in a rack and one replica there at most, it is plain: of a topic's replicas on a
broker the heaviest stay, and those that do not, or were lost, take what is left in the rack in turns. Racks where a
partition has to choose between two replicas go through the flow of `rebalance`, a rack at a time; so do whole
partitions where the racks' numbers are not given.
"""

from __future__ import annotations

import numpy as np

from kafka_steward.planning.solver.arrays import Bools, Ints
from kafka_steward.planning.solver.rebalance import Bounds, Shape, place_exactly
from kafka_steward.planning.solver.tally import rack_table, weights

__all__ = ["place_within"]

Placement = tuple[Ints, Ints]


def place_within(shape: Shape, rack: tuple[Ints, Ints], quota: Ints) -> Placement:
    """Row and broker of every replica, in that order; the fewest moves, then mebibytes. Raises Infeasible."""
    apart = _apart(shape, rack[1], len(quota))
    rows = np.flatnonzero(apart[shape.topic])
    pairs = _Pairs(shape, rows, rack[1], quota)
    parts = [pairs.plain(), pairs.tied(), _whole(shape, rack, quota, ~apart)]
    row, broker = (np.concatenate(found) for found in zip(*parts, strict=True))
    order = np.lexsort((broker, row))
    return row[order], broker[order]


def _apart(shape: Shape, high: Ints, topics: int) -> Bools:
    given = high.sum(axis=1) == shape.factor
    return np.asarray(np.bincount(shape.topic[~given], minlength=topics) == 0, bool)


def _whole(shape: Shape, rack: tuple[Ints, Ints], quota: Ints, chosen: Bools) -> Placement:
    """The topics in `chosen`, partition by partition."""
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
    """A partition's places in a rack, each pair of partition and rack by itself."""

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
        crowded = (self.places > 1) | (rack_table(shape)[self.row, self.group] > self.places)
        self.is_tied = np.bincount(self.pool[crowded], minlength=len(quota) * groups) > 0

    def plain(self) -> Placement:
        """Pairs of the racks where none has to choose."""
        mine = ~self.is_tied[self.pool]
        slot = np.flatnonzero(self.slot_pair >= 0)
        slot = slot[mine[self.slot_pair[slot]]]
        keeps = slot[self._stays(slot)]
        homeless = mine.copy()
        homeless[self.slot_pair[keeps]] = False
        pairs = np.flatnonzero(homeless)
        pairs = pairs[np.argsort(self.pool[pairs], kind="stable")]
        broker = self._places_left(keeps)
        shape = self.shape
        return np.concatenate([shape.row[keeps], self.row[pairs]]), np.concatenate([shape.broker[keeps], broker])

    def _stays(self, slot: Ints) -> Bools:
        """Which slots are among the heaviest of their topic on their broker; of equals those that lead come first."""
        shape = self.shape
        cell = shape.topic[shape.row[slot]] * self.quota.shape[1] + shape.broker[slot]
        order = np.lexsort((~shape.leads[slot], -weights(shape.size)[shape.row[slot]], cell))
        start = np.concatenate([[0], np.cumsum(np.bincount(cell, minlength=self.quota.size))])
        rank = np.empty(len(slot), np.int64)
        rank[order] = np.arange(len(slot)) - start[cell[order]]
        return np.asarray(rank < self.quota.ravel()[cell], bool)

    def _places_left(self, keeps: Ints) -> Ints:
        """The brokers of the places that nobody keeps, rack by rack of each topic, in turns."""
        shape, (topics, brokers) = self.shape, self.quota.shape
        cell = shape.topic[shape.row[keeps]] * brokers + shape.broker[keeps]
        left = self.quota - np.bincount(cell, minlength=self.quota.size).reshape(topics, brokers)
        groups = len(self.is_tied) // topics
        pool = np.arange(topics)[:, None] * groups + shape.group
        used = np.zeros(len(self.is_tied), bool)
        used[self.pool] = True
        topic, broker = np.nonzero(np.where((used & ~self.is_tied)[pool], left, 0))
        amount = left[topic, broker]
        which = np.repeat(np.arange(len(amount)), amount)
        turn = np.arange(len(which)) - np.repeat(np.cumsum(amount) - amount, amount)
        return broker[which][np.lexsort((broker[which], turn, pool[topic, broker][which]))]

    def tied(self) -> Placement:
        """Pairs of the other racks, by the flow: a rack of a topic is a topic of its own there."""
        pairs = np.flatnonzero(self.is_tied[self.pool])
        if len(pairs) == 0:
            return pairs, pairs
        shape, brokers = self.shape, self.quota.shape[1]
        pools, topic = np.unique(self.pool[pairs], return_inverse=True)
        groups = len(self.is_tied) // len(self.quota)
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
