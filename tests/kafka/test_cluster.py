"""KafkaCluster on real brokers, beyond what every cluster must do (see `cluster_contract`)."""

from __future__ import annotations

import base64
import json
import logging
import re
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.cluster import client
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.cluster.configs import ConfigChange, ConfigOp
from kafka_steward.cluster.connection import client_config
from kafka_steward.errors import AuthenticationFailed, ClusterUnreachable, SettingError, WrongCluster
from kafka_steward.execution.plans.snapshot import take_snapshot
from kafka_steward.journal.store import Journal
from kafka_steward.planning.spark.job import parse_command_line, write_reassignments
from kafka_steward.sandbox import Sandbox
from tests.eventually import eventually
from tests.kafka.cluster_contract import same
from tests.local_plan import plan_folder
from tests.present import present
from tests.sasl_broker import PASSWORD, bearer, guarded

__all__ = ["bearer", "guarded"]

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


def test_log_dirs_have_sizes_and_space_of_each_live_broker(sandbox: Sandbox, cluster: KafkaCluster, topic: str) -> None:
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


REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
BEFORE = {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2), 3: (1, 3, 2)}


@pytest.mark.in_ci("kraft")
def test_plan_json_is_carried_out_by_kafkas_own_tool_and_plan_rollback_json_takes_it_back(
    sandbox: Sandbox, cluster: KafkaCluster, journal: Journal, topic: str, tmp_path: Path
) -> None:
    sandbox.create_topics(topic, assignments=BEFORE)
    take_snapshot(cluster, f"{tmp_path}/snapshot", failed=(), now_ms=journal.now_ms())
    this = {"include": [re.escape(topic)]}
    plan = plan_folder(f"{tmp_path}/snapshot", f"{tmp_path}/plan", "rebalance", this)
    assert plan.moves
    folders = ["--snapshot", f"{tmp_path}/snapshot", "--out", f"{tmp_path}/plan"]
    write_reassignments(parse_command_line([*folders, "--operation", "rebalance", "--json", f"{tmp_path}/plan.json"]))

    asked = carried_out(sandbox, tmp_path / "plan.json")
    assert asked == {move.topic_partition: move.after for move in plan.moves}
    before = {TopicPartition(topic, number): replicas for number, replicas in BEFORE.items()}
    assert replicas(cluster, topic) == before | asked

    asked = carried_out(sandbox, tmp_path / "plan.rollback.json")
    assert asked == {move.topic_partition: move.before for move in plan.moves}
    assert replicas(cluster, topic) == before


def carried_out(sandbox: Sandbox, file: Path) -> dict[TopicPartition, Assignment]:
    """Execute a file to the end; return what it asks for."""
    given = ("--bootstrap-server", sandbox.bootstrap, "--reassignment-json-file", str(file))
    asked = {
        TopicPartition(one["topic"], one["partition"]): tuple(one["replicas"])
        for one in json.loads(file.read_text())["partitions"]
    }
    assert "Successfully started partition reassignment" in sandbox.kafka_tool(REASSIGN, *given, "--execute")

    def all_complete() -> None:
        told = sandbox.kafka_tool(REASSIGN, *given, "--verify")
        assert {str(name) for name in asked} == set(re.findall(r"Reassignment of partition (\S+) is completed", told))

    eventually(all_complete, within=60)
    return asked


def replicas(cluster: KafkaCluster, topic: str) -> dict[TopicPartition, Assignment]:
    return {name: each.replicas for name, each in cluster.snapshot([topic]).partitions.items()}


def credentials(address: str, password: str, **changes: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": address,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "steward",
        "sasl_plain_password": password,
        **changes,
    }


def io_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("kafka-io")]


@pytest.mark.kraft
def test_the_right_password_opens(guarded: str) -> None:
    with KafkaCluster(credentials(guarded, PASSWORD)) as cluster:
        assert set(cluster.live_brokers()) == {1}
        assert cluster.snapshot().live == {1}
        assert PASSWORD not in repr(cluster)


@pytest.mark.kraft
def test_a_wrong_password_is_known_at_once(guarded: str) -> None:
    before, began = io_threads(), time.monotonic()
    with pytest.raises(
        AuthenticationFailed, match=f"at {guarded}: Kafka says .*Invalid username or password"
    ) as raised:
        KafkaCluster(credentials(guarded, "guess"))
    assert time.monotonic() - began < 6  # of 8 s that it would try
    assert "guess" not in str(raised.value)
    assert io_threads() == before


@pytest.mark.kraft
def test_a_mechanism_that_the_server_does_not_have_is_known_at_once(guarded: str) -> None:
    began = time.monotonic()
    with pytest.raises(AuthenticationFailed, match="check the user name, the password and the mechanism"):
        KafkaCluster(credentials(guarded, PASSWORD, sasl_mechanism="SCRAM-SHA-512"))
    assert time.monotonic() - began < 6  # of 8 s that it would try


@pytest.mark.kraft
def test_a_password_that_is_refused_by_one_of_several_servers_is_not_masked_by_dead_ones(guarded: str) -> None:
    with pytest.raises(AuthenticationFailed):
        KafkaCluster(credentials(f"127.0.0.1:1,{guarded}", "guess"))


@pytest.mark.kraft
def test_no_password_where_one_is_needed_is_unreachable_with_advice(guarded: str) -> None:
    with pytest.raises(ClusterUnreachable, match="security protocol"):
        KafkaCluster({"bootstrap_servers": guarded, "bootstrap_timeout_ms": 1500})


@pytest.mark.kraft
def test_a_password_is_not_logged_even_at_debug(guarded: str, caplog: pytest.LogCaptureFixture) -> None:
    loggers = ["kafka", "kafka.admin.client", "kafka.net.connection", "kafka.protocol.parser"]
    levels = {name: logging.getLogger(name).level for name in loggers}
    try:
        for name in loggers:
            logging.getLogger(name).setLevel(logging.DEBUG)
        with KafkaCluster(credentials(guarded, PASSWORD)) as cluster:
            cluster.live_brokers()
        assert "kafka" in {record.name.partition(".")[0] for record in caplog.records}
        assert PASSWORD not in caplog.text
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


def unsigned_token(_config: str | None) -> tuple[str, float]:
    """A token of the user steward that nobody signed, and when it expires: for a connection's `oauth_cb`."""
    expires = time.time() + 600
    parts = ({"alg": "none"}, {"sub": "steward", "iat": time.time() - 1, "exp": expires})
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return f"{'.'.join(encoded)}.", expires


@pytest.fixture
def token_module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("company_tokens")
    monkeypatch.setitem(sys.modules, "company_tokens", module)
    return module


@pytest.mark.kraft
@pytest.mark.ci
def test_a_token_opens(bearer: str, token_module: ModuleType, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    given: list[str] = []

    def token(config: str | None) -> tuple[str, float]:
        given.append(unsigned_token(config)[0])
        return given[-1], time.time() + 600

    token_module.__dict__["token"] = token
    extra = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "oauthbearer", "oauth_cb": "company_tokens.token"}
    with KafkaCluster({"bootstrap_servers": bearer, **client_config(extra)}) as cluster:
        assert set(cluster.live_brokers()) == {1}
        assert cluster.snapshot().live == {1}
    assert len(given) == 1  # it was kept for the second connection
    assert given[0] not in caplog.text


@pytest.mark.kraft
def test_a_token_that_is_refused_is_known_at_once(bearer: str, token_module: ModuleType) -> None:
    token_module.__dict__["token"] = lambda: "forged"
    config = {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": "company_tokens.token"}
    began = time.monotonic()
    with pytest.raises(AuthenticationFailed, match=f"Authentication failed at {bearer}") as refused:
        KafkaCluster({"bootstrap_servers": bearer, "security_protocol": "SASL_PLAINTEXT", **config})
    assert time.monotonic() - began < 6  # of 8 s that it would try
    assert "forged" not in str(refused.value)


@pytest.mark.process
def test_servers_that_are_down_are_named_within_ten_seconds_and_no_thread_stays(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before, began = io_threads(), time.monotonic()
    with pytest.raises(ClusterUnreachable, match=r"No Kafka server at 127\.0\.0\.1:1, localhost:2 answered within 8 s"):
        KafkaCluster({"bootstrap_servers": "127.0.0.1:1,localhost:2"})
    assert time.monotonic() - began < 10
    assert io_threads() == before
    assert not caplog.records


@pytest.mark.process
def test_a_server_that_hangs_does_not_keep_us_longer_than_one_that_is_down() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        no_answer = (
            f"No Kafka server at {address} answered within 1 s .* set the security protocol to that of the listener"
        )
        with pytest.raises(ClusterUnreachable, match=no_answer):
            KafkaCluster({"bootstrap_servers": address, "bootstrap_timeout_ms": 1000})


@pytest.mark.process
def test_a_server_of_the_web_and_a_name_that_nobody_knows_are_no_kafka() -> None:
    brief = {"bootstrap_timeout_ms": 1000}
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as web:
        threading.Thread(target=web.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{web.server_port}"
        for protocol, advice in (
            ("PLAINTEXT", r"to that of the listener \(SASL_PLAINTEXT, SSL or SASL_SSL\), or correct the port"),
            ("SSL", "accept TLS as Kafka"),
        ):
            with pytest.raises(ClusterUnreachable, match=f"No Kafka server at {address} .*{advice}"):
                KafkaCluster({"bootstrap_servers": address, "security_protocol": protocol, **brief})
        web.shutdown()
    with pytest.raises(
        ClusterUnreachable, match=r"DNS Resolution failure\); correct the name in the bootstrap servers"
    ):
        KafkaCluster({"bootstrap_servers": "kafka-1.invalid:9092", **brief})


def test_a_setting_that_kafka_does_not_know_is_named() -> None:
    with pytest.raises(SettingError, match="bootstrap_server is unknown"):
        KafkaCluster({"bootstrap_server": "127.0.0.1:1"})


def test_a_cluster_with_another_id_is_refused_and_the_connection_closed(sandbox: Sandbox) -> None:
    before = io_threads()
    with pytest.raises(WrongCluster, match=r"answers as cluster \S+, but another was expected"):
        KafkaCluster({"bootstrap_servers": sandbox.bootstrap}, expected_cluster_id="another")
    assert io_threads() == before


def test_a_connection_that_suddenly_answers_as_another_cluster_is_refused(sandbox: Sandbox) -> None:
    with KafkaCluster({"bootstrap_servers": sandbox.bootstrap}) as cluster:
        cluster._transport.cluster_id = "another"
        for look in (cluster.snapshot, cluster.live_brokers, lambda: cluster.live_views([1])):
            with pytest.raises(WrongCluster):
                look()


def test_a_closed_cluster_says_so_and_leaves_no_thread(sandbox: Sandbox) -> None:
    before = io_threads()
    with KafkaCluster({"bootstrap_servers": sandbox.bootstrap}) as cluster:
        assert len(io_threads()) == len(before) + 1
    assert io_threads() == before
    with pytest.raises(ClusterUnreachable, match="was closed"):
        cluster.live_brokers()
