"""The traps that the simulator knows, as they were measured on real clusters."""

from __future__ import annotations

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import KafkaTimeout
from tests.simulator import Simulator

T0 = TopicPartition("t", 0)


def simulator(mode: str = "kraft") -> Simulator:
    return Simulator.of("1a 2b 3c 4a", "t: 123", mode=mode, size=300)


@pytest.mark.parametrize("mode", ["kraft", "zookeeper"])
def test_a_cancel_keeps_the_set_and_loses_the_order(mode: str) -> None:
    cluster = simulator(mode)
    cluster.alter({T0: (4, 2, 3)})
    assert cluster.topics[T0].replicas == (4, 2, 3, 1)
    assert cluster.cancel([T0]) == {T0: None}
    assert cluster.topics[T0].replicas == (2, 3, 1)
    assert cluster.alter({T0: (1, 2, 3)}) == {T0: None}
    assert cluster.topics[T0].replicas == (1, 2, 3)
    refused = cluster.cancel([T0])[T0]
    assert refused is not None
    assert refused.code == 85


def test_reverting_by_the_originals_wedges_kraft_until_a_null_cancel() -> None:
    cluster = simulator()
    cluster.alter({T0: (1, 2, 4)})
    cluster.alter({T0: (1, 2, 3)})
    cluster.tick(20)
    assert (cluster.topics[T0].adding, cluster.topics[T0].removing) == ((4,), (4,))
    cluster.cancel([T0])
    assert cluster.topics[T0].replicas == (1, 2, 3)


def test_reverting_by_the_originals_works_with_zookeeper() -> None:
    cluster = simulator("zookeeper")
    cluster.alter({T0: (1, 2, 4)})
    cluster.alter({T0: (1, 2, 3)})
    assert not cluster.topics[T0].reassigning
    assert cluster.topics[T0].replicas == (1, 2, 3)


def test_a_dead_target_hangs_in_kraft_and_is_refused_with_zookeeper() -> None:
    hung, refused = simulator(), simulator("zookeeper")
    for cluster in (hung, refused):
        cluster.kill(4)
    assert hung.alter({T0: (4, 2, 3)}) == {T0: None}
    hung.tick(50)
    assert hung.topics[T0].reassigning
    answer = refused.alter({T0: (4, 2, 3)})[T0]
    assert answer is not None
    assert "not alive" in answer.message
    hung.restart(4)
    hung.run()
    assert hung.topics[T0].replicas == (4, 2, 3)


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


def test_only_zookeeper_mode_forgets_a_dead_broker() -> None:
    for mode, listed in (("kraft", {1, 2, 3, 4}), ("zookeeper", {1, 2, 3})):
        cluster = simulator(mode)
        cluster.kill(4)
        assert set(cluster.snapshot().brokers) == listed
        assert cluster.snapshot().live == {1, 2, 3}
