"""A journal whose documents of the KIPs are in ZooKeeper, and all else in SQL: how the two are put together.

No ZooKeeper runs.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from kafka_steward.errors import WrongCluster, WrongJournal
from kafka_steward.journal.audit import Action, AuditRecord
from kafka_steward.journal.locks import STEP_LOCK
from kafka_steward.journal.sql.database import Database
from kafka_steward.journal.state import ONLY
from kafka_steward.journal.store import Journal, open_journal
from kafka_steward.journal.zookeeper.options import ZooKeeperOptions
from tests.documents import create_document
from tests.journal.test_plans import moves_of, record_of
from tests.memory_mailbox import MemoryMailbox


class StandIn(MemoryMailbox):
    """A tree in memory in the place of the one in ZooKeeper."""

    made: list[StandIn]

    def __init__(self, options: ZooKeeperOptions, _: object) -> None:
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
    monkeypatch.setattr("kafka_steward.journal.zookeeper.mailbox.ZkMailbox", StandIn)
    return StandIn.made


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/journal.db"


@pytest.fixture
def journal(url: str) -> Iterator[Journal]:
    with open_journal(url, "c1", zookeeper=ZooKeeperOptions("zk:2181/kafka")) as opened:
        yield opened


def test_only_documents_of_the_kips_and_the_id_are_in_zookeeper(
    journal: Journal, url: str, made: list[StandIn]
) -> None:
    assert made[0].options == ZooKeeperOptions("zk:2181/kafka")
    journal.plans.publish(record_of(journal), moves_of(2))
    journal.audit.record(AuditRecord(Action.DETECT, "Broker 1 is down.", broker=1))
    assert journal.health is not None
    journal.health.add_measures({"offline_partitions": 1}, every_ms=1, retention_ms=1_000)
    with journal.step_lock("one"):
        pass
    assert {path: made[0].children(path) for path in ("/", "/admin", "/steward")} == {
        "/": ["admin", "steward"],
        "/admin": ["reassign_chunks"],
        "/steward": ["journal"],
    }
    with open_journal(url, "c1", compare=False) as rows_only:
        assert (rows_only.mailbox.children("/"), rows_only.mailbox.children("/admin")) == ([], [])
        assert rows_only.rows(STEP_LOCK).get(ONLY) == journal.rows(STEP_LOCK).get(ONLY) is not None
        assert rows_only.plans.get("d1") == journal.plans.get("d1")
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
        paired = journal.bind_rows_to_mailbox()
        assert journal.identity == paired
    assert paired is not None
    assert (paired.rows, paired.mailbox) == (f"{url} on the host {platform.node()}", "ZooKeeper at zk:2181/kafka")


def test_documents_are_written_after_the_rows_and_without_them_not_at_all(journal: Journal, url: str) -> None:
    def write(name: str) -> None:
        with open_journal(url, "c1", compare=False) as other:
            found.append(len(other.audit.rows()))  # no transaction keeps another process out by now
        create_document(journal.mailbox, f"/admin/{name}", "x")

    def change_in_vain() -> None:
        with journal.transaction():
            journal.project(lambda: write("b"))
            journal.audit.record(AuditRecord(Action.DETECT, "Broker 2 is down.", broker=2))
            raise ZeroDivisionError

    found: list[int] = []
    with journal.transaction():
        journal.project(lambda: write("a"))
        with journal.transaction():
            journal.audit.record(AuditRecord(Action.DETECT, "Broker 1 is down.", broker=1))
        assert journal.mailbox.children("/admin") == []
    with pytest.raises(ZeroDivisionError):
        change_in_vain()
    journal.project(lambda: write("c"))
    assert (journal.mailbox.children("/admin"), found) == (["a", "c"], [1, 1])


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
    monkeypatch.setattr(Engine, "dispose", lambda engine, **_: closed.append(engine.name))
    journal.close()
    assert (made[0].closed, closed) == (1, ["sqlite"])
