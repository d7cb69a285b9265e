"""The quotas of a shard: the replicas of each topic on each broker, and the number of leaders of each broker.

The whole cluster is known from the shard summaries alone. Quotas are one flow over topics and brokers. Leaders are
another flow over the same nodes, whose columns become each shard's targets. Many shards, each solved on its own, are
therefore even together.
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

#: Fraction by which a broker's leaders in one shard may differ from its part of the replicas there.
_SLACK = 0.25


@dataclass(frozen=True)
class Share:
    """One shard's part: replicas per topic and broker, as a bit for one more than the floor, and leaders per broker.

    `leaders` is None if brokers lead in proportion to their replicas, which every shard can ensure on its own.
    """

    more: npt.NDArray[np.uint8]
    leaders: Ints | None

    def quota(self, low: Ints) -> Ints:
        """Return replicas per topic and broker, given the floors."""
        return np.asarray(low + np.unpackbits(self.more, count=low.size).reshape(low.shape), np.int64)


def shares_of(tally: Tally, topics: list[int], quotas: Quotas, leaders: list[Ints] | None) -> list[Share]:
    """Return the quotas of the shards; `topics` is the number of topics of each."""
    more = quotas.beyond.copy()
    more[tally.cell_topic, tally.cell_broker] -= tally.cell_low
    shares = []
    for number, part in enumerate(np.split(more, np.cumsum(topics)[:-1])):
        bits = np.packbits(part.astype(bool))
        shares.append(Share(bits, None if leaders is None else leaders[number]))
    return shares


def led_together(tally: Tally, topics: list[int], quotas: Quotas, target: Bools) -> list[Ints]:
    """Return each broker's number of leaders in each shard, so that the whole is even and the fewest leaders change.

    Without `leads` in the summary, or if a topic's quotas leave no such choice, the leaders are dealt in turns instead.
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
    """Divide each shard's leaders among the brokers, with another phase for each: the sums are even too."""
    brokers = int(target.sum())
    ends = np.cumsum([0, *sizes])[:, None] + np.arange(brokers)
    found = []
    for part in np.diff(ends // brokers, axis=0):
        leaders = np.zeros(len(target), np.int64)
        leaders[target] = part
        found.append(leaders)
    return found


class _Leading:
    """The flow of leaders from topics through shards to brokers."""

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
        """Return leaders per topic and broker, given each topic's shard. Raises Infeasible.

        With `slack`, a broker's leaders in a shard differ from its part of the replicas there by at most that fraction.
        If a broker had to lead all that it holds in a shard, the shard could not be led partition by partition.
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
        """Return the fewest and most leaders per shard and broker."""
        held = _by_slice(self.holds, slices)
        if slack is None:
            return np.zeros_like(held), held
        even = held * (np.bincount(slices, weights=self.tally.partitions) / np.maximum(held.sum(axis=1), 1))[:, None]
        low = np.floor(even * (1 - slack)).astype(np.int64)
        return np.minimum(low, held), np.maximum(np.ceil(even * (1 + slack)).astype(np.int64) + 1, sure)


def _by_slice(table: Ints, slices: Ints) -> Ints:
    first = np.flatnonzero(np.diff(slices, prepend=-1))
    return np.asarray(np.add.reduceat(table, first, axis=0), np.int64)
