"""Throttles as an administrator sets them, by Kafka's own settings: what stands beside a plan's, or in its way."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.cluster.configs import ConfigChange, ConfigOp
from kafka_steward.errors import ClusterError, KafkaRefused
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.execution.throttles.rates import ThrottleSide
from tests.eventually import eventually

__all__ = ["add_entries", "entries", "rates", "set_for_all_brokers", "set_rates"]


def entries(replicas: Mapping[TopicPartition, Collection[int]]) -> dict[str, tuple[str, ...]]:
    """The list entries, by topic, that throttle these brokers' replicas of these partitions."""
    by_topic: dict[str, list[str]] = {}
    for partition, brokers in sorted(replicas.items()):
        by_topic.setdefault(partition.topic, []).extend(f"{partition.partition}:{broker}" for broker in sorted(brokers))
    return {topic: tuple(several) for topic, several in by_topic.items()}


def add_entries(
    cluster: ClusterPort, side: ThrottleSide, wanted: Mapping[str, Collection[str]]
) -> dict[str, KafkaRefused | None]:
    """Append entries to the topics' lists."""
    return cluster.change_topic_configs(
        {
            topic: [ConfigChange(side.replicas_key, ConfigOp.APPEND, ",".join(several))]
            for topic, several in wanted.items()
        }
    )


def rates(cluster: ClusterPort, side: ThrottleSide, brokers: Collection[int]) -> dict[int, int | None]:
    """Each broker's own rate in bytes per second, None if it has none."""
    values = cluster.broker_configs(brokers, [side.rate_key], own_only=True)
    found = {broker: of.get(side.rate_key) for broker, of in values.items()}
    return {broker: None if rate is None else int(rate) for broker, rate in found.items()}


def set_rates(cluster: ClusterPort, side: ThrottleSide, wanted: Mapping[int, int]) -> dict[int, ClusterError | None]:
    """Set each broker's rate in bytes per second."""
    return cluster.change_broker_configs(
        {broker: [ConfigChange(side.rate_key, ConfigOp.SET, str(rate))] for broker, rate in wanted.items()}
    )


def set_for_all_brokers(cluster: KafkaCluster, key: str, value: str | None) -> None:
    """Set the cluster-wide default of a brokers' setting, or delete it; returns when every broker shows that."""
    change = ConfigChange(key, ConfigOp.DELETE) if value is None else ConfigChange(key, ConfigOp.SET, value)
    assert cluster.change_default_broker_configs([change]) is None

    def shown() -> None:
        of_brokers = cluster.broker_rates(sorted(cluster.live_brokers()), [key])[key]
        assert {rate.inherited for rate in of_brokers.values()} == {value}

    eventually(shown)
