"""The placement of missing replicas, when every replica that is in place stays: the flow behind heal and fill.

::

    partition ──► its share of a rack ──► (topic, broker) ──► broker ──► sink
                          └──► pool of the rack's brokers ──┘

Racks are a hard constraint here, which always leaves room: a partition takes as many brokers per rack as the most even
spread around its kept replicas needs. Constraints that may give way are priced, in this order: the rack's last place,
the topic's ceiling on a broker, the broker's own ceiling, and last the height of the broker's load, so that the load
becomes even. Every missing replica is placed, each counts as one move, and nothing else moves. The movement is
therefore minimal by construction, and the flow only decides between plans of equal movement.

A pool stands for all brokers of a rack at once, which keeps the network small. It is exact if a partition takes at most
one unit from it and keeps nothing in it: no two units of the partition can then meet on one broker.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kafka_steward.planning.solver.arrays import Bools, Brokers, Ints, Rows
from kafka_steward.planning.solver.flows import Network

__all__ = ["Load", "Want", "place_missing"]

_MANY = 1 << 40
_MAX_LEVEL_ARCS = 1_000_000


@dataclass(frozen=True)
class Load:
    """The current load of the brokers. `ceiling` and `cells` are per topic and broker, the others per broker.

    `aim` is the part of each broker's target level that the shard cannot derive on its own.
    """

    cells: Ints
    ceiling: Ints
    level: Ints
    limit: Ints
    aim: Ints


@dataclass(frozen=True)
class Want:
    """The replicas that each row misses, the slots that it keeps, and the treatment of brokers without a rack."""

    rows: Rows
    brokers: Brokers
    kept: Bools
    missing: Ints
    own_rack: bool
    #: Rows that may only choose among the brokers that hold them, whether those replicas are kept or not.
    inside: Bools

    @cached_property
    def wanting(self) -> Ints:
        """The rows with missing replicas."""
        return np.flatnonzero(self.missing)

    @cached_property
    def group(self) -> Ints:
        """Each broker's group: its rack, its own, or the common one of all brokers without a rack constraint."""
        loose = self.brokers.rack < 0
        first = int(self.brokers.rack.max(initial=-1)) + 1
        numbers = first + (np.cumsum(loose) - 1 if self.own_rack else np.zeros(len(loose), np.int64))
        return np.where(loose, numbers, self.brokers.rack)

    @cached_property
    def open(self) -> Bools:
        """A mask of the brokers on which each wanting row may place a replica."""
        table = np.zeros((len(self.rows), len(self.brokers)), bool)
        table[self.rows.row, self.rows.broker] = True
        return (table | ~self.inside[:, None])[self.wanting] & self.brokers.target & ~self.holds & ~self.barred

    @cached_property
    def barred(self) -> Bools:
        """A mask of the brokers on which each wanting row has a lost replica: Kafka takes no second one there."""
        table = np.zeros((len(self.rows), len(self.brokers)), bool)
        table[self.rows.row[self.rows.lost], self.rows.broker[self.rows.lost]] = True
        return table[self.wanting]

    @cached_property
    def holds(self) -> Bools:
        """A mask of the brokers on which each wanting row keeps a replica."""
        table = np.zeros((len(self.rows), len(self.brokers)), bool)
        table[self.rows.row[self.kept], self.rows.broker[self.kept]] = True
        return table[self.wanting]


def place_missing(want: Want, load: Load) -> tuple[Ints, Ints]:
    """Return row and broker of every replica to add, in order of row and broker.

    Rows must have enough free brokers.
    """
    if len(want.wanting) == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    flow = _Flow(want, load)
    flow.build()
    index, broker = flow.decode()
    order = np.lexsort((broker, index))
    return want.wanting[index[order]], broker[order]


def rack_room(want: Want) -> tuple[Ints, Ints]:
    """Return the replicas that each wanting row may add per group, and how many of them come first.

    The spread is the most even one that the kept replicas allow: see `quotas.rack_bounds`, here for each row on its
    own, because each row keeps other replicas.
    """
    groups = int(want.group.max()) + 1
    member = np.zeros((len(want.brokers), groups), np.int64)
    member[np.arange(len(want.brokers)), want.group] = 1
    kept = want.holds.astype(np.int64) @ member
    room = want.open.astype(np.int64) @ member
    racked = np.bincount(want.group, minlength=groups) > np.bincount(
        want.group[want.brokers.rack < 0], minlength=groups
    )
    height = _height(kept + room, racked, kept.sum(axis=1) + want.missing[want.wanting], own_rack=want.own_rack)
    top = np.minimum(height[:, None], kept + room)
    most = np.where(racked, np.clip(top - kept, 0, room), np.minimum(room, want.missing[want.wanting][:, None]))
    first = np.where(racked, np.clip(np.minimum(height[:, None] - 1, top) - kept, 0, most), 0)
    return most, first


def _height(places: Ints, racked: Bools, rf: Ints, *, own_rack: bool) -> Ints:
    on_racks, loose = places[:, racked], places[:, ~racked].sum(axis=1)
    # Brokers without a rack only count if they are racks themselves, or if the racks cannot hold all replicas.
    spare = np.where(own_rack | (on_racks.sum(axis=1) < rf), loose, 0)
    height = np.full(len(places), 1, np.int64)
    for _ in range(int(places.max(initial=1))):
        short = np.minimum(on_racks, height[:, None]).sum(axis=1) + spare < rf
        if not short.any():
            break
        height += short
    return height


class _Flow:
    """The network of one placement, and the data to decode its flows."""

    def __init__(self, want: Want, load: Load) -> None:
        self.want, self.load = want, load
        self.net = Network()
        self.most, self.first = rack_room(want)
        self.topic = want.rows.topic[want.wanting]
        self.topics, self.local = np.unique(self.topic, return_inverse=True)
        self.units = int(want.missing.sum())
        self.groups = self.most.shape[1]
        # Weights: each exceeds the most that one change of any lower-priority term can be worth.
        self.step = max(1, self.units * len(want.brokers) // _MAX_LEVEL_ARCS)
        self.height_cost = self._height_cost()
        self.over_limit = int(self.height_cost.max(initial=0)) + 1
        self.over_ceiling = 4 * self.over_limit
        self.last_place = 1000 * self.over_ceiling

    def build(self) -> None:
        """Add the nodes and arcs."""
        net, brokers = self.net, len(self.want.brokers)
        self.part = net.nodes(len(self.want.wanting))
        self.share = net.nodes(self.most.size).reshape(self.most.shape)
        self.pool = net.nodes(len(self.topics) * self.groups).reshape(-1, self.groups)
        self.cell = net.nodes(len(self.topics) * brokers).reshape(-1, brokers)
        self.broker = net.nodes(brokers)
        self.sink = net.nodes(1)
        net.supply(self.part, self.want.missing[self.want.wanting])
        net.supply(self.sink, -self.units)
        self._rack_arcs()
        self._direct_and_pool_arcs()
        self._cell_arcs()
        self._level_arcs()

    def _rack_arcs(self) -> None:
        for rooms, cost in ((self.first, 0), (self.most - self.first, self.last_place)):
            row, group = np.nonzero(rooms)
            self.net.connect(self.part[row], self.share[row, group], rooms[row, group], cost)

    def _direct_and_pool_arcs(self) -> None:
        want = self.want
        target = want.brokers.target
        keeps = np.zeros_like(self.most)
        row, broker = np.nonzero((want.holds | want.barred) & target)
        np.add.at(keeps, (row, want.group[broker]), 1)
        # A row that may only choose among some brokers must not share a pool with all others.
        self.pooled = (self.most == 1) & (keeps == 0) & ~want.inside[want.wanting][:, None]
        self.pool_row, self.pool_group = np.nonzero(self.pooled)
        self.to_pool = self.net.connect(
            self.share[self.pool_row, self.pool_group], self.pool[self.local[self.pool_row], self.pool_group], 1, 0
        )
        used = np.unique(self.local[self.pool_row] * self.groups + self.pool_group)
        topic, broker = np.nonzero(
            np.isin(np.arange(len(self.topics))[:, None] * self.groups + want.group, used) & target
        )
        self.pool_topic, self.pool_broker = topic, broker
        group = want.group[broker]
        self.from_pool = self.net.connect(self.pool[topic, group], self.cell[topic, broker], _MANY, 0)
        open_here = (self.most > 0) & ~self.pooled
        self.direct_row, self.direct_broker = np.nonzero(open_here[:, want.group] & want.open)
        share = self.share[self.direct_row, want.group[self.direct_broker]]
        self.direct = self.net.connect(share, self.cell[self.local[self.direct_row], self.direct_broker], 1, 0)

    def _cell_arcs(self) -> None:
        topic, broker = np.nonzero(np.broadcast_to(self.want.brokers.target, self.cell.shape))
        at = (self.topics[topic], broker)
        room = np.maximum(self.load.ceiling[at] - self.load.cells[at], 0)
        tail, head = self.cell[topic, broker], self.broker[broker]
        self.net.connect(tail, head, room, 0)
        for over, capacity in enumerate((1, 1, 2, 4, 8, 16, _MANY), start=1):
            self.net.connect(tail, head, capacity, over * self.over_ceiling)

    def _height_cost(self) -> Ints:
        """Return the cost of the next replica on a broker.

        It is the broker's load in units of an average broker's, from the lowest load on.
        """
        capacity = np.array([float(value) for value in self.want.brokers.capacity])
        steps = np.arange(0, self.units, self.step)
        height = ((self.load.level - self.load.aim)[:, None] + steps) * (4 * capacity.mean() / capacity[:, None])
        cost = np.asarray(np.floor(height), np.int64)
        return cost - int(cost[self.want.brokers.target].min(initial=int(cost.min())))

    def _level_arcs(self) -> None:
        broker, step = np.nonzero(np.broadcast_to(self.want.brokers.target[:, None], self.height_cost.shape))
        level = self.load.level[broker] + step * self.step
        over = np.where(level >= self.load.limit[broker], self.over_limit, 0)
        self.net.connect(self.broker[broker], self.sink, self.step, self.height_cost[broker, step] + over)

    def decode(self) -> tuple[Ints, Ints]:
        """Return the index among the wanting rows and the broker of every unit of flow."""
        flow = self.net.solve()
        hit = flow[self.direct] > 0
        taken = flow[self.to_pool] > 0
        row, group = self.pool_row[taken], self.pool_group[taken]
        row = row[np.lexsort((row, self.local[row] * self.groups + group))]
        return (
            np.concatenate([self.direct_row[hit], row]),
            np.concatenate([self.direct_broker[hit], self._dealt(flow[self.from_pool])]),
        )

    def _dealt(self, amounts: Ints) -> Ints:
        """Return the brokers of every pool's units, pool by pool, in turns, so that neighbours differ."""
        arc = np.repeat(np.arange(len(amounts)), amounts)
        turn = np.arange(len(arc)) - np.repeat(np.cumsum(amounts) - amounts, amounts)
        pool = self.pool_topic[arc] * self.groups + self.want.group[self.pool_broker[arc]]
        return self.pool_broker[arc][np.lexsort((self.pool_broker[arc], turn, pool))]
