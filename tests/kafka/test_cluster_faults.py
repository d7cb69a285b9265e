"""Brokers that die, hang or come back: what is asked is still answered, and what is not known is not claimed."""

from __future__ import annotations

import json
import multiprocessing
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.cluster.health import down_votes, failed_brokers
from kafka_steward.errors import BrokerUnreachable, KafkaTimeout
from kafka_steward.journal.zookeeper.options import ZooKeeperOptions
from kafka_steward.journal.zookeeper.watcher import ZooKeeperWatcher
from kafka_steward.sandbox import Sandbox
from tests.eventually import eventually
from tests.journal.zookeeper import connected
from tests.present import present


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


def same(found: object, expected: object) -> None:
    assert found == expected


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
        changes.clear()
        zookeeper_sandbox.restart(dead)
        eventually(lambda: named(changes, "/brokers/ids"))
        assert changes["/controller"] == 0  # another broker stays the controller


def controller_node(client: KazooClient) -> int:
    data, _ = client.get("/controller")
    return int(json.loads(data)["brokerid"])


def named(changes: Counter[str], *paths: str) -> None:
    assert set(paths) <= {path for path, times in changes.items() if times}


def differs(found: object, other: object) -> None:
    assert found != other
