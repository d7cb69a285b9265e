"""Among plans that cost the same, choose one whose fullest broker takes fewer bytes from producers.

The flow of a placement knows no partition's bytes in, and often many placements are the cheapest. So the one that it
found is improved by exchanges that cost nothing: the fullest broker and an emptier one exchange two replicas, or the
leadership of two partitions, if as many replicas and mebibytes move as before, as many leaders change, and all
bounds hold. A plan that moves nothing stays as it is: each exchange would move something.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from kafka_steward.planning.solver.flow import mebibytes
from kafka_steward.planning.solver.problem import Bools, Floats, Ints, count_pairs

#: Pairs of rows and brokers up to which exchanges are sought: tables of them are held in memory.
MAX_PAIRS = 1 << 26
#: Pairs of brokers between which exchanges are sought, those of one fuller broker, and its replicas that are compared.
_TRIES, _TARGETS, _COMPARED = 200, 12, 128
#: The cost of a move, beyond any sum of mebibytes.
_MOVE = 1 << 40
#: The part of the mean load that an exchange must be worth.
_WORTH = 0.001


@dataclass(frozen=True)
class Load:
    """The bytes per second into each row, and what brokers take besides; `weight` is their capacity, 0 for none."""

    rate: Ints
    besides: Floats
    weight: Floats


@dataclass(frozen=True)
class Counts:
    """The rows' topics, and the fewest and most of them per topic and broker, and per broker."""

    topic: Ints
    cell: tuple[Ints, Ints]
    broker: tuple[Ints, Ints]


class Choice(Protocol):
    """What is exchanged: each row has something on a broker, which may be on another one at another cost."""

    def may_move(self, row: Ints, source: int, target: int, /) -> Bools:
        """Return a mask of the rows that may have on `target` what they have on `source`."""

    def cost(self, row: Ints, broker: int, /) -> Ints:
        """Return what it costs that the rows have it there."""

    def move(self, row: int, source: int, target: int, /) -> None:
        """Note that it was moved."""


@dataclass(frozen=True)
class ReplicaChoice:
    """Replicas of rows: a new one costs a move and its mebibytes, and the leader is worth keeping.

    `on` and `held` are tables of rows and brokers: the replicas, and those before; `leader` is that before, or -1.
    """

    on: Bools
    held: Bools
    leader: Ints
    size: Ints
    racks: Racks
    excluded: Bools

    def may_move(self, row: Ints, source: int, target: int) -> Bools:
        """Return a mask of the rows that may have a replica on `target` in place of that on `source`."""
        able = ~self.on[row, target]
        if self.excluded[target]:
            able &= self.held[row, target]
        return np.asarray(able & self.racks.allow(row, source, target), bool)

    def cost(self, row: Ints, broker: int) -> Ints:
        """Return what a replica there costs."""
        kept = -(self.leader[row] == broker).astype(np.int64)
        return np.where(self.held[row, broker], kept, 2 * (mebibytes(self.size[row]) + _MOVE))

    def move(self, row: int, source: int, target: int) -> None:
        """Note that a replica was moved."""
        self.on[row, source], self.on[row, target] = False, True
        self.racks.move(row, source, target)


@dataclass(frozen=True)
class Racks:
    """The rack of each broker, and the number of replicas of each row there, with the fewest and the most."""

    group: Ints
    count: Ints
    bounds: tuple[Ints, Ints]

    def allow(self, row: Ints, source: int, target: int) -> Bools:
        """Return a mask of the rows that may have a replica more in one rack, and one less in the other."""
        before, after = self.group[source], self.group[target]
        if before == after:
            return np.ones(len(row), bool)
        low, high = self.bounds
        fewer, more = self.count[row, before] > low[row, before], self.count[row, after] < high[row, after]
        return np.asarray(fewer & more, bool)

    def move(self, row: int, source: int, target: int) -> None:
        """Note that a replica was moved."""
        self.count[row, self.group[source]] -= 1
        self.count[row, self.group[target]] += 1


@dataclass(frozen=True)
class LeaderChoice:
    """Leaders of rows: another one than before costs a change, and one without data more."""

    on: Bools
    held: Bools
    leader: Ints

    def may_move(self, row: Ints, _source: int, target: int) -> Bools:
        """Return a mask of the rows that have a replica on `target`."""
        return np.asarray(self.on[row, target], bool)

    def cost(self, row: Ints, broker: int) -> Ints:
        """Return what it costs that the broker leads these rows."""
        changes = np.where(self.leader[row] == broker, 0, len(self.leader) + 1)
        return np.asarray(changes + ~self.held[row, broker], np.int64)

    def move(self, _row: int, _source: int, _target: int) -> None:
        """Do nothing: a partition may have any of its replicas as its leader."""


def even_out(row: Ints, broker: Ints, choice: Choice, load: Load, counts: Counts) -> Ints:
    """Return the broker of each item (row, broker) after exchanges that cost nothing."""
    return _Exchanges(row, broker.copy(), choice, load, counts).run()


def only_exchanges(counts: Counts, broker: Ints) -> Counts:
    """Return the same bounds with as many on each broker as there are."""
    number = np.bincount(broker, minlength=len(counts.broker[0]))
    return replace(counts, broker=(number, number))


class _Exchanges:
    def __init__(self, row: Ints, broker: Ints, choice: Choice, load: Load, counts: Counts) -> None:
        self.row, self.broker, self.choice, self.rate, self.counts = row, broker, choice, load.rate, counts
        brokers = len(load.weight)
        self.number = np.bincount(broker, minlength=brokers)
        self.cell = count_pairs(counts.topic[row], broker, counts.cell[0].shape)
        self.usable = load.weight > 0
        self.weight = np.where(self.usable, load.weight, 1)
        self.load = load.besides + np.bincount(broker, load.rate[row], brokers)
        order = np.argsort(broker, kind="stable")
        #: The items of each broker.
        self.items: list[Ints] = np.split(order, np.cumsum(self.number)[:-1])

    def run(self) -> Ints:
        """Exchange between the fullest broker, then the next fullest ones, and the emptiest that can take something."""
        tries, done = _TRIES, ~self.usable
        worth = _WORTH * float(self.load[self.usable].sum() / self.weight[self.usable].sum())
        while tries > 0 and not done.all():
            level = self.load / self.weight
            source = int(np.where(done, -1.0, level).argmax())
            done[source] = True
            order = np.argsort(np.where(self.usable, level, np.inf), kind="stable")
            for target in order[: min(_TARGETS, tries)].tolist():
                if level[target] + worth >= level[source]:
                    break
                tries -= 1
                if self._exchange(source, target, float(level[source]) - worth):
                    done[source] = False
                    break
        return self.broker

    def _exchange(self, source: int, target: int, below: float) -> bool:
        """Make the exchange that leaves the fuller of two brokers least full, if that is `below` some level."""
        given, taken = self._candidates(source, target), self._candidates(target, source)
        costs = [self._extra_cost(items, *way) for items, way in ((given, (source, target)), (taken, (target, source)))]
        # Alone, an item may go where the numbers of both brokers allow it.
        alone = self.number[source] > self.counts.broker[0][source]
        alone &= self.number[target] < self.counts.broker[1][target]
        one = [(costs[0] == 0) | np.isin(costs[0], -costs[1]), np.isin(costs[1], -costs[0])]
        given, taken = (self._some(items[these]) for items, these in zip((given, taken), one, strict=True))
        if len(given) == 0 or not (alone or len(taken)):
            return False
        back = [self.row[taken], np.append(self.rate[self.row[taken]], 0)]
        topics = self.counts.topic[self.row[given]], np.append(self.counts.topic[back[0]], -1)
        fits = self._fits(topics[0], source, target), np.append(self._fits(topics[1][:-1], target, source), alone)
        extra = self._extra_cost(given, source, target), np.append(self._extra_cost(taken, target, source), 0)
        less = self.rate[self.row[given]][:, None] - back[1]
        fuller = np.maximum(
            (self.load[source] - less) / self.weight[source], (self.load[target] + less) / self.weight[target]
        )
        able = (fits[0][:, None] & fits[1]) | (topics[0][:, None] == topics[1])
        fuller[~(able & (extra[0][:, None] + extra[1] == 0))] = np.inf
        at, other = divmod(int(fuller.argmin()), len(back[1]))
        if fuller[at, other] >= below:
            return False
        self._move(int(given[at]), source, target)
        if other < len(taken):
            self._move(int(taken[other]), target, source)
        return True

    def _candidates(self, source: int, target: int) -> Ints:
        items = self.items[source]
        return items[self.choice.may_move(self.row[items], source, target)]

    def _extra_cost(self, items: Ints, source: int, target: int) -> Ints:
        return self.choice.cost(self.row[items], target) - self.choice.cost(self.row[items], source)

    def _some(self, items: Ints) -> Ints:
        if len(items) <= _COMPARED:
            return items
        order = np.argsort(self.rate[self.row[items]], kind="stable")
        return items[order[np.linspace(0, len(items) - 1, _COMPARED).astype(np.int64)]]

    def _fits(self, topic: Ints, source: int, target: int) -> Bools:
        low, high = self.counts.cell
        fewer, more = self.cell[topic, source] > low[topic, source], self.cell[topic, target] < high[topic, target]
        return np.asarray(fewer & more, bool)

    def _move(self, item: int, source: int, target: int) -> None:
        row, topic = int(self.row[item]), int(self.counts.topic[self.row[item]])
        self.choice.move(row, source, target)
        self.broker[item] = target
        self.items[source] = self.items[source][self.items[source] != item]
        self.items[target] = np.append(self.items[target], item)
        for broker, step in ((source, -1), (target, 1)):
            self.cell[topic, broker] += step
            self.number[broker] += step
            self.load[broker] += step * self.rate[row]
