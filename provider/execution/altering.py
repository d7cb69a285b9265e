"""Asks for new assignments so that no replication factor changes that was not meant to (KIP-860)."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.errors import KafkaRefused
from kafka_steward.execution.ports import ClusterPort

__all__ = ["alter_from"]


def alter_from(
    cluster: ClusterPort, targets: Mapping[TopicPartition, Assignment], before: Mapping[TopicPartition, Assignment]
) -> dict[TopicPartition, KafkaRefused | None]:
    """Ask for `targets`, which were chosen when the partitions had the replicas `before`; answers by partition.

    A target with as many replicas as there were is guarded: Kafka refuses it if somebody has changed the factor since.
    One with another number means to change it. Raises what `ClusterPort.alter` does.
    """
    kept = {name: target for name, target in targets.items() if len(target) == len(before[name])}
    changing = {name: target for name, target in targets.items() if name not in kept}
    answers = cluster.alter(kept, keep_factor=True) if kept else {}
    return answers | (cluster.alter(changing) if changing else {})
