"""Check what a proof states of the bytes that producers bring into brokers, from the snapshot and the plan's rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from statistics import fmean
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kafka_steward.assignment import TopicPartition
from kafka_steward.planning.checker.constraints import exact_capacities

#: More bytes per second than any network carries.
_MOST = 1e13
#: What a number of three places may differ by.
_ROUNDED = 0.001


def load_problems(brokers: pa.Table, partitions: pa.Table, rows: pa.Table, proof: Mapping[str, Any]) -> Iterator[str]:
    """Yield a problem for each statement about bytes in that is not as the rates of the snapshot have it."""
    stated = proof.get("load")
    known = _known_rates(partitions)
    if not known or not isinstance(stated, Mapping):
        if known or stated is not None:
            yield f"The proof says load = {stated}; the snapshot has rates of {len(known)} partitions."
        return
    rates, assumed = _rates(partitions, fmean(known))
    if stated.get("assumed") != assumed:
        yield f"The proof says that {stated.get('assumed')} rates are assumed; the snapshot says {assumed}."
    moved = {
        (row["topic"], row["partition"]): row["after"]
        for row in rows.select(["topic", "partition", "after"]).to_pylist()
    }
    for what, when in product(("replicas", "leaders"), ("before", "after")):
        load = Counter[int]()
        for (name, replicas), rate in zip(_replicas(partitions), rates, strict=True):
            now = moved.get(name, replicas) if when == "after" else replicas
            load.update(dict.fromkeys(now if what == "replicas" else now[:1], rate))
        side = (stated.get(what) or {}).get(when) or {}
        if side.get("by_broker") != {str(broker): load[broker] for broker in brokers["broker"].to_pylist()}:
            yield f"The bytes into the {what} of brokers {when} the plan are not as the proof says."
        highest, said = _highest_over_mean(brokers, load), side.get("highest_over_mean")
        if (highest is None) != (said is None) or abs((highest or 0) - (said or 0)) > _ROUNDED:
            yield f"The proof says highest_over_mean = {said} of {what} {when} the plan; the snapshot says {highest}."


def rates_by_partition(partitions: pa.Table) -> dict[TopicPartition, int]:
    """Return the bytes per second into each partition, as `partition_rates` does; empty if none is known."""
    names = map(TopicPartition, partitions["topic"].to_pylist(), partitions["partition"].to_pylist())
    return dict(zip(names, partition_rates(partitions) or (), strict=False))


def partition_rates(partitions: pa.Table) -> Sequence[int] | None:
    """Return the bytes per second of each partition, assumed where they are not known; None if none is known."""
    known = _known_rates(partitions)
    return _rates(partitions, fmean(known))[0] if known else None


def _known_rates(partitions: pa.Table) -> list[float]:
    return [rate for rate in partitions["bytes_per_s"].drop_null().to_pylist() if 0 <= rate < _MOST]


def _replicas(partitions: pa.Table) -> Iterator[tuple[tuple[str, int], list[int]]]:
    names = zip(partitions["topic"].to_pylist(), partitions["partition"].to_pylist(), strict=True)
    return zip(names, partitions["replicas"].to_pylist(), strict=True)


def _rates(partitions: pa.Table, mean: float) -> tuple[Sequence[int], int]:
    """Return the rate of each partition, and how many are assumed: its topic's mean, or the cluster's."""
    column = pc.fill_null(partitions["bytes_per_s"], -1.0).to_pylist()
    topics = partitions["topic"].to_pylist()
    by_topic: dict[str, list[float]] = {}
    for topic, rate in zip(topics, column, strict=True):
        if 0 <= rate < _MOST:
            by_topic.setdefault(topic, []).append(rate)
    usual = {topic: fmean(rates) for topic, rates in by_topic.items()}
    given = [0 <= rate < _MOST for rate in column]
    return [
        round(rate if known else usual.get(topic, mean))
        for topic, rate, known in zip(topics, column, given, strict=True)
    ], given.count(False)


def _highest_over_mean(brokers: pa.Table, load: Mapping[int, int]) -> float | None:
    rows = brokers.to_pylist()
    capacity = exact_capacities([row["capacity"] for row in rows])
    usable = {row["broker"]: of for row, of in zip(rows, capacity, strict=True) if row["state"] in ("live", "new")}
    total = sum(load[broker] for broker in usable)
    if not total:
        return None
    return float(max(load[broker] / of for broker, of in usable.items()) * sum(usable.values()) / total)
