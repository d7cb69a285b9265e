"""Requests about logs, the sizes and the ends of them, which are put to the broker that holds them. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from kafka.protocol.admin import DescribeLogDirsRequest
from kafka.protocol.consumer import ListOffsetsRequest

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.requests import by_topic
from kafka_steward.cluster.state import LogDir

__all__ = ["log_dir", "log_dirs_request", "log_end_offsets", "offsets_request"]

LATEST = -1
#: A replica id that no broker has: any replica answers such a request, not the leader alone.
DEBUGGING_REPLICA = -2


def log_dirs_request() -> Any:
    """Sizes of everything that one broker holds."""
    return DescribeLogDirsRequest(topics=None)


def log_dir(response: Any) -> LogDir:
    """One broker's disks. A directory that has failed counts for nothing, a log that moves between two counts once."""
    dirs = [entry for entry in response.results if not entry.error_code]
    sizes = {
        TopicPartition(str(topic.name), int(entry.partition_index)): int(entry.partition_size)
        for directory in dirs
        for topic in directory.topics
        for entry in topic.partitions
        if not entry.is_future_key
    }
    return LogDir(sizes, _total(entry.total_bytes for entry in dirs), _total(entry.usable_bytes for entry in dirs))


def offsets_request(partitions: Collection[TopicPartition]) -> Any:
    """The ends of the logs that the asked broker itself holds, whether it leads them or not."""
    topics = [
        (
            topic,
            [
                ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(partition_index=n, timestamp=LATEST)
                for n, _ in entries
            ],
        )
        for topic, entries in by_topic((partition, None) for partition in partitions)
    ]
    return ListOffsetsRequest(
        replica_id=DEBUGGING_REPLICA,
        isolation_level=0,
        topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=entries) for topic, entries in topics],
        min_version=2,
    )


def log_end_offsets(response: Any) -> dict[TopicPartition, int]:
    """Log ends by partition; those that the broker does not hold are left out."""
    return {
        TopicPartition(str(topic.name), int(entry.partition_index)): int(entry.offset)
        for topic in response.topics
        for entry in topic.partitions
        if not entry.error_code and entry.offset >= 0
    }


def _total(values: Iterable[Any]) -> int | None:
    """The sum, or None when any directory does not tell (Kafka before 3.3 tells none)."""
    known = [int(value) for value in values]
    return sum(known) if known and min(known) >= 0 else None
