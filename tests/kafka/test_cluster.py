"""KafkaCluster on real brokers, beyond what every cluster must do (see `cluster_contract`)."""

from __future__ import annotations

import re
import time
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster import client
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.cluster.configs import ConfigChange, ConfigOp
from kafka_steward.sandbox import Sandbox
from tests.eventually import eventually
from tests.present import present

DESCRIBE_TOPICS = "org.apache.kafka.tools.TopicCommand"
#: Kafka's words for what it refuses, by mode.
REFUSALS = {
    "kraft": {
        (1, 1): (39, r"includes the broker 1 more than once"),
        (): (39, r"includes an empty replica list"),
        (77, 1): (39, r"includes broker 77, but no such broker is registered"),
        (1, -1): (39, r"includes broker -1, but no such broker is registered"),
    },
    "zookeeper": {
        (1, 1): (39, r"Duplicate replica ids in partition reassignment replica list"),
        (): (39, r"Empty replica list specified in partition reassignment"),
        (77, 1): (39, r"brokers that are not alive\. Replica list: .*77.*, live broker list"),
        (1, -1): (39, r"Invalid broker id in replica list"),
    },
}
UNKNOWN_PARTITION = {"kraft": r"Unable to find partition .*:99", "zookeeper": r"The partition does not exist"}


def test_a_snapshot_shows_what_kafkas_own_tool_shows(sandbox: Sandbox, cluster: KafkaCluster, topic: str) -> None:
    sandbox.create_topics(topic, assignments={0: [2, 1, 3], 1: [4, 3, 2]})
    snapshot = cluster.snapshot([topic])
    printed = sandbox.kafka_tool(
        DESCRIBE_TOPICS, "--bootstrap-server", sandbox.bootstrap, "--describe", "--topic", topic
    )
    (topic_id,) = re.findall(r"TopicId:\s*(\S+)", printed)
    replicas = re.findall(r"Partition:\s*(\d+)\s+Leader:\s*(\d+)\s+Replicas:\s*([\d,]+)", printed)
    assert {(p.partition, p.leader, p.replicas) for p in snapshot.partitions.values()} == {
        (int(number), int(leader), tuple(map(int, ids.split(",")))) for number, leader, ids in replicas
    }
    assert {p.topic_id for p in snapshot.partitions.values()} == {topic_id}
    assert {p.isr for p in snapshot.partitions.values()} == {frozenset({1, 2, 3}), frozenset({2, 3, 4})}
    assert snapshot.cluster_id == cluster.cluster_id
    assert not snapshot.reassigning


def test_a_snapshot_shows_every_broker_with_its_rack_and_address(sandbox: Sandbox, cluster: KafkaCluster) -> None:
    brokers = cluster.live_brokers()
    assert {(b.id, b.rack, b.host, b.port) for b in brokers.values()} == {
        (b.id, b.rack, "127.0.0.1", b.port) for b in sandbox.brokers.values()
    }
    assert cluster.snapshot().live == set(sandbox.brokers)
    assert cluster.zookeeper_mode == (sandbox.mode == "zookeeper")


def test_a_changed_setting_of_a_topic_is_shown_whichever_broker_is_asked(
    sandbox: Sandbox, cluster: KafkaCluster, topic: str
) -> None:
    sandbox.create_topics(topic, partitions=1)
    for number in range(1, 6):
        change = ConfigChange("follower.replication.throttled.replicas", ConfigOp.SET, f"0:{number}")
        assert cluster.change_topic_configs({topic: [change]}) == {topic: None}
        assert cluster.topic_configs([topic], [change.name], own_only=True) == {topic: {change.name: change.value}}
    gone = ConfigChange(change.name, ConfigOp.DELETE)
    assert cluster.change_topic_configs({topic: [gone]}) == {topic: None}
    assert cluster.topic_configs([topic], [change.name], own_only=True) == {topic: {}}


def test_topics_that_do_not_exist_are_left_out(cluster: KafkaCluster, topic: str) -> None:
    assert cluster.snapshot([topic]).partitions == {}
    assert cluster.topic_configs([topic], ["min.insync.replicas"]) == {}


def test_kafkas_own_words_are_kept_for_each_refused_partition(
    sandbox: Sandbox, cluster: KafkaCluster, topic: str
) -> None:
    sandbox.create_topics(topic, assignments={number: [1, 2] for number in range(5)})
    wanted = dict(zip((TopicPartition(topic, number) for number in range(4)), REFUSALS[sandbox.mode], strict=True))
    good = TopicPartition(topic, 4)
    results = cluster.alter({**wanted, good: (2, 1), TopicPartition(topic, 99): (1, 2)})
    for name, target in wanted.items():
        code, words = REFUSALS[sandbox.mode][target]
        refused = present(results[name])
        assert (refused.code, str(name) in str(refused)) == (code, True)
        assert re.search(words, refused.message)
    unknown = present(results[TopicPartition(topic, 99)])
    assert unknown.code == 3
    assert re.search(UNKNOWN_PARTITION[sandbox.mode], unknown.message)
    assert results[good] is None


def test_what_is_in_flight_is_not_listed_again_at_once(
    sandbox: Sandbox, cluster: KafkaCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox.create_topics(topic, assignments={0: [1, 2]})
    cluster.snapshot([topic])
    transport, sent, clock = cluster._transport, [0], [1_000_000.0]
    send = transport.send_to_controller

    def count(*given: Any, **named: Any) -> Any:
        sent[0] += 1
        return send(*given, **named)

    stub = SimpleNamespace(monotonic=lambda: clock[0], time_ns=time.time_ns, sleep=time.sleep)
    monkeypatch.setattr(transport, "send_to_controller", count)
    monkeypatch.setattr(client, "time", stub)

    def lists_of_a_snapshot() -> int:
        sent[0] = 0
        cluster.snapshot([topic])
        return sent[0]

    assert lists_of_a_snapshot() == 2
    cluster.reassignments()
    assert lists_of_a_snapshot() == 1
    clock[0] += 0.02
    assert lists_of_a_snapshot() == 2
    cluster.alter({TopicPartition(topic, 0): (2, 1)})
    assert lists_of_a_snapshot() == 2


@pytest.mark.in_ci("kraft")
@pytest.mark.parametrize(("later_s", "waited_s"), [(0.0, 0.5), (0.4, 0.1), (0.6, 0.0)])
def test_the_first_snapshot_waits_until_half_a_second_after_the_first_list(
    sandbox: Sandbox, topic: str, monkeypatch: pytest.MonkeyPatch, later_s: float, waited_s: float
) -> None:
    clock, slept = [1_000_000.0], [0.0]

    def sleep(seconds: float) -> None:
        slept[0] += seconds
        clock[0] += seconds

    monkeypatch.setattr(client, "time", SimpleNamespace(monotonic=lambda: clock[0], time_ns=time.time_ns, sleep=sleep))
    with KafkaCluster({"bootstrap_servers": sandbox.bootstrap.split(",")}) as cluster:
        cluster.reassignments()
        clock[0] += later_s
        cluster.snapshot([topic])
        assert slept[0] == pytest.approx(waited_s)
        cluster.snapshot([topic])
        assert slept[0] == pytest.approx(waited_s)


def test_brokers_with_zookeeper_get_half_a_second_to_read_changed_lists_once_for_all_requests(
    sandbox: Sandbox, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, slept = [1_000_000.0], [0.0]

    def sleep(seconds: float) -> None:
        slept[0] += seconds
        clock[0] += seconds

    sandbox.create_topics(topic, assignments={number: [1, 2] for number in range(120)})
    listed = ConfigChange("follower.replication.throttled.replicas", ConfigOp.SET, "0:1")
    with KafkaCluster({"bootstrap_servers": sandbox.bootstrap.split(",")}) as cluster:
        monkeypatch.setattr(
            client, "time", SimpleNamespace(monotonic=lambda: clock[0], time_ns=time.time_ns, sleep=sleep)
        )
        assert cluster.change_topic_configs({topic: [listed]}) == {topic: None}
        for targets in ((2, 1), (1, 2)):
            # Three requests to Kafka, of up to 50 partitions.
            answers = cluster.alter({TopicPartition(topic, number): targets for number in range(120)})
            assert set(answers.values()) == {None}
            assert slept[0] == pytest.approx(0.5 if sandbox.mode == "zookeeper" else 0.0)


@pytest.mark.in_ci("kraft")
def test_more_partitions_than_fit_in_one_request_are_all_answered(
    sandbox: Sandbox, cluster: KafkaCluster, topic: str
) -> None:
    count = 120
    sandbox.create_topics(topic, partitions=count, replication_factor=2)
    before = cluster.snapshot([topic]).partitions
    targets = {name: partition.replicas[::-1] for name, partition in before.items()}
    assert cluster.alter(targets) == dict.fromkeys(targets)
    eventually(lambda: same({n: p.replicas for n, p in cluster.snapshot([topic]).partitions.items()}, targets))
    assert cluster.elect_leaders(list(targets)) == dict.fromkeys(targets)


@pytest.mark.ci
def test_a_move_is_never_shown_half_way_without_being_in_flight(
    sandbox: Sandbox, cluster: KafkaCluster, topic: str
) -> None:
    """Brokers hear of a move's end up to 240 ms after the controller: most of these would be shown wrong."""
    name, replicas = TopicPartition(topic, 0), (1, 2, 3)
    sandbox.create_topics(topic, assignments={0: replicas})
    sandbox.fill(topic, 100_000)
    for _ in range(20):
        (spare,) = {1, 2, 3, 4} - set(replicas)
        replicas = (*replicas[1:], spare)
        assert cluster.alter({name: replicas}) == {name: None}
        assert eventually(lambda: unmoving(cluster, name), every=0.0) == replicas


@pytest.mark.in_ci("kraft")
def test_another_client_does_not_see_half_a_move_either(sandbox: Sandbox, cluster: KafkaCluster, topic: str) -> None:
    name, replicas = TopicPartition(topic, 0), (1, 2, 3)
    sandbox.create_topics(topic, assignments={0: replicas})
    for _ in range(5):
        (spare,) = {1, 2, 3, 4} - set(replicas)
        replicas = (*replicas[1:], spare)
        assert cluster.alter({name: replicas}) == {name: None}
        eventually(lambda: same(cluster.reassignments(), {}), every=0.0)
        with KafkaCluster({"bootstrap_servers": sandbox.bootstrap}) as another:
            assert unmoving(another, name) == replicas


def test_log_dirs_tell_sizes_and_space_of_each_live_broker(sandbox: Sandbox, cluster: KafkaCluster, topic: str) -> None:
    sandbox.create_topics(topic, assignments={0: [1, 2]})
    sent = sandbox.fill(topic, 1_000_000)
    dirs = cluster.log_dirs([1, 2, 3])
    name = TopicPartition(topic, 0)
    assert dirs[1].replica_bytes[name] == dirs[2].replica_bytes[name] >= sent
    assert name not in dirs[3].replica_bytes
    for directory in dirs.values():
        assert directory.total_bytes is not None
        assert 0 < (directory.usable_bytes or 0) <= directory.total_bytes


def unmoving(cluster: KafkaCluster, name: TopicPartition) -> tuple[int, ...]:
    partition = cluster.snapshot([name.topic]).partitions[name]
    assert not partition.reassigning
    return partition.replicas


def same(found: object, expected: object) -> None:
    assert found == expected
