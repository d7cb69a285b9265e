"""Proof that a plan moves as little as possible, from its outcome and one price per broker; no solver is trusted.

The proof is stated in terms of exchanges. A unit (one replica) that moves from broker b to broker b' in some partition
is an arc from (topic, b) to (topic, b'). The arc is worth +1 if b' has no data of the partition, and -1 if b had none.
A market is added, where a place on a broker costs the broker's price. If the exchanges of every topic together with the
market have no cycle of negative worth, then no plan of that topic is cheaper at those prices. If in addition only full
brokers have a positive price, and only brokers at their floor have a negative price, then no plan can gain anything
from the prices, and the sum over all topics is minimal. For any other plan y, moves(y) >= moves(x) + price * (total(x)
- total(y)) >= moves(x). Wrong prices can only fail to prove a plan.

If brokers are excluded, the fair shares may be out of reach. Every step beyond a fair share then counts as `_STEP`
moves. A plan is proven if it comes nearest to the fair shares, and has the fewest moves of all plans that come as near.
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

#: Topics times brokers squared, up to which the price search examines every pair of brokers.
MAX_EXACT_CELLS = 20_000_000

#: Topics times brokers squared, up to which the exact exchanges are as fast as the pooled ones.
_FEW_CELLS = 10_000
#: Cost of one replica beyond a bound, where bounds may be out of reach: more than a chain of moves that repairs it.
_STEP = np.int32(1 << 10)
#: Rounds after which the price search stops. Prices are found within tens of rounds, or hardly ever.
_MAX_ROUNDS = 500


@dataclass(frozen=True)
class Totals:
    """Totals over all topics: replicas per broker before and after, and partitions per replication factor."""

    held: Ints
    placed: Ints
    factors: dict[int, int]


def totals_of(position: Position) -> Totals:
    """Return the totals of a position's own partitions."""
    return Totals(position.held.sum(axis=0), position.placed.sum(axis=0), position.factors)


def misplaced(position: Position) -> list[str]:
    """List the violations of a position of all partitions.

    They cover the replicas per partition, the racks, and every floor and ceiling.
    """
    return misplaced_within(position) + misplaced_in_all(position.court, totals_of(position))


def misplaced_within(position: Position) -> list[str]:
    """List the violations of a position that its own partitions show, without the cluster's totals."""
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
    """Return a mask of the partitions that are out of their rack bounds after the plan."""
    on_rack, (low, high) = on_racks(position), position.rack_bounds
    wrong: Bools = np.any((on_rack < low) | (on_rack > high), axis=1)
    return wrong


def misplaced_in_all(court: Court, totals: Totals) -> list[str]:
    """List the violations that the whole cluster's totals show."""
    low, high = court.broker_bounds(totals.factors, totals.held)
    if not court.lenient and ((totals.placed < low) | (totals.placed > high)).any():
        return ["The cluster is uneven: a broker is beyond its fair share."]
    return []


def unproven(position: Position, prices: Ints) -> list[str]:
    """List the reasons why the prices do not prove a position of all partitions minimal; empty if they do."""
    found = unproven_in_all(position.court, totals_of(position), prices)
    return found + [f"The topic {name} may do with fewer moves." for name in open_topics(position, prices)]


def unproven_in_all(court: Court, totals: Totals, prices: Ints) -> list[str]:
    """List the reasons why the prices do not fit the brokers' totals; empty if they do."""
    gain, lose = _steps(totals.placed, court.broker_bounds(totals.factors, totals.held), lenient=court.lenient)
    problems = []
    if (prices > gain).any():
        problems.append("A broker that is not full has a positive price.")
    if (-prices > lose).any():
        problems.append("A broker that is above its floor has a negative price.")
    return problems


def open_topics(position: Position, prices: Ints) -> list[str]:
    """Return the topics that the prices do not prove: each has a cycle of exchanges that may save a move."""
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
    """Return the position restricted to `topics`, which must be in ascending order."""
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
    """Return a mask of the topics that have a cycle of negative worth.

    Their distances shrink for more rounds than a path without a cycle has steps.
    """
    gain, lose = _cell_steps(position, topics)
    cell = np.zeros_like(gain)
    moving = np.arange(len(topics))
    for _ in price:
        market = (cell + price + gain).min(axis=1, keepdims=True)
        # Without a cycle no distance is that small, and much smaller distances would overflow 32 bits.
        found = np.maximum(exchanges.relaxed(np.minimum(cell, market - price + lose)), -FAR)
        shrinks = ((found < cell) | (found == -FAR)).any(axis=1)
        moving, exchanges = moving[shrinks], exchanges.of(np.flatnonzero(shrinks))
        cell, gain, lose = found[shrinks], gain[shrinks], lose[shrinks]
    return np.isin(np.arange(len(topics)), moving)


def find_prices(position: Position) -> Ints | None:
    """Return prices that prove the position, found from the position alone.

    Return None if there are no such prices, or if none were found in time.
    """
    cells = len(position.topics) * len(position.rack) ** 2
    if cells <= _FEW_CELLS:
        return _prices_by(position, exact_exchanges(position))
    found = _prices_by(position, pooled_exchanges(position))
    if found is None and cells <= MAX_EXACT_CELLS:
        return _prices_by(position, exact_exchanges(position))
    return found


def _prices_by(position: Position, exchanges: Exchanges) -> Ints | None:
    """Return the market's distance minus each broker's distance, once no distance shrinks any more.

    Return None if distances still shrink after the last round.
    """
    gain, lose = _cell_steps(position, np.arange(len(position.topics)))
    total = position.placed.sum(axis=0)
    broker_gain, broker_lose = _steps(total, position.broker_bounds, lenient=position.court.lenient)
    cell, broker, market = np.zeros_like(gain), np.zeros_like(broker_gain), np.int32(0)
    # A shortest path without a cycle visits no cell twice. Paths may start at the brokers too.
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
    """Return the costs of one replica more and of one replica fewer. Steps within the bounds cost nothing.

    A step out of the bounds is forbidden (`FAR`). If `lenient`, it costs `_STEP` instead, and a step back towards the
    bounds gains `_STEP`.
    """
    low, high = bounds
    if not lenient:
        return np.where(count >= high, FAR, 0), np.where(count <= low, FAR, 0)
    gain = np.where(count >= high, _STEP, np.where(count < low, -_STEP, 0))
    lose = np.where(count <= low, _STEP, np.where(count > high, -_STEP, 0))
    return gain, lose
