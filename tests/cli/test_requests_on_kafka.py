"""queue, requests, signal and watch on real clusters; Kafka's tool says the same of the end."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.cli import Exit
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.cluster.configs import ConfigChange, ConfigOp
from kafka_steward.document_api.controller import DocumentController
from kafka_steward.execution.throttles.rates import ThrottleSide
from kafka_steward.hooks.session import ClusterSession
from kafka_steward.hooks.steward import StewardHook
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Actor
from kafka_steward.journal.mailbox import read_one
from kafka_steward.journal.store import Journal
from kafka_steward.planning.files.formats import read_snapshot
from kafka_steward.planning.spark.job import parse_command_line
from kafka_steward.sandbox import Sandbox
from tests.airflow_home import Connect
from tests.cli.airflow_command import assignments, begin, written
from tests.cli.calling import run
from tests.eventually import eventually
from tests.journal.zookeeper import forget_journal
from tests.protocol.simulated_watch import document

pytestmark = pytest.mark.apart

_REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
#: Kafka's quota lets 2 MB through at once: what is larger is in flight until the throttle is lifted.
LARGE = 12_000_000


@pytest.fixture
def conn_id(connect: Connect, sandbox: Sandbox) -> Iterator[str]:
    """The journal is where the KIPs put it: in the brokers' ZooKeeper, where there is one."""
    extra = {"bootstrap_timeout_ms": 10_000, "step_interval": 0.5, "throttle": 100_000}
    yield connect(host=sandbox.bootstrap, extra=extra | ({"zookeeper": sandbox.zookeeper} if sandbox.zookeeper else {}))
    if sandbox.zookeeper:
        forget_journal(sandbox.zookeeper)


@pytest.fixture
def opened(conn_id: str, sandbox: Sandbox) -> Iterator[ClusterSession]:
    with StewardHook(conn_id).open() as opened:
        yield opened
        clear = [ConfigChange(ThrottleSide.FOLLOWER.rate_key, ConfigOp.DELETE)]
        opened.cluster.change_broker_configs(dict.fromkeys(sandbox.brokers, clear))


class Verbs:
    """Calls verbs as a terminal does, and a watch's polls between them."""

    def __init__(self, opened: ClusterSession, conn_id: str, capsys: pytest.CaptureFixture[str]) -> None:
        self._opened, self._conn_id, self._capsys = opened, conn_id, capsys
        self._watch = DocumentController(
            opened.cluster,
            opened.journal,
            opened.settings,
            Actor(task_id="watch"),
            zookeeper=opened.access.zookeeper is not None,
        )

    def text(self, *words: str, code: Exit = Exit.DONE) -> str:
        self._capsys.readouterr()
        ended = run(*words, "--cluster", self._conn_id)
        out, err = self._capsys.readouterr()
        assert ended == code, (words, out, err)
        return out

    def json(self, *words: str, code: Exit = Exit.DONE) -> Any:
        return json.loads(self.text(*words, "--output", "json", code=code))

    def states(self, file: str, *, code: Exit) -> list[str]:
        return [each["state"] for each in self.json("queue", "verify", file, code=code)]

    def poll(self) -> None:
        self._watch.poll()

    def poll_to_the_end(self, sandbox: Sandbox, *, hurry: bool = False) -> None:
        fast = [ConfigChange(ThrottleSide.FOLLOWER.rate_key, ConfigOp.SET, "100000000")]

        def idle() -> None:
            if hurry:
                self._opened.cluster.change_broker_configs(dict.fromkeys(sandbox.brokers, fast))
            assert self._watch.poll().pause_s is None

        eventually(idle, within=120, every=0.5)


@pytest.fixture
def verbs(opened: ClusterSession, conn_id: str, capsys: pytest.CaptureFixture[str]) -> Verbs:
    return Verbs(opened, conn_id, capsys)


def replicas(opened: ClusterSession, topic: str, number: int) -> tuple[int, ...]:
    return opened.cluster.snapshot([topic]).partitions[TopicPartition(topic, number)].replicas


@pytest.mark.in_ci("kraft")
def test_requests_are_executed_cancelled_and_verified(
    sandbox: Sandbox, opened: ClusterSession, verbs: Verbs, topic: str, tmp_path: Path
) -> None:
    small, large = f"{topic}-small", f"{topic}-large"
    sandbox.create_topics([small, large], assignments={0: (1, 2, 3)})
    sandbox.fill(large, LARGE)
    file = written(tmp_path / "wanted.json", {small: {0: (4, 2, 3)}, large: {0: (4, 2, 3)}})
    name = verbs.json("requests", "add", file)["request"]
    (listed,) = verbs.json("requests", "list")
    assert (listed["request"], len(listed["partitions"])) == (name, 2)
    assert verbs.states(file, code=Exit.UNFINISHED) == ["waiting", "waiting"]

    def small_has_arrived() -> None:
        verbs.poll()
        assert replicas(opened, small, 0) == (4, 2, 3)

    eventually(small_has_arrived, within=60, every=0.5)
    assert verbs.json("requests", "list") == []
    assert verbs.states(file, code=Exit.UNFINISHED) == ["complete", "started"]
    assert len(verbs.json("status")["plans"]) == 1

    verbs.text("signal", "cancel", "--reason", "traffic peak")
    assert verbs.json("status")["cancel_signal"]["reason"] == "traffic peak"
    verbs.poll_to_the_end(sandbox)
    assert verbs.json("status")["cancel_signal"] is None
    assert replicas(opened, large, 0) == (1, 2, 3)
    assert verbs.states(file, code=Exit.FAILED) == ["complete", "incomplete"]
    assert "traffic peak" in verbs.text("queue", "verify", file, code=Exit.FAILED)

    verbs.text("requests", "add", file)
    verbs.poll_to_the_end(sandbox, hurry=True)
    assert verbs.json("requests", "list") == []
    assert verbs.states(file, code=Exit.DONE) == ["complete", "complete"]
    assert sorted(verbs.text("queue", "verify", file).splitlines()) == lines_of_kafkas_tool(sandbox, file)


@pytest.mark.in_ci("zookeeper")
def test_what_is_generated_is_queued_and_kafkas_tool_finds_it_complete(
    sandbox: Sandbox, opened: ClusterSession, verbs: Verbs, topic: str, tmp_path: Path
) -> None:
    sandbox.create_topics(topic, assignments={0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)})
    words = ("queue", "generate", "--topic", topic, "--brokers", "2,3,4")
    file = tmp_path / "proposed.json"
    file.write_text(verbs.text(*words, "--output", "json"))
    assert verbs.states(str(file), code=Exit.FAILED) == ["incomplete"] * 3
    verbs.text("queue", "add", str(file))
    assert verbs.json("queue", "list") == json.loads(file.read_text())
    verbs.poll_to_the_end(sandbox, hurry=True)
    assert verbs.json("queue", "list")["partitions"] == []
    assert sorted(verbs.text("queue", "verify", str(file)).splitlines()) == lines_of_kafkas_tool(sandbox, str(file))
    assert {broker for number in range(3) for broker in replicas(opened, topic, number)} == {2, 3, 4}
    assert verbs.json(*words)["partitions"] == []


def lines_of_kafkas_tool(sandbox: Sandbox, file: str) -> list[str]:
    """What Kafka's own tool says of each partition, sorted."""
    time.sleep(1)  # until all brokers know
    where = ("--bootstrap-server", sandbox.bootstrap, "--verify", "--preserve-throttles")
    printed = sandbox.kafka_tool(_REASSIGN, *where, "--reassignment-json-file", file)
    return sorted(line for line in printed.splitlines() if line.startswith("Reassignment of partition"))


@pytest.mark.ci
def test_watch_enters_a_killed_broker_and_goes_on_after_an_outage_of_every_broker(
    kraft_sandbox: Sandbox, connect: Connect, topic: str, tmp_path: Path
) -> None:
    sandbox = kraft_sandbox
    sandbox.create_topics(topic, assignments={0: (1, 2, 3)})
    conn_id = connect(host=sandbox.bootstrap, extra={"bootstrap_timeout_ms": 5_000, "step_interval": 0.5})
    with (
        StewardHook(conn_id).open() as opened,
        (tmp_path / "out").open("w") as out,
        (tmp_path / "err").open("w") as err,
    ):
        watching = begin("watch", "--cluster", conn_id, to=(out, err))
        try:
            sandbox.kill(3)
            eventually(partial(failed, opened.journal, 3, there=True), within=120)
            sandbox.restart(3)
            eventually(partial(failed, opened.journal, 3, there=False), within=120)
            for broker in sandbox.brokers:
                sandbox.kill(broker)
            eventually(partial(said, tmp_path / "err", "and tries again: "), within=120)
            for broker in sandbox.brokers:
                sandbox.restart(broker)
            eventually(partial(said, tmp_path / "out", f"The watch of {conn_id} works again."), within=180)
            opened.journal.mailbox.append(paths.REQUEST_PREFIX, document([f"{topic}-0 421"]))
            eventually(lambda: moved(sandbox, topic), within=120)
            assert watching.poll() is None
            watching.send_signal(signal.SIGINT)
            assert watching.wait(60) == 130
        finally:
            watching.kill()
            watching.wait(30)


def failed(journal: Journal, broker: int, *, there: bool) -> None:
    assert (read_one(journal.mailbox, paths.failed_broker(broker)) is not None) is there


def said(file: Path, words: str) -> None:
    assert words in file.read_text()


def moved(sandbox: Sandbox, topic: str) -> None:
    assert assignments(sandbox, topic)[topic] == {0: (4, 2, 1)}


BEFORE = [[1, 2], [2, 3], [3, 4]]


@pytest.mark.in_ci("kraft")
def test_the_output_of_generate_is_planned_from_and_the_rollback_of_execute_is_applied(
    sandbox: Sandbox, topic: str, tmp_path: Path, connect: Connect, capsys: pytest.CaptureFixture[str]
) -> None:
    """Since Kafka 4.2, both name the log directories of the replicas, of which each broker has two."""
    conn_id = connect(host=sandbox.bootstrap, extra={"step_interval": 0.5})
    sandbox.create_topics(topic, assignments=dict(enumerate(BEFORE)))
    generated, executed, move = (tmp_path / name for name in ("generated", "executed", "move.json"))

    move.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    topics = ("--topics-to-move-json-file", str(move), "--broker-list", "1,2,3,4")
    generated.write_text(sandbox.kafka_tool(_REASSIGN, "--bootstrap-server", sandbox.bootstrap, *topics, "--generate"))
    (tmp_path / "brokers.json").write_text(json.dumps([{"id": broker} for broker in sandbox.brokers]))
    files = ("--current", str(generated), "--brokers", str(tmp_path / "brokers.json"))
    planned = parse_command_line([*files, "--operation", "rebalance", "--out", str(tmp_path / "plan")])
    assert read_snapshot(planned.snapshot).partitions["replicas"].to_pylist() == BEFORE
    assert run("apply", str(generated), "--cluster", conn_id) == Exit.FAILED
    assert "has two assignments, in the lines 2 and 5; keep one of these lines." in capsys.readouterr().err

    move.write_text(reassignment(topic, [4, 2]))
    file = ("--reassignment-json-file", str(move))
    executed.write_text(sandbox.kafka_tool(_REASSIGN, "--bootstrap-server", sandbox.bootstrap, *file, "--execute"))
    eventually(lambda: has_replicas(sandbox, topic, (4, 2)), within=60)
    assert run("apply", str(executed), "--cluster", conn_id) == Exit.DONE
    has_replicas(sandbox, topic, (1, 2))
    note = f'names a log directory (KIP-113) for {topic}-0 on broker 1; it is taken as "any"'
    assert (note in capsys.readouterr().err) is ("disk-" in executed.read_text())

    (held,) = (each for each in disks(sandbox, 2) if (each / f"{topic}-0").exists())
    (other,) = set(disks(sandbox, 2)) - {held}
    move.write_text(reassignment(topic, [4, 2], "any", str(other)))
    assert run("apply", str(move), "--cluster", conn_id) == Exit.FAILED
    assert f'for {topic}-0 on broker 2, which has it in "{held}"' in capsys.readouterr().err
    move.write_text(reassignment(topic, [1, 2], "any", str(held)))
    assert run("apply", str(move), "--cluster", conn_id) == Exit.DONE
    assert "already has its target replicas; nothing was changed." in capsys.readouterr().out


def reassignment(topic: str, replicas: list[int], *log_dirs: str) -> str:
    named = {"log_dirs": log_dirs} if log_dirs else {}
    return json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": replicas, **named}]})


def disks(sandbox: Sandbox, broker: int) -> list[Path]:
    return [sandbox.folder / f"broker-{broker}" / name for name in ("disk-1", "disk-2")]


def has_replicas(sandbox: Sandbox, topic: str, expected: Assignment) -> None:
    with KafkaCluster({"bootstrap_servers": sandbox.bootstrap}) as cluster:
        partition = min(cluster.snapshot([topic]).partitions.items())[1]
    assert (partition.replicas, partition.reassigning) == (expected, False)
