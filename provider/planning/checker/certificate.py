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

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from kafka_steward.assignment import TopicPartition
from kafka_steward.planning.checker.constraints import Bools, BrokerConstraints, Ints, PlacementOutcome, outcome_of
from kafka_steward.planning.checker.exchanges import (
    FAR,
    Distances,
    Exchanges,
    exact_exchanges,
    on_racks,
    pooled_exchanges,
)
from kafka_steward.planning.checker.rules import CheckContext, context_of, hold_reasons
from kafka_steward.planning.files.formats import SnapshotFolder
from kafka_steward.planning.files.options import EVEN

#: Topics times brokers squared, up to which the price search examines every pair of brokers.
MAX_EXACT_CELLS = 20_000_000
#: Topics times brokers squared, up to which the exact exchanges are as fast as the pooled ones.
_FEW_CELLS = 10_000
#: Cost of one replica beyond a bound, where bounds may be out of reach: more than a chain of moves that repairs it.
_STEP = np.int32(1 << 10)
#: Rounds after which the price search stops. Prices are found within tens of rounds, or hardly ever.
_MAX_ROUNDS = 500


@dataclass(frozen=True)
class ReplicaTotals:
    """Totals over all topics: replicas per broker before and after, and partitions per replication factor."""

    held: Ints
    placed: Ints
    factors: dict[int, int]


def totals_of(outcome: PlacementOutcome) -> ReplicaTotals:
    """Return the totals of an outcome's own partitions."""
    return ReplicaTotals(outcome.held.sum(axis=0), outcome.placed.sum(axis=0), outcome.factors)


def topic_violations(outcome: PlacementOutcome) -> list[str]:
    """List the violations of an outcome that its own partitions show, without the cluster's totals."""
    degree = outcome.placed.sum(axis=1)
    wrong = [outcome.topics[outcome.topic[row]] for row in np.flatnonzero(degree != outcome.factor)[:10]]
    problems = [f"A partition of {topic} has another number of usable replicas than it should." for topic in wrong]
    bad = int(badly_spread(outcome).sum())
    if bad:
        problems.append(f"{bad} partitions are not spread over the racks as they could be.")
    low, high = outcome.cell_bounds
    uneven = ((outcome.cells < low) | (outcome.cells > high)).any(axis=1) & (not outcome.constraints.soft)
    return problems + [f"The topic {outcome.topics[topic]} is not even." for topic in np.flatnonzero(uneven)[:10]]


def badly_spread(outcome: PlacementOutcome) -> Bools:
    """Return a mask of the partitions that are out of their rack bounds after the plan."""
    on_rack, (low, high) = on_racks(outcome), outcome.rack_bounds
    wrong: Bools = np.any((on_rack < low) | (on_rack > high), axis=1)
    return wrong


def cluster_violations(constraints: BrokerConstraints, totals: ReplicaTotals) -> list[str]:
    """List the violations that the whole cluster's totals show."""
    low, high = constraints.broker_bounds(totals.factors, totals.held)
    if not constraints.soft and ((totals.placed < low) | (totals.placed > high)).any():
        return ["The cluster is uneven: a broker is beyond its fair share."]
    return []


def cluster_price_objections(constraints: BrokerConstraints, totals: ReplicaTotals, prices: Ints) -> list[str]:
    """List the reasons why the prices do not fit the brokers' totals; empty if they do."""
    gain, lose = _steps(totals.placed, constraints.broker_bounds(totals.factors, totals.held), soft=constraints.soft)
    problems = []
    if (prices > gain).any():
        problems.append("A broker that is not full has a positive price.")
    if (-prices > lose).any():
        problems.append("A broker that is above its floor has a negative price.")
    return problems


def unproven_topics(outcome: PlacementOutcome, prices: Ints) -> list[str]:
    """Return the topics that the prices do not prove: each has a cycle of exchanges that may save a move."""
    if not outcome.placed.size:
        return []
    price = prices.astype(np.int32)
    every = np.arange(len(outcome.topics))
    still = every[_improvable(outcome, pooled_exchanges(outcome), every, price)]
    at_once = max(MAX_EXACT_CELLS // len(price) ** 2, 1)
    open_ones: list[int] = []
    for start in range(0, len(still), at_once):
        some = still[start : start + at_once]
        exact = exact_exchanges(_only(outcome, some))
        open_ones += some[_improvable(outcome, exact, some, price)].tolist()
    return [outcome.topics[topic] for topic in open_ones]


def _only(outcome: PlacementOutcome, topics: Ints) -> PlacementOutcome:
    """Return the outcome restricted to `topics`, which must be in ascending order."""
    mine = np.isin(outcome.topic, topics)
    return replace(
        outcome,
        topics=tuple(outcome.topics[topic] for topic in topics),
        topic=np.searchsorted(topics, outcome.topic[mine]),
        factor=outcome.factor[mine],
        held=outcome.held[mine],
        placed=outcome.placed[mine],
        rack_bounds=(outcome.rack_bounds[0][mine], outcome.rack_bounds[1][mine]),
        cell_bounds=(outcome.cell_bounds[0][topics], outcome.cell_bounds[1][topics]),
    )


def _improvable(outcome: PlacementOutcome, exchanges: Exchanges, topics: Ints, price: Distances) -> Bools:
    """Return a mask of the topics that have a cycle of negative worth.

    Their distances shrink for more rounds than a path without a cycle has steps.
    """
    gain, lose = _cell_steps(outcome, topics)
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


def find_prices(outcome: PlacementOutcome) -> Ints | None:
    """Return prices that prove the outcome, found from the outcome alone; None if none were found in time."""
    cells = len(outcome.topics) * len(outcome.rack) ** 2
    if cells <= _FEW_CELLS:
        return _prices_by(outcome, exact_exchanges(outcome))
    found = _prices_by(outcome, pooled_exchanges(outcome))
    if found is None and cells <= MAX_EXACT_CELLS:
        return _prices_by(outcome, exact_exchanges(outcome))
    return found


def _prices_by(outcome: PlacementOutcome, exchanges: Exchanges) -> Ints | None:
    """Return the market's distance minus each broker's distance, once no distance shrinks any more.

    Return None if distances still shrink after the last round.
    """
    gain, lose = _cell_steps(outcome, np.arange(len(outcome.topics)))
    total = outcome.placed.sum(axis=0)
    broker_gain, broker_lose = _steps(total, outcome.broker_bounds, soft=outcome.constraints.soft)
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


def _cell_steps(outcome: PlacementOutcome, topics: Ints) -> tuple[Distances, Distances]:
    low, high = (bound[topics] for bound in outcome.cell_bounds)
    return _steps(outcome.cells[topics], (low, high), soft=outcome.constraints.soft)


def _steps(count: Ints, bounds: tuple[Ints, Ints], *, soft: bool) -> tuple[Distances, Distances]:
    """Return the costs of one replica more and of one replica fewer. Steps within the bounds cost nothing.

    A step out of the bounds is forbidden (`FAR`). If `soft`, it costs `_STEP` instead, and a step back towards the
    bounds gains `_STEP`.
    """
    low, high = bounds
    if not soft:
        return np.where(count >= high, FAR, 0), np.where(count <= low, FAR, 0)
    gain = np.where(count >= high, _STEP, np.where(count < low, -_STEP, 0))
    lose = np.where(count <= low, _STEP, np.where(count > high, -_STEP, 0))
    return gain, lose


#: Partitions times brokers, up to which prices that a proof lacks are searched here.
_MAX_SOUGHT = 100_000_000


@dataclass(frozen=True)
class Evenness:
    """Results of some topics: problems, unevenness (a fault unless a budget explains it), and sums per broker."""

    problems: list[str]
    uneven: list[str]
    held: list[int]
    placed: list[int]
    factors: dict[int, int]
    #: The prices that were used, None if there are none; and the topics that they do not prove.
    prices: list[int] | None
    unproven_topics: list[str]

    @classmethod
    def total(cls, parts: Sequence[Evenness]) -> Evenness:
        """Combine the results of all topics."""
        factors: Counter[int] = Counter()
        for part in parts:
            factors.update({int(factor): count for factor, count in part.factors.items()})
        return cls(
            problems=[one for part in parts for one in part.problems],
            uneven=[one for part in parts for one in part.uneven],
            held=np.sum([part.held for part in parts], axis=0).tolist(),
            placed=np.sum([part.placed for part in parts], axis=0).tolist(),
            factors=dict(factors),
            prices=parts[0].prices,
            unproven_topics=[one for part in parts for one in part.unproven_topics],
        )


def is_even(proof: Mapping[str, Any]) -> bool:
    """Return True if a plan promises an even number of replicas everywhere."""
    by_bytes = (proof.get("options") or {}).get("balance") == "bytes"
    return proof.get("operation") in EVEN and not by_bytes


def evenness_of(brokers: pa.Table, touched: pa.Table, rows: pa.Table, proof: Mapping[str, Any]) -> Evenness:
    """Check the topics of the partitions that a plan may touch by the proof's prices; `rows` are the plan's."""
    options = proof.get("options") or {}
    outcome = outcome_of(brokers, touched, rows, options)
    partial = bool(options.get("max_moves") or options.get("max_bytes"))
    found = topic_violations(outcome) + _left_behind(outcome.constraints, touched, rows)
    totals = totals_of(outcome)
    prices = _given_prices(outcome.constraints, proof)
    return Evenness(
        problems=_badly_moved(outcome) if partial else [],
        uneven=found,
        held=totals.held.tolist(),
        placed=totals.placed.tolist(),
        factors=totals.factors,
        prices=prices,
        unproven_topics=[] if prices is None else unproven_topics(outcome, np.array(prices)),
    )


def with_prices(snapshot: SnapshotFolder, rows: pa.Table, proof: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the proof, with prices added if it has none and they can be found in reasonable time.

    The search uses the snapshot and the plan's rows alone.
    """
    options = proof.get("options") or {}
    constraints = BrokerConstraints.of(snapshot.brokers, options)
    small = len(snapshot.partitions) * len(constraints.ids) <= _MAX_SOUGHT
    if not is_even(proof) or not small or _given_prices(constraints, proof) is not None or not _sound(snapshot, rows):
        return proof
    context = context_of(snapshot.brokers, snapshot.partitions, proof)
    touched = touchable_partitions(context, snapshot.partitions)
    found = find_prices(outcome_of(snapshot.brokers, touched, rows, options))
    if found is None:
        return proof
    return {**proof, "prices": {str(broker): int(found[at]) for at, broker in enumerate(constraints.ids)}}


def _sound(snapshot: SnapshotFolder, rows: pa.Table) -> bool:
    """Return True if the rows are of partitions of the snapshot, each once."""
    keys = ["topic", "partition"]
    names = rows.select(keys).group_by(keys).aggregate([])
    known = names.join(snapshot.partitions.select(keys), keys, join_type="inner")
    return bool(len(known) == len(names) == len(rows))


def _given_prices(constraints: BrokerConstraints, proof: Mapping[str, Any]) -> list[int] | None:
    """Return the proof's prices in the order of the brokers.

    Return None unless the proof has one whole number below 2**24 in magnitude for each broker.
    """
    given = proof.get("prices") or {}
    names = [str(broker) for broker in constraints.ids]
    if sorted(given) != sorted(names) or any(type(one) is not int or abs(one) >= 1 << 24 for one in given.values()):
        return None
    return [given[name] for name in names]


def _left_behind(constraints: BrokerConstraints, touched: pa.Table, rows: pa.Table) -> list[str]:
    """Report at most ten unmoved partitions with all replicas due and more on brokers that are to hold none."""
    usable, moved = set(constraints.ids.tolist()), set(_names(rows))
    named = [
        name.topic
        for name, replicas, due in zip(
            _names(touched), touched["replicas"].to_pylist(), touched["target_rf"].to_pylist(), strict=True
        )
        if name not in moved and len(usable.intersection(replicas)) == due < len(replicas)
    ]
    return [f"A partition of {topic} keeps a replica on a broker that is to hold none." for topic in named[:10]]


def _badly_moved(outcome: PlacementOutcome) -> list[str]:
    """Report moved partitions that end up on the wrong racks or with a wrong number of replicas.

    Within a budget some partitions wait. Each partition that does move must be correct at once.
    """
    wrong = badly_spread(outcome) | (outcome.placed.sum(axis=1) != outcome.factor)
    moved = (outcome.placed & ~outcome.held).any(axis=1) & wrong
    named = {outcome.topics[topic] for topic in outcome.topic[moved]}
    return [f"A partition of {name} moves, and ends up on the wrong racks or number of brokers." for name in named]


def touchable_partitions(context: CheckContext, partitions: pa.Table) -> pa.Table:
    """Return the partitions that a plan may touch: selected, not pinned, not in flight, not lost."""
    return partitions.filter(pa.array([not hold_reasons(name, context) for name in _names(partitions)], pa.bool_()))


def _names(table: pa.Table) -> Iterator[TopicPartition]:
    return map(TopicPartition, table["topic"].to_pylist(), table["partition"].to_pylist())
