"""A plan whose process was killed is taken back by another: Kafka's own tools say that everything is as it was."""

from __future__ import annotations

import getpass
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.cluster.configs import ConfigChange, ConfigOp
from kafka_steward.cluster.throttles import Side
from kafka_steward.hooks.steward import StewardHook
from kafka_steward.journal.audit import Action
from kafka_steward.journal.moves import MoveState
from kafka_steward.journal.open import Journal
from kafka_steward.sandbox import Sandbox
from tests.airflow_home import Connect
from tests.cli.airflow_command import assignments, begin, call, throttles, written
from tests.eventually import eventually

#: Small ones arrive at once, large ones fly for long: Kafka's quota lets a burst of some 11 s through.
BEFORE = {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2), 3: (1, 3, 2)}
AFTER = {0: (4, 2, 3), 1: (2, 4, 1), 2: (4, 1, 2), 3: (3, 4, 2)}


@pytest.fixture
def foreign(sandbox: Sandbox, topic: str) -> Iterator[list[str]]:
    """Two topics, and throttles that someone else has set, in the way of ours; gives what Kafka's tool says of them."""
    small, large = f"{topic}-small", f"{topic}-large"
    sandbox.create_topics([small, large], assignments=BEFORE)
    sandbox.fill(large, 12_000_000)
    with KafkaCluster({"bootstrap_servers": sandbox.bootstrap}) as cluster:
        listed = ConfigChange(Side.FOLLOWER.replicas_key, ConfigOp.SET, "3:1")
        assert cluster.change_topic_configs({large: [listed]}) == {large: None}
        rated = ConfigChange(Side.FOLLOWER.rate_key, ConfigOp.SET, "7000000")
        assert cluster.change_broker_configs({4: [rated]}) == {4: None}
        yield throttles(sandbox)
        unset = ConfigChange(Side.FOLLOWER.rate_key, ConfigOp.DELETE)
        cluster.change_broker_configs({4: [unset]})


def in_the_middle(journal: Journal, applying: subprocess.Popen[str]) -> str:
    """The digest of the plan under way, once some of it has arrived and some is in flight."""
    if applying.poll() is not None:
        pytest.fail(f"It ended before it was killed: {applying.communicate()}")
    (record,) = journal.plans.unfinished()
    states = [row.state for row in journal.plans.rows(record.digest)]
    assert states.count(MoveState.COMPLETED) >= 2
    assert states.count(MoveState.SUBMITTED) >= 2
    return record.digest


def test_a_killed_apply_is_taken_back_by_another_process(
    connect: Connect, sandbox: Sandbox, topic: str, foreign: list[str], tmp_path: Path
) -> None:
    conn_id = connect(host=sandbox.bootstrap, extra={"bootstrap_timeout_ms": 10_000, "step_interval": 0.5})
    small, large = f"{topic}-small", f"{topic}-large"
    file = written(tmp_path / "reassignment.json", {small: AFTER, large: AFTER})
    applying = begin("apply", file, "--throttle", "150k", "--cluster", conn_id)
    hook = StewardHook(conn_id)
    with hook.open() as opened:
        digest = eventually(lambda: in_the_middle(opened.journal, applying), within=90, errors=(ValueError,))
        rates = opened.cluster.broker_configs([4], [Side.FOLLOWER.rate_key], own_only=True)
        assert rates == {4: {Side.FOLLOWER.rate_key: "150000"}}
    applying.kill()
    assert applying.wait(30) == -9

    cancelled = call("cancel", "--scope", "plan", "--reason", "wrong racks", "--cluster", conn_id)
    assert cancelled.returncode == 0, cancelled.stderr
    assert assignments(sandbox, topic) == {small: BEFORE, large: BEFORE}
    assert throttles(sandbox) == foreign
    with hook.open() as opened:
        assert not opened.cluster.reassignments()
        record = opened.journal.plans.get(digest)
        assert record is not None
        assert record.status.value == "rolled_back"
        assert opened.journal.slot.owner() is None
        asked = opened.journal.audit.rows(plan=digest, action=Action.REQUEST)
        assert [row.entry.reason for row in asked] == ["cancel, and take back what is complete: wrong racks"]
        assert {row.entry.who.person for row in opened.journal.audit.rows(plan=digest)} == {getpass.getuser()}
