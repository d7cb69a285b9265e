"""Plans made by hand on real clusters, in chunks and stages, cancelled and rolled back: all is exactly as it was."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_steward.assignment import Assignment, Move, TopicPartition
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.execution.moves.progress import Progress
from kafka_steward.execution.plans.publishing import publish_plan
from kafka_steward.execution.plans.runner import PlanRunner
from kafka_steward.execution.plans.undo_verification import UndoVerification, verify_undone
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.throttles.rates import ThrottleSide
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Actor, Outcome
from kafka_steward.journal.mailbox import read_one
from kafka_steward.journal.records import PlanStatus
from kafka_steward.journal.store import Journal
from kafka_steward.sandbox import Sandbox
from kafka_steward.settings import Settings
from tests.cancelling import CancelRunner
from tests.documents import create_document, delete_document
from tests.eventually import eventually
from tests.manual_plan import plan_by_hand
from tests.present import present
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
    assert present(journal.plans.get(digest)).status is PlanStatus.ROLLED_BACK
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


# One added replica of a partition at a time, there and back, and cancelled in the middle

ONE = Settings(min_free=0, throttle=0, one_replica_at_a_time=True)


def begun(cluster: KafkaCluster, journal: Journal, folder: Path, topic: str, after: Assignment) -> PlanRunner:
    plan = plan_by_hand(cluster, journal, folder, [Move(topic, 0, (1, 2), after, 0, 0, "given")])
    publish_plan(ClusterContext(cluster, journal, ONE, WHO), plan)
    return PlanRunner(ClusterContext(cluster, journal, ONE, WHO), plan.digest)


def replicas(cluster: KafkaCluster, topic: str) -> Assignment:
    (partition,) = cluster.snapshot([topic]).partitions.values()
    return partition.replicas


def is_at(cluster: KafkaCluster, topic: str, expected: Assignment) -> None:
    assert replicas(cluster, topic) == expected  # one broker hears of it later than another


@pytest.mark.in_ci("kraft")
def test_two_new_replicas_come_one_after_the_other_and_go_back_so(
    sandbox: Sandbox, cluster: KafkaCluster, journal: Journal, topic: str, tmp_path: Path
) -> None:
    sandbox.create_topics([topic], assignments={0: (1, 2)})
    sandbox.fill(topic, 1_000_000)
    runner = begun(cluster, journal, tmp_path, topic, (3, 4))
    progress = to_the_end(runner)
    assert progress.status is PlanStatus.COMPLETED
    eventually(lambda: is_at(cluster, topic, (3, 4)))
    undo = CancelRunner(cluster, journal, progress.digest, ONE, WHO, scope="plan", reason="a test")
    assert to_the_end(undo).status is PlanStatus.ROLLED_BACK
    eventually(lambda: verify_as_before(cluster, journal, progress.digest), within=30)
    rows = [row.entry for row in journal.audit.rows(action=Action.SUBMIT)]
    assert [(row.before, row.after) for row in rows] == [
        ([1, 2], [1, 2, 3]),
        ([1, 2, 3], [3, 4]),
        ([3, 4], [3, 4, 1]),
        ([3, 4, 1], [1, 2]),
    ]


@pytest.mark.in_ci("zookeeper")
def test_a_cancel_in_the_last_of_two_reassignments_ends_at_the_original_order(
    sandbox: Sandbox, cluster: KafkaCluster, journal: Journal, topic: str, tmp_path: Path
) -> None:
    digest = at_rest_halfway(sandbox, cluster, journal, tmp_path, topic, size=12_000_000).step().digest
    switch = present(read_one(journal.mailbox, paths.REASSIGN_CANCEL))
    delete_document(journal.mailbox, switch.path)
    PlanRunner(ClusterContext(cluster, journal, replace(ONE, throttle=150_000), WHO), digest).step()
    (in_flight,) = cluster.reassignments().values()
    assert (in_flight.adding, frozenset(in_flight.removing)) == ((4,), frozenset({1, 2}))
    assert to_the_end(CancelRunner(cluster, journal, digest, ONE, WHO, reason="a test")).status is PlanStatus.CANCELLED
    eventually(lambda: is_at(cluster, topic, (1, 2)))
    eventually(lambda: verify_as_before(cluster, journal, digest), within=30)


def at_rest_halfway(
    sandbox: Sandbox, cluster: KafkaCluster, journal: Journal, folder: Path, topic: str, *, size: int
) -> PlanRunner:
    """From (1, 2) to (3, 4): 3 has arrived, and reassignments are switched off."""
    sandbox.create_topics([topic], assignments={0: (1, 2)})
    sandbox.fill(topic, size)
    runner = begun(cluster, journal, folder, topic, (3, 4))
    runner.step()
    create_document(journal.mailbox, paths.REASSIGN_CANCEL, "")

    def rests() -> None:
        progress = runner.step()
        assert (replicas(cluster, topic), progress.waiting) == ((1, 2, 3), 1)

    eventually(rests, within=60)
    return runner


# KIP-46's chunks one after another, with KIP-236's pause between them

PAUSE_S = 1.5


@pytest.mark.in_ci("kraft")
def test_a_chunk_begins_when_all_of_the_one_before_has_ended_and_the_pause_is_over(
    sandbox: Sandbox, cluster: KafkaCluster, journal: Journal, topic: str, tmp_path: Path
) -> None:
    sandbox.create_topics(topic, assignments={number: [1, 2, 3] for number in range(4)})
    moves = [Move(topic, number, (1, 2, 3), (4, 2, 3), number // 2, number % 2, "given") for number in range(4)]
    settings = Settings(min_free=0, throttle=0, window="chunk", chunk_pause=PAUSE_S)
    plan = plan_by_hand(cluster, journal, tmp_path, moves)
    publish_plan(ClusterContext(cluster, journal, settings, WHO), plan)
    assert to_the_end(PlanRunner(ClusterContext(cluster, journal, settings, WHO), plan.digest)).completed == 4
    submitted, settled = times(journal, Action.SUBMIT), times(journal, Action.SETTLE)
    assert max(submitted[0], submitted[1]) < min(settled[0], settled[1])  # together
    assert min(submitted[2], submitted[3]) - max(settled[0], settled[1]) >= PAUSE_S * 1000


def times(journal: Journal, action: Action) -> dict[int, int]:
    """When that was done, by partition."""
    rows = journal.audit.rows(action=action)
    return {row.entry.partition: row.when_ms for row in rows if row.entry.partition is not None}
