"""Build Kafka's requests from our dataclasses, and parse Kafka's responses into them. No I/O.

A function `..._request` builds a request, a function `parse_...` reads its response. An error for a whole request is
raised; errors per partition are returned.

kafka-python's own methods drop the error messages of a reassignment. Therefore its request classes are used directly,
so that users see Kafka's own messages. kafka-python has no type annotations; nothing untyped leaves this module.
"""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import kafka.errors
from kafka.protocol.admin import (
    AlterPartitionReassignmentsRequest,
    AlterReplicaLogDirsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DescribeClusterRequest,
    DescribeLogDirsRequest,
    DescribeTopicPartitionsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from kafka.protocol.consumer import ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.cluster.state import Broker, BrokerLogDirs, Directory, Partition, Reassignment
from kafka_steward.errors import KafkaRefused, KafkaTimeout
from kafka_steward.escaping import printable

#: Errors for a topic that does not exist, and for an invalid topic name: the rest of the request is not affected.
NO_SUCH_TOPIC = frozenset({3, 17})
UNKNOWN_ERROR, NONE, TIMED_OUT, NOT_AUTHORIZED, NOT_CONTROLLER, ELECTION_NOT_NEEDED = -1, 0, 7, 29, 41, 84
#: The answers of a broker that does not have a replica, or does not know the replica's topic.
_NO_REPLICA_YET = frozenset({3, 6, 9})
#: A target that Kafka cannot give a partition: it names a broker that is not registered, or twice the same one.
INVALID_ASSIGNMENT, INVALID_REPLICATION_FACTOR = 39, 38
#: The API key of AlterPartitionReassignments, and the first version that carries KIP-860's guard.
FACTOR_GUARD = (45, 1)

#: The kind of endpoints that DescribeCluster is asked for.
_CONTROLLERS = 2
#: Kafka's own limit of partitions in a response to DescribeTopicPartitions.
_MOST_DESCRIBED = 2000

#: Kafka's errors for a missing right, with the resource of the ACL.
_RESOURCES = {NOT_AUTHORIZED: "every topic", 31: "the cluster"}
#: The operation of the ACL, by the beginning of what was requested.
_OPERATIONS = {
    "listing": "Describe",
    "describing": "Describe",
    "reading": "DescribeConfigs",
    "changing": "AlterConfigs",
    "the new assignment": "Alter",
    "naming": "Alter",
    "the cancellation": "Alter",
    "electing": "Alter",
    "the election": "Alter",
    "creating": "Create",
    "adding": "Alter",
}


def refusal_error(code: int, message: str | None, doing: str) -> KafkaRefused:
    """Return the error for Kafka's error `code` during `doing`, with Kafka's own message if there is one.

    If a right is missing, the error names the ACL.
    """
    kind = kafka.errors.for_code(code)
    reason = str(message or getattr(kind, "description", None) or getattr(kind, "message", None) or "no reason given")
    words = printable(reason)  # the message may come from an authorizer, a policy or a proxy, and quote any text
    operation = next((acl for beginning, acl in _OPERATIONS.items() if doing.startswith(beginning)), None)
    advice = ""
    if code in _RESOURCES and operation is not None:
        advice = f"; grant our principal {operation} on {_RESOURCES[code]}, as docs/permissions.md says"
    return KafkaRefused(code, words, f"Kafka refused {doing}: {words.rstrip('.')} (error {code}){advice}.")


def _raise_refusal(response: Any, doing: str) -> None:
    # Some responses have no error code, or None in its place.
    code = int(getattr(response, "error_code", 0) or 0)
    if code:
        raise refusal_error(code, getattr(response, "error_message", None), doing)


def metadata_request(topics: Collection[str] | None) -> Any:
    """Return the request for the live brokers as the receiver knows them, the controller, and `topics` (None: all)."""
    named = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics]
    # To ask for a topic by name must not create it (auto.create.topics.enable).
    return MetadataRequest(topics=named, allow_auto_topic_creation=False)


def parse_live_brokers(response: Any) -> dict[int, Broker]:
    """Return the brokers in a Metadata response: those that its sender considers live."""
    return {int(broker.node_id): _parse_broker(int(broker.node_id), broker) for broker in response.brokers}


def describe_cluster_request() -> Any:
    """Return the request for all brokers, including the fenced ones of a KRaft cluster (KIP-700, KIP-1073)."""
    return DescribeClusterRequest(include_cluster_authorized_operations=False, include_fenced_brokers=True)


def describe_controllers_request() -> Any:
    """Return the request to a KRaft controller for the id of its cluster (KIP-919)."""
    return DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=_CONTROLLERS)


def parse_brokers(response: Any) -> dict[int, Broker]:
    """Return the brokers in a DescribeCluster response. Raises KafkaRefused."""
    _raise_refusal(response, "describing the cluster")
    return {
        int(broker.broker_id): _parse_broker(int(broker.broker_id), broker, fenced=bool(broker.is_fenced))
        for broker in response.brokers
    }


def _parse_broker(id_: int, entry: Any, *, fenced: bool = False) -> Broker:
    rack = None if entry.rack is None else str(entry.rack)
    return Broker(id_, printable(str(entry.host)), int(entry.port), rack, fenced)


def parse_partitions(response: Any) -> dict[TopicPartition, Partition]:
    """Return the partitions in a Metadata response.

    Topics that do not exist are left out, and so are those of `parse_hidden_topics`. Raises KafkaRefused for any other
    error.
    """
    partitions: dict[TopicPartition, Partition] = {}
    for topic in response.topics:
        if topic.error_code in NO_SUCH_TOPIC | {NOT_AUTHORIZED}:
            continue
        if topic.error_code:
            raise refusal_error(int(topic.error_code), None, f"describing topic {topic.name}")
        for entry in topic.partitions:
            partition = _parse_partition(str(topic.name), _format_topic_id(topic), entry)
            partitions[partition.topic_partition] = partition
    return partitions


def eligible_replicas_request(topics: Collection[str]) -> Any:
    """Return the request for the eligible leader replicas of topics (KIP-966): those of its first 2000 partitions."""
    named = [DescribeTopicPartitionsRequest.TopicRequest(name=topic) for topic in sorted(topics)]
    return DescribeTopicPartitionsRequest(topics=named, response_partition_limit=_MOST_DESCRIBED, cursor=None)


def parse_eligible_replicas(response: Any) -> dict[TopicPartition, frozenset[int]]:
    """Return the eligible leader replicas by partition, in place of them the last known ones if there are none.

    Partitions without either are left out, and so are topics with an error.
    """
    return {
        TopicPartition(str(topic.name), int(entry.partition_index)): frozenset(map(int, eligible))
        for topic in response.topics
        if not topic.error_code
        for entry in topic.partitions
        if (eligible := entry.eligible_leader_replicas or entry.last_known_elr)
    }


def parse_hidden_topics(response: Any) -> frozenset[str]:
    """Return the topics in a Metadata response to a request by name that the principal may not describe.

    Kafka returns this error for every name that no ACL covers, whether or not the topic exists.
    """
    return frozenset(str(topic.name) for topic in response.topics if topic.error_code == NOT_AUTHORIZED)


def list_reassignments_request(timeout_ms: int) -> Any:
    """Return the request for all reassignments in flight (KIP-455)."""
    return ListPartitionReassignmentsRequest(topics=None, timeout_ms=timeout_ms)


def parse_reassignments(response: Any) -> dict[TopicPartition, Reassignment]:
    """Return the reassignments in flight in the controller's response. Raises KafkaRefused."""
    _raise_refusal(response, "listing reassignments")
    return {
        name: Reassignment(
            _broker_ids(entry.replicas), _broker_ids(entry.adding_replicas), _broker_ids(entry.removing_replicas)
        )
        for name, entry in _entries(response.topics)
    }


def alter_reassignments_request(
    targets: Mapping[TopicPartition, Assignment | None], timeout_ms: int, *, keep_factor: bool = False
) -> Any:
    """Return the request for new targets by partition; None cancels the reassignment in flight (KIP-455).

    With `keep_factor` Kafka refuses a target with a different number of replicas than the partition has (KIP-860,
    version 1 of the request). Brokers that support only version 0 do not receive the flag, and do not check the number.
    """
    kind = AlterPartitionReassignmentsRequest.ReassignableTopic
    by_topic: dict[str, list[Any]] = defaultdict(list)
    for name, target in targets.items():
        # An empty list is an (invalid) target and must not become null, which would cancel.
        replicas = None if target is None else list(target)
        by_topic[name.topic].append(kind.ReassignablePartition(partition_index=name.partition, replicas=replicas))
    return AlterPartitionReassignmentsRequest(
        timeout_ms=timeout_ms,
        allow_replication_factor_change=not keep_factor,
        topics=[kind(name=topic, partitions=partitions) for topic, partitions in by_topic.items()],
    )


def changed_factor_refusal(name: TopicPartition, now: int, asked: int) -> KafkaRefused:
    """Return the refusal of a target that would change a replication factor, as Kafka 4.1 and later give it."""
    words = f"the replication factor is changed from {now} to {asked}"
    return refusal_error(INVALID_REPLICATION_FACTOR, words, f"the new assignment of {name}")


def parse_alterations(
    response: Any, partitions: Collection[TopicPartition], what: str
) -> dict[TopicPartition, KafkaRefused | None]:
    """Return None, or Kafka's refusal, per partition of the request. Raises KafkaRefused, KafkaTimeout.

    `what` is the change of one partition, in words.
    """
    _raise_refusal(response, f"{what} of {len(partitions)} partitions")
    outcomes = {name: (int(entry.error_code), entry.error_message) for name, entry in _entries(response.responses)}
    return _results_by_partition(partitions, outcomes, what)


def elect_leaders_request(partitions: Collection[TopicPartition], timeout_ms: int) -> Any:
    """Return the request that elects the preferred leaders."""
    topics = list(_numbers_by_topic(partitions).items())
    # Type 0 elects the preferred leader. An unclean election, type 1, is never requested (KIP-460).
    return ElectLeadersRequest(election_type=0, topic_partitions=topics, timeout_ms=timeout_ms)


def parse_elections(response: Any, partitions: Collection[TopicPartition]) -> dict[TopicPartition, KafkaRefused | None]:
    """Return None, or Kafka's refusal, per partition of the request. Raises KafkaRefused, KafkaTimeout.

    An election that was not needed is no refusal.
    """
    _raise_refusal(response, "electing leaders")
    outcomes = {
        TopicPartition(str(topic.topic), int(entry.partition_id)): (
            (NONE, None) if entry.error_code == ELECTION_NOT_NEEDED else (int(entry.error_code), entry.error_message)
        )
        for topic in response.replica_election_results
        for entry in topic.partition_result
    }
    return _results_by_partition(partitions, outcomes, "the election of the preferred leader")


def _results_by_partition(
    partitions: Iterable[TopicPartition], outcomes: Mapping[TopicPartition, tuple[int, str | None]], what: str
) -> dict[TopicPartition, KafkaRefused | None]:
    late = sorted(partition for partition, (code, _) in outcomes.items() if code == TIMED_OUT)
    if late:
        raise KafkaTimeout(
            f"Kafka did not confirm {what} of {late[0]} in time (request_timeout_ms); it may have been applied "
            "nevertheless: list the reassignments in flight before a retry."
        )
    results: dict[TopicPartition, KafkaRefused | None] = {}
    for partition in partitions:
        code, message = outcomes.get(partition, (UNKNOWN_ERROR, "the response does not contain it"))
        results[partition] = refusal_error(code, message, f"{what} of {partition}") if code else None
    return results


def create_topic_request(
    topic: str,
    partitions: int,
    replication_factor: int,
    assignments: Sequence[Assignment] | None,
    settings: Mapping[str, str],
    *,
    timeout_ms: int,
) -> Any:
    """Return the request that creates a topic; `assignments`, if given, replace the two numbers."""
    kind = CreateTopicsRequest.CreatableTopic
    # With assignments, Kafka requires both numbers to be -1.
    wanted = kind(
        name=topic,
        num_partitions=-1 if assignments else partitions,
        replication_factor=-1 if assignments else replication_factor,
        assignments=[
            kind.CreatableReplicaAssignment(partition_index=number, broker_ids=list(brokers))
            for number, brokers in enumerate(assignments or ())
        ],
        configs=[kind.CreatableTopicConfig(name=name, value=value) for name, value in sorted(settings.items())],
    )
    return CreateTopicsRequest(topics=[wanted], timeout_ms=timeout_ms, validate_only=False)


def create_partitions_request(topic: str, count: int, assignments: Sequence[Assignment] | None, timeout_ms: int) -> Any:
    """Return the request that increases a topic to `count` partitions; `assignments` are those of the new ones."""
    kind = CreatePartitionsRequest.CreatePartitionsTopic
    new = [kind.CreatePartitionsAssignment(broker_ids=list(brokers)) for brokers in assignments or ()]
    # Null lets Kafka choose the brokers; it takes an empty list for an assignment that is too short.
    wanted = kind(name=topic, count=count, assignments=new or None)
    return CreatePartitionsRequest(topics=[wanted], timeout_ms=timeout_ms, validate_only=False)


def parse_creation(entry: Any, doing: str) -> KafkaRefused | None:
    """Return None, or Kafka's refusal, for the one topic in a response. Raises KafkaTimeout: it may have been done."""
    code = int(entry.error_code)
    if code == TIMED_OUT:
        raise KafkaTimeout(
            f"Kafka did not confirm {doing} in time (request_timeout_ms); it may have been applied nevertheless: "
            "check before a retry."
        )
    return refusal_error(code, entry.error_message, doing) if code else None


#: The timestamps that stand for the end of a log, its local start, and its last tiered offset (KIP-1005).
LATEST, EARLIEST_LOCAL, LATEST_TIERED = -1, -4, -5
#: The debugging replica id, which no broker has: any replica answers such a request, not only the leader.
_DEBUGGING_REPLICA = -2


def log_dirs_request(partitions: Collection[TopicPartition] | None = None) -> Any:
    """Return the request for one broker's log directories, with the sizes of `partitions` (None: of all partitions)."""
    kind, topics = DescribeLogDirsRequest.DescribableLogDirTopic, None
    if partitions is not None:
        topics = [kind(topic=topic, partitions=numbers) for topic, numbers in _numbers_by_topic(partitions).items()]
    return DescribeLogDirsRequest(topics=topics)


def parse_log_dirs(response: Any, broker: int) -> BrokerLogDirs:
    """Return the disks of `broker`, which sent the response. Raises KafkaRefused.

    The totals leave out failed directories. A log that moves between two directories is counted once.
    """
    _raise_refusal(response, f"describing the log directories of broker {broker}")
    directories = tuple(_parse_directory(entry) for entry in response.results)
    sizes = {name: size for directory in directories for name, size in directory.replica_bytes.items()}
    open_directories = [directory for directory in directories if directory.takes_replicas]
    total = _sum_if_known(directory.total_bytes for directory in open_directories)
    usable = _sum_if_known(directory.usable_bytes for directory in open_directories)
    return BrokerLogDirs(sizes, total, usable, directories)


def _parse_directory(entry: Any) -> Directory:
    if entry.error_code:
        return Directory(str(entry.log_dir), error=int(entry.error_code))
    held = list(_entries(entry.topics))
    # A future replica is the copy of a log that moves here from another directory of the broker.
    sizes = {name: int(log.partition_size) for name, log in held if not log.is_future_key}
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


def name_directories_request(paths: Mapping[TopicPartition, str]) -> Any:
    """Return the request that names the log directory of each partition's replica on the receiving broker (KIP-113)."""
    kind = AlterReplicaLogDirsRequest.AlterReplicaLogDir
    by_path: dict[str, list[TopicPartition]] = defaultdict(list)
    for name, path in paths.items():
        by_path[path].append(name)
    dirs = []
    for path, names in by_path.items():
        topics = _numbers_by_topic(names).items()
        topic_of = kind.AlterReplicaLogDirTopic
        dirs.append(kind(path=path, topics=[topic_of(name=topic, partitions=numbers) for topic, numbers in topics]))
    return AlterReplicaLogDirsRequest(dirs=dirs)


def parse_named_directories(
    response: Any, partitions: Collection[TopicPartition], broker: int
) -> dict[TopicPartition, KafkaRefused | None]:
    """Return None, or Kafka's refusal, per partition of the request to `broker`.

    A broker that does not have the replica yet answers with an error that says so. It has stored the directory all the
    same, and uses it when it gets the replica: this is no refusal.
    """
    codes = {name: int(entry.error_code) for name, entry in _entries(response.results, "topic_name")}
    outcomes: dict[TopicPartition, tuple[int, str | None]] = {
        name: (NONE if code in _NO_REPLICA_YET else code, None) for name, code in codes.items()
    }
    return _results_by_partition(partitions, outcomes, f"naming the log directory on broker {broker}")


def log_ends_request(partitions: Collection[TopicPartition], at: int = LATEST) -> Any:
    """Return the request for the end offsets of logs on the receiving broker, whether it leads them or not.

    `at` may be another of the timestamps that stand for an offset.
    """
    kind = ListOffsetsRequest.ListOffsetsTopic
    end = kind.ListOffsetsPartition
    topics = [
        kind(name=topic, partitions=[end(partition_index=number, timestamp=at) for number in numbers])
        for topic, numbers in _numbers_by_topic(partitions).items()
    ]
    # Version 9 is the first that knows all of these timestamps (KIP-1005, Kafka 3.9): brokers without it get no
    # request.
    return ListOffsetsRequest(
        replica_id=_DEBUGGING_REPLICA, isolation_level=0, topics=topics, min_version=2 if at == LATEST else 9
    )


def parse_offsets(response: Any) -> dict[TopicPartition, int]:
    """Return offsets by partition, -1 where there is none; partitions that the broker does not hold are left out."""
    return {name: int(entry.offset) for name, entry in _entries(response.topics) if not entry.error_code}


def _sum_if_known(values: Iterable[int | None]) -> int | None:
    """Return the sum; None if a value is unknown, or there are no values."""
    known = list(values)
    present = [value for value in known if value is not None]
    return sum(present) if present and len(present) == len(known) else None


def _parse_partition(topic: str, topic_id: str | None, entry: Any) -> Partition:
    leader = int(entry.leader_id)
    return Partition(
        topic=topic,
        partition=int(entry.partition_index),
        replicas=_broker_ids(entry.replica_nodes),
        isr=_broker_set(_broker_ids(entry.isr_nodes)),
        leader=leader if leader >= 0 else None,
        topic_id=topic_id,
        leader_epoch=int(entry.leader_epoch),
        offline=_broker_set(_broker_ids(entry.offline_replicas)),
    )


def _format_topic_id(topic: Any) -> str | None:
    """Return the topic id as Kafka prints it, in unpadded base64; None if it is all zeros (no id, before 2.8)."""
    value = topic.topic_id
    if value is None or value.int == 0:
        return None
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def _numbers_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return partitions in the nesting of Kafka's requests."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for topic, number in partitions:
        numbers[topic].append(number)
    return numbers


def _entries(topics: Iterable[Any], topic_name: str = "name") -> Iterator[tuple[TopicPartition, Any]]:
    """Yield the entries of a response by partition; Kafka calls the name of a topic differently in each."""
    for topic in topics:
        name = str(getattr(topic, topic_name))
        for entry in topic.partitions:
            yield TopicPartition(name, int(entry.partition_index)), entry


@lru_cache(maxsize=4096)  # thousands of partitions have the same brokers, and share the set
def _broker_set(brokers: Assignment) -> frozenset[int]:
    return frozenset(brokers)


def _broker_ids(values: Iterable[Any] | None) -> Assignment:
    return tuple(int(value) for value in values or ())
