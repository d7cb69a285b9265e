"""`cancel --all` on a real cluster: a plan of ours that nobody steps, and what someone else began."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from getpass import getuser

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.cluster.configs import ConfigChange, ConfigOp
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.runner import PlanRunner
from kafka_steward.execution.throttle_rates import ThrottleSide
from kafka_steward.hooks.steward import StewardHook
from kafka_steward.journal.audit import Action, Actor
from kafka_steward.journal.records import MoveState, PlanRecord
from kafka_steward.sandbox import Sandbox
from tests.airflow_home import Connect
from tests.cli.airflow_command import assignments, call
from tests.eventually import eventually
from tests.simulated_plan import move

BEFORE = {0: (1, 2, 3), 1: (2, 3, 1)}
#: Bytes per second. A broker fetches 1 MB at once, and then pauses until its quota's window of 11 s has passed:
#: 15 MB need minutes, and the command a minute at most, however slow the machine is.
RATE = 10_000


@pytest.mark.in_ci("kraft")
def test_all_that_is_pending_goes_back_and_is_named(sandbox: Sandbox, connect: Connect, topic: str) -> None:
    ours, theirs = f"{topic}-ours", f"{topic}-theirs"
    sandbox.create_topics([ours, theirs], assignments=BEFORE)
    sandbox.fill(ours, 30_000_000)
    sandbox.fill(theirs, 30_000_000)
    conn_id = connect(host=sandbox.bootstrap, extra={"bootstrap_timeout_ms": 10_000, "throttle": RATE})
    with StewardHook(conn_id).open() as opened, _throttled(opened.cluster, theirs):
        digest = "d" * 64
        record = PlanRecord(digest, opened.cluster.cluster_id, "apply", who=Actor(person="ada"))
        opened.journal.plans.publish(record, [move(f"{ours}-0", "123", "423", size=15_000_000)])
        runner = PlanRunner(
            ClusterContext(opened.cluster, opened.journal, opened.settings, Actor(person="ada")), digest
        )
        runner.step()
        assert [row.state for row in opened.journal.plans.rows(digest)] == [MoveState.SUBMITTED]
        # Not before: with ZooKeeper, a broker applies a throttle late, and copies all until then. A step waits for it.
        _begin_theirs(opened.cluster, theirs)
        listed = opened.cluster.snapshot([theirs]).partitions[TopicPartition(theirs, 1)]
        kept = [broker for broker in listed.replicas if broker not in listed.adding]
        done = call("cancel", "--all", "--reason", "fire", "--cluster", conn_id)
        assert done.returncode == 0, (done.stdout, done.stderr)
        assert done.stdout.splitlines() == [
            f"The external reassignment of {theirs}-1 to [4, 1, 3] is back at {kept}.",
            f"{ours}-0: [4, 2, 3] back to [1, 2, 3]",
            f"Plan {digest[:12]} was cancelled by {getuser()} (fire); none of its 1 moves had completed.",
        ]
        assert not opened.cluster.reassignments()
        # The command asks until Kafka shows the end of all cancels: that is one request.
        requests = opened.journal.audit.rows(plan=digest, action=Action.REQUEST)
        assert [(row.entry.reason, row.entry.who.person) for row in requests] == [("cancel: fire", getuser())]
    assert assignments(sandbox, topic) == {ours: BEFORE, theirs: {**BEFORE, 1: tuple(kept)}}


def _begin_theirs(cluster: KafkaCluster, topic: str) -> None:
    assert cluster.alter({TopicPartition(topic, 1): (4, 1, 3)}) == {TopicPartition(topic, 1): None}

    def in_flight() -> None:
        assert cluster.snapshot([topic]).partitions[TopicPartition(topic, 1)].reassigning

    eventually(in_flight, within=30)


@contextmanager
def _throttled(cluster: KafkaCluster, topic: str) -> Iterator[None]:
    """Slow down what arrives at broker 4, as somebody else would: the rate must not outlive a test that fails."""
    _throttle(cluster, topic, str(RATE))
    try:
        yield
    finally:
        _throttle(cluster, topic, None)


def _throttle(cluster: KafkaCluster, topic: str, rate: str | None) -> None:
    op = ConfigOp.SET if rate else ConfigOp.DELETE
    cluster.change_topic_configs(
        {topic: [ConfigChange(ThrottleSide.FOLLOWER.replicas_key, op, "1:4" if rate else None)]}
    )
    cluster.change_broker_configs({4: [ConfigChange(ThrottleSide.FOLLOWER.rate_key, op, rate)]})
