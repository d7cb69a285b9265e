"""What only a simulator does; what it has in common with real clusters is in tests/kafka/cluster_contract.py."""

from __future__ import annotations

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import KafkaTimeout
from tests.simulator import Simulator

T0 = TopicPartition("t", 0)


def simulator() -> Simulator:
    return Simulator.of("1a 2b 3c 4a", "t: 123", size=300)


def test_an_unanswered_alter_is_applied_later() -> None:
    cluster = simulator()
    with pytest.raises(KafkaTimeout):
        cluster.alter_unanswered({T0: (4, 2, 3)}, after_ticks=2)
    cluster.tick()
    assert not cluster.topics[T0].reassigning
    cluster.tick()
    assert cluster.topics[T0].reassigning


def test_copying_takes_as_long_as_the_bandwidth_or_the_throttle_allows() -> None:
    cluster = simulator()
    cluster.alter({T0: (4, 2, 3)})
    cluster.tick(2)
    assert cluster.log_dirs([4])[4].replica_bytes == {T0: 200}
    cluster.tick()
    assert cluster.topics[T0].replicas == (4, 2, 3)
    cluster.topic_settings["t"]["follower.replication.throttled.replicas"] = "0:1"
    cluster.broker_settings[1]["follower.replication.throttled.rate"] = "50"
    cluster.alter({T0: (1, 2, 3)})
    cluster.tick(5)
    assert cluster.topics[T0].reassigning
    cluster.tick()
    assert cluster.topics[T0].replicas == (1, 2, 3)
