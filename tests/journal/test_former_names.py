"""Names that version 0.1.0 wrote: an opened journal has them in today's words, and nothing is lost."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action
from kafka_steward.journal.records import DEFERRED_PARTITIONS, PENDING_REPLICAS
from kafka_steward.journal.sql.tree import SqlTree
from kafka_steward.journal.store import Journal, open_journal
from kafka_steward.journal.tree import MAX_BYTES, Node
from tests.hostile import HostileNode, sql_writer
from tests.journal.recorded import record

NODES = {
    "/steward/borrowed/broker/3/a.rate": (paths.lease("broker", "3", "a.rate"), '{"version":1}'),
    "/steward/owed/t/0": (PENDING_REPLICAS.parent + "/t/0", '{"version":1,"replicas":[1,-1]}'),
    "/steward/owed/t/1": (PENDING_REPLICAS.parent + "/t/1", '{"version":1,"replicas":[2,-1]}'),
    "/steward/partitions_asked/u": (DEFERRED_PARTITIONS.parent + "/u", '{"version":1,"partitions":3}'),
    "/steward/fill_announced": (paths.FILL_EVENT, "{}"),
    "/steward/joined_brokers": (paths.EMPTY_BROKERS, "{}"),
    "/steward/switch": (paths.DISABLE_OBSERVED, "not even JSON"),
}


def test_the_documents_are_at_their_paths_of_today(open_it: Callable[[], Journal]) -> None:
    former = open_it().tree
    for path, (_, text) in NODES.items():
        former.create(path, text)
    tree = open_it().tree
    assert [tree.get(path) for path in NODES] == [None] * len(NODES)
    now = zip(NODES, tree.read([path for path, _ in NODES.values()]), strict=True)
    assert {path: (node.path, node.data) for path, node in now if node} == NODES


def test_what_is_at_both_paths_was_moved_already(open_it: Callable[[], Journal]) -> None:
    former = open_it().tree
    former.create("/steward/fill_announced", "moved, and not yet deleted")
    former.create(paths.FILL_EVENT, "moved, and changed since")
    tree = open_it().tree
    kept = tree.get(paths.FILL_EVENT)
    assert (tree.get("/steward/fill_announced"), kept and kept.data) == (None, "moved, and changed since")


def test_the_actions_of_the_audit_trail(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with closing(sqlite3.connect(path)) as database:
        database.executescript((record.FOLDER / "0.1.0" / "journal.sql").read_text())
        for number, action in enumerate(("mend", "owe", "foreign", "drop")):
            record.insert_audit_row(database, number, action)
        database.commit()
    with open_journal(f"sqlite:///{path}", record.CLUSTER, host=record.HOST) as journal:
        found = {row.entry.partition: row.entry.action for row in journal.audit.rows(plan="old")}
        assert found == dict(enumerate((Action.REPAIR, Action.PENDING, Action.EXTERNAL, Action.DROP)))
        assert [row.entry.partition for row in journal.audit.rows(action=Action.REPAIR)] == [0]


def test_a_document_that_cannot_be_moved_stays_and_is_tried_once(
    open_sql: Callable[[], Journal], monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = open_sql().tree
    assert isinstance(tree, SqlTree)
    too_large = HostileNode("/steward/fill_announced", "x" * (MAX_BYTES + 1), (0, 1, 1, 1, 1))
    assert sql_writer(tree.database.engine, tree.database.cluster_id)([too_large]) == 1
    tree.create("/steward/joined_brokers", "{}")
    read = SqlTree.subtree
    reads: list[str] = []

    def read_at_most_twice(tree: SqlTree, path: str, most: int) -> list[Node]:
        reads.append(path)
        assert reads.count(path) <= 2
        return read(tree, path, most)

    monkeypatch.setattr(SqlTree, "subtree", read_at_most_twice)
    tree = open_sql().tree
    assert {path: reads.count(path) for path in ("/steward/fill_announced", "/steward/joined_brokers")} == {
        "/steward/fill_announced": 1,
        "/steward/joined_brokers": 2,
    }
    assert tree.get(too_large.path) is not None
    assert tree.get(paths.FILL_EVENT) is None
    assert tree.get(paths.EMPTY_BROKERS) is not None
