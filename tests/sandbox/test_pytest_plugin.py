"""The fixtures that tests and DAG authors use: one cluster at a time, each test in its modes, damage repaired."""

from __future__ import annotations

import itertools
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from kafka import TopicPartition

from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.cluster.configs import ConfigChange, ConfigOp
from kafka_steward.execution.throttles.rates import ThrottleSide
from kafka_steward.sandbox import Sandbox
from kafka_steward.sandbox.client import retry_on_admin
from tests.eventually import eventually
from tests.throttles import rates, set_rates

pytestmark = pytest.mark.process

CONFTEST = 'pytest_plugins = ["kafka_steward.sandbox.pytest_plugin"]\n'
ONE = "def test_a(sandbox): pass\ndef test_b(): pass\ndef test_c(zookeeper_sandbox): pass\ndef test_d(topic): pass\n"
TWO = "def test_e(kraft_sandbox, topic): pass\ndef test_f(sandbox): pass\ndef test_g(neglected): pass\n"


def collected(folder: Path, *options: str) -> list[str]:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_one.py").write_text(ONE)
    (folder / "test_two.py").write_text(TWO)
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *options, str(folder)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    return [line.split("::")[1] for line in done.stdout.splitlines() if "::" in line]


KRAFT = ["test_a[kraft]", "test_d[kraft]", "test_e[kraft]", "test_f[kraft]", "test_g[kraft]"]
ZOOKEEPER = [f"test_{letter}[zookeeper]" for letter in "acdfg"]


def test_tests_of_all_files_are_ordered_so_that_each_cluster_starts_once(tmp_path: Path) -> None:
    found = collected(tmp_path)
    assert (found[:1], sorted(found[1:6]), sorted(found[6:])) == (["test_b"], KRAFT, ZOOKEEPER)


@pytest.mark.ci
def test_a_mode_can_be_left_out_by_its_mark(tmp_path: Path) -> None:
    assert sorted(collected(tmp_path, "-m", "zookeeper", "--strict-markers")) == ZOOKEEPER


def test_a_damaged_cluster_is_restored(sandbox: Sandbox) -> None:
    sandbox.kill(2)
    sandbox.pause(4)
    sandbox.pause_service()
    assert (sandbox.dead, sandbox.paused) == (frozenset({2}), frozenset({4}))
    sandbox.restore()
    assert (sandbox.dead, sandbox.paused) == (frozenset(), frozenset())
    brokers = retry_on_admin(sandbox.bootstrap, lambda client: client.describe_cluster()["brokers"])
    assert sorted(broker["broker_id"] for broker in brokers if not broker.get("is_fenced")) == [1, 2, 3, 4]


def test_a_topic_is_deleted_with_what_is_in_flight_for_it(sandbox: Sandbox, topic: str) -> None:
    sandbox.create_topics(topic, assignments={0: [1, 2]}, configs={"follower.replication.throttled.replicas": "*"})
    sandbox.fill(topic, 20_000_000)
    # With ZooKeeper, a broker may learn of the topic's list so late that the first move is over at once.
    targets = itertools.cycle([[1, 3], [1, 4]])
    try:
        slow_down(sandbox, 3, 4)
        eventually(lambda: _in_flight(sandbox, TopicPartition(topic, 0), next(targets)))
        sandbox.delete_topics(topic)
        eventually(lambda: _gone(sandbox, topic))
    finally:
        with KafkaCluster({"bootstrap_servers": sandbox.bootstrap}) as cluster:
            cluster.change_broker_configs(
                {broker: [ConfigChange(ThrottleSide.FOLLOWER.rate_key, ConfigOp.DELETE)] for broker in (3, 4)}
            )


def slow_down(sandbox: Sandbox, *brokers: int) -> None:
    with KafkaCluster({"bootstrap_servers": sandbox.bootstrap}) as cluster:
        set_rates(cluster, ThrottleSide.FOLLOWER, dict.fromkeys(brokers, 1000))
        # With ZooKeeper a broker says yes before it has heard.
        for broker in brokers:
            eventually(partial(_shows, cluster, broker, 1000))


def _in_flight(sandbox: Sandbox, partition: TopicPartition, target: list[int]) -> None:
    retry_on_admin(sandbox.bootstrap, lambda client: client.alter_partition_reassignments({partition: target}))
    assert partition in retry_on_admin(sandbox.bootstrap, lambda client: client.list_partition_reassignments())


def _shows(cluster: KafkaCluster, broker: int, rate: int) -> None:
    assert rates(cluster, ThrottleSide.FOLLOWER, [broker]) == {broker: rate}


def _gone(sandbox: Sandbox, topic: str) -> None:
    assert topic not in retry_on_admin(sandbox.bootstrap, lambda client: client.list_topics())
