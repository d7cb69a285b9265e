"""What ZooKeeper tells at once, on a real one."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.cluster.zookeeper import BrokerWatch
from kafka_steward.errors import ClusterUnreachable
from kafka_steward.sandbox import Sandbox
from tests.eventually import eventually


@pytest.fixture
def changed() -> threading.Event:
    return threading.Event()


@pytest.fixture
def watch(zookeeper_sandbox: Sandbox, changed: threading.Event) -> Iterator[BrokerWatch]:
    assert zookeeper_sandbox.zookeeper is not None
    with BrokerWatch(zookeeper_sandbox.zookeeper, changed.set) as watch:
        yield watch


def test_the_watch_knows_brokers_controller_and_cluster(zookeeper_sandbox: Sandbox, watch: BrokerWatch) -> None:
    assert watch.connected
    assert watch.brokers == set(zookeeper_sandbox.brokers)
    assert watch.controller in watch.brokers
    sessions = watch.sessions()
    assert set(sessions) == watch.brokers
    assert all(session.session_id and session.since_ms for session in sessions.values())
    with KafkaCluster({"bootstrap_servers": zookeeper_sandbox.bootstrap}) as cluster:
        assert watch.cluster_id() == cluster.cluster_id


def test_the_controllers_death_is_told_when_its_session_ends(
    zookeeper_sandbox: Sandbox, watch: BrokerWatch, changed: threading.Event
) -> None:
    dead = watch.controller
    assert dead is not None
    before = watch.sessions()[dead]
    changed.clear()
    zookeeper_sandbox.kill(dead)
    assert changed.wait(30)

    def noticed() -> None:
        assert watch.brokers == set(zookeeper_sandbox.brokers) - {dead}
        assert watch.controller in watch.brokers

    eventually(noticed)
    zookeeper_sandbox.restart(dead)
    eventually(lambda: same(watch.brokers, set(zookeeper_sandbox.brokers)))
    after = watch.sessions()[dead]
    assert after.session_id != before.session_id
    assert after.since_ms > before.since_ms


@pytest.mark.filterwarnings("ignore:No chroot path exists")
def test_a_path_that_holds_no_cluster_is_said(zookeeper_sandbox: Sandbox) -> None:
    with pytest.raises(ClusterUnreachable, match="holds no Kafka cluster; check the path"):
        BrokerWatch(f"{zookeeper_sandbox.zookeeper}/elsewhere")


@pytest.mark.process
def test_a_zookeeper_that_is_down_is_named() -> None:
    with pytest.raises(ClusterUnreachable, match=r"ZooKeeper at 127\.0\.0\.1:1 did not answer within 1 s"):
        BrokerWatch("127.0.0.1:1", timeout_s=1.0)


def same(found: object, expected: object) -> None:
    assert found == expected
