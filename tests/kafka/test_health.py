"""Health on real clusters, side by side with Kafka's own tool, and brokers that die, hang or come back."""

from __future__ import annotations

import json
import multiprocessing
import re
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from kafka import KafkaProducer
from kafka.errors import NotEnoughReplicasError
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.cluster.configs import ConfigChange, ConfigOp
from kafka_steward.cluster.health import CopiedBytes, Health, down_votes, failed_brokers
from kafka_steward.cluster.state import bytes_missing, lag, partitions_by_broker
from kafka_steward.errors import BrokerUnreachable, KafkaTimeout
from kafka_steward.execution.throttles.rates import ThrottleSide
from kafka_steward.execution.watch.health import check_health, health_message
from kafka_steward.journal.zookeeper.options import ZooKeeperOptions
from kafka_steward.journal.zookeeper.watcher import ZooKeeperWatcher
from kafka_steward.sandbox import Sandbox
from kafka_steward.sandbox.client import admin_client
from tests.eventually import eventually
from tests.journal.zookeeper import connected
from tests.kafka.cluster_contract import same
from tests.kafka.test_heal_by_script import TOPICS, Script, script
from tests.present import present
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
def test_every_replica_has_its_own_end_and_brokers_without_one_are_left_out(
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


# brokers that die, hang or come back


def controller(cluster: KafkaCluster) -> int:
    """The broker that the client takes for the controller, and has asked just now."""
    cluster.reassignments()
    return present(cluster._transport._controller)


@contextmanager
def hanging_controller(sandbox: Sandbox, cluster: KafkaCluster) -> Iterator[None]:
    """Whatever takes changes of the metadata does not answer for a while, and has not died."""
    if sandbox.mode == "zookeeper":
        broker = controller(cluster)
        sandbox.pause(broker)
        yield
        sandbox.resume(broker)
    else:
        assert sandbox._service is not None
        sandbox._service.signal(signal.SIGSTOP)
        yield
        sandbox._service.signal(signal.SIGCONT)


@pytest.mark.in_ci("zookeeper")
def test_when_the_controller_dies_lists_and_alters_still_work(
    sandbox: Sandbox, cluster: KafkaCluster, topic: str
) -> None:
    dead = controller(cluster)
    others = [broker for broker in sandbox.brokers if broker != dead]
    name = TopicPartition(topic, 0)
    sandbox.create_topics(topic, assignments={0: others})
    sandbox.kill(dead)
    assert cluster.reassignments() == {}
    assert cluster.alter({name: tuple(reversed(others))}) == {name: None}
    eventually(lambda: same(cluster.snapshot([topic]).partitions[name].replicas, tuple(reversed(others))))
    assert set(cluster.log_dirs(sandbox.brokers)) == set(others)
    sandbox.restart(dead)
    eventually(lambda: same(set(cluster.log_dirs(sandbox.brokers)), set(sandbox.brokers)))


@pytest.mark.in_ci("zookeeper")
def test_a_killed_broker_has_failed_once_the_others_say_so_and_not_before(
    sandbox: Sandbox, cluster: KafkaCluster, topic: str
) -> None:
    name = TopicPartition(topic, 0)
    sandbox.create_topics(topic, assignments={0: [4, 1, 2]})
    sandbox.fill(topic, 100_000)
    everyone = cluster.snapshot()
    assert failed_brokers(everyone, cluster.live_views(everyone.live)) == frozenset()

    sandbox.kill(4)
    assert set(cluster.live_views(sandbox.brokers)) == {1, 2, 3}

    def failed() -> None:
        snapshot = cluster.snapshot()
        views = cluster.live_views(snapshot.live)
        assert failed_brokers(snapshot, views) == {4}
        assert down_votes(snapshot, views)[4] == {1, 2, 3}

    eventually(failed)
    brokers = cluster.snapshot().brokers
    assert brokers[4].fenced if sandbox.mode == "kraft" else 4 not in brokers
    change = cluster.change_broker_configs({4: []})[4]
    assert isinstance(change, BrokerUnreachable)

    # Moved off while it was away: what it still holds when it returns is not its own any more.
    assert cluster.alter({name: (3, 1, 2)}) == {name: None}
    eventually(lambda: same(cluster.snapshot([topic]).partitions[name].isr, {1, 2, 3}))
    sandbox.restart(4)
    eventually(lambda: same(cluster.snapshot().live, {1, 2, 3, 4}))
    own = eventually(lambda: cluster.log_dirs([4], assigned=cluster.snapshot())[4], errors=(KeyError,))
    assert name not in own.replica_bytes
    assert failed_brokers(cluster.snapshot(), cluster.live_views([1, 2, 3, 4])) == frozenset()


def test_a_change_that_timed_out_may_have_been_made_all_the_same(
    sandbox: Sandbox, cluster: KafkaCluster, topic: str
) -> None:
    name = TopicPartition(topic, 0)
    sandbox.create_topics(topic, assignments={0: [1, 2, 3]})
    # Well within the session time-out of a controller with ZooKeeper, which forgets what it was asked when it is over.
    hasty = {"bootstrap_servers": sandbox.bootstrap, "request_timeout_ms": 1000}
    with KafkaCluster(hasty) as impatient:
        impatient.snapshot([topic])
        with hanging_controller(sandbox, impatient), pytest.raises(KafkaTimeout, match="may have been applied"):
            impatient.alter({name: (3, 2, 1)})
    eventually(lambda: same(cluster.snapshot([topic]).partitions[name].replicas, (3, 2, 1)))


@pytest.mark.in_ci("kraft")
def test_a_broker_that_hangs_is_passed_over(sandbox: Sandbox, cluster: KafkaCluster) -> None:
    frozen = next(broker for broker in sandbox.brokers if broker != controller(cluster))
    others = set(sandbox.brokers) - {frozen}
    sandbox.pause(frozen)
    assert cluster.snapshot().cluster_id == cluster.cluster_id
    assert set(cluster.live_views(sandbox.brokers, timeout_s=0.5)) == others
    with KafkaCluster({"bootstrap_servers": sandbox.bootstrap}, expected_cluster_id=cluster.cluster_id) as another:
        assert set(another.live_brokers()) >= others


def test_a_forked_child_has_a_connection_of_its_own(sandbox: Sandbox, cluster: KafkaCluster) -> None:
    def seen_by_a_child() -> None:
        receiver, sender = multiprocessing.get_context("fork").Pipe(duplex=False)
        child = multiprocessing.get_context("fork").Process(target=lambda: sender.send(set(cluster.live_brokers())))
        child.start()
        assert receiver.poll(20)
        child.join(10)
        same(receiver.recv(), set(sandbox.brokers))

    # A broker that the test before has paused or restarted is registered again a moment after it answers.
    eventually(seen_by_a_child)
    eventually(lambda: same(set(cluster.live_brokers()), set(sandbox.brokers)))


@pytest.fixture
def client(zookeeper_sandbox: Sandbox) -> Iterator[KazooClient]:
    """A session of someone else."""
    with connected(str(zookeeper_sandbox.zookeeper)) as client:
        yield client


def test_the_controllers_death_and_return_are_named_when_its_session_ends_and_begins(
    zookeeper_sandbox: Sandbox, client: KazooClient
) -> None:
    changes: Counter[str] = Counter()
    options = ZooKeeperOptions(str(zookeeper_sandbox.zookeeper))
    with ZooKeeperWatcher(options, lambda path: changes.update([path])):
        dead = controller_node(client)
        changes.clear()
        zookeeper_sandbox.kill(dead)
        eventually(lambda: named(changes, "/brokers/ids", "/controller"))
        eventually(lambda: differs(controller_node(client), dead), errors=(NoNodeError,))
        assert str(dead) not in client.get_children("/brokers/ids")
        successor = controller_node(client)
        changes.clear()
        zookeeper_sandbox.restart(dead)
        eventually(lambda: named(changes, "/brokers/ids"))
        assert controller_node(client) == successor  # not by the changes: that of its own beginning may come this late


def controller_node(client: KazooClient) -> int:
    data, _ = client.get("/controller")
    return int(json.loads(data)["brokerid"])


def named(changes: Counter[str], *paths: str) -> None:
    assert set(paths) <= {path for path, times in changes.items() if times}


def differs(found: object, other: object) -> None:
    assert found != other
