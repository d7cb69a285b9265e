"""Conversion of Kafka's requests and responses from and to our dataclasses. No I/O.

kafka-python's own methods drop the error messages of a reassignment. Therefore its request classes are used directly,
so that users see Kafka's own messages. kafka-python has no type annotations; nothing untyped leaves this module.
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

INVALID_TOPIC = 17
#: Errors for a topic that does not exist, and for an invalid topic name: the rest of the request is not affected.
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


#: Kafka's errors for a missing right, with the resource of the ACL.
_RESOURCES = {NOT_AUTHORIZED: "every topic", 31: "the cluster"}
#: The operation of the ACL, by the beginning of what was requested.
_OPERATIONS = {
    "listing": "Describe",
    "describing": "Describe",
    "reading": "DescribeConfigs",
    "changing": "AlterConfigs",
    "the new assignment": "Alter",
    "the cancellation": "Alter",
    "electing": "Alter",
    "the election": "Alter",
    "creating": "Create",
    "adding": "Alter",
}


def refusal(code: int, message: str | None, doing: str) -> KafkaRefused:
    """Return the error for Kafka's error `code` during `doing`, with Kafka's own message if there is one.

    If a right is missing, the error names the ACL.
    """
    kind = kafka.errors.for_code(code)
    told = str(message or getattr(kind, "description", None) or getattr(kind, "message", None) or "no reason given")
    words = printable(told)  # the message may come from an authorizer, a policy or a proxy, and quote any text
    return KafkaRefused(
        code, words, f"Kafka refused {doing}: {words.rstrip('.')} (error {code}){_advice(code, doing)}."
    )


def _advice(code: int, doing: str) -> str:
    operation = next((each for began, each in _OPERATIONS.items() if doing.startswith(began)), None)
    if code not in _RESOURCES or operation is None:
        return ""
    return f"; grant our principal {operation} on {_RESOURCES[code]}, as docs/permissions.md says"


def metadata_request(topics: Collection[str] | None) -> Any:
    """Return the request for the live brokers as the receiver knows them, the controller, and `topics` (None: all)."""
    named = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics]
    return MetadataRequest(topics=named, allow_auto_topic_creation=False)


def live_in_metadata(response: Any) -> dict[int, Broker]:
    """Return the brokers in a Metadata response: those that its sender considers live."""
    return {
        int(broker.node_id): Broker(
            int(broker.node_id), printable(str(broker.host)), int(broker.port), _rack(broker.rack)
        )
        for broker in response.brokers
    }


def cluster_request() -> Any:
    """Return the request for all brokers, including the fenced ones of a KRaft cluster (KIP-700, KIP-1073)."""
    return DescribeClusterRequest(include_cluster_authorized_operations=False, include_fenced_brokers=True)


def described_brokers(response: Any) -> dict[int, Broker]:
    """Return the brokers in a DescribeCluster response."""
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
    """Return the partitions in a Metadata response, and its internal topics.

    Topics that do not exist are left out, and so are those of `hidden_in_metadata`. Raises KafkaRefused for any other
    error.
    """
    partitions: dict[TopicPartition, Partition] = {}
    internal = set()
    for topic in response.topics:
        if topic.error_code in NO_SUCH_TOPIC | {NOT_AUTHORIZED}:
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
    """Return the topics in a Metadata response to a request by name that the principal may not describe.

    Kafka returns this error for every name that no ACL covers, whether or not the topic exists.
    """
    return frozenset(str(topic.name) for topic in response.topics if topic.error_code == NOT_AUTHORIZED)


def list_request(timeout_ms: int) -> Any:
    """Return the request for all reassignments in flight (KIP-455)."""
    return ListPartitionReassignmentsRequest(topics=None, timeout_ms=timeout_ms)


def listed(response: Any) -> dict[TopicPartition, Reassignment]:
    """Return the reassignments in flight in the controller's response."""
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
    """Return the request for new targets by partition; None cancels the reassignment in flight (KIP-455).

    With `keep_factor` Kafka refuses a target with a different number of replicas than the partition has (KIP-860,
    version 1 of the request). Brokers that support only version 0 do not receive the flag, and do not check the number.
    """
    kind = AlterPartitionReassignmentsRequest.ReassignableTopic
    topics = [
        kind(
            name=topic,
            partitions=[
                # An empty list is an (invalid) target and must not become null, which would cancel.
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
    """Return error code and message by partition."""
    return {
        TopicPartition(str(topic.name), int(entry.partition_index)): (int(entry.error_code), entry.error_message)
        for topic in response.responses
        for entry in topic.partitions
    }


def elect_request(partitions: Collection[TopicPartition], timeout_ms: int) -> Any:
    """Return the request that elects the preferred leaders."""
    topics = [(topic, [number for number, _ in entries]) for topic, entries in by_topic((p, None) for p in partitions)]
    return ElectLeadersRequest(election_type=0, topic_partitions=topics, timeout_ms=timeout_ms)


def elected(response: Any) -> dict[TopicPartition, tuple[int, str | None]]:
    """Return error code and message by partition; ELECTION_NOT_NEEDED is not an error."""
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
    """Return the topic id as Kafka prints it, in unpadded base64; None if it is all zeros (no id, before 2.8)."""
    value = topic.topic_id
    if value is None or value.int == 0:
        return None
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def by_topic(entries: Iterable[tuple[TopicPartition, Any]]) -> list[tuple[str, list[tuple[int, Any]]]]:
    """Return `entries` in the nesting of Kafka's requests: topic, then partition number and value."""
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
