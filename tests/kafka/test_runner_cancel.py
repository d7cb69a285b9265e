"""Cancel and rollback on real clusters: Kafka's own word is that everything is exactly as it was."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kafka_steward.assignment import Move, TopicPartition
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.progress import Progress
from kafka_steward.execution.publishing import publish_plan
from kafka_steward.execution.runner import PlanRunner
from kafka_steward.execution.throttle_rates import ThrottleSide
from kafka_steward.execution.undo_verification import UndoVerification, verify_undone
from kafka_steward.journal.audit import Action, Actor, Outcome
from kafka_steward.journal.records import PlanStatus
from kafka_steward.journal.store import Journal
from kafka_steward.sandbox import Sandbox
from kafka_steward.settings import Settings
from tests.cancelling import CancelRunner
from tests.eventually import eventually
from tests.manual_plan import plan_by_hand
from tests.stepping import to_the_end

WHO = Actor(person="ada")
SLOW = Settings(min_free=0, throttle=150_000)
#: Small ones arrive at once, large ones fly for half a minute: Kafka's quota lets a burst of some 11 s through.
BEFORE = {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2), 3: (1, 3, 2)}
AFTER = {0: (4, 2, 3), 1: (2, 4, 1), 2: (4, 1, 2), 3: (3, 4, 2)}
TOPICS = "org.apache.kafka.tools.TopicCommand"


def publish(cluster: KafkaCluster, journal: Journal, folder: Path, small: str, large: str) -> PlanRunner:
    """A plan that a person wrote: everything in both topics moves."""
    moves = [
        Move(topic, number, BEFORE[number], AFTER[number], 0, position, "given")
        for position, (topic, number) in enumerate([(topic, number) for topic in (small, large) for number in BEFORE])
    ]
    plan = plan_by_hand(cluster, journal, folder, moves)
    publish_plan(ClusterContext(cluster, journal, SLOW, WHO), plan)
    return PlanRunner(ClusterContext(cluster, journal, SLOW, WHO), plan.digest)


def described(sandbox: Sandbox, topic: str) -> list[str]:
    """Replicas by partition, as Kafka's own tool prints them."""
    text = sandbox.kafka_tool(TOPICS, "--bootstrap-server", sandbox.bootstrap, "--describe", "--topic", topic)
    lines = [line.split("\t") for line in text.splitlines() if "Partition: " in line]
    return [next(word.split(": ")[1] for word in line if word.startswith("Replicas: ")) for line in lines]


@pytest.mark.in_ci("zookeeper")
def test_a_plan_is_cancelled_in_the_middle_and_rolled_back(
    sandbox: Sandbox, cluster: KafkaCluster, journal: Journal, topic: str, tmp_path: Path
) -> None:
    small, large = f"{topic}-small", f"{topic}-large"
    sandbox.create_topics([small, large], assignments=BEFORE)
    sandbox.fill(large, 12_000_000)
    runner = publish(cluster, journal, tmp_path, small, large)

    def small_ones_arrived() -> Progress:
        progress = runner.step()
        assert progress.completed >= 2
        assert progress.in_flight >= 2
        return progress

    digest = eventually(small_ones_arrived, within=40).digest
    began = time.monotonic()
    # Another process than the one that began it, and a third one after the cancel.
    asked = cluster, journal, digest, Settings(min_free=0, throttle=50_000_000), WHO
    assert to_the_end(CancelRunner(*asked, reason="a test")).status is PlanStatus.CANCELLED
    assert time.monotonic() - began < 30
    eventually(lambda: verify_as_before(cluster, journal, digest), within=30)
    undo = CancelRunner(*asked, scope="plan", reason="a test")
    assert to_the_end(undo).status is PlanStatus.ROLLED_BACK
    assert undo.left_alone == ()

    expected = [",".join(map(str, replicas)) for replicas in BEFORE.values()]
    assert described(sandbox, small) == described(sandbox, large) == expected
    verify_nothing_left(sandbox, cluster, [small, large])
    assert verify_as_before(cluster, journal, digest).partitions > 4
    undone = journal.plans.get(digest)
    assert undone is not None
    assert undone.status is PlanStatus.ROLLED_BACK
    rows = journal.audit.rows(plan=digest)
    # A small one may arrive between the look and the cancel: Kafka then says that there is nothing to cancel.
    odd = [row for row in rows if row.outcome is not Outcome.DONE]
    assert [row for row in odd if (row.entry.action, row.outcome) != (Action.CANCEL, Outcome.REFUSED)] == []
    assert sum(row.entry.action is Action.CANCEL for row in rows) >= 2


def verify_as_before(cluster: KafkaCluster, journal: Journal, digest: str) -> UndoVerification:
    found = verify_undone(cluster, journal, digest)
    assert found.ok, found.sentence
    return found


def verify_nothing_left(sandbox: Sandbox, cluster: KafkaCluster, topics: list[str]) -> None:
    """No replica on an abandoned target, no throttle, leaders among the originals."""

    def gone() -> None:
        held = {name for name in cluster.log_dirs([4])[4].replica_bytes if name.topic in topics}
        assert held == set()

    eventually(gone, within=30)
    assert not any(cluster.topic_configs(topics, [ThrottleSide.FOLLOWER.replicas_key], own_only=True).values())
    assert not any(cluster.broker_configs(sandbox.brokers, [ThrottleSide.FOLLOWER.rate_key], own_only=True).values())
    for name, partition in cluster.snapshot(topics).partitions.items():
        assert partition.leader in BEFORE[name.partition], TopicPartition(*name)
