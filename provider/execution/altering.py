"""Submission of reassignments that change no replication factor by accident (KIP-860)."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.errors import KafkaRefused
from kafka_steward.execution.ports import ClusterPort

__all__ = ["alter_from"]


def alter_from(
    cluster: ClusterPort, targets: Mapping[TopicPartition, Assignment], before: Mapping[TopicPartition, Assignment]
) -> dict[TopicPartition, KafkaRefused | None]:
    """Submit `targets`, computed while the partitions had the replicas `before`; return the result of each partition.

    The result is None, or Kafka's refusal. A target with as many replicas as `before` is submitted with `keep_factor`:
    Kafka rejects it if the replication factor has changed since. A target with another number of replicas is meant to
    change the factor. Raises the errors of `ClusterPort.alter`.
    """
    kept = {name: target for name, target in targets.items() if len(target) == len(before[name])}
    changing = {name: target for name, target in targets.items() if name not in kept}
    answers = cluster.alter(kept, keep_factor=True) if kept else {}
    return answers | (cluster.alter(changing) if changing else {})
