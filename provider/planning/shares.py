"""What a slice is told by the whole: how many replicas each topic has on each broker, and how many leaders it gets.

The whole is known from the slices' tallies alone. Quotas are one flow over topics and brokers; leaders another, over
the same, whose columns become each slice's targets: so that many slices, each solved by itself, are even together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kafka_steward.planning.arrays import Bools, Ints
from kafka_steward.planning.flows import Infeasible, Network
from kafka_steward.planning.quota_flow import Quotas
from kafka_steward.planning.tally import Tally

__all__ = ["Share", "led_together", "shares_of"]


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
    if len(tally.leads) == 0:
        return _in_turns(sizes, target)
    try:
        led = _led(tally, quotas, target)
    except Infeasible:
        return _in_turns(sizes, target)
    return [part.sum(axis=0) for part in np.split(led, np.cumsum(topics)[:-1])]


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


def _led(tally: Tally, quotas: Quotas, target: Bools) -> Ints:
    """Leaders per topic and broker. Raises Infeasible."""
    holds = tally.low.astype(np.int64) + quotas.beyond
    holds[tally.cell_topic, tally.cell_broker] -= tally.cell_low
    brokers = int(target.sum())
    count = tally.partitions[:, None]
    high = np.minimum(np.where(target, -(-count // brokers), 0), holds)
    low = np.minimum(np.where(target, count // brokers, 0), high)
    stay = np.minimum(tally.leads, high)
    net = Network()
    topic, broker, sink = net.nodes(len(holds)), net.nodes(len(target)), net.nodes(1)
    net.supply(topic, tally.partitions - low.sum(axis=1))
    net.supply(sink, -int(tally.partitions.sum()))
    net.supply(broker, low.sum(axis=0))
    keep, fresh = np.maximum(stay - low, 0), high - np.maximum(stay, low)
    arcs = []
    for room, cost in ((keep, 0), (fresh, 1)):
        at = np.nonzero(room)
        arcs.append((at, net.connect(topic[at[0]], broker[at[1]], room[at], cost)))
    everything = int(tally.partitions.sum())
    level = (np.where(target, everything // brokers, 0), np.where(target, -(-everything // brokers), 0))
    net.connect_between(broker, np.broadcast_to(sink, broker.shape), level, 0)
    flow = net.solve()
    for at, where in arcs:
        low[at] += flow[where]
    return np.asarray(low, np.int64)
