"""The lag of a replica behind its leader: in messages, from the log end offsets; in bytes, from the log sizes.

The `offset_lag` of DescribeLogDirs is about 0 for every follower, because it compares the follower with its own high
watermark. The true lag is the leader's log end offset minus the follower's. Each offset is requested from the broker
that holds the log (ListOffsets with the debugging replica id, which followers answer too).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.state import BrokerLogDirs, Partition, Snapshot


class LogEndSource(Protocol):
    """A source of log end offsets, such as KafkaCluster."""

    def log_ends(self, held: Mapping[int, Collection[TopicPartition]]) -> dict[tuple[TopicPartition, int], int]:
        """Return the log end offsets of `held`'s partitions on those brokers."""


def partitions_by_broker(partitions: Iterable[Partition]) -> dict[int, list[TopicPartition]]:
    """Return, by broker, the partitions whose log ends are needed for the lag of all replicas of `partitions`."""
    held: dict[int, list[TopicPartition]] = {}
    for partition in partitions:
        for broker in partition.replicas:
            held.setdefault(broker, []).append(partition.topic_partition)
    return held


def lag(ends: Mapping[tuple[TopicPartition, int], int], partition: Partition, broker: int) -> int | None:
    """Return the lag of `broker`'s replica in messages; None while either end is unknown. Never negative.

    0 for a follower means that it had caught up with the leader's end at the time of the request. Only the ISR shows
    whether the follower is in sync.
    """
    if partition.leader is None:
        return None
    leader_end = ends.get((partition.topic_partition, partition.leader))
    own_end = ends.get((partition.topic_partition, broker))
    return None if leader_end is None or own_end is None else max(0, leader_end - own_end)


def bytes_missing(dirs: Mapping[int, BrokerLogDirs], partition: Partition, broker: int) -> int | None:
    """Return the bytes of the leader's log that `broker` is missing; None while either is unknown. Never negative.

    A broker that responded and has no such replica yet is missing all bytes. If it did not respond, the result is None.
    """
    if partition.leader is None or partition.leader not in dirs or broker not in dirs:
        return None
    whole = dirs[partition.leader].replica_bytes.get(partition.topic_partition)
    return None if whole is None else max(0, whole - dirs[broker].replica_bytes.get(partition.topic_partition, 0))


def without_stray_replicas(directory: BrokerLogDirs, snapshot: Snapshot, broker: int) -> BrokerLogDirs:
    """Return `directory` without stray replicas, which `snapshot` does not assign to `broker`.

    In ZooKeeper mode a broker that was offline still reports replicas that were moved off it, and deletes them a little
    later.
    """
    kept = {
        name: size
        for name, size in directory.replica_bytes.items()
        if name in snapshot.partitions and broker in snapshot.partitions[name].replicas
    }
    return replace(directory, replica_bytes=kept)
