"""Rows and documents are those of one journal, or the journal is not opened; and a plan has all of its rows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import sqlalchemy as sa

from kafka_steward.errors import PlanError, WrongJournal
from kafka_steward.journal import identity, paths
from kafka_steward.journal.identity import Identity, bind_rows_to_tree, ensure_identity
from kafka_steward.journal.schema import tables
from kafka_steward.journal.sql.database import open_database
from kafka_steward.journal.store import open_journal
from kafka_steward.journal.zookeeper.options import ZooKeeperOptions
from tests.journal.test_plans import moves_of, record_of
from tests.journal.zookeeper import ZooKeeperServer
from tests.memory_tree import MemoryTree


def test_a_journal_keeps_its_id_and_names_its_place(fresh_url: str, cluster_id: str) -> None:
    with (
        open_journal(fresh_url, cluster_id, host="here") as first,
        open_journal(fresh_url, cluster_id, host="here") as again,
    ):
        assert first.identity == again.identity
        assert first.identity is not None
        assert re.fullmatch("[0-9a-f]{32}", first.identity.id)
        assert cluster_id not in first.identity.place
        assert ("on the host here" in first.identity.place) == fresh_url.startswith("sqlite")
        if password := sa.make_url(fresh_url).password:
            assert str(password) not in first.identity.place


def test_each_cluster_of_a_database_has_an_id_of_its_own(sqlite_url: str, cluster_id: str) -> None:
    with open_journal(sqlite_url, cluster_id) as one, open_journal(sqlite_url, f"{cluster_id}-b") as other:
        assert one.identity is not None
        assert other.identity is not None
        assert one.identity.id != other.identity.id


def test_documents_are_not_read_with_the_rows_of_another_database(tmp_path: Path) -> None:
    tree = MemoryTree(lambda: 1)
    ours, theirs = (open_database(f"sqlite:///{tmp_path}/{name}.db", "c", name) for name in ("worker", "triggerer"))
    made = ensure_identity(ours, tree, "ZooKeeper at zk1:2181")
    assert (
        made.place == f"sqlite:///{tmp_path}/worker.db on the host worker with its documents in ZooKeeper at zk1:2181"
    )
    words = (
        "The documents in ZooKeeper at zk1:2181 belong to a journal whose rows are at "
        f"sqlite:///{tmp_path}/worker.db on the host worker, and this process opened the rows at "
        f"sqlite:///{tmp_path}/triggerer.db on the host triggerer; set the setting journal to the one database that all"
    )
    for _ in range(2):
        with pytest.raises(WrongJournal, match=re.escape(words)):
            ensure_identity(theirs, tree, "ZooKeeper at zk1:2181")
    assert ensure_identity(ours, tree, "ZooKeeper at zk1:2181") == made


def test_rows_are_not_read_with_documents_that_are_new(tmp_path: Path) -> None:
    """As when ZooKeeper lost them, or the chroot was misspelt."""
    database = open_database(f"sqlite:///{tmp_path}/rows.db", "c", "here")
    ensure_identity(database, MemoryTree(lambda: 1), "ZooKeeper at zk1:2181/kafka")
    empty = MemoryTree(lambda: 1)
    with pytest.raises(
        WrongJournal, match="documents are in ZooKeeper at zk1:2181/kafka, and there are none of its documents in Zoo"
    ):
        ensure_identity(database, empty, "ZooKeeper at zk1:2181/kafak")
    assert empty.get(paths.JOURNAL) is None


def test_whoever_dies_between_the_halves_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database, tree = open_database(f"sqlite:///{tmp_path}/rows.db", "c", "here"), MemoryTree(lambda: 1)

    def die(*_: object) -> None:
        raise SystemExit

    monkeypatch.setattr(tree, "create", die)
    with pytest.raises(SystemExit):
        ensure_identity(database, tree, "there")
    monkeypatch.undo()
    monkeypatch.setattr(identity._IdentityRow, "mark_bound", die)
    with pytest.raises(SystemExit):
        ensure_identity(database, tree, "there")
    monkeypatch.undo()
    node = tree.get(paths.JOURNAL)
    assert node is not None
    assert ensure_identity(database, tree, "there").id in node.data


@pytest.mark.parametrize(
    "text", ["", "{}", '{"id": 5, "rows": "x"}', "not JSON", '{"version": 9, "id": "x", "rows": "y"}']
)
def test_a_garbled_name_refuses_until_the_halves_are_tied_together_again(tmp_path: Path, text: str) -> None:
    database, tree = open_database(f"sqlite:///{tmp_path}/rows.db", "c", "here"), MemoryTree(lambda: 1)
    made = ensure_identity(database, tree, "there")
    node = tree.get(paths.JOURNAL)
    assert node is not None
    tree.set(paths.JOURNAL, text, version=node.version)
    with pytest.raises(WrongJournal, match=r"rows are at no known database, .* `airflow kafka-steward journal pair`"):
        ensure_identity(database, tree, "there")
    paired = bind_rows_to_tree(database, tree, "there")
    assert paired.id != made.id
    assert ensure_identity(database, tree, "there") == paired


def test_tying_together_ends_what_shared_one_half(tmp_path: Path) -> None:
    old, new = (open_database(f"sqlite:///{tmp_path}/{name}.db", "c", "here") for name in ("old", "new"))
    tree = MemoryTree(lambda: 1)
    ensure_identity(old, tree, "there")
    made = bind_rows_to_tree(new, tree, "there")
    assert ensure_identity(new, tree, "there") == made
    with pytest.raises(WrongJournal, match=r"belong to a journal whose rows are at .*new.db"):
        ensure_identity(old, tree, "there")


def test_rows_whose_documents_are_lost_are_tied_to_an_empty_tree(tmp_path: Path) -> None:
    database, empty = open_database(f"sqlite:///{tmp_path}/rows.db", "c", "here"), MemoryTree(lambda: 1)
    lost = ensure_identity(database, MemoryTree(lambda: 1), "there")
    paired = bind_rows_to_tree(database, empty, "elsewhere")
    assert paired == Identity(paired.id, lost.rows, "elsewhere")
    assert paired.id != lost.id
    assert ensure_identity(database, empty, "elsewhere") == paired


def test_a_process_that_dies_while_tying_together_leaves_no_open_door(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, tree = open_database(f"sqlite:///{tmp_path}/rows.db", "c", "here"), MemoryTree(lambda: 1)
    ensure_identity(database, tree, "there")

    def die(*_: object, **__: object) -> None:
        raise SystemExit

    monkeypatch.setattr(tree, "set", die)
    with pytest.raises(SystemExit):
        bind_rows_to_tree(database, tree, "there")
    monkeypatch.undo()
    with pytest.raises(WrongJournal, match="belong to a journal whose rows are at"):
        ensure_identity(database, tree, "there")


def test_two_hosts_with_files_of_their_own_do_not_share_zookeeper(
    zookeeper: ZooKeeperServer, tmp_path: Path, cluster_id: str
) -> None:
    options = ZooKeeperOptions(zookeeper.at(cluster_id))
    worker, triggerer = f"sqlite:///{tmp_path}/worker.db", f"sqlite:///{tmp_path}/triggerer.db"
    with open_journal(worker, cluster_id, host="worker", zookeeper=options) as journal:
        journal.plans.publish(record_of(journal, "aa"), moves_of(3))
    with pytest.raises(
        WrongJournal, match=r"worker.db on the host worker, and this process opened the rows at .*triggerer.db"
    ):
        open_journal(triggerer, cluster_id, host="triggerer", zookeeper=options)
    with open_journal(worker, cluster_id, host="worker", zookeeper=options) as journal:
        assert len(journal.plans.rows("aa")) == 3


def test_a_plan_whose_rows_are_missing_is_refused_and_named(url: str, cluster_id: str) -> None:
    """As when the database was restored from a backup that is older than the documents."""
    with open_journal(url, cluster_id) as journal:
        journal.plans.publish(record_of(journal, "beef"), moves_of(3))
        journal.plans._table.delete("beef")
        with pytest.raises(PlanError, match=r"Plan beef moves 3 partitions, and the journal at .* has 0 rows of it"):
            journal.plans.rows("beef")
        assert journal.plans.existing_rows("beef") == []


def test_who_opened_a_journal_is_written_down_with_the_moment(fresh_url: str, cluster_id: str) -> None:
    hosts = ["here"] if fresh_url.startswith("sqlite") else ["one", "two"]
    for host in hosts:
        with open_journal(fresh_url, cluster_id, host=host) as journal:
            now_ms = journal.now_ms()
    with open_journal(fresh_url, cluster_id, host=hosts[0]) as journal:
        assert journal.openings is not None
        rows = journal.openings.rows()
    assert {row["host"] for row in rows} == set(hosts)
    assert all(now_ms - 60_000 < row["first_ms"] <= row["last_ms"] < now_ms + 60_000 for row in rows)


def test_the_hosts_of_a_journal_in_sqlite_are_counted_and_those_of_a_shared_one_are_not(
    fresh_url: str, cluster_id: str
) -> None:
    in_sqlite = fresh_url.startswith("sqlite")
    for host in ("one", "two"):
        with open_journal(fresh_url, cluster_id, host=host) as journal:
            assert journal.openings is not None
            counted = journal.openings.count_hosts_of_local_database(60_000)
            assert counted == {"one": 1, "two": 2}[host] * in_sqlite
            assert journal.openings.count_hosts_of_local_database(-60_000) == 0
            if in_sqlite:
                # What the refusal of a second host advises where a host was renamed; and here it was not.
                with journal.openings.database.write_transaction() as connection:
                    connection.execute(sa.update(tables.host).values(name="two"))


def test_a_host_that_comes_back_later_is_written_down_anew(
    sqlite_url: str, cluster_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "_NOTED_EVERY_MS", -1)
    for _ in range(2):
        with open_journal(sqlite_url, cluster_id) as journal:
            assert journal.openings is not None
            (row,) = journal.openings.rows()
            before = row["last_ms"]
            while journal.now_ms() <= before:
                pass
    with open_journal(sqlite_url, cluster_id) as journal:
        assert journal.openings is not None
        (row,) = journal.openings.rows()
    assert row["first_ms"] < before < row["last_ms"]


def test_another_journal_than_the_one_that_the_work_was_begun_with_is_refused() -> None:
    here = Identity(
        "aa", "sqlite:////airflow/journal.db on the host pod-7", "sqlite:////airflow/journal.db on the host pod-7"
    )
    here.require_same_journal(None)
    here.require_same_journal({"id": "aa", "place": "elsewhere"})
    words = (
        "started with the journal at postgresql://db/x, and this process opened another one, at sqlite:.* on "
        "the host pod-7;"
    )
    with pytest.raises(WrongJournal, match=words):
        here.require_same_journal({"id": "bb", "place": "postgresql://db/x"})
