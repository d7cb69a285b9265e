"""How far a replica is behind its leader: in messages, by the ends of the logs; in bytes, by their sizes.

DescribeLogDirs has a field for it, `offset_lag`, which is about 0 for every follower: it compares the follower with
its own high watermark. The true lag is the end of the leader's log minus the end of the follower's, each asked of the
broker that holds it (ListOffsets with the debugging replica id, which followers answer too).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.state import LogDir, Partition, Snapshot

__all__ = ["LogEnds", "belonging", "bytes_missing", "held_by", "lag", "log_ends"]


class LogEnds(Protocol):
    """What can tell where logs end; KafkaCluster does."""

    def log_ends(self, held: Mapping[int, Collection[TopicPartition]]) -> dict[tuple[TopicPartition, int], int]:
        """Where the logs of `held`'s partitions end on those brokers."""


def log_ends(cluster: LogEnds, held: Mapping[int, Collection[TopicPartition]]) -> dict[tuple[TopicPartition, int], int]:
    """The end of each log of `held` (broker to partitions), in messages; what cannot be read now is left out."""
    return cluster.log_ends(held)


def held_by(partitions: Iterable[Partition]) -> dict[int, list[TopicPartition]]:
    """Broker to partitions: everything that has to be asked for to know the lag of all replicas of `partitions`."""
    held: dict[int, list[TopicPartition]] = {}
    for partition in partitions:
        for broker in partition.replicas:
            held.setdefault(broker, []).append(partition.topic_partition)
    return held


def lag(ends: Mapping[tuple[TopicPartition, int], int], partition: Partition, broker: int) -> int | None:
    """Messages that `broker`'s replica lacks of the leader's log; None while either end is unknown. Never negative.

    0 for a follower means that it has caught up with the end at the time of asking; whether it is in sync is the ISR's
    to say.
    """
    if partition.leader is None:
        return None
    leader_end = ends.get((partition.topic_partition, partition.leader))
    own_end = ends.get((partition.topic_partition, broker))
    return None if leader_end is None or own_end is None else max(0, leader_end - own_end)


def bytes_missing(dirs: Mapping[int, LogDir], partition: Partition, broker: int) -> int | None:
    """Bytes that `broker` lacks of the leader's log; None while the leader's size is unknown. Never negative.

    A broker that is reached and holds no such replica yet lacks all of it; of one that is not reached nothing is known.
    """
    if partition.leader is None or partition.leader not in dirs or broker not in dirs:
        return None
    whole = dirs[partition.leader].replica_bytes.get(partition.topic_partition)
    return None if whole is None else max(0, whole - dirs[broker].replica_bytes.get(partition.topic_partition, 0))


def belonging(directory: LogDir, snapshot: Snapshot, broker: int) -> LogDir:
    """`directory` without strays: replicas that `snapshot` does not assign to `broker`.

    In ZooKeeper mode a broker that was away still reports what was moved off it, and deletes it a little later.
    """
    kept = {
        name: size
        for name, size in directory.replica_bytes.items()
        if name in snapshot.partitions and broker in snapshot.partitions[name].replicas
    }
    return replace(directory, replica_bytes=kept)
