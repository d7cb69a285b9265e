"""What Kafka's own ZooKeeper says at once of a broker that dies."""

from __future__ import annotations

import json
from collections import Counter

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from kafka_steward.journal.zk_options import ZooKeeperOptions
from kafka_steward.journal.zk_watch import TreeWatch
from kafka_steward.sandbox import Sandbox
from tests.eventually import eventually
from tests.protocol.site import kazoo_hands


def test_the_controllers_death_and_return_are_named_when_its_session_ends_and_begins(
    zookeeper_sandbox: Sandbox,
) -> None:
    assert zookeeper_sandbox.zookeeper is not None
    changes: Counter[str] = Counter()
    options = ZooKeeperOptions(zookeeper_sandbox.zookeeper)
    with kazoo_hands(zookeeper_sandbox.zookeeper) as hands, TreeWatch(options, lambda path: changes.update([path])):
        dead = controller(hands.client)
        changes.clear()
        zookeeper_sandbox.kill(dead)
        eventually(lambda: named(changes, "/brokers/ids", "/controller"))
        eventually(lambda: differs(controller(hands.client), dead), errors=(NoNodeError,))
        assert str(dead) not in hands.children("/brokers/ids")
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
