"""Which brokers are cordoned (KIP-1066): they keep what they have, and get no new replica."""

from __future__ import annotations

from collections.abc import Collection

from kafka_steward.execution.ports import ClusterPort

__all__ = ["cordoned_brokers"]


def cordoned_brokers(cluster: ClusterPort, brokers: Collection[int]) -> frozenset[int]:
    """Those of `brokers` of which no log directory takes new replicas; Kafka is not asked about none.

    One that does not answer is not called cordoned. Raises ClusterError.
    """
    asked = cluster.directories(sorted(brokers)) if brokers else {}
    return frozenset(broker for broker, dirs in asked.items() if dirs.cordoned)
