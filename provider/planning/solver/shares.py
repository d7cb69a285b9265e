"""What a slice is told by the whole: how many replicas each topic has on each broker, and how many leaders it gets.

The whole is known from the slices' tallies alone. Quotas are one flow over topics and brokers; leaders another, over
the same, whose columns become each slice's targets: so that many slices, each solved by itself, are even together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kafka_steward.planning.solver.arrays import Bools, Ints
from kafka_steward.planning.solver.flows import Infeasible, Network
from kafka_steward.planning.solver.quota_flow import Quotas
from kafka_steward.planning.solver.tally import Tally

__all__ = ["Share", "led_together", "shares_of"]

#: How far a broker's leaders in one slice may be from the part that it holds there.
_SLACK = 0.25


@dataclass(frozen=True)
class Share:
    """One slice's part: replicas per topic and broker, of which a bit says if it is one more than the floor; leaders.

    `leaders` is None where brokers lead in proportion to what they hold, which every slice can see to by itself.
    """

    more: npt.NDArray[np.uint8]
    leaders: Ints | None

    def quota(self, low: Ints) -> Ints:
        """Replicas per topic and broker, given the floors."""
        return np.asarray(low + np.unpackbits(self.more, count=low.size).reshape(low.shape), np.int64)


def shares_of(tally: Tally, topics: list[int], quotas: Quotas, leaders: list[Ints] | None) -> list[Share]:
    """The shares of slices, which have so many `topics` each."""
    more = quotas.beyond.copy()
    more[tally.cell_topic, tally.cell_broker] -= tally.cell_low
    shares = []
    for number, part in enumerate(np.split(more, np.cumsum(topics)[:-1])):
        bits = np.packbits(part.astype(bool))
        shares.append(Share(bits, None if leaders is None else leaders[number]))
    return shares


def led_together(tally: Tally, topics: list[int], quotas: Quotas, target: Bools) -> list[Ints]:
    """How many leaders each broker gets in each slice, so that the whole is even and the fewest leaders change.

    Without `leads` in the tally, or where a topic's quotas leave no such choice, the slices take turns instead.
    """
    sizes = [int(part.sum()) for part in np.split(tally.partitions, np.cumsum(topics)[:-1])]
    slices = np.repeat(np.arange(len(topics)), topics)
    for slack in (_SLACK, None) if len(tally.leads) else ():
        try:
            led = _Leading(tally, quotas, target).solved(slices, slack)
        except Infeasible:
            continue
        return [part.sum(axis=0) for part in np.split(led, np.cumsum(topics)[:-1])]
    return _in_turns(sizes, target)


def _in_turns(sizes: list[int], target: Bools) -> list[Ints]:
    """Each slice's leaders divided among the brokers, with another phase for each: the sums are even too."""
    brokers = int(target.sum())
    ends = np.cumsum([0, *sizes])[:, None] + np.arange(brokers)
    found = []
    for part in np.diff(ends // brokers, axis=0):
        leaders = np.zeros(len(target), np.int64)
        leaders[target] = part
        found.append(leaders)
    return found


class _Leading:
    """The flow of leaders from topics over slices to brokers."""

    def __init__(self, tally: Tally, quotas: Quotas, target: Bools) -> None:
        self.tally, self.target = tally, target
        holds = tally.low.astype(np.int64) + quotas.beyond
        holds[tally.cell_topic, tally.cell_broker] -= tally.cell_low
        count, brokers = tally.partitions[:, None], int(target.sum())
        self.holds = holds
        self.high = np.minimum(np.where(target, -(-count // brokers), 0), holds)
        self.low = np.minimum(np.where(target, count // brokers, 0), self.high)
        self.net = Network()

    def solved(self, slices: Ints, slack: float | None) -> Ints:
        """Leaders per topic and broker, given each topic's slice. Raises Infeasible.

        With `slack`, no slice's broker is asked to lead that part more or less of what it holds there than others:
        a slice where one leads all that it holds could not be led partition by partition.
        """
        net, tally, brokers = self.net, self.tally, len(self.target)
        parts = int(slices[-1]) + 1
        topic, share = net.nodes(len(self.holds)), net.nodes(parts * brokers).reshape(parts, brokers)
        broker, sink = net.nodes(brokers), net.nodes(1)
        net.supply(topic, tally.partitions - self.low.sum(axis=1))
        net.supply(sink, -int(tally.partitions.sum()))
        sure = _by_slice(self.low, slices)
        net.supply(share, sure)
        arcs = self._options(topic, share[slices])
        reach = self._reach(slices, sure, slack)
        net.connect_between(share, np.broadcast_to(broker, share.shape), reach, 0)
        everything, sharing = int(tally.partitions.sum()), int(self.target.sum())
        level = (np.where(self.target, everything // sharing, 0), np.where(self.target, -(-everything // sharing), 0))
        net.connect_between(broker, np.broadcast_to(sink, broker.shape), level, 0)
        flow, led = net.solve(), self.low.copy()
        for at, where in arcs:
            led[at] += flow[where]
        return np.asarray(led, np.int64)

    def _options(self, topic: Ints, share: Ints) -> list[tuple[tuple[Ints, ...], slice]]:
        stay = np.minimum(self.tally.leads, self.high)
        keep, fresh = np.maximum(stay - self.low, 0), self.high - np.maximum(stay, self.low)
        arcs = []
        for room, cost in ((keep, 0), (fresh, 1)):
            at = np.nonzero(room)
            arcs.append((at, self.net.connect(topic[at[0]], share[at], room[at], cost)))
        return arcs

    def _reach(self, slices: Ints, sure: Ints, slack: float | None) -> tuple[Ints, Ints]:
        """The fewest and most leaders per slice and broker."""
        held = _by_slice(self.holds, slices)
        if slack is None:
            return np.zeros_like(held), held
        even = held * (np.bincount(slices, weights=self.tally.partitions) / np.maximum(held.sum(axis=1), 1))[:, None]
        low = np.floor(even * (1 - slack)).astype(np.int64)
        return np.minimum(low, held), np.maximum(np.ceil(even * (1 + slack)).astype(np.int64) + 1, sure)


def _by_slice(table: Ints, slices: Ints) -> Ints:
    first = np.flatnonzero(np.diff(slices, prepend=-1))
    return np.asarray(np.add.reduceat(table, first, axis=0), np.int64)
