"""Part of the checker: the evenness of some topics after a plan, and the topics that are not proven minimal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from kafka_steward.assignment import Move, TopicPartition
from kafka_steward.planning.checker.certificate import (
    badly_spread,
    find_prices,
    misplaced_within,
    open_topics,
    totals_of,
)
from kafka_steward.planning.checker.judge import Court, Position, position_of
from kafka_steward.planning.checker.rules import facts_of, grounds
from kafka_steward.planning.files.formats import SnapshotFolder, plan_table

__all__ = ["Evenness", "evenness_of", "is_even", "seek_prices"]

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
    open_topics: list[str]

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
            open_topics=[one for part in parts for one in part.open_topics],
        )


def is_even(proof: Mapping[str, Any]) -> bool:
    """Return True if a plan promises an even number of replicas everywhere."""
    by_bytes = (proof.get("options") or {}).get("balance") == "bytes"
    return proof.get("operation") in ("rebalance", "expand", "drain") and not by_bytes


def evenness_of(brokers: pa.Table, partitions: pa.Table, moves: Sequence[Move], proof: Mapping[str, Any]) -> Evenness:
    """Judge the topics of these partitions by the proof's prices."""
    options = proof.get("options") or {}
    touched = touchable(brokers, partitions, options)
    position = position_of(brokers, touched, plan_table(moves), options)
    partial = bool(options.get("max_moves") or options.get("max_bytes"))
    found = misplaced_within(position) + _left_behind(position.court, touched, moves)
    totals = totals_of(position)
    prices = _given_prices(position.court, proof)
    return Evenness(
        problems=_badly_moved(position) if partial else [],
        uneven=found,
        held=totals.held.tolist(),
        placed=totals.placed.tolist(),
        factors=totals.factors,
        prices=prices,
        open_topics=[] if prices is None else open_topics(position, np.array(prices)),
    )


def seek_prices(snapshot: SnapshotFolder, rows: pa.Table, proof: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the proof, with prices added if it has none and they can be found in reasonable time.

    The search uses the snapshot and the plan's rows alone.
    """
    options = proof.get("options") or {}
    court = Court.of(snapshot.brokers, options)
    small = len(snapshot.partitions) * len(court.ids) <= _MAX_SOUGHT
    if not is_even(proof) or not small or _given_prices(court, proof) is not None or not _sound(snapshot, rows):
        return proof
    touched = touchable(snapshot.brokers, snapshot.partitions, options)
    found = find_prices(position_of(snapshot.brokers, touched, rows, options))
    if found is None:
        return proof
    return {**proof, "prices": {str(broker): int(found[at]) for at, broker in enumerate(court.ids)}}


def _sound(snapshot: SnapshotFolder, rows: pa.Table) -> bool:
    """Return True if the rows are of partitions of the snapshot, each once."""
    keys = ["topic", "partition"]
    names = rows.select(keys).group_by(keys).aggregate([])
    known = names.join(snapshot.partitions.select(keys), keys, join_type="inner")
    return bool(len(known) == len(names) == len(rows))


def _given_prices(court: Court, proof: Mapping[str, Any]) -> list[int] | None:
    """Return the proof's prices in the order of the brokers.

    Return None unless the proof has one whole number below 2**24 in magnitude for each broker.
    """
    given = proof.get("prices") or {}
    names = [str(broker) for broker in court.ids]
    if sorted(given) != sorted(names) or any(type(one) is not int or abs(one) >= 1 << 24 for one in given.values()):
        return None
    return [given[name] for name in names]


def _left_behind(court: Court, touched: pa.Table, moves: Sequence[Move]) -> list[str]:
    """Report unmoved partitions with all replicas due, and further replicas on brokers that are to hold none.

    At most ten partitions are reported.
    """
    moved, usable = {move.topic_partition for move in moves}, set(court.ids.tolist())
    named = [
        row["topic"]
        for row in touched.to_pylist()
        if TopicPartition(row["topic"], row["partition"]) not in moved
        and len(usable.intersection(row["replicas"])) == row["target_rf"] < len(row["replicas"])
    ]
    return [f"A partition of {topic} keeps a replica on a broker that is to hold none." for topic in named[:10]]


def _badly_moved(position: Position) -> list[str]:
    """Report moved partitions that end up on the wrong racks or with a wrong number of replicas.

    Within a budget some partitions wait. Each partition that does move must be correct at once.
    """
    wrong = badly_spread(position) | (position.placed.sum(axis=1) != position.factor)
    moved = (position.placed & ~position.held).any(axis=1) & wrong
    named = {position.topics[topic] for topic in position.topic[moved]}
    return [f"A partition of {name} moves, and ends up on the wrong racks or number of brokers." for name in named]


def touchable(brokers: pa.Table, partitions: pa.Table, options: Mapping[str, Any]) -> pa.Table:
    """Return the partitions that a plan may touch: selected, not pinned, not in flight, not lost."""
    facts = facts_of(brokers, partitions, {"options": options})
    names = map(TopicPartition, partitions["topic"].to_pylist(), partitions["partition"].to_pylist())
    return partitions.filter(pa.array([not grounds(name, facts) for name in names], pa.bool_()))
