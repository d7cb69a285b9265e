"""queue, requests and signal on real clusters, with the watch's own polls; Kafka's tool says the same of the end."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.cli import Exit
from kafka_steward.cluster.configs import ConfigChange, ConfigOp
from kafka_steward.document_api.controller import DocumentController
from kafka_steward.execution.throttle_rates import ThrottleSide
from kafka_steward.hooks.steward import ClusterSession, StewardHook
from kafka_steward.journal.audit import Actor
from kafka_steward.sandbox import Sandbox
from tests.airflow_home import Connect
from tests.cli.airflow_command import written
from tests.cli.calling import run
from tests.eventually import eventually
from tests.journal.zookeeper import forget_journal

pytestmark = pytest.mark.apart

_REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
#: Kafka's quota lets 2 MB through at once: what is larger flies until it may hurry.
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
