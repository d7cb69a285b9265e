"""Requests for the sizes and the end offsets of logs, which are sent to the broker that holds them. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from kafka.protocol.admin import DescribeLogDirsRequest
from kafka.protocol.consumer import ListOffsetsRequest

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.requests import by_topic
from kafka_steward.cluster.state import Directory, LogDir

LATEST = -1
#: The debugging replica id, which no broker has: any replica answers such a request, not only the leader.
DEBUGGING_REPLICA = -2


def log_dirs_request(partitions: Collection[TopicPartition] | None = None) -> Any:
    """Return the request for one broker's log directories, with the sizes of `partitions` (None: of all partitions)."""
    kind = DescribeLogDirsRequest.DescribableLogDirTopic
    topics = None if partitions is None else by_topic((partition, None) for partition in partitions)
    return DescribeLogDirsRequest(
        topics=topics and [kind(topic=topic, partitions=[number for number, _ in entries]) for topic, entries in topics]
    )


def log_dir(response: Any) -> LogDir:
    """Return one broker's disks. A failed directory is not counted; a log that moves between two is counted once."""
    directories = tuple(_directory(entry) for entry in response.results)
    sizes = {name: size for each in directories for name, size in each.replica_bytes.items()}
    taking = [each for each in directories if each.takes_replicas]
    total, usable = _total(each.total_bytes for each in taking), _total(each.usable_bytes for each in taking)
    return LogDir(sizes, total, usable, directories)


def _directory(entry: Any) -> Directory:
    if entry.error_code:
        return Directory(str(entry.log_dir), error=int(entry.error_code))
    held = [(str(topic.name), each) for topic in entry.topics for each in topic.partitions]
    sizes = {
        TopicPartition(topic, int(each.partition_index)): int(each.partition_size)
        for topic, each in held
        if not each.is_future_key
    }
    total, usable = (int(value) for value in (entry.total_bytes, entry.usable_bytes))
    return Directory(
        str(entry.log_dir),
        sizes,
        logs=len(held),
        # Kafka before 3.3 reports neither value.
        total_bytes=total if total >= 0 else None,
        usable_bytes=usable if usable >= 0 else None,
        cordoned=bool(entry.is_cordoned),
    )


def offsets_request(partitions: Collection[TopicPartition]) -> Any:
    """Return the request for the end offsets of logs on the receiving broker, whether it leads them or not."""
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
    """Return log end offsets by partition; partitions that the broker does not hold are left out."""
    return {
        TopicPartition(str(topic.name), int(entry.partition_index)): int(entry.offset)
        for topic in response.topics
        for entry in topic.partitions
        if not entry.error_code and entry.offset >= 0
    }


def _total(values: Iterable[int | None]) -> int | None:
    """Return the sum; None if a value is unknown, or there are no values."""
    known = list(values)
    present = [value for value in known if value is not None]
    return sum(present) if present and len(present) == len(known) else None
