"""Topics and real data."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

from kafka import KafkaProducer

from kafka_steward.errors import SandboxFailed
from kafka_steward.sandbox.readiness import admin

__all__ = ["create", "produce", "topic_spec"]

_MESSAGE_BYTES = 64 * 1024
_BATCH_BYTES = 512 * 1024


def topic_spec(
    partitions: int,
    replication_factor: int,
    *,
    assignments: Mapping[int, Collection[int]] | None = None,
    configs: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """A topic as kafka-python wants it; `assignments` (broker ids by partition) replaces the counts."""
    placed = {partition: list(replicas) for partition, replicas in (assignments or {}).items()}
    counts = {} if placed else {"num_partitions": partitions, "replication_factor": replication_factor}
    return {"assignments": placed, "configs": dict(configs or {}), **counts}


def create(bootstrap: str, topics: Mapping[str, Mapping[str, Any]]) -> None:
    """Create topics; returns when Kafka has said yes to each. Raises SandboxFailed with Kafka's own words."""
    with admin(bootstrap) as client:
        answers = client.create_topics(dict(topics), raise_errors=False)["topics"]
    refused = [f"{answer['name']}: {answer['error_message']}" for answer in answers if answer["error_code"]]
    if refused:
        raise SandboxFailed(f"Kafka did not create {'; '.join(refused)}")


def produce(bootstrap: str, topic: str, bytes_: int) -> int:
    """Send at least `bytes_` of values, partition after partition; returns how many bytes. Acknowledged by all."""
    value = os.urandom(_MESSAGE_BYTES)
    producer = KafkaProducer(
        bootstrap_servers=bootstrap.split(","),
        acks="all",
        enable_idempotence=False,
        batch_size=_BATCH_BYTES,
        linger_ms=20,
    )
    try:
        partitions = sorted(producer.partitions_for(topic))
        count = -(-bytes_ // _MESSAGE_BYTES)
        sent = [producer.send(topic, value, partition=partitions[number % len(partitions)]) for number in range(count)]
        producer.flush(timeout=120)
    finally:
        producer.close()
    # A message that was not acknowledged raises Kafka's own error here.
    for future in sent:
        future.get(timeout=60)
    return count * _MESSAGE_BYTES
