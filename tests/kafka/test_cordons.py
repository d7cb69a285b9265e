"""A drained broker is cordoned where Kafka can (4.3), receives no new topic, and takes all back after a rollback."""

from __future__ import annotations

from pathlib import Path

from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.execution.cordons import KEY
from kafka_steward.execution.plans.publishing import publish_plan
from kafka_steward.execution.plans.requests import planner_options
from kafka_steward.execution.plans.runner import PlanRunner
from kafka_steward.execution.plans.snapshot import take_snapshot
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.journal.audit import Action, Actor
from kafka_steward.journal.records import CORDONS, PlanStatus
from kafka_steward.journal.store import Journal
from kafka_steward.planning.files.formats import read_snapshot
from kafka_steward.rebalance_request import RebalanceRequest
from kafka_steward.sandbox import Sandbox
from kafka_steward.settings import Settings
from tests.cancelling import CancelRunner
from tests.eventually import eventually
from tests.local_plan import planned
from tests.stepping import to_the_end

WHO = Actor(person="ada")
SETTINGS = Settings(min_free=0, throttle=0)
BEFORE = {0: (4, 1, 2), 1: (2, 4, 3), 2: (3, 1, 4), 3: (1, 2, 3)}


def test_a_drained_broker_is_cordoned_until_the_drain_is_taken_back(
    sandbox: Sandbox, cluster: KafkaCluster, journal: Journal, topic: str, tmp_path: Path
) -> None:
    able = not cluster.zookeeper_mode
    sandbox.create_topics(topic, assignments=BEFORE)
    sandbox.fill(topic, 1_000_000)
    take_snapshot(cluster, str(tmp_path / "snapshot"), failed=(), now_ms=journal.now_ms(), draining=[4])
    snapshot = read_snapshot(str(tmp_path / "snapshot"))
    request = RebalanceRequest.of({"operation": "drain", "brokers": [4], "topics": [topic]})
    plan = planned(snapshot, "drain", planner_options(request, snapshot, scheduled=False))
    assert plan.proof["replicas_moved"] == 3
    context = ClusterContext(cluster, journal, SETTINGS, WHO)
    publish_plan(context, plan, snapshot=snapshot)
    assert to_the_end(PlanRunner(context, plan.digest)).status is PlanStatus.COMPLETED
    assert orders(cluster, topic)[3] == BEFORE[3]
    assert not any(4 in replicas for replicas in orders(cluster, topic).values())
    try:
        assert cordon(cluster) == ("*" if able else None)
        eventually(lambda: expect_cordoned(cluster, able), within=20)
        later = f"{topic}-later"
        if able:
            # Every broker but the cordoned one, many times over.
            sandbox.create_topics(later, partitions=12, replication_factor=1)
            assert not any(4 in replicas for replicas in orders(cluster, later).values())
    finally:
        undo = CancelRunner(cluster, journal, plan.digest, SETTINGS, WHO, scope="plan", reason="a test")
        assert to_the_end(undo).status is PlanStatus.ROLLED_BACK
    assert orders(cluster, topic) == BEFORE
    assert not cordon(cluster)
    eventually(lambda: expect_cordoned(cluster, False), within=20)
    assert journal.rows(CORDONS).all() == []
    changes = [
        row.entry.broker for action in (Action.CORDON, Action.UNCORDON) for row in journal.audit.rows(action=action)
    ]
    assert changes == ([4, 4] if able else [])


def cordon(cluster: KafkaCluster) -> str | None:
    return cluster.broker_configs([4], [KEY], own_only=True)[4].get(KEY)


def expect_cordoned(cluster: KafkaCluster, cordoned: bool) -> None:
    assert cluster.directories([4])[4].cordoned == cordoned


def orders(cluster: KafkaCluster, topic: str) -> dict[int, tuple[int, ...]]:
    parts = cluster.snapshot([topic]).partitions
    return {name.partition: partition.replicas for name, partition in parts.items()}
