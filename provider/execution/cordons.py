"""Cordoned brokers (KIP-1066): they keep their replicas and receive no new ones."""

from __future__ import annotations

from collections.abc import Collection

from kafka_steward.execution.ports import ClusterPort

__all__ = ["cordoned_brokers"]


def cordoned_brokers(cluster: ClusterPort, brokers: Collection[int]) -> frozenset[int]:
    """Return those of `brokers` without a log directory that accepts new replicas. Raises ClusterError.

    A broker that does not answer does not count as cordoned. If `brokers` is empty, Kafka is not asked.
    """
    asked = cluster.directories(sorted(brokers)) if brokers else {}
    return frozenset(broker for broker, dirs in asked.items() if dirs.cordoned)
