"""docs/operations.md: what it says is never done, and what an old backup and an upgrade are noticed by."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import sqlalchemy as sa

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.requests import elect_leaders_request
from kafka_steward.errors import JournalError, PlanError
from kafka_steward.execution.named_directories import check_directories
from kafka_steward.journal.records import MoveState
from kafka_steward.journal.schema.upgrade import VERSION_TABLE
from kafka_steward.journal.store import open_journal
from kafka_steward.journal.zookeeper.options import ZooKeeperOptions
from tests.journal.test_plans import moves_of, record_of
from tests.memory_tree import MemoryTree
from tests.simulator import Simulator

ZOOKEEPER = ZooKeeperOptions("zk1:2181/kafka")


class SharedTree(MemoryTree):
    """A ZooKeeper that outlives each journal."""

    def require_cluster(self, cluster_id: str) -> None:
        """It keeps this cluster."""

    def revoke_open_access(self) -> None:
        """Nobody else can reach it."""


@pytest.fixture
def tree(monkeypatch: pytest.MonkeyPatch) -> SharedTree:
    tree = SharedTree(lambda: 1_000)
    monkeypatch.setattr("kafka_steward.journal.zookeeper.tree.ZkTree", lambda _: tree)
    return tree


def test_a_reassignment_that_moves_a_replica_within_its_broker_is_refused() -> None:
    simulator = Simulator.of("1a 2b 3c", "t: 12")
    asked = {(TopicPartition("t", 0), 1): "/disk-1", (TopicPartition("t", 0), 3): "/disk-2"}
    assert 'is taken as "any"' in check_directories(simulator, simulator.snapshot(), asked)
    asked[TopicPartition("t", 0), 2] = "/disk-2"
    with pytest.raises(PlanError, match=r"names the log directory .*use kafka-reassign-partitions\.$"):
        check_directories(simulator, simulator.snapshot(), asked)


def test_only_the_preferred_leader_is_elected() -> None:
    assert elect_leaders_request([TopicPartition("t", 0)], 1_000).election_type == 0


def test_an_old_copy_of_the_rows_is_opened_and_what_it_lacks_of_a_plan_is_named(
    tree: SharedTree, tmp_path: Path
) -> None:
    url, file = f"sqlite:///{tmp_path}/rows.db", tmp_path / "rows.db"
    with open_journal(url, "c", zookeeper=ZOOKEEPER) as journal:
        journal.now_ms()
    backup = shutil.copy(file, tmp_path / "backup.db")
    with open_journal(url, "c", zookeeper=ZOOKEEPER) as journal:
        journal.plans.publish(record_of(journal), moves_of(2))
    for each in tmp_path.glob("rows.db*"):
        each.unlink()
    shutil.copy(backup, file)
    with open_journal(url, "c", zookeeper=ZOOKEEPER) as journal, pytest.raises(PlanError, match="moves 2 partitions"):
        journal.plans.rows("d1")


def test_an_old_copy_of_a_rows_state_is_not_noticed(tree: SharedTree, tmp_path: Path) -> None:
    url, file = f"sqlite:///{tmp_path}/rows.db", tmp_path / "rows.db"
    moves = moves_of(1)
    with open_journal(url, "c", zookeeper=ZOOKEEPER) as journal:
        journal.plans.publish(record_of(journal), moves)
    backup = shutil.copy(file, tmp_path / "backup.db")
    with open_journal(url, "c", zookeeper=ZOOKEEPER) as journal, journal.step_lock("one") as fence:
        journal.plans.set_move_states("d1", [moves[0].topic_partition], MoveState.HELD, fence=fence)
    for each in tmp_path.glob("rows.db*"):
        each.unlink()
    shutil.copy(backup, file)
    with open_journal(url, "c", zookeeper=ZOOKEEPER) as journal:
        assert [row.state for row in journal.plans.rows("d1")] == [MoveState.WAITING]


def test_after_an_upgrade_who_has_the_journal_open_and_who_opens_it_are_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/journal.db"
    with open_journal(url, "c") as journal:
        engine = sa.create_engine(url)
        with engine.begin() as connection:
            version = sa.table(VERSION_TABLE, sa.column("version_num"))
            connection.execute(sa.update(version).values(version_num="9999"))
        engine.dispose()
        with pytest.raises(JournalError, match="changed to schema 9999 while this process"):
            journal.tree.create("/steward/plans/x", "{}")
        assert journal.tree.get("/steward/plans/x") is None
        with pytest.raises(JournalError, match=r"written by a newer Kafka Steward \(schema 9999"):
            open_journal(url, "c")
