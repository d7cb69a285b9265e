"""Proof that a plan moves as little as can be, from its outcome and one price per broker; no solver is trusted.

Seen as an exchange: a unit that leaves broker b for broker b' in some partition is an arc from (topic, b) to
(topic, b'), worth +1 if b' has no data of it, and -1 if b had none. If every topic's exchanges together with a market,
where a place on a broker costs its price, hold no cycle of negative worth, then no plan of that topic is cheaper at
those prices. If besides only full brokers have a positive price, and only brokers at their floor a negative one, then
the prices add up to nothing a plan could gain, and the sum of all topics is the least possible: for any other plan y,
moves(y) >= moves(x) + price * (total(x) - total(y)) >= moves(x). Wrong prices can only fail to prove it.

Where brokers are excluded, the fair shares may be out of reach. Then every step beyond one counts as `_STEP` moves,
and a plan is proven that comes nearest to them, and of those moves least.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from kafka_steward.planning.checker.exchanges import (
    FAR,
    Distances,
    Exchanges,
    exact_exchanges,
    on_racks,
    pooled_exchanges,
)
from kafka_steward.planning.checker.judge import Bools, Court, Ints, Position

__all__ = [
    "Totals",
    "badly_spread",
    "find_prices",
    "misplaced",
    "misplaced_in_all",
    "misplaced_within",
    "open_topics",
    "totals_of",
    "unproven",
    "unproven_in_all",
]

#: Topics times brokers squared up to which every pair of brokers is looked at when prices are sought.
MAX_EXACT_CELLS = 20_000_000

#: Up to which the exact picture is as quick as the other.
_FEW_CELLS = 10_000
#: What one replica beyond a bound counts, where bounds may be out of reach: more than a chain of moves to mend it.
_STEP = np.int32(1 << 10)
#: Rounds after which prices are sought no longer; they are found in tens, or hardly ever.
_MAX_ROUNDS = 500


@dataclass(frozen=True)
class Totals:
    """Replicas per broker before and after, and how many partitions have which replication factor: of all topics."""

    held: Ints
    placed: Ints
    factors: dict[int, int]


def totals_of(position: Position) -> Totals:
    """The totals of a position's own partitions."""
    return Totals(position.held.sum(axis=0), position.placed.sum(axis=0), position.factors)


def misplaced(position: Position) -> list[str]:
    """What a position of all partitions violates: replicas per partition, racks, and every floor and ceiling."""
    return misplaced_within(position) + misplaced_in_all(position.court, totals_of(position))


def misplaced_within(position: Position) -> list[str]:
    """What a position violates, as far as its own partitions tell."""
    degree = position.placed.sum(axis=1)
    wrong = [position.topics[position.topic[row]] for row in np.flatnonzero(degree != position.factor)[:10]]
    problems = [f"A partition of {topic} has another number of usable replicas than it should." for topic in wrong]
    bad = int(badly_spread(position).sum())
    if bad:
        problems.append(f"{bad} partitions are not spread over the racks as they could be.")
    low, high = position.cell_bounds
    uneven = ((position.cells < low) | (position.cells > high)).any(axis=1) & (not position.court.lenient)
    return problems + [f"The topic {position.topics[topic]} is not even." for topic in np.flatnonzero(uneven)[:10]]


def badly_spread(position: Position) -> Bools:
    """Which partitions are out of their rack bounds after the plan."""
    on_rack, (low, high) = on_racks(position), position.rack_bounds
    wrong: Bools = np.any((on_rack < low) | (on_rack > high), axis=1)
    return wrong


def misplaced_in_all(court: Court, totals: Totals) -> list[str]:
    """What the whole cluster's totals violate."""
    low, high = court.broker_bounds(totals.factors, totals.held)
    if not court.lenient and ((totals.placed < low) | (totals.placed > high)).any():
        return ["The cluster is uneven: a broker is beyond its fair share."]
    return []


def unproven(position: Position, prices: Ints) -> list[str]:
    """Why the prices do not prove a position of all partitions minimal; empty when they do."""
    found = unproven_in_all(position.court, totals_of(position), prices)
    return found + [f"The topic {name} may do with fewer moves." for name in open_topics(position, prices)]


def unproven_in_all(court: Court, totals: Totals, prices: Ints) -> list[str]:
    """Why the prices do not fit the brokers' totals; empty when they do."""
    gain, lose = _steps(totals.placed, court.broker_bounds(totals.factors, totals.held), lenient=court.lenient)
    problems = []
    if (prices > gain).any():
        problems.append("A broker that is not full has a positive price.")
    if (-prices > lose).any():
        problems.append("A broker that is above its floor has a negative price.")
    return problems


def open_topics(position: Position, prices: Ints) -> list[str]:
    """The topics that the prices do not prove: each has a cycle of exchanges that may save something."""
    if not position.placed.size:
        return []
    price = prices.astype(np.int32)
    every = np.arange(len(position.topics))
    still = every[_improvable(position, pooled_exchanges(position), every, price)]
    at_once = max(MAX_EXACT_CELLS // len(price) ** 2, 1)
    open_ones: list[int] = []
    for start in range(0, len(still), at_once):
        some = still[start : start + at_once]
        exact = exact_exchanges(_only(position, some))
        open_ones += some[_improvable(position, exact, some, price)].tolist()
    return [position.topics[topic] for topic in open_ones]


def _only(position: Position, topics: Ints) -> Position:
    """The position of some of its topics, which ascend."""
    mine = np.isin(position.topic, topics)
    return replace(
        position,
        topics=tuple(position.topics[topic] for topic in topics),
        topic=np.searchsorted(topics, position.topic[mine]),
        factor=position.factor[mine],
        held=position.held[mine],
        placed=position.placed[mine],
        rack_bounds=(position.rack_bounds[0][mine], position.rack_bounds[1][mine]),
        cell_bounds=(position.cell_bounds[0][topics], position.cell_bounds[1][topics]),
    )


def _improvable(position: Position, exchanges: Exchanges, topics: Ints, price: Distances) -> Bools:
    """Which of the topics have a cycle of negative worth: their distances shrink for longer than a path is long."""
    gain, lose = _cell_steps(position, topics)
    cell = np.zeros_like(gain)
    moving = np.arange(len(topics))
    for _ in price:
        market = (cell + price + gain).min(axis=1, keepdims=True)
        # No path is that short without a cycle, and much shorter ones would not be held by 32 bits.
        found = np.maximum(exchanges.relaxed(np.minimum(cell, market - price + lose)), -FAR)
        shrinks = ((found < cell) | (found == -FAR)).any(axis=1)
        moving, exchanges = moving[shrinks], exchanges.of(np.flatnonzero(shrinks))
        cell, gain, lose = found[shrinks], gain[shrinks], lose[shrinks]
    return np.isin(np.arange(len(topics)), moving)


def find_prices(position: Position) -> Ints | None:
    """Prices that prove the position, found from it alone; None if there are none, or none were found in time."""
    cells = len(position.topics) * len(position.rack) ** 2
    if cells <= _FEW_CELLS:
        return _prices_by(position, exact_exchanges(position))
    found = _prices_by(position, pooled_exchanges(position))
    if found is None and cells <= MAX_EXACT_CELLS:
        return _prices_by(position, exact_exchanges(position))
    return found


def _prices_by(position: Position, exchanges: Exchanges) -> Ints | None:
    """The market's distances to the brokers when nothing shrinks any more."""
    gain, lose = _cell_steps(position, np.arange(len(position.topics)))
    total = position.placed.sum(axis=0)
    broker_gain, broker_lose = _steps(total, position.broker_bounds, lenient=position.court.lenient)
    cell, broker, market = np.zeros_like(gain), np.zeros_like(broker_gain), np.int32(0)
    # A shortest path that has no cycle passes no cell twice; paths begin at the brokers too.
    for _ in range(min(cell.size + broker.size, _MAX_ROUNDS)):
        found = exchanges.relaxed(cell)
        broker = np.minimum(broker, (found + gain).min(axis=0, initial=FAR))
        market = np.minimum(market, (broker + broker_gain).min())
        broker = np.minimum(broker, market + broker_lose)
        found = np.minimum(found, broker + lose)
        if (found == cell).all():
            prices: Ints = (market - broker).astype(np.int64)
            return prices
        cell = found
    return None


def _cell_steps(position: Position, topics: Ints) -> tuple[Distances, Distances]:
    low, high = (bound[topics] for bound in position.cell_bounds)
    return _steps(position.cells[topics], (low, high), lenient=position.court.lenient)


def _steps(count: Ints, bounds: tuple[Ints, Ints], *, lenient: bool) -> tuple[Distances, Distances]:
    """What one replica more costs, and one less: nothing within the bounds, and beyond them it may not be."""
    low, high = bounds
    if not lenient:
        return np.where(count >= high, FAR, 0), np.where(count <= low, FAR, 0)
    gain = np.where(count >= high, _STEP, np.where(count < low, -_STEP, 0))
    lose = np.where(count <= low, _STEP, np.where(count > high, -_STEP, 0))
    return gain, lose
