"""docs/operations.md: what it says is never done, and what an old backup and an upgrade are noticed by."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import sqlalchemy as sa

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.requests import elect_leaders_request
from kafka_steward.errors import JournalError, PlanError
from kafka_steward.execution.moves.directories import check_directories
from kafka_steward.execution.moves.external import ExternalCancelState
from kafka_steward.execution.plans.cancel import cancel_everything
from kafka_steward.execution.watch.upkeep import delete_stale_in_flight_records
from kafka_steward.journal.kip_documents import CancelRequest
from kafka_steward.journal.mailbox import read_one
from kafka_steward.journal.records import PlanStatus
from kafka_steward.journal.schema.upgrade import VERSION_TABLE
from kafka_steward.journal.store import Journal, open_journal
from kafka_steward.journal.zookeeper.options import ZooKeeperOptions
from tests.documents import create_document
from tests.memory_mailbox import MemoryMailbox
from tests.simulated_plan import WHO, World, move
from tests.simulator import Simulator

ZOOKEEPER = ZooKeeperOptions("zk1:2181/kafka")


class SharedMailbox(MemoryMailbox):
    """A ZooKeeper that outlives each journal."""

    def require_cluster(self, cluster_id: str) -> None:
        """It keeps this cluster."""

    def revoke_open_access(self) -> None:
        """Nobody else can reach it."""

    def close(self) -> None:
        """It outlives the connection."""


@pytest.fixture
def mailbox(monkeypatch: pytest.MonkeyPatch) -> SharedMailbox:
    mailbox = SharedMailbox(lambda: 1_000)
    monkeypatch.setattr("kafka_steward.journal.zookeeper.mailbox.ZkMailbox", lambda *_: mailbox)
    return mailbox


def test_a_reassignment_that_moves_a_replica_within_its_broker_is_refused() -> None:
    simulator = Simulator.of("1a 2b 3c", "t: 12")
    asked = {(TopicPartition("t", 0), 1): "/disk-1", (TopicPartition("t", 0), 3): "/disk-2"}
    assert 'is taken as "any"' in check_directories(simulator, simulator.snapshot(), asked)
    asked[TopicPartition("t", 0), 2] = "/disk-2"
    with pytest.raises(PlanError, match=r"names the log directory .*use kafka-reassign-partitions\.$"):
        check_directories(simulator, simulator.snapshot(), asked)


def test_only_the_preferred_leader_is_elected() -> None:
    assert elect_leaders_request([TopicPartition("t", 0)], 1_000).election_type == 0


@pytest.mark.parametrize("known", [True, False])
def test_with_an_old_copy_of_the_database_moves_are_found_in_kafka_and_unknown_ones_cancelled_to_their_original_order(
    mailbox: SharedMailbox, tmp_path: Path, known: bool
) -> None:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123", mode="zookeeper")
    url, file = f"sqlite:///{tmp_path}/journal.db", tmp_path / "journal.db"

    def reopened() -> Journal:
        return open_journal(url, simulator.cluster_id, zookeeper=ZOOKEEPER)

    def published(journal: Journal) -> World:
        return World(simulator, journal, [move("t-0", "123", "432")], auto_generated=False)

    with reopened() as journal:
        if known:
            published(journal)
    backup = shutil.copy(file, tmp_path / "backup.db")
    with reopened() as journal:
        published(journal).step()
    for each in tmp_path.glob("journal.db*"):
        each.unlink()
    shutil.copy(backup, file)
    with reopened() as journal:
        if known:
            assert published(journal).run().status is PlanStatus.COMPLETED
            delete_stale_in_flight_records(simulator, journal, WHO)
        else:
            why = CancelRequest(person="ada", reason="a backup was restored")
            outcome = cancel_everything(simulator, journal, why, WHO)
            assert [each.state for each in outcome.external] == [ExternalCancelState.CANCELLED]
        assert journal.mailbox.children("/admin/reassignments") == []
    assert simulator.topics[TopicPartition("t", 0)].replicas == ((4, 3, 2) if known else (1, 2, 3))
    assert not simulator.reassignments()


def test_after_an_upgrade_who_has_the_journal_open_and_who_opens_it_are_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/journal.db"
    with open_journal(url, "c") as journal:
        engine = sa.create_engine(url)
        with engine.begin() as connection:
            version = sa.table(VERSION_TABLE, sa.column("version_num"))
            connection.execute(sa.update(version).values(version_num="9999"))
        engine.dispose()
        with pytest.raises(JournalError, match="changed to schema 9999 while this process"):
            create_document(journal.mailbox, "/admin/x", "{}")
        assert read_one(journal.mailbox, "/admin/x") is None
        with pytest.raises(JournalError, match=r"written by a newer Kafka Steward \(schema 9999"):
            open_journal(url, "c")
