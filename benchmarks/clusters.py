"""Made-up clusters of any size for the planner's benchmark: whole arrays at a time, the same for the same seed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_steward.planning.files.formats import SNAPSHOT_BROKERS, SNAPSHOT_PARTITIONS, write_snapshot

__all__ = ["SCENARIOS", "OPERATIONS", "make_snapshot"]

Ints = npt.NDArray[np.int64]

SCENARIOS = ("drift", "expand", "heal", "huge")
#: What each scenario asks the planner for.
OPERATIONS = {"drift": "rebalance", "expand": "expand", "heal": "heal", "huge": "rebalance"}

_FACTOR = 3
_RACKS = 3
_PER_TOPIC = 26
#: Of all partitions: how many have had a replica moved at random since they were made.
_DRIFTED = 0.05


def make_snapshot(uri: str, scenario: str, partitions: int, brokers: int, seed: int = 7) -> None:
    """Write a snapshot: three replicas on three racks, topics of skewed sizes, lognormal bytes.

    drift: one partition in twenty has a replica on a random broker, whatever its rack. expand: a tenth of the brokers
    is new and empty. heal: one broker has failed. huge: drift, with half of all partitions in one topic.
    """
    dice = np.random.default_rng(seed)
    topic, number = _topics(dice, partitions, huge=scenario == "huge")
    new = max(_RACKS, brokers // 10 // _RACKS * _RACKS) if scenario == "expand" else 0
    replicas = _placed(dice, topic, number, brokers - new)
    if scenario in ("drift", "huge"):
        _drift(dice, replicas, brokers)
    in_sync = np.ones(replicas.shape, bool)
    if scenario == "heal":
        in_sync = replicas != 0
    state = ["failed" if scenario == "heal" and at == 0 else "live" for at in range(brokers - new)] + ["new"] * new
    write_snapshot(
        uri,
        cluster_id=f"{scenario}-{partitions}-{brokers}",
        taken_ms=0,
        brokers=_broker_table(state),
        partitions=_partition_table(dice, (topic, number), replicas, in_sync),
    )


def _topics(dice: np.random.Generator, partitions: int, *, huge: bool) -> tuple[Ints, Ints]:
    first = partitions // 2 if huge else 0
    count = max(1, (partitions - first) // _PER_TOPIC)
    weight = dice.lognormal(0, 1, count)
    sizes = np.maximum(1, np.floor(weight / weight.sum() * (partitions - first))).astype(np.int64)
    # What rounding left over, or took too much, is spread one by one.
    sizes[: (partitions - first) - int(sizes.sum())] += 1
    sizes = np.concatenate([[first] if first else [], sizes]).astype(np.int64)
    topic = np.repeat(np.arange(len(sizes)), sizes)[:partitions]
    return topic, np.arange(len(topic)) - np.searchsorted(topic, topic)


def _placed(dice: np.random.Generator, topic: Ints, number: Ints, brokers: int) -> Ints:
    """As Kafka does: round robin over brokers of alternating racks, from a random start, followers by a shift."""
    topics = int(topic[-1]) + 1
    start, shift = dice.integers(0, brokers, topics)[topic], dice.integers(0, brokers, topics)[topic]
    first = (start + number) % brokers
    turn = shift + number // brokers
    per_rack = brokers // _RACKS
    replicas = [first]
    for place in range(1, _FACTOR):
        # Brokers are racked by their number, so that the next rack is the next number modulo the racks.
        slot = (first // _RACKS + turn * (place + 1)) % per_rack
        replicas.append(slot * _RACKS + (first + place) % _RACKS)
    return np.stack(replicas, axis=1)


def _drift(dice: np.random.Generator, replicas: Ints, brokers: int) -> None:
    rows = np.flatnonzero(dice.random(len(replicas)) < _DRIFTED)
    place, to = dice.integers(0, _FACTOR, len(rows)), dice.integers(0, brokers, len(rows))
    free = ~(replicas[rows] == to[:, None]).any(axis=1)
    replicas[rows[free], place[free]] = to[free]


def _broker_table(state: list[str]) -> pa.Table:
    ids = np.arange(len(state))
    columns = {"broker": ids, "rack": [f"r{at % _RACKS}" for at in ids], "state": state}
    fields = [SNAPSHOT_BROKERS.field(name) for name in columns]
    return pa.table(
        [pa.array(values, field.type) for values, field in zip(columns.values(), fields, strict=True)],
        names=list(columns),
    )


def _partition_table(
    dice: np.random.Generator, name: tuple[Ints, Ints], replicas: Ints, in_sync: npt.NDArray[np.bool_]
) -> pa.Table:
    topic, number = name
    words = pa.array([f"topic-{at:06d}" for at in range(int(topic[-1]) + 1)])
    ids = pa.array([f"id-{at:06d}" for at in range(len(words))])
    columns = {
        "topic": words.take(pa.array(topic)),
        "topic_id": ids.take(pa.array(topic)),
        "partition": number,
        "replicas": _lists(replicas, np.ones(replicas.shape, bool)),
        "isr": _lists(replicas, in_sync),
        "leader": replicas[np.arange(len(topic)), in_sync.argmax(axis=1)],
        "target_rf": np.full(len(topic), _FACTOR),
        "bytes": (dice.lognormal(0, 1, len(topic)) * (1 << 30)).astype(np.int64),
    }
    fields = [SNAPSHOT_PARTITIONS.field(one) for one in columns]
    arrays = [values if isinstance(values, pa.Array) else pa.array(values) for values in columns.values()]
    return pa.table([one.cast(field.type) for one, field in zip(arrays, fields, strict=True)], names=list(columns))


def _lists(values: Ints, keep: npt.NDArray[np.bool_]) -> pa.Array:
    offsets = np.concatenate([[0], np.cumsum(keep.sum(axis=1))])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(values[keep], pa.int32()))
