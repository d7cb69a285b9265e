"""Balanced disks: replicas move until every broker's bytes are within a tolerance of its share, with few bytes moved.

This is a heuristic with a lower bound. Bytes above the upper edges must leave, and bytes missing below the lower edges
must arrive, so that no plan moves fewer bytes than the larger of the two sums. The fullest broker gives the largest
replica that is not larger than its excess to the emptiest broker that may have it. Then the emptiest broker receives. A
replica moves once at most, and a broker that can do no more is left out: the number of steps is bounded by the number
of replicas.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kafka_steward.planning.solver.arrays import Bools, Ints

__all__ = ["Disks", "Moved", "even_disks"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Disks:
    """Replicas (row, broker, bytes, movable or not); fewest and most replicas per row and rack; each broker's share.

    `rack` is -1 for brokers without a rack constraint; `free` is the number of bytes that a broker can receive.
    """

    row: Ints
    broker: Ints
    size: Ints
    movable: Bools
    rack: Ints
    low: Ints
    high: Ints
    share: Floats
    free: Ints
    tolerance: float


@dataclass(frozen=True)
class Moved:
    """The replicas' brokers afterwards, the bytes that must move, brokers out of the band, rows too large for it."""

    broker: Ints
    bound: int
    outside: tuple[int, ...]
    too_large: tuple[int, ...]


def even_disks(disks: Disks) -> Moved:
    """Balance the disks."""
    work = _Work(disks)
    over, under = np.maximum(work.load - work.upper, 0).sum(), np.maximum(work.lower - work.load, 0).sum()
    while work.relieve() or work.feed():
        pass
    outside = np.flatnonzero((work.load > work.upper + 1e-6) | (work.load < work.lower - 1e-6))
    band = (work.upper - work.lower)[disks.share > 0].min(initial=np.inf)
    too_large = np.unique(disks.row[disks.size > band]) if len(outside) else np.zeros(0, np.int64)
    return Moved(work.broker, int(max(over, under)), tuple(outside.tolist()), tuple(too_large.tolist()))


class _Work:
    """The state of the loop: loads, the current broker of each replica, and the brokers that can do no more."""

    def __init__(self, disks: Disks) -> None:
        self.disks = disks
        self.broker = disks.broker.copy()
        brokers = len(disks.share)
        self.load = np.bincount(disks.broker, weights=disks.size, minlength=brokers)
        aim = disks.share * self.load.sum()
        self.lower, self.upper = aim * (1 - disks.tolerance), aim * (1 + disks.tolerance)
        self.free = disks.free.astype(np.float64)
        self.blocked = disks.share <= 0
        rows = int(disks.row.max(initial=-1)) + 1
        self.holds = np.zeros((rows, brokers), bool)
        self.holds[disks.row, disks.broker] = True
        order = np.lexsort((np.arange(len(disks.size)), -disks.size))
        order = order[disks.movable[order] & (disks.size[order] > 0)]
        self.queue = [order[disks.broker[order] == broker].tolist() for broker in range(brokers)]

    def relieve(self) -> bool:
        """Take one replica from the fullest broker above the band. Returns False when no such broker is left."""
        excess = np.where(self.blocked, -np.inf, self.load - self.upper)
        giver = int(excess.argmax())
        if excess[giver] <= 0:
            return False
        fitting = [at for at in self.queue[giver] if self.disks.size[at] <= excess[giver]]
        larger = [at for at in reversed(self.queue[giver]) if self.disks.size[at] > excess[giver]]
        for at in (*fitting, *larger):
            if self.load[giver] - self.disks.size[at] >= self.lower[giver] and self._moved(at, self._takers(at)):
                return True
        self.blocked[giver] = True
        return True

    def feed(self) -> bool:
        """Give one replica to the emptiest broker below the band. Returns False when no such broker is left."""
        lack = np.where(self.blocked, -np.inf, self.lower - self.load)
        taker = int(lack.argmax())
        if lack[taker] <= 0:
            return False
        for giver in np.argsort(-self.load, kind="stable").tolist():
            for at in self.queue[giver]:
                size = self.disks.size[at]
                stays = self.load[giver] - size >= self.lower[giver] and self.load[taker] + size <= self.upper[taker]
                if stays and self._moved(at, [taker]):
                    return True
        self.blocked[taker] = True
        return True

    def _takers(self, at: int) -> list[int]:
        size = self.disks.size[at]
        fits = (self.load + size <= self.upper) & (self.disks.share > 0)
        return [broker for broker in np.argsort(self.load - self.upper, kind="stable").tolist() if fits[broker]]

    def _moved(self, at: int, takers: list[int]) -> bool:
        row, giver, size = int(self.disks.row[at]), int(self.broker[at]), float(self.disks.size[at])
        taker = next((one for one in takers if self._may(row, giver, one, size)), None)
        if taker is None:
            return False
        self.queue[giver].remove(at)
        self.broker[at] = taker
        self.holds[row, giver], self.holds[row, taker] = False, True
        self.load[giver] -= size
        self.load[taker] += size
        self.free[taker] -= size
        return True

    def _may(self, row: int, giver: int, taker: int, size: float) -> bool:
        if self.holds[row, taker] or self.free[taker] < size:
            return False
        rack, disks = self.disks.rack, self.disks
        if rack[giver] == rack[taker]:
            return True
        on_rack = np.bincount(rack[self.holds[row] & (rack >= 0)], minlength=disks.low.shape[1])
        may_leave = rack[giver] < 0 or on_rack[rack[giver]] > disks.low[row, rack[giver]]
        return bool(may_leave and (rack[taker] < 0 or on_rack[rack[taker]] < disks.high[row, rack[taker]]))
