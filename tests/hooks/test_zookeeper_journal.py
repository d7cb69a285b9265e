"""On a ZooKeeper cluster whose connection says where ZooKeeper is, the KIPs' documents are kept there."""

from __future__ import annotations

from pathlib import Path

from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE

from kafka_steward.assignment import Assignment, Move, TopicPartition
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.publishing import publish_plan
from kafka_steward.execution.runner import PlanRunner
from kafka_steward.execution.snapshot import take_snapshot
from kafka_steward.execution.undo_verification import verify_undone
from kafka_steward.hooks.steward import ClusterSession, StewardHook
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Actor
from kafka_steward.journal.zookeeper.session import ROOTS
from kafka_steward.journal.zookeeper.tree import ZkTree
from kafka_steward.planning.files.formats import plan_table, read_plan, read_snapshot, write_plan
from kafka_steward.sandbox import Sandbox
from tests.airflow_home import Connect
from tests.cancelling import CancelRunner
from tests.eventually import eventually
from tests.stepping import to_the_end

WHO = Actor(person="ada")


def published(opened: ClusterSession, topic: str, folder: Path, partitions: int = 1) -> str:
    take_snapshot(opened.cluster, str(folder / "snapshot"), failed=(), now_ms=opened.journal.now_ms())
    snapshot = read_snapshot(str(folder / "snapshot"))
    moves = [Move(topic, each, (1, 2, 3), (4, 2, 3), 0, each, "given") for each in range(partitions)]
    proof = {"cluster_id": snapshot.cluster_id, "snapshot_digest": snapshot.digest, "operation": "apply", "options": {}}
    write_plan(str(folder / "plan"), plan_table(moves), proof)
    plan = read_plan(str(folder / "plan"))
    return publish_plan(ClusterContext(opened.cluster, opened.journal, opened.settings, WHO), plan).digest


def test_a_plan_is_carried_out_and_taken_back_by_the_journal_in_zookeeper(
    connect: Connect, zookeeper_sandbox: Sandbox, topic: str, tmp_path: Path
) -> None:
    extra = {"zookeeper": zookeeper_sandbox.zookeeper}
    conn_id = connect(host=zookeeper_sandbox.bootstrap, extra={**extra, "workspace": str(tmp_path)})
    zookeeper_sandbox.create_topics(topic, assignments={0: (1, 2, 3)})
    zookeeper = KazooClient(zookeeper_sandbox.zookeeper)
    zookeeper.start()
    try:
        with StewardHook(conn_id).open() as opened:
            assert isinstance(opened.journal.tree, ZkTree)
            digest = published(opened, topic, tmp_path)
            assert zookeeper.exists(f"/steward/plans/{digest}")
            assert zookeeper.get_children("/admin/reassign_chunks")
            plan = opened.cluster, opened.journal, digest, opened.settings, WHO
            context = ClusterContext(opened.cluster, opened.journal, opened.settings, WHO)
            assert to_the_end(PlanRunner(context, digest)).ended
            eventually(lambda: is_at(opened, TopicPartition(topic, 0), (4, 2, 3)))  # a broker hears of it later
            assert to_the_end(CancelRunner(*plan, scope="plan", reason="a test")).ended
            eventually(lambda: is_as_before(opened, digest), within=30)
        # Nothing of ours is in the way of the next plan, or of the next test.
        assert not zookeeper.get_children("/admin/reassign_chunks")
    finally:
        for path in ("/steward", "/admin/reassign_chunks", "/admin/reassignments"):
            zookeeper.delete(path, recursive=True) if zookeeper.exists(path) else None
        zookeeper.stop()
        zookeeper.close()


def test_with_credentials_kafka_takes_away_what_was_submitted_by_its_znode(
    connect: Connect, zookeeper_sandbox: Sandbox, topic: str, tmp_path: Path
) -> None:
    login = {"zookeeper_user": "steward", "zookeeper_password": "s3cret", "submission": "legacy"}
    extra = {"zookeeper": zookeeper_sandbox.zookeeper, "workspace": str(tmp_path), **login}
    conn_id = connect(host=zookeeper_sandbox.bootstrap, extra=extra)
    zookeeper_sandbox.create_topics(topic, assignments=dict.fromkeys(range(3), (1, 2, 3)))
    zookeeper = KazooClient(zookeeper_sandbox.zookeeper, auth_data=[("digest", "steward:s3cret")])
    zookeeper.start()
    try:
        with StewardHook(conn_id).open() as opened:
            # Kafka makes the node shorter when the first has arrived, and deletes it after the last.
            digest = published(opened, topic, tmp_path, partitions=3)
            assert to_the_end(
                PlanRunner(ClusterContext(opened.cluster, opened.journal, opened.settings, WHO), digest)
            ).ended
            eventually(lambda: is_at(opened, TopicPartition(topic, 0), (4, 2, 3)))
        eventually(lambda: is_gone(zookeeper, paths.REASSIGN_PARTITIONS), within=30)
        assert zookeeper.get_acls(paths.plan(digest))[0] != zookeeper.get_acls("/admin")[0] == OPEN_ACL_UNSAFE
    finally:
        for path in ROOTS:
            zookeeper.delete(path, recursive=True) if zookeeper.exists(path) else None
        zookeeper.stop()
        zookeeper.close()


def is_gone(zookeeper: KazooClient, path: str) -> None:
    assert zookeeper.exists(path) is None


def is_at(opened: ClusterSession, name: TopicPartition, replicas: Assignment) -> None:
    assert opened.cluster.snapshot([name.topic]).partitions[name].replicas == replicas


def is_as_before(opened: ClusterSession, digest: str) -> None:
    found = verify_undone(opened.cluster, opened.journal, digest)
    assert (found.ok, found.partitions, found.status) == (True, 1, "rolled_back"), found.sentence
