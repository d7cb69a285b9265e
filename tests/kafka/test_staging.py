"""One added replica of a partition at a time on real clusters, there and back, and cancelled in the middle."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_steward.assignment import Assignment, Move
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.publishing import publish_plan
from kafka_steward.execution.runner import PlanRunner
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action
from kafka_steward.journal.records import PlanStatus
from kafka_steward.journal.store import Journal
from kafka_steward.sandbox import Sandbox
from kafka_steward.settings import Settings
from tests.cancelling import CancelRunner
from tests.eventually import eventually
from tests.kafka.test_runner_cancel import WHO, verify_as_before
from tests.manual_plan import plan_by_hand
from tests.stepping import to_the_end

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
    switch = journal.tree.get(paths.REASSIGN_CANCEL)
    assert switch is not None
    journal.tree.delete(switch.path, version=switch.version)
    PlanRunner(ClusterContext(cluster, journal, replace(ONE, throttle=150_000), WHO), digest).step()
    (flying,) = cluster.reassignments().values()
    assert (flying.adding, frozenset(flying.removing)) == ((4,), frozenset({1, 2}))
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
    journal.tree.create(paths.REASSIGN_CANCEL, "")

    def rests() -> None:
        progress = runner.step()
        assert (replicas(cluster, topic), progress.waiting) == ((1, 2, 3), 1)

    eventually(rests, within=60)
    return runner
