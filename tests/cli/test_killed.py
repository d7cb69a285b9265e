"""A plan whose process was killed is taken back by another: Kafka's own tools say that everything is as it was."""

from __future__ import annotations

import getpass
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.cluster.configs import ConfigChange, ConfigOp
from kafka_steward.execution.throttles.rates import ThrottleSide
from kafka_steward.hooks.session import ClusterSession
from kafka_steward.hooks.steward import StewardHook
from kafka_steward.journal.audit import Action
from kafka_steward.journal.records import MoveState, PlanStatus
from kafka_steward.journal.store import Journal
from kafka_steward.sandbox import Sandbox
from tests.airflow_home import Connect
from tests.cli.airflow_command import assignments, begin, call, throttles, written
from tests.eventually import eventually
from tests.journal.zookeeper import forget_journal

pytestmark = pytest.mark.apart

#: Small ones arrive at once, large ones fly for long: Kafka's quota lets a burst of some 11 s through.
BEFORE = {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2), 3: (1, 3, 2)}
AFTER = {0: (4, 2, 3), 1: (2, 4, 1), 2: (4, 1, 2), 3: (3, 4, 2)}


@pytest.fixture
def foreign(sandbox: Sandbox, topic: str) -> Iterator[dict[str, dict[str, str]]]:
    """Two topics, and throttles that someone else has set, in the way of ours."""
    small, large = f"{topic}-small", f"{topic}-large"
    sandbox.create_topics([small, large], assignments=BEFORE)
    sandbox.fill(large, 12_000_000)
    with KafkaCluster({"bootstrap_servers": sandbox.bootstrap}) as cluster:
        listed = ConfigChange(ThrottleSide.FOLLOWER.replicas_key, ConfigOp.SET, "3:1")
        assert cluster.change_topic_configs({large: [listed]}) == {large: None}
        rated = ConfigChange(ThrottleSide.FOLLOWER.rate_key, ConfigOp.SET, "7000000")
        assert cluster.change_broker_configs({4: [rated]}) == {4: None}
        yield {
            f"topic {large}": {ThrottleSide.FOLLOWER.replicas_key: "3:1"},
            "broker 4": {ThrottleSide.FOLLOWER.rate_key: "7000000"},
        }
        cluster.change_broker_configs({4: [ConfigChange(ThrottleSide.FOLLOWER.rate_key, ConfigOp.DELETE)]})


def in_the_middle(journal: Journal, applying: subprocess.Popen[str]) -> str:
    """The digest of the plan under way, once some of it has arrived and some is in flight."""
    if applying.poll() is not None:
        pytest.fail(f"It ended before it was killed: {applying.communicate()}")
    (record,) = journal.plans.unfinished()
    states = [row.state for row in journal.plans.rows(record.digest)]
    assert states.count(MoveState.COMPLETED) >= 2
    assert states.count(MoveState.SUBMITTED) >= 2
    return record.digest


@pytest.fixture
def conn_id(connect: Connect, sandbox: Sandbox) -> Iterator[str]:
    """The journal is where the KIPs put it: in the brokers' ZooKeeper, where there is one."""
    extra = {"bootstrap_timeout_ms": 10_000, "step_interval": 0.5}
    yield connect(host=sandbox.bootstrap, extra=extra | ({"zookeeper": sandbox.zookeeper} if sandbox.zookeeper else {}))
    if sandbox.zookeeper:
        forget_journal(sandbox.zookeeper)


@pytest.fixture
def killed(conn_id: str, topic: str, foreign: dict[str, dict[str, str]], tmp_path: Path) -> str:
    """The digest of a throttled plan whose process was killed in the middle."""
    file = written(tmp_path / "reassignment.json", {f"{topic}-small": AFTER, f"{topic}-large": AFTER})
    applying = begin("apply", file, "--throttle", "150k", "--cluster", conn_id)
    with StewardHook(conn_id).open() as opened:
        digest = eventually(lambda: in_the_middle(opened.journal, applying), within=180, errors=(ValueError,))
        rates = opened.cluster.broker_configs([4], [ThrottleSide.FOLLOWER.rate_key], own_only=True)
        assert rates == {4: {ThrottleSide.FOLLOWER.rate_key: "150000"}}
        assert throttled(opened, topic)
    applying.kill()
    assert applying.wait(30) == -9
    return digest


def throttled(opened: ClusterSession, topic: str) -> bool:
    """Whether some replica of ours is in the list of those that are slowed."""
    of = opened.cluster.topic_configs([f"{topic}-large"], [ThrottleSide.FOLLOWER.replicas_key], own_only=True)
    return ":4" in of[f"{topic}-large"][ThrottleSide.FOLLOWER.replicas_key]


@pytest.mark.in_ci("kraft")
@pytest.mark.ci
def test_a_killed_apply_is_taken_back_by_another_process(
    sandbox: Sandbox, conn_id: str, topic: str, foreign: dict[str, dict[str, str]], killed: str
) -> None:
    cancelled = call("cancel", "--scope", "plan", "--reason", "wrong racks", "--cluster", conn_id)
    assert cancelled.returncode == 0, cancelled.stderr
    assert assignments(sandbox, topic) == {f"{topic}-small": BEFORE, f"{topic}-large": BEFORE}
    assert throttles(sandbox) == foreign
    with StewardHook(conn_id).open() as opened:
        assert not opened.cluster.reassignments()
        record, audit = opened.journal.plans.get(killed), opened.journal.audit
        assert record is not None
        assert record.status is PlanStatus.ROLLED_BACK
        assert opened.journal.slot.holders() == ()
        asked = [row.entry.reason for row in audit.rows(plan=killed, action=Action.REQUEST)]
        assert asked[-1:] == ["cancel, and roll back completed moves: wrong racks"]
        assert {row.entry.who.person for row in audit.rows(plan=killed)} == {getpass.getuser()}
    assert f"Plan {killed[:12]} was rolled back by plan" in cancelled.stdout


@pytest.mark.in_ci("zookeeper")
@pytest.mark.ci
def test_a_killed_apply_is_finished_by_another_process(
    sandbox: Sandbox, conn_id: str, topic: str, foreign: dict[str, dict[str, str]], killed: str
) -> None:
    resumed = call("resume", "--throttle", "50M", "--cluster", conn_id, within_s=300)
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.stdout == f"Plan {killed[:12]} is complete: 8 of 8 partitions moved.\n"
    assert assignments(sandbox, topic) == {f"{topic}-small": AFTER, f"{topic}-large": AFTER}
    assert throttles(sandbox) == foreign
    verified = call("verify", killed[:8], "--cluster", conn_id)
    assert verified.stdout.count(" is completed.\n") == 8
    assert verified.returncode == 0, verified.stderr
