"""Proof that a plan moves as little as can be, from its outcome and one price per broker; no solver is trusted.

Seen as an exchange: a unit that leaves broker b for broker b' in some partition is an arc from (topic, b) to
(topic, b'), worth +1 if b' has no data of it, and -1 if b had none. If every topic's exchanges together with a market,
where a place on a broker costs its price, hold no cycle of negative worth, then no plan of that topic is cheaper at
those prices. If besides only full brokers have a positive price, and only brokers at their floor a negative one, then
the prices add up to nothing a plan could gain, and the sum of all topics is the least possible: for any other plan y,
moves(y) >= moves(x) + price * (total(x) - total(y)) >= moves(x). Wrong prices can only fail to prove it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kafka_steward.planning.judge import Bools, Ints, Position

__all__ = ["find_prices", "misplaced", "unproven"]

_NONE = 2
_FAR = np.int32(1 << 28)


def misplaced(position: Position) -> list[str]:
    """What a position violates: replicas per partition, racks, and every floor and ceiling."""
    cells = position.cells
    degree = position.placed.sum(axis=1)
    wrong = [position.topics[position.topic[row]] for row in np.flatnonzero(degree != position.factor)[:10]]
    problems = [f"A partition of {topic} has another number of usable replicas than it should." for topic in wrong]
    on_rack = _on_rack(position)
    low, high = position.rack_bounds
    bad = int(((on_rack < low) | (on_rack > high)).any(axis=1).sum())
    if bad:
        problems.append(f"{bad} partitions are not spread over the racks as they could be.")
    uneven = ((cells < position.cell_bounds[0]) | (cells > position.cell_bounds[1])).any(axis=1)
    problems += [f"The topic {position.topics[topic]} is not even." for topic in np.flatnonzero(uneven)[:10]]
    total = cells.sum(axis=0)
    if ((total < position.broker_bounds[0]) | (total > position.broker_bounds[1])).any():
        problems.append("The cluster is uneven: a broker is beyond its fair share.")
    return problems


def find_prices(position: Position) -> Ints | None:
    """Prices that prove the position, found from it alone; None if there are none."""
    worth = _exchanges(position)
    cells, total = position.cells, position.cells.sum(axis=0)
    may_gain, may_lose = cells < position.cell_bounds[1], cells > position.cell_bounds[0]
    full, empty = total >= position.broker_bounds[1], total <= position.broker_bounds[0]
    cell = np.zeros(cells.shape, np.int32)
    broker, market = np.zeros(cells.shape[1], np.int32), np.int32(0)
    for _ in range(_rounds(cells)):
        before = (cell, broker, market)
        cell = _relaxed(cell, worth)
        broker = np.minimum(broker, np.where(may_gain, cell, _FAR).min(axis=0, initial=_FAR))
        market = np.minimum(market, np.where(full, _FAR, broker).min(initial=_FAR))
        broker = np.where(empty, broker, np.minimum(broker, market))
        cell = np.where(may_lose, np.minimum(cell, broker), cell)
        if all(bool(np.all(one == other)) for one, other in zip(before, (cell, broker, market), strict=True)):
            return np.asarray(market - broker, np.int64)
    return None


def unproven(position: Position, prices: Ints) -> list[str]:
    """Why the prices do not prove the position minimal; empty when they do."""
    total = position.cells.sum(axis=0)
    problems = []
    if ((prices > 0) & (total != position.broker_bounds[1])).any():
        problems.append("A broker that is not full has a positive price.")
    if ((prices < 0) & (total != position.broker_bounds[0])).any():
        problems.append("A broker that is above its floor has a negative price.")
    return problems + [f"The topic {name} may do with fewer moves." for name in _open_topics(position, prices)]


def _open_topics(position: Position, prices: Ints) -> list[str]:
    worth, cells = _exchanges(position), position.cells
    may_gain, may_lose = cells < position.cell_bounds[1], cells > position.cell_bounds[0]
    price = prices.astype(np.int32)
    cell, market = np.zeros(cells.shape, np.int32), np.zeros(len(cells), np.int32)
    moving = np.ones(len(cells), bool)
    for _ in range(_rounds(cells[:1])):
        before = (cell, market)
        cell = _relaxed(cell, worth)
        market = np.minimum(market, np.where(may_gain, cell + price, _FAR).min(axis=1, initial=_FAR))
        cell = np.where(may_lose, np.minimum(cell, market[:, None] - price), cell)
        moving = (cell != before[0]).any(axis=1) | (market != before[1])
        if not moving.any():
            break
    return [position.topics[topic] for topic in np.flatnonzero(moving)]


def _rounds(cells: Ints) -> int:
    """More steps than any path without a cycle has; a shortest path that still shrinks then runs in a cycle."""
    return int(2 * cells.size + cells.shape[1] + 3)


def _relaxed(cell: npt.NDArray[np.int32], worth: npt.NDArray[np.int8]) -> npt.NDArray[np.int32]:
    through = np.where(worth == _NONE, _FAR, cell[:, :, None] + worth)
    return np.asarray(np.minimum(cell, through.min(axis=1, initial=_FAR)), np.int32)


def _exchanges(position: Position) -> npt.NDArray[np.int8]:
    """The best worth of a unit's way from one broker to another, per topic; 2 where no partition allows it."""
    topics, brokers = len(position.topics), position.placed.shape[1]
    worth = np.full((topics, brokers, brokers), _NONE, np.int8)
    row, leaving = np.nonzero(position.placed)
    gain = np.where(position.held, 0, 1)[row] - np.where(position.held[row, leaving], 0, 1)[:, None]
    allowed = ~position.placed[row] & _rack_allows(position, row, leaving)
    for value in (1, 0, -1):
        slot, entering = np.nonzero(allowed & (gain == value))
        worth[position.topic[row[slot]], leaving[slot], entering] = value
    return worth


def _rack_allows(position: Position, row: Ints, leaving: Ints) -> Bools:
    """Which brokers could take over a unit without the partition's racks going out of bounds."""
    on_rack = _on_rack(position)[row]
    low, high = (bound[row] for bound in position.rack_bounds)
    racks = on_rack.shape[1]
    pad = np.ones((len(row), 1), bool)
    # The last column stands for brokers without a rack, which nothing binds.
    rack = np.where(position.rack < 0, racks, position.rack)
    may_enter = np.hstack([on_rack < high, pad])[:, rack]
    may_leave = np.hstack([on_rack > low, pad])[
        np.arange(len(row)), np.where(position.rack < 0, racks, position.rack)[leaving]
    ]
    same = (position.rack[leaving] >= 0)[:, None] & (position.rack[leaving][:, None] == position.rack)
    return np.asarray(same | (may_leave[:, None] & may_enter), bool)


def _on_rack(position: Position) -> Ints:
    racks = position.rack_bounds[0].shape[1]
    member = np.zeros((len(position.rack), racks), np.int64)
    racked = np.flatnonzero(position.rack >= 0)
    member[racked, position.rack[racked]] = 1
    return np.asarray(position.placed.astype(np.int64) @ member, np.int64)
