"""Real clusters in both modes: ready means ready, and each kind of damage can be done and repaired."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient
from kafka.errors import KafkaTimeoutError
from kazoo.client import KazooClient

from kafka_steward.errors import SandboxFailed
from kafka_steward.sandbox import Sandbox
from kafka_steward.sandbox.client import admin_client, retry_on_admin
from kafka_steward.sandbox.jvm import class_archive
from tests.eventually import eventually
from tests.sandbox.processes import descendants, listening


def listed(sandbox: Sandbox) -> dict[int, dict[str, Any]]:
    brokers = retry_on_admin(sandbox.bootstrap, lambda client: client.describe_cluster()["brokers"])
    return {broker["broker_id"]: broker for broker in brokers}


def live(sandbox: Sandbox) -> set[int]:
    return {broker for broker, seen in listed(sandbox).items() if not seen.get("is_fenced")}


def test_ready_means_that_every_broker_is_live_where_it_was_said_to_be(sandbox: Sandbox) -> None:
    assert {id_: (seen["rack"], seen["host"], seen["port"]) for id_, seen in listed(sandbox).items()} == {
        broker.id: (broker.rack, "127.0.0.1", broker.port) for broker in sandbox.brokers.values()
    }
    assert [broker.rack for broker in sandbox.brokers.values()] == ["a", "b", "c", "a"]
    assert (sandbox.zookeeper is None) == (sandbox.mode == "kraft")


def test_a_created_topic_has_its_logs_and_a_filled_one_its_bytes(sandbox: Sandbox, topic: str) -> None:
    sandbox.create_topics(topic, partitions=8, replication_factor=3)
    sent = sandbox.fill(topic, 10_000_000)
    assert 9_900_000 <= sent <= 11_000_000
    with admin_client(sandbox.bootstrap) as client:
        answers = client.describe_log_dirs({topic: list(range(8))}, list(sandbox.brokers))
    sizes = [
        partition["partition_size"]
        for answer in answers
        for log_dir in answer["log_dirs"]
        for found in log_dir["topics"]
        for partition in found["partitions"]
    ]
    assert len(sizes) == 8 * 3
    assert sum(sizes) >= 3 * sent
    assert max(sizes) == min(sizes)


@pytest.mark.in_ci("zookeeper")
def test_a_killed_broker_is_gone_and_a_restarted_one_is_back_at_its_place(sandbox: Sandbox, topic: str) -> None:
    sandbox.create_topics(topic, assignments={0: [2, 3, 4]})
    before = sandbox.brokers[2]
    sandbox.kill(2)
    assert not Path(f"/proc/{before.pid}").exists()
    assert sandbox.dead == {2}
    eventually(lambda: _same(live(sandbox), {1, 3, 4}))
    sandbox.fill(topic, 1_000_000)
    sandbox.restart(2)
    after = sandbox.brokers[2]
    assert (after.port, after.rack) == (before.port, before.rack)
    assert after.pid != before.pid
    assert live(sandbox) == {1, 2, 3, 4}
    sandbox.wait_replicated([topic])


@pytest.mark.in_ci("zookeeper")
def test_a_live_broker_is_restarted_with_a_controlled_shutdown(sandbox: Sandbox, topic: str) -> None:
    sandbox.create_topics(topic, assignments={0: [3, 1, 2]})
    sandbox.restart(3)
    assert "controlled shutdown" in (sandbox.folder / "broker-3.log").read_text().lower()


@pytest.mark.in_ci("kraft")
def test_a_paused_broker_keeps_its_process_and_loses_its_place_until_it_is_resumed(sandbox: Sandbox) -> None:
    pid = sandbox.brokers[1].pid
    sandbox.pause(1)
    eventually(lambda: _same(_seen_by(sandbox, 2), {2, 3, 4}))
    sandbox.resume(1)
    sandbox.wait_ready()
    assert sandbox.brokers[1].pid == pid
    assert live(sandbox) == {1, 2, 3, 4}


def test_it_listens_on_the_loopback_address_only(sandbox: Sandbox) -> None:
    found = listening(descendants(os.getpid()))
    assert {port for _, port in found} > {broker.port for broker in sandbox.brokers.values()}
    assert {host for host, _ in found} == {"127.0.0.1"}


@pytest.mark.in_ci("kraft")
def test_a_broker_restarted_at_once_from_a_thread_outlives_the_thread(sandbox: Sandbox) -> None:
    sandbox.kill(3)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(sandbox.restart, 3).result(timeout=120)
    sandbox.wait_ready()
    assert sandbox.dead == frozenset()


def test_a_broker_that_does_not_exist_is_one_sentence(sandbox: Sandbox) -> None:
    with pytest.raises(SandboxFailed, match=r"^There is no broker 9 in this sandbox; there are 1, 2, 3, 4\.$"):
        sandbox.kill(9)


def test_what_kafka_refuses_is_said_in_its_words(sandbox: Sandbox, topic: str) -> None:
    with pytest.raises(SandboxFailed, match=f"Kafka did not create {topic}: .*eplication"):
        sandbox.create_topics(topic, replication_factor=7)


def test_topics_that_a_request_creates_after_its_time_out_are_no_error_and_existing_ones_are(
    sandbox: Sandbox, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = KafkaAdminClient.create_topics

    def time_out(self: Any, *args: Any, **kwargs: Any) -> Any:
        create(self, *args, **kwargs)
        monkeypatch.undo()
        raise KafkaTimeoutError

    monkeypatch.setattr(KafkaAdminClient, "create_topics", time_out)
    sandbox.create_topics(topic)
    with pytest.raises(SandboxFailed, match=f"Kafka did not create {topic}: .*already exists"):
        sandbox.create_topics(topic)


def test_a_tool_that_fails_says_why(sandbox: Sandbox) -> None:
    with pytest.raises(SandboxFailed, match=r"TopicCommand ended with code 1: .*bootstrap-server"):
        sandbox.kafka_tool("org.apache.kafka.tools.TopicCommand", "--list")


def test_all_features_are_finalized(kraft_sandbox: Sandbox) -> None:
    features = retry_on_admin(kraft_sandbox.bootstrap, lambda client: client.describe_features())
    assert features["transaction.version"]["finalized"] == (2, 2)
    assert features["eligible.leader.replicas.version"]["finalized"] == (1, 1)


def test_zookeeper_lists_the_brokers(zookeeper_sandbox: Sandbox) -> None:
    client = KazooClient(hosts=zookeeper_sandbox.zookeeper)
    client.start(timeout=90)
    try:
        assert sorted(client.get_children("/brokers/ids")) == ["1", "2", "3", "4"]
    finally:
        client.stop()
        client.close()


def test_kafkas_own_tools_run_on_it(sandbox: Sandbox, topic: str) -> None:
    sandbox.create_topics(topic, partitions=2)
    printed = sandbox.kafka_tool(
        "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", sandbox.bootstrap, "--describe", "--topic", topic
    )
    assert printed.count("Leader: ") == 2


def _same(found: set[int], expected: set[int]) -> None:
    assert found == expected


def _seen_by(sandbox: Sandbox, broker: int) -> set[int]:
    # A client of several brokers may ask the paused one, which accepts connections and never answers.
    with admin_client(f"127.0.0.1:{sandbox.brokers[broker].port}") as client:
        return {seen.node_id for seen in client._manager.cluster.brokers()}


def test_every_broker_maps_the_same_archive(sandbox: Sandbox) -> None:
    maps = [Path(f"/proc/{broker.pid}/maps").read_text().splitlines() for broker in sandbox.brokers.values()]
    archives = [{line.split()[-1] for line in lines if line.endswith(".jsa") and "classes-" in line} for lines in maps]
    assert len(archives[0]) == 1
    assert archives == [archives[0]] * 4


@pytest.mark.process
def test_a_java_that_can_record_none_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_STEWARD_CACHE", str(tmp_path / "cache"))
    java, asked = tmp_path / "java", tmp_path / "asked"
    java.write_text(f"#!/bin/sh\necho once >> {asked}\nexit 1\n")
    java.chmod(0o755)
    assert [class_archive(java, []) for _ in range(2)] == [None, None]
    assert asked.read_text() == "once\n"
