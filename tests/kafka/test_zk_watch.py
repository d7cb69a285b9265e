"""What Kafka's own ZooKeeper says at once of a broker that dies."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from kafka_steward.journal.zookeeper.options import ZooKeeperOptions
from kafka_steward.journal.zookeeper.watcher import ZooKeeperWatcher
from kafka_steward.sandbox import Sandbox
from tests.eventually import eventually


@pytest.fixture
def client(zookeeper_sandbox: Sandbox) -> Iterator[KazooClient]:
    """A session of someone else."""
    client = KazooClient(hosts=zookeeper_sandbox.zookeeper)
    client.start(timeout=90)
    yield client
    client.stop()
    client.close()


def test_the_controllers_death_and_return_are_named_when_its_session_ends_and_begins(
    zookeeper_sandbox: Sandbox, client: KazooClient
) -> None:
    changes: Counter[str] = Counter()
    options = ZooKeeperOptions(str(zookeeper_sandbox.zookeeper))
    with ZooKeeperWatcher(options, lambda path: changes.update([path])):
        dead = controller(client)
        changes.clear()
        zookeeper_sandbox.kill(dead)
        eventually(lambda: named(changes, "/brokers/ids", "/controller"))
        eventually(lambda: differs(controller(client), dead), errors=(NoNodeError,))
        assert str(dead) not in client.get_children("/brokers/ids")
        changes.clear()
        zookeeper_sandbox.restart(dead)
        eventually(lambda: named(changes, "/brokers/ids"))
        assert changes["/controller"] == 0  # another broker stays the controller


def controller(client: KazooClient) -> int:
    data, _ = client.get("/controller")
    return int(json.loads(data)["brokerid"])


def named(changes: Counter[str], *paths: str) -> None:
    assert set(paths) <= {path for path, times in changes.items() if times}


def differs(found: object, other: object) -> None:
    assert found != other
