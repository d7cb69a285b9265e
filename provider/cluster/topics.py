"""Creation of topics, and of new partitions of topics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafka.protocol.admin import CreatePartitionsRequest, CreateTopicsRequest

from kafka_steward.assignment import Assignment
from kafka_steward.cluster import requests
from kafka_steward.cluster.transport import KafkaTransport
from kafka_steward.errors import KafkaRefused, KafkaTimeout


def create(
    calls: KafkaTransport,
    topic: str,
    partitions: int,
    replication_factor: int,
    *,
    assignments: Sequence[Assignment] | None,
    settings: Mapping[str, str],
) -> KafkaRefused | None:
    """Create a topic; return None, or Kafka's refusal. Raises KafkaTimeout: it may have been created all the same."""
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

    def request() -> Any:
        return CreateTopicsRequest(topics=[wanted], timeout_ms=calls.server_timeout_ms, validate_only=False)

    return _send(calls, request, "topics", f"creating topic {topic}")


def add_partitions(
    calls: KafkaTransport, topic: str, count: int, assignments: Sequence[Assignment] | None
) -> KafkaRefused | None:
    """Increase a topic to `count` partitions in total; return None, or Kafka's refusal.

    Raises KafkaTimeout as `create` does.
    """
    kind = CreatePartitionsRequest.CreatePartitionsTopic
    new = assignments and [kind.CreatePartitionsAssignment(broker_ids=list(brokers)) for brokers in assignments]
    wanted = kind(name=topic, count=count, assignments=new or None)

    def request() -> Any:
        return CreatePartitionsRequest(topics=[wanted], timeout_ms=calls.server_timeout_ms, validate_only=False)

    return _send(calls, request, "results", f"adding partitions to topic {topic}")


def _send(calls: KafkaTransport, request: Callable[[], Any], answers: str, doing: str) -> KafkaRefused | None:
    answer = getattr(calls.on_controller(request, change=True, once=True), answers)[0]
    code = int(answer.error_code)
    if code == requests.TIMED_OUT:
        raise KafkaTimeout(f"Kafka did not confirm {doing} in time; it may have been done all the same: look first.")
    return requests.refusal(code, answer.error_message, doing) if code else None
