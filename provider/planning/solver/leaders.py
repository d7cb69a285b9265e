"""Leaders: the preferred leader stays while its broker lives; others are chosen so that leadership becomes even."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kafka_steward.planning.solver.arrays import Bools, Ints
from kafka_steward.planning.solver.flows import Infeasible, Network

__all__ = ["Slots", "Tier", "choose_leaders", "lead_evenly", "succession", "tiers"]


def choose_leaders(row: Ints, broker: Ints, second_choice: Bools, load: Ints) -> tuple[Ints, Ints]:
    """Choose one candidate (row, broker) for each row, so that `load` plus the choices is as even as possible.

    A candidate marked as second choice (out of sync, or about to leave) is taken only if a row has no other. Returns
    the rows in order, and the broker chosen for each.
    """
    rows, index = np.unique(row, return_inverse=True)
    if len(rows) == 0:
        return rows, rows
    net = Network()
    parts, brokers, sink = net.nodes(len(rows)), net.nodes(len(load)), net.nodes(1)
    used, most = np.unique(broker, return_counts=True)
    # Unit arcs of growing cost: the cheapest flow has the least sum of squares.
    level = np.concatenate([load[one] + np.arange(count) for one, count in zip(used, most, strict=True)])
    level -= level.min()
    arcs = net.connect(parts[index], brokers[broker], 1, np.where(second_choice, int(level.max()) + 1, 0))
    net.connect(brokers[np.repeat(used, most)], sink, 1, level)
    net.supply(parts, 1)
    net.supply(sink, -len(rows))
    chosen = net.solve()[arcs] > 0
    order = np.argsort(index[chosen], kind="stable")
    return rows, broker[chosen][order]


@dataclass(frozen=True)
class Slots:
    """Replicas of rows: per slot its row (ascending), its broker, and flags for current leaders and new replicas."""

    row: Ints
    broker: Ints
    leads: Bools
    added: Bools


@dataclass(frozen=True)
class Tier:
    """The fewest and most leaders per topic and broker, and per broker."""

    name: str
    cell: tuple[Ints, Ints]
    broker: tuple[Ints, Ints]


def tiers(topic: Ints, slots: Slots, target: Bools, *, alike: bool) -> list[Tier]:
    """Return bounds for leaders, the most even first; the last can always be met.

    `even` gives every broker the same share. `proportional` gives each the share of its replicas: a broker that holds
    every other replica leads every other partition. Brokers that are not `alike` in capacity share by replicas.
    """
    topics = int(topic.max()) + 1
    share_low, share_high = _proportional(topic, slots, topics, len(target))
    total_low, total_high = _proportional(np.zeros_like(topic), slots, 1, len(target))
    last = Tier("proportional", (share_low, share_high), (total_low[0], total_high[0]))
    if not alike:
        return [last]
    count, brokers = np.bincount(topic, minlength=topics)[:, None], max(int(target.sum()), 1)
    low = np.where(target, count // brokers, 0)
    high = -(-count // brokers) + np.zeros_like(low)
    level = (np.where(target, len(topic) // brokers, 0), np.full(len(target), -(-len(topic) // brokers)))
    wide = (np.minimum(low, share_low), np.maximum(high, share_high))
    return [Tier("even", (low, high), level), Tier("global-even", wide, level), last]


def _proportional(topic: Ints, slots: Slots, topics: int, brokers: int) -> tuple[Ints, Ints]:
    degree = np.bincount(slots.row, minlength=len(topic))
    whole = math.lcm(*np.unique(degree[degree > 0]).tolist())
    sums = np.zeros((topics, brokers), np.int64)
    np.add.at(sums, (topic[slots.row], slots.broker), whole // degree[slots.row])
    return sums // whole, -(-sums // whole)


def lead_evenly(topic: Ints, slots: Slots, choices: list[Tier]) -> tuple[Ints, str]:
    """Return each row's leader, and the tier that could be met.

    The leaders have the fewest changes, then the fewest leaders without data. Raises Infeasible.
    """
    for tier in choices[:-1]:
        leaders = _led_within(topic, slots, tier)
        if leaders is not None:
            return leaders, tier.name
    leaders = _led_within(topic, slots, choices[-1])
    if leaders is None:
        raise Infeasible
    return leaders, choices[-1].name


def _led_within(topic: Ints, slots: Slots, tier: Tier) -> Ints | None:
    net = Network()
    brokers = tier.broker[0].size
    parts, cells = net.nodes(len(topic)), net.nodes(tier.cell[0].size).reshape(-1, brokers)
    ends, sink = net.nodes(brokers), net.nodes(1)
    cost = np.where(slots.leads, 0, len(topic) + 1) + slots.added
    chosen = net.connect(parts[slots.row], cells[topic[slots.row], slots.broker], 1, cost)
    net.connect_between(cells, np.broadcast_to(ends, cells.shape), tier.cell, 0)
    net.connect_between(ends, np.broadcast_to(sink, ends.shape), tier.broker, 0)
    net.supply(parts, 1)
    net.supply(sink, -len(topic))
    try:
        return slots.broker[net.solve()[chosen] > 0]
    except Infeasible:
        return None


def succession(row: Ints, broker: Ints, brokers: int) -> Ints:
    """Return the slots' brokers with those after the first reordered, so that failover is spread as evenly as possible.

    Slots are in order within ascending rows. Position by position, the next replica is chosen so that the pairs of
    neighbours are as even as possible (least sum of squares). Among such choices, the one with the fewest changes is
    taken.
    """
    broker = broker.copy()
    start = np.searchsorted(row, np.arange(int(row.max(initial=-1)) + 1))
    degree = np.diff(np.append(start, len(row)))
    for place in range(1, int(degree.max(initial=0)) - 1):
        rows = np.flatnonzero(degree > place)
        first = start[rows]
        count = degree[rows] - place
        index = np.repeat(np.arange(len(rows)), count)
        turn = np.arange(len(index)) - np.repeat(np.cumsum(count) - count, count)
        at = first[index] + place + turn
        next_at = at[_next_in_line(index, turn, broker[first[index] + place - 1] * brokers + broker[at])]
        # The chosen slot moves to the front; the slots that it passes keep their order.
        key = np.arange(len(broker), dtype=np.float64)
        key[next_at] = first + place - 0.5
        broker = broker[np.argsort(key, kind="stable")]
    return broker


def _next_in_line(index: Ints, turn: Ints, pair: Ints) -> Ints:
    """Return the candidates (row index, position among them, pair of brokers) that the rows take."""
    net = Network()
    used, which, most = np.unique(pair, return_inverse=True, return_counts=True)
    parts, pairs, sink = net.nodes(int(index[-1]) + 1), net.nodes(len(used)), net.nodes(1)
    taken = net.connect(parts[index], pairs[which], 1, np.where(turn > 0, 1, 0))
    height = np.arange(len(pair)) - np.repeat(np.cumsum(most) - most, most)
    net.connect(np.repeat(pairs, most), np.broadcast_to(sink, height.shape), 1, (2 * height + 1) * (len(parts) + 1))
    net.supply(parts, 1)
    net.supply(sink, -len(parts))
    return np.flatnonzero(net.solve()[taken] > 0)
