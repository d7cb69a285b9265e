"""KIP-352 on real clusters, side by side with Kafka's own tool."""

from __future__ import annotations

import re

import pytest
from kafka import KafkaProducer
from kafka.errors import NotEnoughReplicasError

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.cluster.configs import ConfigChange, ConfigOp
from kafka_steward.cluster.health import CopiedBytes, Health
from kafka_steward.cluster.state import bytes_missing, lag, partitions_by_broker
from kafka_steward.execution.health import check_health, health_message
from kafka_steward.execution.throttle_rates import ThrottleSide
from kafka_steward.sandbox import Sandbox
from kafka_steward.sandbox.client import admin_client
from tests.eventually import eventually
from tests.kafka.test_heal_by_script import TOPICS, Script, script
from tests.throttles import add_entries, entries, rates, set_rates

__all__ = ["script"]

UNDER_MIN_ISR = "--under-min-isr-partitions"
RATE = "follower.replication.throttled.rate"
LISTED = "follower.replication.throttled.replicas"

#: Bytes of a partition that take four minutes at 100,000 a second: no machine is so busy that it finds the move over.
LONG = 24_000_000


@pytest.mark.in_ci("kraft")
def test_a_reassignment_does_not_raise_the_under_replicated_count_and_a_killed_broker_does(
    script: Script, sandbox: Sandbox, topic: str
) -> None:
    sandbox.create_topics(topic, assignments={0: (1, 2, 3), 1: (2, 3, 1)})
    sandbox.fill(topic, 2 * LONG)
    script.cluster.change_topic_configs({topic: [ConfigChange(LISTED, ConfigOp.SET, "0:4")]})
    script.cluster.change_broker_configs({4: [ConfigChange(RATE, ConfigOp.SET, "100000")]})
    eventually(lambda: slow(script, 4), within=30)
    try:
        moving, copies = in_the_middle(script, topic)
        assert (moving.under_replicated, kafkas_own(script)) == ((), set())
        assert moving.measures["reassigning_partitions"] == 1
        assert (moving.max_lag or 0) > 0
        faster = eventually(lambda: with_rates(script, copies), within=90)
        assert max(faster.bytes_in, key=lambda broker: faster.bytes_in[broker]) == 4
        assert faster.bytes_out[1] == faster.bytes_in[4] > 0
        sandbox.kill(3)
        eventually(lambda: same_as_kafka(script, {TopicPartition(topic, 0), TopicPartition(topic, 1)}), within=60)
        assert "Broker 3 is down." in health_message(check_health(script.cluster, script.journal)[0])
    finally:
        script.cluster.cancel([TopicPartition(topic, 0)])
        script.cluster.change_broker_configs({4: [ConfigChange(RATE, ConfigOp.DELETE)]})


@pytest.mark.in_ci("kraft")
def test_a_move_that_begins_and_ends_between_two_checks_counts_with_the_size_of_its_new_replica(
    script: Script, sandbox: Sandbox, topic: str
) -> None:
    sandbox.create_topics(topic, assignments={0: (1, 2, 3)})
    sandbox.fill(topic, 2_000_000)
    name = TopicPartition(topic, 0)
    before, copies = check_health(script.cluster, script.journal)
    assert before.reassigning == ()
    script.cluster.alter({name: (1, 2, 4)})
    assert script.replicas(topic) == {0: (1, 2, 4)}
    health, later = check_health(script.cluster, script.journal, copies)
    size = script.cluster.log_sizes({4: [name]})[name, 4]
    assert size > 1_000_000
    assert health.bytes_in[4] * (later.at_ms - copies.at_ms) / 1000 == pytest.approx(size, rel=0.01)
    assert health.bytes_out[1] == health.bytes_in[4]
    again, _ = check_health(script.cluster, script.journal, later)
    assert again.bytes_in[4] == 0


@pytest.mark.in_ci("kraft")
def test_a_replication_factor_that_grows_is_under_min_isr_as_long_as_kafka_says_so_and_refuses_acks_all(
    script: Script, sandbox: Sandbox, topic: str
) -> None:
    name = TopicPartition(topic, 0)
    sandbox.create_topics(topic, assignments={0: (1,)}, configs={"min.insync.replicas": "2"})
    sandbox.fill(topic, LONG)
    script.cluster.change_topic_configs({topic: [ConfigChange(LISTED, ConfigOp.SET, "0:2,0:3")]})
    script.cluster.change_broker_configs({id_: [ConfigChange(RATE, ConfigOp.SET, "100000")] for id_ in (2, 3)})
    eventually(lambda: slow(script, 2, 3), within=30)
    try:
        assert check_health(script.cluster, script.journal)[0].under_min_isr == (), "one replica is all that it has"
        assert kafkas_own(script, UNDER_MIN_ISR) == {name}, "the tool alone does not know that a broker accepts it"
        produce(sandbox, topic)
        script.cluster.alter({name: (1, 2, 3)})
        eventually(lambda: assert_growing(script, name, under_min_isr=True), within=60)
        with pytest.raises(NotEnoughReplicasError):
            produce(sandbox, topic)
        assert_growing(script, name, under_min_isr=True)
        script.cluster.change_broker_configs({2: [ConfigChange(RATE, ConfigOp.DELETE)]})
        eventually(lambda: assert_growing(script, name, under_min_isr=False), within=60)
        produce(sandbox, topic)
    finally:
        script.cluster.cancel([name])
        script.cluster.change_broker_configs({id_: [ConfigChange(RATE, ConfigOp.DELETE)] for id_ in (2, 3)})


def assert_growing(script: Script, name: TopicPartition, *, under_min_isr: bool) -> None:
    health, _ = check_health(script.cluster, script.journal)
    assert (health.reassigning, health.under_replicated) == ((name,), ())
    assert health.under_min_isr == ((name,) if under_min_isr else ())
    assert kafkas_own(script, UNDER_MIN_ISR) == set(health.under_min_isr)
    assert kafkas_own(script) == set()


def produce(sandbox: Sandbox, topic: str) -> None:
    """Produce a message with acks=all, once; raises what Kafka refuses it with."""
    producer = KafkaProducer(
        bootstrap_servers=sandbox.bootstrap, acks="all", retries=0, enable_idempotence=False, delivery_timeout_ms=60_000
    )
    try:
        producer.send(topic, b"message").get(timeout=60)
    finally:
        producer.close()


def slow(script: Script, *brokers: int) -> None:
    """With ZooKeeper, a broker hears of its throttle some time after it was set."""
    assert rates(script.cluster, ThrottleSide.FOLLOWER, list(brokers)) == dict.fromkeys(brokers, 100_000)


def in_the_middle(script: Script, topic: str) -> tuple[Health, CopiedBytes]:
    """Partition 0 is on its way to broker 4, held up by a throttle."""
    script.cluster.alter({TopicPartition(topic, 0): (1, 2, 4)})

    def moving() -> tuple[Health, CopiedBytes]:
        health, copies = check_health(script.cluster, script.journal)
        assert health.reassigning == (TopicPartition(topic, 0),)
        assert health.max_lag
        return health, copies

    return eventually(moving, within=30)


def with_rates(script: Script, before: CopiedBytes) -> Health:
    health, _ = check_health(script.cluster, script.journal, before)
    assert health.bytes_in[4] > 0
    return health


def same_as_kafka(script: Script, expected: set[TopicPartition]) -> None:
    health, _ = check_health(script.cluster, script.journal)
    assert set(health.under_replicated) == expected == kafkas_own(script)


def kafkas_own(script: Script, selected: str = "--under-replicated-partitions") -> set[TopicPartition]:
    """What kafka-topics --describe prints with one of its filters."""
    printed = script.sandbox.kafka_tool(TOPICS, "--bootstrap-server", script.sandbox.bootstrap, "--describe", selected)
    found = re.findall(r"Topic: (\S+)\s+Partition: (\d+)", printed)
    return {TopicPartition(topic, int(number)) for topic, number in found}


@pytest.mark.usefixtures("clears_rates")
@pytest.mark.in_ci("kraft")
def test_true_lag_is_seen_where_kafkas_offset_lag_says_none(
    sandbox: Sandbox, cluster: KafkaCluster, topic: str
) -> None:
    name = TopicPartition(topic, 0)
    sandbox.create_topics(topic, assignments={0: [1, 2, 3]})
    sent = sandbox.fill(topic, 8_000_000)
    add_entries(cluster, ThrottleSide.FOLLOWER, entries({name: [4]}))
    set_rates(cluster, ThrottleSide.FOLLOWER, {4: 300_000})
    eventually(lambda: same(rates(cluster, ThrottleSide.FOLLOWER, [4]), {4: 300_000}))
    assert cluster.alter({name: (4, 2, 3)}) == {name: None}

    def begun() -> tuple[int, int]:
        partition = cluster.snapshot([topic]).partitions[name]
        behind = lag(cluster.log_ends(partitions_by_broker([partition])), partition, 4)
        missing = bytes_missing(cluster.log_dirs([1, 2, 3, 4]), partition, 4)
        assert behind is not None
        assert missing is not None
        assert missing < sent
        return behind, missing

    behind, missing = eventually(begun)
    assert behind > 0
    assert missing > sent // 4
    assert offset_lag(sandbox, topic, 4) == 0

    def progressing() -> None:
        now, left = begun()
        assert (now < behind, left < missing) == (True, True)

    eventually(progressing)
    set_rates(cluster, ThrottleSide.FOLLOWER, {4: 1_000_000_000})

    def caught_up() -> None:
        partition = cluster.snapshot([topic]).partitions[name]
        assert partition.isr == {2, 3, 4}
        assert lag(cluster.log_ends(partitions_by_broker([partition])), partition, 4) == 0
        assert bytes_missing(cluster.log_dirs([2, 3, 4]), partition, 4) == 0

    eventually(caught_up)


@pytest.mark.usefixtures("clears_rates")
def test_every_replica_tells_its_own_end_and_brokers_without_one_are_left_out(
    sandbox: Sandbox, cluster: KafkaCluster, topic: str
) -> None:
    name = TopicPartition(topic, 0)
    sandbox.create_topics(topic, assignments={0: [1, 2, 3]})
    sandbox.fill(topic, 100_000)
    ends = cluster.log_ends({broker: [name] for broker in [1, 2, 3, 4, 99]})
    assert set(ends) == {(name, 1), (name, 2), (name, 3)}
    assert len(set(ends.values())) == 1
    assert min(ends.values()) > 0


def offset_lag(sandbox: Sandbox, topic: str, broker: int) -> int:
    """What DescribeLogDirs says of the topic's one replica on `broker`."""
    with admin_client(sandbox.bootstrap) as client:
        (answer,) = client.describe_log_dirs({topic: [0]}, [broker])
    (told,) = [p["offset_lag"] for d in answer["log_dirs"] for t in d["topics"] for p in t["partitions"]]
    return int(told)


def same(found: object, expected: object) -> None:
    assert found == expected
