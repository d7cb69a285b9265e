"""Plans that are given, not computed, for the benchmarks that measure how a plan is carried out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from kafka_steward.assignment import Move
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.execution.plans.publishing import publish_plan
from kafka_steward.execution.plans.snapshot import take_snapshot
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.journal.audit import Actor
from kafka_steward.journal.store import Journal, open_journal
from kafka_steward.journal.zookeeper.options import ZooKeeperOptions
from kafka_steward.planning.files.formats import PlanFolder, plan_table, read_plan, read_snapshot, write_plan
from kafka_steward.sandbox import Sandbox
from kafka_steward.settings import Settings

__all__ = ["WHO", "journal_of", "publish_given", "reassignment_of", "write_given"]

WHO = Actor(person="benchmark")


def journal_of(sandbox: Sandbox, cluster: KafkaCluster) -> Journal:
    """The journal of the sandbox: in SQLite, and its documents in ZooKeeper where the cluster has one."""
    zookeeper = None if sandbox.zookeeper is None else ZooKeeperOptions(sandbox.zookeeper)
    return open_journal(f"sqlite:///{sandbox.folder}/journal.db", cluster.cluster_id, zookeeper=zookeeper)


def publish_given(
    cluster: KafkaCluster,
    journal: Journal,
    folder: Path,
    moves: Sequence[Move],
    settings: Settings,
    *,
    operation: str = "apply",
) -> str:
    """Publish the plan of these moves, with its files in `folder`, which is new; its digest."""
    plan = write_given(cluster, folder, moves, now_ms=journal.now_ms(), operation=operation)
    publish_plan(ClusterContext(cluster, journal, settings, WHO), plan)
    return plan.digest


def write_given(
    cluster: KafkaCluster, folder: Path, moves: Sequence[Move], *, now_ms: int, operation: str = "apply"
) -> PlanFolder:
    """The plan of these moves, with its files in `folder`, which is new."""
    take_snapshot(cluster, str(folder / "snapshot"), failed=(), now_ms=now_ms)
    snapshot = read_snapshot(str(folder / "snapshot"))
    of = {"cluster_id": snapshot.cluster_id, "snapshot_digest": snapshot.digest}
    proof = {**of, "operation": operation, "options": {}}
    write_plan(str(folder / "plan"), plan_table(moves), proof)
    return read_plan(str(folder / "plan"))


def reassignment_of(moves: Sequence[Move]) -> str:
    """The same moves as `kafka-reassign-partitions` reads them."""
    partitions = [{"topic": move.topic, "partition": move.partition, "replicas": move.after} for move in moves]
    return json.dumps({"version": 1, "partitions": partitions})
