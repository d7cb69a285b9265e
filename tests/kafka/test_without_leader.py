"""What Kafka does with a reassignment of a partition without a leader, one replica of which is live and out of sync."""

from __future__ import annotations

import pytest

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.cluster.state import Partition
from kafka_steward.errors import ClusterError
from kafka_steward.sandbox import Sandbox
from tests.eventually import eventually

#: Reordered, without the dead replica, without the live one, and with another one.
REORDERED, NOT_DEAD, NOT_LIVE, ANOTHER = TARGETS = ((1, 4), (1,), (4,), (4, 2))
#: Partitions that are reordered while no replica of them is live, and while only the other one leads.
LOST, LED = range(len(TARGETS), len(TARGETS) + 2)


@pytest.mark.ci
def test_the_order_changes_at_once_and_nothing_is_removed_before_what_stays_is_in_sync(
    sandbox: Sandbox, cluster: KafkaCluster, topic: str
) -> None:
    names = {target: TopicPartition(topic, number) for number, target in enumerate(TARGETS)}
    sandbox.create_topics(topic, assignments={number: [4, 1] for number in range(LED + 1)})

    def seen() -> dict[Assignment, Partition]:
        partitions = cluster.snapshot([topic]).partitions
        return {target: partitions[name] for target, name in names.items()}

    def led_by(leader: int | None) -> None:
        assert {(each.leader, 1 in each.isr) for each in seen().values()} == {(leader, False)}

    sandbox.kill(1)
    eventually(lambda: led_by(4), within=60, errors=(KeyError, ClusterError))
    led = TopicPartition(topic, LED)
    assert cluster.alter({led: REORDERED}) == {led: None}
    eventually(lambda: _assert_at_rest(cluster, led, REORDERED), within=20)
    assert cluster.snapshot([topic]).partitions[led].leader == 4
    sandbox.fill(topic, 100_000)
    sandbox.kill(4)
    lost = TopicPartition(topic, LOST)
    eventually(lambda: led_by(None), within=60, errors=(KeyError, ClusterError))
    assert cluster.alter({lost: REORDERED}) == {lost: None}
    eventually(lambda: _assert_at_rest(cluster, lost, REORDERED), within=20)
    sandbox.restart(1)
    eventually(lambda: led_by(None), within=60, errors=(KeyError, ClusterError))

    assert set(cluster.alter({name: target for target, name in names.items()}).values()) == {None}
    # With ZooKeeper, the broker that died last stays in the ISR: the partition keeps it, and loses the live replica.
    waiting = {NOT_DEAD, ANOTHER} if cluster.zookeeper_mode else {NOT_DEAD, NOT_LIVE, ANOTHER}

    def reordered() -> None:
        assert seen()[REORDERED].replicas == REORDERED
        assert {target for target, each in seen().items() if each.reassigning} == waiting

    eventually(reordered, within=20)
    led_by(None)

    sandbox.restart(4)

    def complete() -> None:
        assert {target: (each.replicas, each.reassigning) for target, each in seen().items()} == {
            target: (target, False) for target in TARGETS
        }

    eventually(complete, within=60)


def _assert_at_rest(cluster: KafkaCluster, name: TopicPartition, replicas: Assignment) -> None:
    found = cluster.snapshot([name.topic]).partitions[name]
    assert (found.replicas, found.reassigning) == (replicas, False)
