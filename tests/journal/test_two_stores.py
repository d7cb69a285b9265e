"""A journal whose tree is in ZooKeeper and whose rows are in SQL: how the two are put together. No ZooKeeper runs."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import JournalUnreachable, LockLost, WrongCluster, WrongJournal
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, AuditRecord
from kafka_steward.journal.records import MoveState
from kafka_steward.journal.sql.database import Database, SqlFencingStore, open_database
from kafka_steward.journal.store import Journal, open_journal
from kafka_steward.journal.zookeeper.options import ZooKeeperOptions
from tests.journal.test_plans import moves_of, record_of
from tests.memory_tree import MemoryTree

FIRST = [TopicPartition("orders", 0)]


class StandIn(MemoryTree):
    """A tree in memory in the place of the one in ZooKeeper."""

    made: list[StandIn]

    def __init__(self, options: ZooKeeperOptions) -> None:
        super().__init__(lambda: 1_000)
        self.options, self.closed = options, 0
        self.made.append(self)

    def require_cluster(self, cluster_id: str) -> None:
        if self.options.hosts == "elsewhere:2181":
            raise WrongCluster(f"This is not {cluster_id}.")

    def revoke_open_access(self) -> None:
        """Nobody else can reach it."""

    def close(self) -> None:
        self.closed += 1


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> list[StandIn]:
    monkeypatch.setattr(StandIn, "made", [], raising=False)
    monkeypatch.setattr("kafka_steward.journal.zookeeper.tree.ZkTree", StandIn)
    return StandIn.made


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/journal.db"


@pytest.fixture
def journal(url: str) -> Iterator[Journal]:
    with open_journal(url, "c1", zookeeper=ZooKeeperOptions("zk:2181/kafka")) as opened:
        yield opened


def test_documents_are_in_the_tree_and_rows_in_the_database(journal: Journal, url: str, made: list[StandIn]) -> None:
    assert journal.tree is made[0]
    assert made[0].options == ZooKeeperOptions("zk:2181/kafka")
    journal.plans.publish(record_of(journal), moves_of(2))
    journal.audit.record(AuditRecord(Action.DETECT, "Broker 1 is down.", broker=1))
    assert journal.health is not None
    journal.health.add_measures({"offline_partitions": 1}, every_ms=1, retention_ms=1_000)
    with open_journal(url, "c1", compare=False) as rows_only:
        assert rows_only.tree.children("/") == []
        assert rows_only.plans.rows("d1") == journal.plans.rows("d1") != []
        assert rows_only.audit.rows() == journal.audit.rows() != []
        assert rows_only.health is not None
        assert rows_only.health.rows() == journal.health.rows() != []


def test_a_tree_and_rows_of_two_journals_are_not_used_together_unless_the_caller_asks_for_it(url: str) -> None:
    options = ZooKeeperOptions("zk:2181/kafka")
    with open_journal(url, "c1", zookeeper=options) as first:
        assert first.identity is not None
        assert first.identity.place == f"{first.identity.rows} with its documents in ZooKeeper at zk:2181/kafka"
    # The stand-in has no documents when it is opened again.
    with pytest.raises(
        WrongJournal, match="documents are in ZooKeeper at zk:2181/kafka, and there are none of its documents"
    ):
        open_journal(url, "c1", zookeeper=options)
    with open_journal(url, "c1", zookeeper=options, compare=False) as unchecked:
        assert unchecked.identity is None


def test_both_halves_are_tied_together_again_under_the_places_of_both(url: str) -> None:
    options = ZooKeeperOptions("zk:2181/kafka")
    open_journal(url, "c1", zookeeper=options).close()
    with open_journal(url, "c1", zookeeper=options, compare=False) as journal:
        paired = journal.bind_rows_to_tree()
        assert journal.identity == paired
    assert paired is not None
    assert (paired.rows, paired.tree) == (f"{url} on the host {platform.node()}", "ZooKeeper at zk:2181/kafka")


def test_nothing_that_the_two_do_is_one_transaction(journal: Journal, url: str) -> None:
    with open_journal(url, "c1", compare=False) as other, journal.together():
        journal.tree.create("/a/b", "x")
        other.audit.record(AuditRecord(Action.DETECT, "Broker 1 is down.", broker=1))  # another writer need not wait
    assert len(journal.audit.rows()) == 1


def test_a_row_is_written_only_with_the_token_that_the_database_knows(journal: Journal, url: str) -> None:
    """Where another process took the lock between this one's look at the tree and its write."""
    journal.plans.publish(record_of(journal), moves_of(2))
    with journal.step_lock("one") as fence:
        fence.check()
        SqlFencingStore(open_database(url, "c1", platform.node())).set_token(fence.token + 1)
        with pytest.raises(LockLost) as lost:
            journal.plans.set_move_states("d1", FIRST, MoveState.SUBMITTED, fence=fence)
    assert str(lost.value) == "Another process has acquired the step lock: this one must change nothing more."
    assert journal.plans.rows("d1")[0].state is MoveState.WAITING


def test_nobody_takes_the_lock_between_the_check_and_the_rows(
    journal: Journal, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_steward.journal.sql.sqlite._LOCK_TIMEOUT_S", 0.1)
    guard = SqlFencingStore(open_database(url, "c1", platform.node()))
    journal.plans.publish(record_of(journal), moves_of(2))
    with journal.step_lock("one") as fence:
        real_check = fence.check

        def check_and_be_stopped() -> None:
            real_check()
            with pytest.raises(JournalUnreachable, match="database is locked"):
                guard.set_token(fence.token + 1)

        monkeypatch.setattr(fence, "check", check_and_be_stopped)
        journal.plans.set_move_states("d1", FIRST, MoveState.SUBMITTED, fence=fence)
    assert journal.plans.rows("d1")[0].state is MoveState.SUBMITTED


def test_another_clusters_zookeeper_is_refused_and_everything_closed(
    url: str, made: list[StandIn], monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []
    monkeypatch.setattr(Database, "close", lambda database: closed.append(database.cluster_id))
    with pytest.raises(WrongCluster, match=r"This is not c1\."):
        open_journal(url, "c1", zookeeper=ZooKeeperOptions("elsewhere:2181"))
    assert (made[0].closed, closed) == (1, ["c1"])


def test_closing_closes_both(journal: Journal, made: list[StandIn], monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []
    monkeypatch.setattr(journal, "_close", lambda: closed.append("database"))
    journal.close()
    assert (made[0].closed, closed) == (1, ["database"])


def test_the_lock_lives_in_the_tree(journal: Journal) -> None:
    with journal.step_lock("one", ttl_ms=7):
        node = journal.tree.get(paths.STEP_LOCK)
    assert node is not None
    assert '"owner":"one","ttl_ms":7,' in node.data


# The token beside the rows


def test_only_the_token_that_was_admitted_last_is_let_through(url: str) -> None:
    guard, other = (SqlFencingStore(open_database(url, cluster_id, "here")) for cluster_id in ("c1", "c2"))
    with pytest.raises(LockLost):
        guard.check_token(1)
    for token in (1, 3, 2):  # a lock node that was deleted by hand counts from 1 again
        guard.set_token(token)
        guard.check_token(token)
        for late in {1, 2, 3} - {token}:
            with pytest.raises(LockLost, match="Another process has acquired the step lock"):
                guard.check_token(late)
    with pytest.raises(LockLost):
        other.check_token(2)
    other.set_token(1)
    guard.check_token(2)
