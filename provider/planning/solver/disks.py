"""Balance the disks with few bytes moved, until every broker's bytes are within a tolerance of its share.

This is a heuristic with a lower bound. Bytes above the upper edges must leave, and bytes missing below the lower edges
must arrive, so that no plan moves fewer bytes than the larger of the two sums. First the fullest broker gives, again
and again, the largest replica that is not larger than its excess to the emptiest broker that may have it. Then the
emptiest broker receives. A replica moves at most once, and a broker that can do no more is left out, so that the number
of steps is bounded by the number of replicas.

Each shard does its part of the work. A broker above the band gives away in as few shards as hold enough of its bytes,
because in many shards only small replicas would fit into each part. All brokers receive in proportion to what a shard
gives away. The parts add up to the band of the whole cluster, but each shard rounds to whole replicas, so that together
the shards may end farther from the tolerance than one shard would.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kafka_steward.planning.solver.candidate import CandidatePlan
from kafka_steward.planning.solver.fair_shares import rack_bounds_by_row, rack_groups
from kafka_steward.planning.solver.fill_missing import OtherShards, fill_missing
from kafka_steward.planning.solver.problem import (
    Bools,
    Brokers,
    Disposition,
    Floats,
    Ints,
    Problem,
    count_pairs,
    held_dispositions,
    leaderless_dispositions,
    rows_that_lag,
    sum_by,
)
from kafka_steward.planning.solver.room import sure_room


@dataclass(frozen=True)
class DiskBand:
    """The bytes that each broker holds (`load`), and that it should hold at least and at most. All are per broker."""

    load: Floats
    lower: Floats
    upper: Floats

    @classmethod
    def of(cls, load: Floats, brokers: Brokers, tolerance: float) -> DiskBand:
        """Return the band around each broker's share of the bytes, by capacity."""
        share = np.where(brokers.receivers, [float(capacity) for capacity in brokers.capacity], 0.0)
        target = share / share.sum() * load.sum()
        return cls(load, target * (1 - tolerance), target * (1 + tolerance))

    @property
    def excess(self) -> Floats:
        """The bytes that each broker must give away."""
        return np.maximum(self.load - self.upper, 0)

    def bytes_bound(self) -> int:
        """Return the fewest bytes of any plan: bytes above the band must leave, and bytes missing below must arrive."""
        return int(max(self.excess.sum(), np.maximum(self.lower - self.load, 0).sum()))

    def outside(self, load: Floats) -> Ints:
        """Return the brokers that are out of the band with these loads."""
        # Loads and edges are floats: a difference far below one byte is rounding.
        return np.flatnonzero((load > self.upper + 1e-6) | (load < self.lower - 1e-6))


@dataclass(frozen=True)
class DiskShare:
    """One shard's part in even disks: the other shards, the band of the cluster, and the bytes to move in this shard.

    `gives` are the bytes above the band that each broker gives away in this shard, and `receives` is the part, from 0
    to 1, of each broker's room that this shard may fill.
    """

    others: OtherShards
    band: DiskBand
    gives: Floats
    receives: float

    def own_band(self, load: Floats) -> DiskBand:
        """Return the band of this shard, given the bytes of it that the brokers hold."""
        whole = self.band
        part = np.divide(load, whole.load, out=np.zeros(len(load)), where=whole.load > 0)
        upper = load - self.gives + np.maximum(whole.upper - whole.load, 0) * self.receives
        # Beyond that, a broker may give this shard's part of what it has above the lower edge.
        spare = np.minimum(whole.load, whole.upper) - whole.lower
        lower = load - self.gives - spare * np.where(spare >= 0, part, self.receives)
        return DiskBand(load, lower, upper)


#: The most of a broker's bytes in a shard that are given away there, so that there is a choice of replicas.
_GIVEN_PART = 0.5


def disk_shares(
    loads: Sequence[Floats], others: Sequence[OtherShards], brokers: Brokers, tolerance: float
) -> list[DiskShare]:
    """Return each shard's part, given the bytes that each shard has on the brokers."""
    table = np.array(loads)
    whole = DiskBand.of(table.sum(axis=0), brokers, tolerance)
    gives = _spread_excess(table, whole.excess)
    work = gives.sum(axis=1) if gives.any() else table.sum(axis=1)
    receives = (work / max(float(work.sum()), 1.0)).tolist()
    return [DiskShare(*part) for part in zip(others, [whole] * len(receives), gives, receives, strict=True)]


def _spread_excess(loads: Floats, excess: Floats) -> Floats:
    """Return the bytes that each broker gives away in each shard: in few shards, which differ between brokers."""
    shards, brokers = loads.shape
    gives, left = np.zeros(loads.shape), excess.copy()
    for turn in range(shards):
        shard, broker = (np.arange(brokers) + turn) % shards, np.arange(brokers)
        part = np.minimum(left, loads[shard, broker] * _GIVEN_PART)
        gives[shard, broker] = part
        left -= part
    # A broker that has to give more than this part of all its bytes gives the rest in proportion.
    whole = loads.sum(axis=0)
    return np.asarray(gives + left * np.divide(loads, whole, out=np.zeros(loads.shape), where=whole > 0))


def disk_load(problem: Problem, first: CandidatePlan) -> Floats:
    """Return the bytes per broker of a shard, given the plan that places its lost and draining replicas."""
    return sum_by(problem.rows.size[first.row], first.broker, len(problem.brokers)).astype(np.float64)


def balance_disks(problem: Problem, share: DiskShare | None = None) -> CandidatePlan:
    """Return new assignments that balance the disks, once lost and draining replicas are placed as by a heal.

    `share` is the part of the shard; without it, the shard is the only one, and the notes are those of the cluster.
    """
    first = fill_missing(problem, None if share is None else share.others)
    load = disk_load(problem, first)
    whole = DiskBand.of(load, problem.brokers, problem.options.tolerance) if share is None else share.band
    work = _DiskBalance(problem, first, whole if share is None else share.own_band(load))
    if share is not None:
        work.free *= share.receives
    while work.unload_fullest() or work.fill_emptiest():
        pass
    candidate = with_replicas_on(first, problem, work.placed.broker)
    outside = whole.outside(work.load) if share is None else work.band.outside(work.load)
    notes = () if share is not None else tuple(disk_notes(whole, work.load, problem.brokers))
    if len(outside):
        width = (whole.upper - whole.lower)[whole.upper > 0].min(initial=np.inf)
        notes += tuple(
            f"The partition {problem.rows.partition_name(row)} is larger than the tolerance leaves room for."
            for row in np.flatnonzero(problem.rows.size > width)[:10]
        )
    return replace(candidate, notes=notes)


def with_replicas_on(first: CandidatePlan, problem: Problem, broker: Ints) -> CandidatePlan:
    """Return a candidate plan with its replicas on other brokers, and with the dispositions of an even plan."""
    disposition = first.disposition
    # `fill_missing` does not look at rows that miss nothing, but the balance could have moved them, too.
    held = held_dispositions(problem)
    stays = (leaderless_dispositions(problem) != Disposition.UNTOUCHED) | rows_that_lag(problem)
    stays &= (held != Disposition.UNTOUCHED) & (held != Disposition.EXCLUDED)
    disposition = np.where(stays & (disposition == Disposition.UNTOUCHED), held, disposition)
    disposition[first.row[broker != first.broker]] = Disposition.PLANNED
    return replace(first, disposition=disposition, broker=broker)


def disk_notes(band: DiskBand, load: Floats, brokers: Brokers) -> Iterator[str]:
    """Yield notes on the fewest bytes that even disks need, and on the brokers that end out of the tolerance."""
    yield f"Even disks need at least {band.bytes_bound()} bytes moved; lower_bound counts only what must move anyway."
    if len(outside := band.outside(load)):
        yield f"The disks of these brokers stay out of the tolerance: {', '.join(map(str, brokers.ids[outside]))}."


def movable_replicas(problem: Problem, first: CandidatePlan) -> Bools:
    """Return a mask of the replicas of a candidate plan that may move: those in place, of partitions at rest."""
    free = (held_dispositions(problem) == Disposition.UNTOUCHED) & ~rows_that_lag(problem)
    # A partition that could not be fully replicated keeps a lost replica in its list: Kafka would never complete a move
    # of it.
    free[first.row[problem.brokers.state_mask("failed", "down")[first.broker]]] = False
    return np.asarray(free[first.row] & ~first.added, bool)


def _free_for(rooms: Sequence[int] | None, largest: int) -> float:
    if rooms is None:
        return float(2**62)
    return rooms[0] if len(rooms) == 1 else sure_room(rooms, min(largest, max(rooms, default=0)))


class PlacedReplicas:
    """The broker of each replica of a candidate plan, and the rules for moving it: distinct brokers, racks, and room.

    `free` has the bytes that each broker may still receive, by which what leaves makes no room.
    """

    def __init__(self, problem: Problem, first: CandidatePlan) -> None:
        brokers = problem.brokers
        self.rack, self.row, self.home = brokers.rack, first.row, first.broker
        self.size, self.broker = problem.rows.size[first.row], first.broker.copy()
        # On several log directories, as much as fits whichever of them the others went to.
        largest = int(self.size.max(initial=0))
        self.free = np.array([_free_for(rooms, largest) for rooms in brokers.rooms])
        np.subtract.at(self.free, first.broker[first.added], self.size[first.added])
        self.holds = np.zeros((int(first.row.max(initial=-1)) + 1, len(brokers)), bool)
        self.holds[first.row, first.broker] = True
        group = rack_groups(brokers)
        #: Replicas per row and rack; those on brokers without a rack come last.
        self.on_rack = count_pairs(first.row, group[first.broker], (len(problem.rows), int(group.max()) + 1))
        self.low, self.high = rack_bounds_by_row(brokers, np.diff(first.row_starts), self.on_rack, brokers.usable)

    def racks_allow(self, row: Ints | int, leaves: Ints | int, enters: Ints | int) -> Bools:
        """Return a mask of the rows, or of the racks, for which a replica may leave one rack and enter another one."""
        # No rule binds brokers without a rack, whose number -1 indexes the last column.
        may_leave = np.less(leaves, 0) | (self.on_rack[row, leaves] > self.low[row, leaves])
        may_enter = np.less(enters, 0) | (self.on_rack[row, enters] < self.high[row, enters])
        return np.asarray(np.equal(leaves, enters) | (may_leave & may_enter), bool)

    def move(self, at: int, receiver: int) -> None:
        """Put the replica `at` on another broker."""
        row, giver, size = int(self.row[at]), int(self.broker[at]), float(self.size[at])
        self.broker[at] = receiver
        self.holds[row, giver], self.holds[row, receiver] = False, True
        # A broker without a rack has the rack -1, which indexes the last column.
        self.on_rack[row, self.rack[giver]] -= 1
        self.on_rack[row, self.rack[receiver]] += 1
        # A replica that comes back takes no room, and gives back what it took elsewhere.
        self.free[receiver] -= size if receiver != self.home[at] else 0
        self.free[giver] += size if giver != self.home[at] else 0


class _DiskBalance:
    """The state of the loop: loads, the replicas, and the brokers that can do no more."""

    def __init__(self, problem: Problem, first: CandidatePlan, band: DiskBand) -> None:
        self.band, self.rack, self.row = band, problem.brokers.rack, first.row
        self.placed = PlacedReplicas(problem, first)
        self.size, self.holds, self.free = self.placed.size, self.placed.holds, self.placed.free
        self.load, self.lower, self.upper = band.load.copy(), band.lower, band.upper
        self.sharing = problem.brokers.receivers
        self.blocked = ~self.sharing
        order = np.lexsort((np.arange(len(self.size)), -self.size))
        order = order[movable_replicas(problem, first)[order] & (self.size[order] > 0)]
        self.queue = [order[first.broker[order] == broker] for broker in range(len(problem.brokers))]

    def unload_fullest(self) -> bool:
        """Take one replica from the fullest broker above the band. Return False when no such broker is left."""
        excess = np.where(self.blocked, -np.inf, self.load - self.upper)
        giver = int(excess.argmax())
        if excess[giver] <= 0:
            return False
        queue = self.queue[giver]
        size = self.size[queue]
        larger = int((size > excess[giver]).sum())
        # The queue is sorted by size: first replicas that fit into the excess, then larger ones, the smallest first.
        ordered = np.concatenate([queue[larger:], queue[:larger][::-1]])
        for at in ordered[self.load[giver] - self.size[ordered] >= self.lower[giver]].tolist():
            receivers = np.flatnonzero(self._possible_receivers(at, giver))
            if len(receivers):
                self._move_replica(at, int(receivers[(self.load - self.upper)[receivers].argmin()]))
                return True
        self.blocked[giver] = True
        return True

    def fill_emptiest(self) -> bool:
        """Give one replica to the emptiest broker below the band. Return False when no such broker is left."""
        lack = np.where(self.blocked, -np.inf, self.lower - self.load)
        receiver = int(lack.argmax())
        if lack[receiver] <= 0:
            return False
        for giver in np.argsort(-self.load, kind="stable").tolist():
            possible = self.queue[giver][self._possible_replicas(giver, receiver)]
            if len(possible):
                self._move_replica(int(possible[0]), receiver)
                return True
        self.blocked[receiver] = True
        return True

    def _possible_receivers(self, at: int, giver: int) -> Bools:
        """Return a mask of the brokers that may get the replica `at` of the broker `giver`."""
        row, size = int(self.row[at]), self.size[at]
        fits = self.sharing & (self.load + size <= self.upper) & (self.free >= size) & ~self.holds[row]
        return np.asarray(fits & self.placed.racks_allow(row, self.rack[giver], self.rack), bool)

    def _possible_replicas(self, giver: int, receiver: int) -> Bools:
        """Return a mask of the replicas in the queue of `giver` that `receiver` may get."""
        queue = self.queue[giver]
        row, size = self.row[queue], self.size[queue]
        spared = self.load[giver] - size >= self.lower[giver]
        fits = (self.load[receiver] + size <= self.upper[receiver]) & (size <= self.free[receiver])
        possible = spared & fits & ~self.holds[row, receiver]
        return np.asarray(possible & self.placed.racks_allow(row, self.rack[giver], self.rack[receiver]), bool)

    def _move_replica(self, at: int, receiver: int) -> None:
        giver, size = int(self.placed.broker[at]), float(self.size[at])
        self.queue[giver] = self.queue[giver][self.queue[giver] != at]
        self.placed.move(at, receiver)
        self.load[giver] -= size
        self.load[receiver] += size
