"""Choose which replicas lead so that no broker leads much more bytes in than the mean, with few changes of leaders.

This is a heuristic with a lower bound. The fullest broker gives away the lead of one partition after the other: of the
smallest that suffices, else of the largest that another broker can take. Where its partitions can go only to brokers
that are full themselves, these give on in turn; where no chain helps, two partitions exchange their brokers. What
turned out not to be needed is taken back at the end.

The bound: some partitions can be led only by brokers of a set. If the bytes into these, over the set's capacity, are
more than the target, some broker of the set must lead that much. So must a broker that leads the largest partition.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kafka_steward.planning.solver.leaders import Replicas
from kafka_steward.planning.solver.problem import Bools, Floats, Ints

#: How far above the mean a broker may lead, as a factor.
LEAD_TARGET = 1.1
#: The words of `leader_evenness` for leaders that are even by bytes in, and for those that may be more so.
BY_BYTES, NEAR_BY_BYTES = "bytes-in", "near-bytes-in"
#: Exchanges of two partitions, and the partitions of a broker that are compared for one.
_EXCHANGES, _COMPARED = 2_000, 128
#: The part of the fullest broker's bytes that an exchange must be worth.
_WORTH = 0.001
#: Levels are floats: a difference far below one byte is rounding.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class LedBytes:
    """The leader of each row, and whether every broker is within the target or the bound.

    `closed` masks the set of brokers that proves the bound; it is empty where the target is met.
    """

    leader: Ints
    within: bool
    closed: Bools


def even_out_bytes(replicas: Replicas, rate: Ints, besides: Floats, weight: Floats) -> LedBytes:
    """Return the leaders of all rows, by which the brokers lead about the same bytes in for their `weight`.

    `replicas` are the candidates of each row, `rate` are the bytes per second into each row, and `besides` what brokers
    lead that is not chosen. A broker of weight 0 shares nothing.
    """
    return _Leads(replicas, rate, besides, weight).run()


class _Leads:
    def __init__(self, replicas: Replicas, rate: Ints, besides: Floats, weight: Floats) -> None:
        self.rate, self.candidate, self.weight = rate, replicas.broker, np.where(weight > 0, weight, 1.0)
        self.sharing = weight > 0
        count = np.bincount(replicas.row, minlength=len(rate))
        self.start, self.end = np.cumsum(count) - count, np.cumsum(count)
        self.before = np.full(len(rate), -1)
        self.before[replicas.row[replicas.leads]] = replicas.broker[replicas.leads]
        self.leader = self.before.copy()
        kept = self.leader >= 0
        self.load = besides + np.bincount(self.leader[kept], rate[kept], len(weight))
        for row in np.flatnonzero(~kept)[np.argsort(-rate[~kept], kind="stable")].tolist():
            able = self.candidate[self.start[row] : self.end[row]]
            self.leader[row] = able[np.argmin((self.load[able] + rate[row]) / self.weight[able])]
            self.load[self.leader[row]] += rate[row]
        order = np.argsort(self.leader, kind="stable")
        self._rows: list[Ints] = np.split(order, np.cumsum(np.bincount(self.leader, minlength=len(weight)))[:-1])
        self.closed = np.zeros(len(weight), bool)
        mean = float(self.load[self.sharing].sum() / self.weight[self.sharing].sum())
        free = np.repeat(rate, count) / self.weight[self.candidate]
        # Whoever leads the largest partition leads at least that.
        single = float(np.minimum.reduceat(free, self.start).max(initial=0.0)) if len(rate) else 0.0
        self.target = max(LEAD_TARGET * mean, single)

    def run(self) -> LedBytes:
        stuck, exchanges = ~self.sharing, _EXCHANGES
        while True:
            level = np.where(stuck, 0.0, self.load / self.weight)
            source = int(level.argmax())
            if level[source] <= self.target * (1 + _ROUNDING):
                break
            if self._give(source) or self._give_by_chain(source):
                continue
            if exchanges > 0 and self._exchange(source):
                exchanges -= 1
                continue
            self._raise_bound(source)
            stuck[source] = True
        self._take_back()
        within = bool((self.load / self.weight)[self.sharing].max() <= self.target * (1 + _ROUNDING))
        return LedBytes(self.leader, within, self.closed)

    def rows_of(self, broker: int) -> Ints:
        """Return the rows that a broker leads and that bring in something."""
        rows = self._rows[broker]
        rows = rows[self.leader[rows] == broker]
        self._rows[broker] = rows
        return np.asarray(rows[self.rate[rows] > 0], np.int64)

    def _ways(self, broker: int) -> tuple[Ints, Ints]:
        """Return the rows that a broker leads, each with another broker that could lead it."""
        rows = self.rows_of(broker)
        count = self.end[rows] - self.start[rows]
        row = np.repeat(rows, count)
        at = np.repeat(self.start[rows] - (np.cumsum(count) - count), count) + np.arange(int(count.sum()))
        other = self.candidate[at]
        able = (other != broker) & self.sharing[other]
        return row[able], other[able]

    def _give(self, source: int) -> bool:
        """Let another broker lead one row of the source, within the target."""
        row, other = self._ways(source)
        fits = self.load[other] + self.rate[row] <= self.target * self.weight[other]
        if not fits.any():
            return False
        row, other = row[fits], other[fits]
        at = self._best(row, self.load[source] - self.target * self.weight[source])
        self._move(int(row[at]), source, int(other[at]))
        return True

    def _best(self, row: Ints, excess: float) -> int:
        """Return the index of the smallest row that covers the excess, else of the largest one."""
        rate = self.rate[row]
        covers = rate >= excess
        return int(np.where(covers, rate, np.iinfo(np.int64).max).argmin() if covers.any() else rate.argmax())

    def _give_by_chain(self, source: int) -> bool:
        """Let full brokers give on what they take from the source, each within the target."""
        for path in self._paths(source):
            # From the end: what the last one can take, then what each one before can take if it gives that.
            moves, room = list[tuple[int, int, int]](), 0.0
            for giver, receiver in zip(path[-2::-1], path[:0:-1], strict=True):
                row, other = self._ways(giver)
                # One that is full stays as full as it is.
                room += max(self.target * self.weight[receiver] - self.load[receiver], 0.0)
                fits = row[(other == receiver) & (self.rate[row] <= room)]
                if len(fits) == 0:
                    break
                chosen = int(fits[self.rate[fits].argmax()])
                moves.append((chosen, giver, receiver))
                room = float(self.rate[chosen])
            if len(moves) == len(path) - 1:
                for move in moves:
                    self._move(*move)
                return True
        return False

    def _paths(self, source: int) -> Iterator[list[int]]:
        """Yield a shortest way from the source to each broker below the target, the nearest first."""
        came: dict[int, int] = {source: source}
        left = [source]
        while left:
            broker = left.pop(0)
            for other in np.unique(self._ways(broker)[1]).tolist():
                if other in came:
                    continue
                came[other] = broker
                left.append(other)
                if self.load[other] < self.target * self.weight[other]:
                    path = [other]
                    while path[-1] != source:
                        path.append(came[path[-1]])
                    yield path[::-1]

    def _exchange(self, source: int) -> bool:
        """Let the source and another broker exchange two rows, or one go, so that the fuller of them is less full."""
        row, other = self._ways(source)
        below = float(self.load[source] / self.weight[source]) * (1 - _WORTH)
        best: tuple[float, int, int, int] | None = None
        for target in np.unique(other).tolist():
            mine = self._some(row[other == target])
            back, to = self._ways(target)
            theirs = self._some(back[to == source])
            less = self.rate[mine][:, None] - np.append(self.rate[theirs], 0)
            fuller = np.maximum(
                (self.load[source] - less) / self.weight[source], (self.load[target] + less) / self.weight[target]
            )
            at, its = divmod(int(fuller.argmin()), len(theirs) + 1)
            found = float(fuller[at, its])
            if found < below and (best is None or found < best[0]):
                best = found, int(mine[at]), int(theirs[its]) if its < len(theirs) else -1, target
        if best is None:
            return False
        _, given, taken, target = best
        self._move(given, source, target)
        if taken >= 0:
            self._move(taken, target, source)
        return True

    def _some(self, rows: Ints) -> Ints:
        if len(rows) <= _COMPARED:
            return rows
        order = np.argsort(self.rate[rows], kind="stable")
        return rows[order[np.linspace(0, len(rows) - 1, _COMPARED).astype(np.int64)]]

    def _raise_bound(self, source: int) -> None:
        """Raise the target to what the brokers that the source can reach lead on average, if that is more."""
        reached, left = {source}, [source]
        while left:
            further = set(np.unique(self._ways(left.pop())[1]).tolist()) - reached
            reached |= further
            left += further
        brokers = sorted(reached)
        bound = float(self.load[brokers].sum() / self.weight[brokers].sum())
        if bound > self.target:
            self.target = bound
            self.closed[:] = False
            self.closed[brokers] = True

    def _take_back(self) -> None:
        """Give rows back to their leaders from before, where that keeps both within the target."""
        changed = np.flatnonzero((self.leader != self.before) & (self.before >= 0))
        for row in changed[np.argsort(self.rate[changed], kind="stable")].tolist():
            home = int(self.before[row])
            if self.load[home] + self.rate[row] <= self.target * self.weight[home] or self.rate[row] == 0:
                self._move(row, int(self.leader[row]), home)

    def _move(self, row: int, source: int, target: int) -> None:
        self.leader[row] = target
        self.load[source] -= self.rate[row]
        self.load[target] += self.rate[row]
        self._rows[target] = np.append(self._rows[target], row)
