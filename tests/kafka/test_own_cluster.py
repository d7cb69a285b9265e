"""What needs a cluster of one's own: ways of connecting that fail or last, and log directories.

A directory that fails is named and healed, and cordoned ones get nothing (KIP-1066). The tests share one cluster in
each mode; the last one leaves it with a directory that has failed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.cli import Exit
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.cluster.configs import ConfigChange, ConfigOp
from kafka_steward.errors import ClusterError
from kafka_steward.execution.plans.publishing import publish_plan
from kafka_steward.execution.plans.runner import PlanRunner
from kafka_steward.execution.plans.snapshot import take_snapshot
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.throttles.rates import ThrottleSide
from kafka_steward.execution.watch.failure_detector import FailureDetector
from kafka_steward.execution.watch.health import check_health
from kafka_steward.journal.store import open_journal
from kafka_steward.planning.files.formats import cordoned_brokers, read_snapshot
from kafka_steward.sandbox import Sandbox
from kafka_steward.settings import Settings
from tests.airflow_home import Connect, connect
from tests.cli.airflow_command import assignments, written
from tests.cli.calling import run
from tests.eventually import eventually
from tests.local_plan import plan_folder
from tests.relay import DESCRIBE_LOG_DIRS, Relay, relayed
from tests.secured import LOGIN, PASSWORD, PLAIN_LOGIN, PLAIN_USER, UNRESOLVED, Secured, rights_of, secured
from tests.simulated_plan import WHO
from tests.stepping import to_the_end
from tests.throttles import rates

__all__ = ["connect", "secured"]

pytestmark = pytest.mark.ci

HEALING = Settings(heal_failure_interval=0, heal_failed_disks=True, min_free=0)
Verb = Callable[..., str]


@pytest.fixture
def verb(connect: Connect, capsys: pytest.CaptureFixture[str]) -> Verb:
    """Calls a verb with a connection of these settings; gives what it prints, on both streams."""

    def call(*words: str, host: str, extra: dict[str, Any], code: Exit = Exit.DONE) -> str:
        conn_id = connect(host=host, extra={"bootstrap_timeout_ms": 5_000, "step_interval": 0.3, **extra})
        capsys.readouterr()
        ended = run(*words, "--cluster", conn_id)
        printed = "".join(capsys.readouterr())
        assert ended == code, printed
        return printed

    return call


# how it is connected to


def test_what_kafkas_own_clients_take_for_their_security_is_a_connection(secured: Secured, verb: Verb) -> None:
    """With certificates as text, a user by sasl.jaas.config, and names that need not be those of the certificates."""
    scram = secured.principal(*rights_of("look"))
    for name in (PLAIN_USER, "CN=steward"):
        secured.allow(name, *rights_of("look"))
    authority, own = secured.authority.certificate.read_text(), secured.authority.client("steward").read_text()
    at = own.index("-----BEGIN CERT")
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority}
    any_name = {**trust, "ssl.endpoint.identification.algorithm": ""}

    def login(module: str, user: str, password: str = PASSWORD) -> dict[str, str]:
        text = f'{module} required username="{user}" password="{password}";'
        return {"security.protocol": "SASL_SSL", "sasl.jaas.config": text}

    plain = {**login(PLAIN_LOGIN, PLAIN_USER), "sasl.mechanism": "PLAIN"}
    certified = {
        "security.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": own[at:],
        "ssl.keystore.key": own[:at],
    }
    by_name, mutual = (several[0].replace("127.0.0.1", "localhost") for several in (secured.addresses, secured.mutual))
    for host, extra in (
        (by_name, {**any_name, **plain}),
        (by_name, {**any_name, **login(LOGIN, scram), "sasl.mechanism": "SCRAM-SHA-512"}),
        (mutual, {**any_name, **certified}),
    ):
        assert "live brokers" in verb("status", host=host, extra=extra)
    refused = verb("status", host=by_name, extra={**trust, **plain}, code=Exit.FAILED)
    assert "certificate" in refused, "without the empty algorithm, the name has to be the certificate's"
    wrong = {**any_name, **plain, **login(PLAIN_LOGIN, PLAIN_USER, "s3cret")}
    refused = verb("status", host=by_name, extra=wrong, code=Exit.FAILED)
    assert "Authentication failed" in refused
    assert "s3cret" not in refused


def test_a_port_with_tls_and_one_without_are_told_from_each_other(secured: Secured, verb: Verb) -> None:
    said = verb("status", host=secured.addresses[0], extra={}, code=Exit.FAILED)
    assert "set the security protocol to that of the listener (SASL_PLAINTEXT, SSL or SASL_SSL), or correct" in said
    plain = secured.sandbox.bootstrap.split(",")[0]
    said = verb("status", host=plain, extra={"security.protocol": "SSL"}, code=Exit.FAILED)
    assert "set the security protocol to PLAINTEXT or SASL_PLAINTEXT" in said


def test_brokers_whose_names_do_not_resolve_are_named_as_that_and_not_as_down(secured: Secured, verb: Verb) -> None:
    server, brief = secured.unresolved[0], {"bootstrap_timeout_ms": 1_000, "request_timeout_ms": 1_000}
    for word in ("status", "doctor"):
        printed = verb(word, host=server, extra=brief, code=Exit.FAILED)
        assert f"{server} answered, and names its brokers kafka-1.{UNRESOLVED}:9092" in printed
        assert "which this machine cannot resolve (advertised.listeners)" in printed
        assert "check that they run" not in printed


def test_describe_log_dirs_has_a_time_out_of_its_own_and_is_named_by_it(
    secured: Secured, verb: Verb, tmp_path: Path
) -> None:
    relays = [Relay(way, behind, DESCRIBE_LOG_DIRS) for way, behind in secured.ways]
    host = ",".join(f"127.0.0.1:{each.port}" for each in relays)
    secured.sandbox.create_topics("late", assignments={0: [1, 2]})
    secured.sandbox.fill("late", 300_000)
    file = written(tmp_path / "wanted.json", {"late": {0: (3, 2)}})
    patient = {"request_timeout_ms": 2_000}
    hasty = {"log_dirs_timeout_ms": 500, "min_free": 0.0001, "max_attempts": 2}
    with relayed(*relays):
        for each in relays:
            each.late_s = 2.5
        planned = verb("plan", "drain", "--brokers", "1", "--topics", "late", host=host, extra=patient)
        assert re.search(r"bytes copied +[23]\d\d\.\d kB", planned), "its answer came after request_timeout_ms"
        printed = verb("apply", file, host=host, extra=hasty, code=Exit.UNFINISHED)
        assert "broker 3 did not answer DescribeLogDirs within 0.5 s (log_dirs_timeout_ms)" in printed
        for each in relays:
            each.late_s = 0
        verb("resume", host=host, extra=hasty)
    assert assignments(secured.sandbox, "late") == {"late": {0: (3, 2)}}


# log directories


@pytest.mark.parametrize("secured", [pytest.param("kraft", marks=pytest.mark.kraft)], indirect=True)
def test_a_broker_whose_directories_are_all_cordoned_gets_nothing(secured: Secured, tmp_path: Path) -> None:
    own = secured.sandbox
    own.create_topics("c", partitions=6, assignments={number: [1, 2, 3] for number in range(6)})
    with (
        KafkaCluster({"bootstrap_servers": own.bootstrap}) as cluster,
        open_journal(f"sqlite:///{tmp_path}/journal.db", cluster.cluster_id) as journal,
    ):
        first = str(own.folder / "broker-4" / "disk-1")
        cordon(cluster, first)

        def one() -> None:
            dirs = cluster.log_dirs([4])[4]
            assert {each.path: each.cordoned for each in dirs.directories}[first]
            assert not dirs.cordoned

        eventually(one, within=30)
        cordon(cluster, "*")

        def all_of_them() -> None:
            assert cluster.directories([4])[4].cordoned

        eventually(all_of_them, within=30)
        health, _ = check_health(cluster, journal)
        assert health.cordoned == (4,)
        uri = str(tmp_path / "snapshot")
        take_snapshot(cluster, uri, failed=(), now_ms=1)
        assert cordoned_brokers(read_snapshot(uri).brokers) == [4]
        plan = plan_folder(uri, tmp_path / "plan", "rebalance")
        assert not any(4 in move.adding for move in plan.moves)
        assert plan.proof["options"]["exclude_brokers"] == [4]
        change = ConfigChange("cordoned.log.dirs", ConfigOp.DELETE)
        assert cluster.change_broker_configs({4: [change]}) == {4: None}


def cordon(cluster: KafkaCluster, directories: str) -> None:
    change = ConfigChange("cordoned.log.dirs", ConfigOp.SET, directories)
    assert cluster.change_broker_configs({4: [change]}) == {4: None}


def test_a_log_directory_that_fails_ends_a_cancel_to_it_and_is_named_and_healed(
    secured: Secured, verb: Verb, tmp_path: Path
) -> None:
    own = secured.sandbox
    own.create_topics("t", partitions=6, assignments={number: [1, 2, 3] for number in range(6)})
    own.create_topics("moving", assignments={number: [1, 2] for number in range(4)})
    own.fill("moving", 12_000_000)
    with (
        KafkaCluster({"bootstrap_servers": own.bootstrap}) as cluster,
        open_journal(f"sqlite:///{tmp_path}/journal.db", cluster.cluster_id) as journal,
    ):
        disk = str(own.folder / "broker-1" / "disk-2")
        held = next(each for each in cluster.log_dirs([1])[1].directories if each.path == disk).replica_bytes
        name = min(name for name in held if name.topic == "moving")

        def stop_in_flight(seconds: float) -> None:
            time.sleep(seconds)
            if name in cluster.reassignments():
                raise KeyboardInterrupt

        wanted = written(tmp_path / "wanted.json", {name.topic: {name.partition: (4, 2)}})
        place: dict[str, Any] = {"host": own.bootstrap, "extra": {}}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("kafka_steward.cli.foreground.sleep", stop_in_flight)
            verb("apply", wanted, "--throttle", "30k", **place, code=Exit.INTERRUPTED)
        break_disk(own, disk)
        eventually(lambda: failed(cluster, disk), within=60)

        def offline() -> set[TopicPartition]:
            names = set(cluster.snapshot().offline_on_live_brokers.get(1, ()))
            assert names == set(held)
            return names

        lost = eventually(offline, within=60, errors=(ClusterError,))
        assert f"{name}: [4, 2] back to [1, 2]" in verb("cancel", "--reason", "test", **place)
        before: Assignment = (1, 2)
        found = cluster.snapshot().partitions[name]
        assert (found.replicas, found.isr, found.reassigning) == (before, frozenset({2}), False)
        assert (journal.slot.holders(), rates(cluster, ThrottleSide.FOLLOWER, [4])) == ((), {4: None})

        health, _ = check_health(cluster, journal)
        assert (health.failed_log_dirs, health.measures["failed_log_dirs"]) == ({1: (disk,)}, 1)
        verdict = FailureDetector(cluster, journal, HEALING, WHO).poll()
        assert (verdict.due, verdict.down, verdict.disks) == ((1,), (), {1: (disk,)})

        uri = str(tmp_path / "snapshot")
        take_snapshot(cluster, uri, failed=verdict.failed, now_ms=1, failed_disks_of=verdict.failed)
        plan = plan_folder(uri, tmp_path / "plan")
        assert {move.topic_partition for move in plan.moves} == lost
        record = publish_plan(ClusterContext(cluster, journal, HEALING, WHO), plan, snapshot=read_snapshot(uri))
        progress = to_the_end(PlanRunner(ClusterContext(cluster, journal, HEALING, WHO), record.digest))
        assert progress.completed == len(lost), progress.sentence

        def whole() -> None:
            snapshot = cluster.snapshot()
            assert {1 in each.replicas for name, each in snapshot.partitions.items() if name in lost} == {False}
            assert not any(each.under_replicated for each in snapshot.partitions.values())

        eventually(whole, within=60)
        assert FailureDetector(cluster, journal, HEALING, WHO).poll().failed == ()


def break_disk(sandbox: Sandbox, disk: str) -> None:
    """Take the directory away under the broker, and let the broker write into it: it finds a file there."""
    # At once, or the broker writes a checkpoint into what is being removed.
    Path(disk).rename(f"{disk}-taken-away")
    Path(disk).write_text("a disk that has failed")
    for number in range(2):  # one of them is put there
        with KafkaCluster({"bootstrap_servers": sandbox.bootstrap}) as cluster:
            cluster.create_topic(f"probe-{number}", 2, 1, assignments=[(1,), (1,)])


def failed(cluster: KafkaCluster, disk: str) -> None:
    assert cluster.directories([1])[1].failed_paths == (disk,)
