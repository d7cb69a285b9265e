"""Leaders of one shard among several: each broker has a target number of leaders, so that the whole cluster is even.

Most partitions keep their leader. Only partitions that cannot keep it, and some on brokers that lead too many, enter a
small flow. If the result is not even, all partitions enter the flow. The brokers' targets are soft constraints in it,
so that the flow always has a solution.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kafka_steward.planning.solver.arrays import Bools, Ints
from kafka_steward.planning.solver.flows import Infeasible, Network
from kafka_steward.planning.solver.leaders import Slots, Tier

__all__ = ["lead_aimed"]

_MANY = 1 << 40
#: Cost of a leader change, where a leader without data costs 1; and cost of missing a broker's target by one, worth so
#: many changes. The numbers are small, because the flow takes a third longer with numbers that no sum could outweigh,
#: and finds the same result.
_CHANGE = 16
_FAR = 64 * (_CHANGE + 1)
#: For a broker that leads too many: rows that enter the flow, per leader that it must give up and besides. Both are
#: doubled in each round.
_ASKED_PER_GIVEN, _ASKED_BESIDE = 2, 8
_ROUNDS = 5
#: If a broker missed its target: one row in so many enters the flow besides. The number of rows doubles in each round.
_BESIDE = 32


@dataclass(frozen=True)
class _Led:
    """Each row's leader, and the topics and brokers whose bounds or targets were missed."""

    leader: Ints
    topics: Ints
    brokers: Ints


def lead_aimed(topic: Ints, slots: Slots, choices: list[Tier], aim: Ints) -> tuple[Ints, str]:
    """Return each row's leader, and the tier of the topics' bounds that could be met. Raises Infeasible."""
    found = _few(topic, slots, choices[0], aim)
    if found is not None:
        return found, choices[0].name
    everyone = (_led(topic, slots, tier.cell, aim) for tier in choices)
    for tier, led in zip(choices, everyone, strict=True):
        if len(led.topics) == 0:
            return led.leader, tier.name
    raise Infeasible


def _few(topic: Ints, slots: Slots, tier: Tier, aim: Ints) -> Ints | None:
    """Return the leaders when most rows keep theirs; None if that does not meet all bounds and targets.

    Rows that are in the way enter the flow in the next round.
    """
    lead = np.flatnonzero(slots.leads)
    leader = np.full(len(topic), -1)
    leader[slots.row[lead]] = slots.broker[lead]
    led = np.zeros(tier.cell[0].shape, np.int64)
    np.add.at(led, (topic[slots.row[lead]], slots.broker[lead]), 1)
    asked = _stuck(topic, slots, tier.cell, (leader, led))
    excess = np.minimum(led, tier.cell[1]).sum(axis=0) - aim
    giving = _giving_order(slots, excess)
    missed = np.zeros(0, np.int64)
    for turn in range(_ROUNDS):
        asked |= giving < np.where(excess > 0, (_ASKED_PER_GIVEN * excess + _ASKED_BESIDE) << turn, 0)[leader]
        if len(missed):
            # Between brokers that lead too many and brokers that lead too few, other rows have to change leaders. Any
            # rows will do.
            asked[:: _BESIDE >> turn] = True
        found = _with_others_fixed(topic, slots, tier, (aim, asked))
        if len(found.topics) == 0 and len(found.brokers) == 0:
            return found.leader
        missed = found.brokers
        excess[missed] = np.maximum(excess[missed], 1)
        asked |= np.isin(topic, found.topics)
        if asked.sum() > len(asked) // 2:
            return None
    return None


def _stuck(topic: Ints, slots: Slots, cell: tuple[Ints, Ints], now: tuple[Ints, Ints]) -> Bools:
    """Return a mask of the rows that must enter the flow.

    They lost their leader, or are led where too many of their topic are, or could lead where too few of their topic
    are.
    """
    leader, led = now
    asked = leader < 0
    has = np.flatnonzero(~asked)
    asked[has[(led > cell[1])[topic[has], leader[has]]]] = True
    asked[slots.row[(led < cell[0])[topic[slots.row], slots.broker]]] = True
    return _with_those_in_the_way(topic, slots, cell[1], asked)


def _with_those_in_the_way(topic: Ints, slots: Slots, high: Ints, asked: Bools) -> Bools:
    """Add the rows that block a row in `asked`.

    A row is blocked if, on every broker that holds it, other rows of its topic already lead as many as the ceiling
    allows. Those other rows are added.
    """
    at = topic[slots.row] * high.shape[1] + slots.broker
    stays = np.bincount(at[slots.leads & ~asked[slots.row]], minlength=high.size)
    boxed = asked.copy()
    boxed[slots.row[(stays < high.ravel())[at]]] = False
    full = np.zeros(high.size, bool)
    full[at[boxed[slots.row]]] = True
    asked = asked.copy()
    asked[slots.row[slots.leads & full[at]]] = True
    return asked


def _giving_order(slots: Slots, excess: Ints) -> Ints:
    """Return each row's rank on the broker that leads it.

    Rows come first that more brokers could lead that lead too few.
    """
    rows = int(slots.row[-1]) + 1
    lead = np.flatnonzero(slots.leads)
    row, broker = slots.row[lead], slots.broker[lead]
    takers = np.bincount(slots.row, weights=(excess < 0)[slots.broker], minlength=rows)
    order = np.lexsort((-takers[row], broker))
    turn = np.full(rows, _MANY)
    turn[row[order]] = np.arange(len(order)) - np.searchsorted(broker[order], broker[order])
    return turn


def _with_others_fixed(topic: Ints, slots: Slots, tier: Tier, asking: tuple[Ints, Bools]) -> _Led:
    aim, asked = asking
    stays = slots.leads & ~asked[slots.row]
    fixed = np.zeros(tier.cell[0].shape, np.int64)
    np.add.at(fixed, (topic[slots.row[stays]], slots.broker[stays]), 1)
    rows, mine = np.flatnonzero(asked), asked[slots.row]
    index = np.cumsum(asked) - 1
    part = Slots(index[slots.row[mine]], slots.broker[mine], slots.leads[mine], slots.added[mine])
    low, high = (np.maximum(bound - fixed, 0) for bound in tier.cell)
    left = aim - fixed.sum(axis=0)
    found = _led(topic[rows], part, (low, high), np.maximum(left, 0))
    leader = np.full(len(topic), -1)
    leader[slots.row[stays]] = slots.broker[stays]
    leader[rows] = found.leader
    return _Led(leader, found.topics, np.union1d(found.brokers, np.flatnonzero(left < 0)))


def _led(topic: Ints, slots: Slots, cell: tuple[Ints, Ints], aim: Ints) -> _Led:
    """Return the leaders of least cost.

    Missing a topic's bound costs most, missing a broker's target costs less, and a change costs least.
    """
    rows, brokers = len(topic), len(aim)
    if rows == 0:
        return _Led(topic, topic, np.flatnonzero(aim))
    net = Network()
    pack = topic[slots.row] * brokers + slots.broker
    used, which, count = np.unique(pack, return_inverse=True, return_counts=True)
    low, high = (bound.ravel()[used] for bound in cell)
    # If only one row could be led in a cell, and may be, the topic's bounds have no effect.
    free = (count == 1) & (low == 0) & (high > 0)
    bound = np.flatnonzero(~free)
    parts, cells, ends, sink = net.nodes(rows), net.nodes(len(used)), net.nodes(brokers), net.nodes(1)
    head = np.where(free[which], ends[slots.broker], cells[which])
    chosen = net.connect(parts[slots.row], head, 1, np.where(slots.leads, 0, _CHANGE) + slots.added)
    end, low, high = ends[used[bound] % brokers], low[bound], high[bound]
    sure = net.connect(cells[bound], end, low, -8 * _FAR)
    net.connect(cells[bound], end, np.maximum(high - low, 0), 0)
    beyond = net.connect(cells[bound], end, _MANY, 8 * _FAR)
    net.connect(ends, np.broadcast_to(sink, ends.shape), aim, 0)
    above = [
        net.connect(ends, np.broadcast_to(sink, ends.shape), room, price * _FAR)
        for room, price in ((1, 1), (2, 2), (_MANY, 4))
    ]
    net.supply(parts, 1)
    net.supply(sink, -rows)
    flow = net.solve()
    missed = used[bound[(flow[sure] < low) | (flow[beyond] > 0)]] // brokers
    over = np.flatnonzero(sum(flow[arcs] for arcs in above))
    return _Led(slots.broker[flow[chosen] > 0], np.unique(missed), over)
