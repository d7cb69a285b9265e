"""Kafka's requests and answers, turned from and into our dataclasses. No I/O.

kafka-python's own methods drop the error messages of a reassignment, so its request classes are used directly: what
Kafka says is what a person reads. kafka-python has no types; nothing untyped leaves this module.
"""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import kafka.errors
from kafka.protocol.admin import (
    AlterPartitionReassignmentsRequest,
    DescribeClusterRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from kafka.protocol.metadata import MetadataRequest

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.cluster.state import Broker, Partition, Reassignment
from kafka_steward.errors import KafkaRefused
from kafka_steward.escaping import printable

__all__ = ["refusal"]

INVALID_TOPIC = 17
#: A topic that does not exist, and a name that none can have: nothing is wrong with what else was asked.
NO_SUCH_TOPIC = frozenset({3, INVALID_TOPIC})
UNKNOWN_ERROR, NONE, UNKNOWN_TOPIC, TIMED_OUT, NOT_AUTHORIZED, NOT_CONTROLLER, ELECTION_NOT_NEEDED = (
    -1,
    0,
    3,
    7,
    29,
    41,
    84,
)


def refusal(code: int, message: str | None, doing: str) -> KafkaRefused:
    """Kafka's error `code` while `doing` something, in Kafka's words where it gave any."""
    kind = kafka.errors.for_code(code)
    told = str(message or getattr(kind, "description", None) or getattr(kind, "message", None) or "no reason given")
    words = printable(told)  # by an authorizer, a policy or a proxy, which may quote anything
    return KafkaRefused(code, words, f"Kafka refused {doing}: {words.rstrip('.')} (error {code}).")


def metadata_request(topics: Collection[str] | None) -> Any:
    """Brokers that the answering broker holds for live, the controller, and the topics (None: all)."""
    named = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics]
    return MetadataRequest(topics=named, allow_auto_topic_creation=False)


def live_in_metadata(response: Any) -> dict[int, Broker]:
    """The brokers that a Metadata answer lists: those that its sender holds for live."""
    return {
        int(broker.node_id): Broker(
            int(broker.node_id), printable(str(broker.host)), int(broker.port), _rack(broker.rack)
        )
        for broker in response.brokers
    }


def cluster_request() -> Any:
    """Every broker, the fenced ones of a KRaft cluster included (KIP-700, KIP-1073)."""
    return DescribeClusterRequest(include_cluster_authorized_operations=False, include_fenced_brokers=True)


def described_brokers(response: Any) -> dict[int, Broker]:
    """The brokers of a DescribeCluster answer."""
    return {
        int(broker.broker_id): Broker(
            int(broker.broker_id),
            printable(str(broker.host)),
            int(broker.port),
            _rack(broker.rack),
            bool(broker.is_fenced),
        )
        for broker in response.brokers
    }


def partitions_in_metadata(response: Any) -> tuple[dict[TopicPartition, Partition], frozenset[str]]:
    """The partitions of a Metadata answer, and its internal topics. Topics that do not exist are left out.

    Raises KafkaRefused for a topic that may not be read.
    """
    partitions: dict[TopicPartition, Partition] = {}
    internal = set()
    for topic in response.topics:
        if topic.error_code in NO_SUCH_TOPIC:
            continue
        if topic.error_code:
            raise refusal(int(topic.error_code), None, f"describing topic {topic.name}")
        if topic.is_internal:
            internal.add(str(topic.name))
        for entry in topic.partitions:
            partition = _partition(str(topic.name), _topic_id(topic), entry)
            partitions[partition.topic_partition] = partition
    return partitions, frozenset(internal)


def hidden_in_metadata(response: Any) -> frozenset[str]:
    """The topics of a Metadata answer, asked for by name, that the principal may not describe.

    Kafka says so of every name that an ACL does not cover, whether or not there is such a topic.
    """
    return frozenset(str(topic.name) for topic in response.topics if topic.error_code == NOT_AUTHORIZED)


def list_request(timeout_ms: int) -> Any:
    """Every reassignment in flight (KIP-455)."""
    return ListPartitionReassignmentsRequest(topics=None, timeout_ms=timeout_ms)


def listed(response: Any) -> dict[TopicPartition, Reassignment]:
    """The reassignments that the controller has in flight."""
    return {
        TopicPartition(str(topic.name), int(entry.partition_index)): Reassignment(
            _ids(entry.replicas), _ids(entry.adding_replicas), _ids(entry.removing_replicas)
        )
        for topic in response.topics
        for entry in topic.partitions
    }


def alter_request(
    targets: Mapping[TopicPartition, Assignment | None], timeout_ms: int, *, keep_factor: bool = False
) -> Any:
    """New targets by partition; None cancels what is in flight (KIP-455).

    With `keep_factor` Kafka refuses a target with another number of replicas than the partition has (KIP-860, version 1
    of the request); brokers that know only version 0 are not told of it, and refuse nothing.
    """
    kind = AlterPartitionReassignmentsRequest.ReassignableTopic
    topics = [
        kind(
            name=topic,
            partitions=[
                # An empty list is an (invalid) target and must stay one: null would cancel.
                kind.ReassignablePartition(partition_index=number, replicas=None if target is None else list(target))
                for number, target in entries
            ],
        )
        for topic, entries in by_topic(targets.items())
    ]
    return AlterPartitionReassignmentsRequest(
        timeout_ms=timeout_ms, allow_replication_factor_change=not keep_factor, topics=topics
    )


def altered(response: Any) -> dict[TopicPartition, tuple[int, str | None]]:
    """Error code and message by partition."""
    return {
        TopicPartition(str(topic.name), int(entry.partition_index)): (int(entry.error_code), entry.error_message)
        for topic in response.responses
        for entry in topic.partitions
    }


def elect_request(partitions: Collection[TopicPartition], timeout_ms: int) -> Any:
    """Make the preferred leaders lead."""
    topics = [(topic, [number for number, _ in entries]) for topic, entries in by_topic((p, None) for p in partitions)]
    return ElectLeadersRequest(election_type=0, topic_partitions=topics, timeout_ms=timeout_ms)


def elected(response: Any) -> dict[TopicPartition, tuple[int, str | None]]:
    """Error code and message by partition; an election that was not needed is no error."""
    return {
        TopicPartition(str(topic.topic), int(entry.partition_id)): (
            (NONE, None) if entry.error_code == ELECTION_NOT_NEEDED else (int(entry.error_code), entry.error_message)
        )
        for topic in response.replica_election_results
        for entry in topic.partition_result
    }


def _partition(topic: str, topic_id: str | None, entry: Any) -> Partition:
    leader = int(entry.leader_id)
    return Partition(
        topic=topic,
        partition=int(entry.partition_index),
        replicas=_ids(entry.replica_nodes),
        isr=frozenset(_ids(entry.isr_nodes)),
        leader=leader if leader >= 0 else None,
        topic_id=topic_id,
        leader_epoch=int(entry.leader_epoch),
        offline=frozenset(_ids(entry.offline_replicas)),
    )


def _topic_id(topic: Any) -> str | None:
    """Kafka prints topic ids as unpadded base64; all zeros mean that there is none (before 2.8)."""
    value = topic.topic_id
    if value is None or value.int == 0:
        return None
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def by_topic(entries: Iterable[tuple[TopicPartition, Any]]) -> list[tuple[str, list[tuple[int, Any]]]]:
    """`entries` the way Kafka's requests nest them: topic, then partition number and value."""
    grouped: dict[str, list[tuple[int, Any]]] = defaultdict(list)
    for partition, value in entries:
        grouped[partition.topic].append((partition.partition, value))
    return list(grouped.items())


def _ids(values: Iterable[Any] | None) -> Assignment:
    return tuple(int(value) for value in values or ())


def _host(broker: Any) -> str:
    return printable(str(broker.host))


def _rack(value: Any) -> str | None:
    return None if value is None else str(value)
