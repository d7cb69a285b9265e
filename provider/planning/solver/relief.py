"""Relieve full disks: move away what their volumes hold above a threshold, and nothing else.

Each volume that is used beyond `max_used` gives away replicas whose bytes cover its excess, as few bytes as can be: an
exact choice, in steps of a fraction of the excess. The largest replicas choose their place first, each the broker whose
disks are then used the least, in part of their size. No broker is brought above the threshold. A replica for which
there is no place stays, and others leave in its stead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from kafka_steward.assignment import name_some
from kafka_steward.planning.solver.candidate import CandidatePlan, budget_note
from kafka_steward.planning.solver.fair_shares import rack_bounds_by_row, rack_groups
from kafka_steward.planning.solver.problem import (
    Bools,
    Brokers,
    Disposition,
    Ints,
    PartitionTable,
    Problem,
    count_pairs,
    held_dispositions,
    positions_in,
    rows_that_lag,
)
from kafka_steward.planning.solver.room import sure_room

#: The steps of an excess in which the bytes that cover it are counted: the most, and for so many bits in all.
_STEPS, _BITS = 1_000_000, 400_000_000
#: The steps below the excess that are looked at, because sizes are rounded down.
_ROUNDED = 50
#: The number of volumes that a note names.
_NAMED = 10


@dataclass(frozen=True)
class FullVolume:
    """The volume of a log directory of a broker (an index), which is used above the threshold by `excess` bytes."""

    broker: int
    directory: int
    excess: int


def full_volumes(brokers: Brokers, max_used: float) -> list[FullVolume]:
    """Return the volumes that are used above the threshold, the fullest first, in part of their size."""
    found = []
    for broker, disks in enumerate(brokers.disks):
        for directory, (total, used) in enumerate(disks or ()):
            excess = used - used_at_most(total, max_used)
            if total and excess > 0 and brokers.usable[broker]:
                found.append((-Fraction(used, total), FullVolume(broker, directory, excess)))
    return [volume for _, volume in sorted(found, key=lambda each: (each[0], each[1].broker, each[1].directory))]


def used_at_most(total: int, max_used: float) -> int:
    """Return the bytes of a volume of `total` bytes that may be used."""
    return int(total * Fraction(str(max_used)))


def smallest_cover(sizes: Sequence[int], need: int) -> list[int]:
    """Return the positions of the `sizes` that together are at least `need` and least; all if that is not enough.

    Sums are compared in steps: a smaller cover may differ by a step for each size that is chosen.
    """
    step = max(need // min(_STEPS, _BITS // (2 * len(sizes) + 1)), 1)
    goal = need // step
    order = sorted((at for at in range(len(sizes)) if sizes[at] > 0), key=lambda at: (-sizes[at], at))
    parts = [at for at in order if sizes[at] < need]
    # Bit n of a number is set if some of the sizes so far add up to n steps.
    mask, sums = (1 << (2 * goal + 2)) - 1, [1]
    for at in parts:
        sums.append((sums[-1] | sums[-1] << sizes[at] // step) & mask)
    # A size that covers all by itself is alone.
    covers = [[at] for at in order if sizes[at] >= need]
    lowest = max(goal - min(len(parts), _ROUNDED), 0)
    above = sums[-1] >> lowest
    # What was rounded down may be enough with fewer steps.
    while above and lowest <= goal + 1:
        skipped = (above & -above).bit_length() - 1
        lowest += skipped
        cover = _parts_of(parts, sums, sizes, step, lowest)
        if sum(sizes[at] for at in cover) >= need:
            covers.append(cover)
        lowest, above = lowest + 1, above >> skipped + 1
    if above:
        covers.append(_parts_of(parts, sums, sizes, step, lowest + (above & -above).bit_length() - 1))
    enough = [cover for cover in covers if sum(sizes[at] for at in cover) >= need]
    return min(enough, key=lambda cover: (sum(sizes[at] for at in cover), len(cover), cover), default=order)


def _parts_of(parts: Sequence[int], sums: Sequence[int], sizes: Sequence[int], step: int, total: int) -> list[int]:
    """Return the parts that add up to `total` steps: the first ones of several, which are the larger ones."""
    chosen = []
    for at, before in zip(reversed(parts), reversed(sums[:-1]), strict=True):
        if not before >> total & 1:
            chosen.append(at)
            total -= sizes[at] // step
    return chosen


def relieve_disks(problem: Problem) -> CandidatePlan:
    """Return new assignments in which no volume is used above the threshold, as far as there are places.

    A replica that moves leaves its place in the order to the one that comes in its stead.
    """
    rows, options, work = problem.rows, problem.options, _Relief(problem)
    for at in work.choose_first():
        work.move_if_possible(at)
    while work.unload_one():
        pass
    work.take_back_needless()
    taken = work.moved_within_budget(options.max_moves, options.max_bytes)
    disposition, broker = np.full(len(rows), int(Disposition.UNTOUCHED)), rows.broker.copy()
    broker[taken] = work.broker[taken]
    disposition[rows.row[taken]] = Disposition.PLANNED
    left = len(work.moves) - len(taken)
    bound = max(work.fewest_replicas() - left, 0)
    notes = (*work.notes(), *([budget_note(left, exact=False)] if left else ()))
    return CandidatePlan(rows, disposition, rows.row, broker, bound, notes)


class _Relief:
    """The state of the search: each replica's broker, what the volumes still have to give, and what brokers may get."""

    def __init__(self, problem: Problem) -> None:
        rows, brokers, limit = problem.rows, problem.brokers, problem.options.max_used
        self.size, self.broker, self.rack = rows.size[rows.row], rows.broker.copy(), brokers.rack
        self.ids, self.receivers = brokers.ids, brokers.receivers
        self.volumes = full_volumes(brokers, limit)
        self.left = [volume.excess for volume in self.volumes]
        movable = _movable_replicas(problem)
        #: The replicas of each volume that may move, the largest first.
        self.queues = [
            _largest_first(rows, movable & (rows.broker == of.broker) & (rows.directory == of.directory))
            for of in self.volumes
        ]
        self.volume_of = {at: number for number, queue in enumerate(self.queues) for at in queue}
        self.places = _Places(brokers, limit)
        # Tables only of the partitions that may move: a cluster has a million.
        near = np.unique(rows.row[list(self.volume_of)])
        self.row = positions_in(near, len(rows))[rows.row]
        mine = self.row >= 0
        self.holds = count_pairs(self.row[mine], rows.broker[mine], (len(near), len(brokers))) > 0
        group = rack_groups(brokers)
        #: Replicas per row and rack; those on brokers without a rack come last.
        self.on_rack = count_pairs(self.row[mine], group[rows.broker[mine]], (len(near), int(group.max()) + 1))
        self.low, self.high = rack_bounds_by_row(brokers, rows.replica_count[near], self.on_rack, brokers.usable)
        #: The replicas that move.
        self.moves: set[int] = set()

    def choose_first(self) -> list[int]:
        """Return the replicas that the volumes give away if all of them find a place, the largest first."""
        chosen = []
        for queue, left in zip(self.queues, self.left, strict=True):
            able = [at for at in queue if self._possible_brokers(at).any()]
            chosen += [able[at] for at in smallest_cover([int(self.size[at]) for at in able], left)]
        return sorted(chosen, key=lambda at: (-int(self.size[at]), at))

    def move_if_possible(self, at: int) -> bool:
        """Move a replica to the broker whose disks are then used the least. Return False if there is no place."""
        possible = np.flatnonzero(self._possible_brokers(at))
        if len(possible) == 0:
            return False
        size, row, giver = int(self.size[at]), int(self.row[at]), int(self.broker[at])
        receiver = self.places.least_used(possible, size)
        self.broker[at] = receiver
        # The giver counts as holding it still: a replica that comes back would not leave at all.
        self.holds[row, receiver] = True
        # A broker without a rack has the rack -1, which indexes the last column.
        self.on_rack[row, self.rack[giver]] -= 1
        self.on_rack[row, self.rack[receiver]] += 1
        self.places.take(receiver, size)
        self.left[self.volume_of[at]] -= size
        self.moves.add(at)
        return True

    def unload_one(self) -> bool:
        """Move one more replica off a volume that still holds too much. Return False if none can move."""
        for queue, need in zip(self.queues, self.left, strict=True):
            stay = [at for at in queue if at not in self.moves] if need > 0 else []
            # The largest that does not exceed what is left to give, else the smallest of the larger ones.
            larger = [at for at in reversed(stay) if self.size[at] > need]
            if any(self.move_if_possible(at) for at in (*(at for at in stay if self.size[at] <= need), *larger)):
                return True
        return False

    def take_back_needless(self) -> None:
        """Take back what a volume need not give any more, because a larger replica left it after that."""
        for at in sorted(self.moves, key=lambda at: int(self.size[at])):
            number, size = self.volume_of[at], int(self.size[at])
            if self.left[number] + size <= 0:
                self.left[number] += size
                self.moves.remove(at)

    def moved_within_budget(self, max_moves: int | None, max_bytes: int | None) -> list[int]:
        """Return the replicas that the budget takes: those of the fullest volumes first, the largest first."""
        taken, weight = list[int](), 0
        for at in sorted(self.moves, key=lambda at: (self.volume_of[at], -int(self.size[at]), at)):
            size = int(self.size[at])
            if (max_moves is None or len(taken) < max_moves) and (max_bytes is None or weight + size <= max_bytes):
                taken.append(at)
                weight += size
        return sorted(taken)

    def fewest_replicas(self) -> int:
        """Return the fewest replicas that can cover what the volumes give away: the largest of each."""
        given = [volume.excess - max(left, 0) for volume, left in zip(self.volumes, self.left, strict=True)]
        sums = [np.cumsum(self.size[queue]) for queue in self.queues]
        return sum(int(np.searchsorted(sums[number], need)) + 1 for number, need in enumerate(given) if need > 0)

    def notes(self) -> list[str]:
        """Return the bytes that must leave, and the brokers with a volume that stays above the threshold."""
        if not self.volumes:
            return []
        excess = sum(volume.excess for volume in self.volumes)
        notes = [f"The volumes hold {excess} bytes above max_used, which any plan must move away."]
        full = {
            int(self.ids[volume.broker]): None for volume, left in zip(self.volumes, self.left, strict=True) if left > 0
        }
        if full:
            notes.append(
                "The volumes of these brokers stay above max_used, because no other broker has a place for what could "
                f"leave them: {name_some(list(full), _NAMED)}."
            )
        return notes

    def _possible_brokers(self, at: int) -> Bools:
        """Return a mask of the brokers that may get a replica."""
        row, giver = int(self.row[at]), int(self.broker[at])
        able = self.receivers & ~self.holds[row] & self.places.takes(int(self.size[at]))
        leaves, enters = self.rack[giver], self.rack
        # No rule binds brokers without a rack.
        may_leave = (leaves < 0) | (self.on_rack[row, leaves] > self.low[row, leaves])
        may_enter = (enters < 0) | (self.on_rack[row, enters] < self.high[row, enters])
        return np.asarray(able & ((leaves == enters) | (may_leave & may_enter)), bool)


class _Places:
    """What each broker may still get before one of its volumes is used above the threshold, or lacks room."""

    def __init__(self, brokers: Brokers, max_used: float) -> None:
        self.spare = [_spare_bytes(brokers, at, max_used) for at in range(len(brokers))]
        self.total, self.used = (
            np.array([sum(disk[part] for disk in disks or ()) for disks in brokers.disks], np.float64)
            for part in range(2)
        )
        self.coming, self.largest = np.zeros((2, len(brokers)), np.int64)
        #: The bytes that are free on brokers with one volume; those with several are looked at one by one.
        self.free = np.array([2**62 if spare is None else max(spare, default=0) for spare in self.spare])
        self.several = [at for at, spare in enumerate(self.spare) if len(spare or ()) > 1]

    def takes(self, size: int) -> Bools:
        """Return a mask of the brokers that have a place for so many bytes more."""
        able = np.asarray(self.coming + size <= self.free, bool)
        for at in self.several:
            sure = sure_room(self.spare[at] or (), max(size, int(self.largest[at])))
            able[at] = int(self.coming[at]) + size <= sure
        return able

    def least_used(self, among: Ints, size: int) -> int:
        """Return the broker whose volumes are used the least, in part of their size, with so many bytes more."""
        return int(among[np.argmin((self.used[among] + size) / np.maximum(self.total[among], 1))])

    def take(self, broker: int, size: int) -> None:
        """Count a replica that comes."""
        self.used[broker] += size
        self.coming[broker] += size
        self.largest[broker] = max(self.largest[broker], size)


def _movable_replicas(problem: Problem) -> Bools:
    """Return a mask of the replicas that a plan may move, and whose size is known."""
    rows = problem.rows
    free = (held_dispositions(problem) == Disposition.UNTOUCHED) & ~rows_that_lag(problem)
    # Kafka would never complete a move of a partition that keeps a replica on a dead broker or in a failed directory.
    free[rows.row[~problem.brokers.usable[rows.broker] | rows.lost]] = False
    return np.asarray(free[rows.row] & (rows.size[rows.row] > 0), bool)


def _largest_first(rows: PartitionTable, which: Bools) -> list[int]:
    at = np.flatnonzero(which)
    # Of equals, followers: the preferred leader of the partition then stays.
    order: list[int] = at[np.lexsort((at, rows.replica_positions[at] == 0, -rows.size[rows.row[at]]))].tolist()
    return order


def _spare_bytes(brokers: Brokers, broker: int, max_used: float) -> tuple[int, ...] | None:
    """Return what each log directory may receive; None if that is not known."""
    disks, rooms = brokers.disks[broker], brokers.rooms[broker]
    if disks is None or rooms is None:
        return None
    # Directories that take nothing come last, and have no disk.
    return tuple(
        min(room, max(used_at_most(total, max_used) - used, 0))
        for room, (total, used) in zip(rooms, disks, strict=False)
    )
