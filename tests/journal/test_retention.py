"""What nothing reads any more goes with the plans of its time."""

from __future__ import annotations

import sqlalchemy as sa

from kafka_steward.journal import paths
from kafka_steward.journal.listing import QUARANTINE, quarantine_document
from kafka_steward.journal.plans import Approval
from kafka_steward.journal.retention import delete_old_documents
from kafka_steward.journal.schema import tables
from kafka_steward.journal.sql.tree import SqlTree
from kafka_steward.journal.store import Journal

KNOWN, FORGOTTEN = "a" * 64, "b" * 64


def approve(journal: Journal) -> None:
    for digest in (KNOWN, FORGOTTEN):
        journal.tree.create(paths.approval(digest), Approval(digest, "ada").to_json())


def forget(journal: Journal, before_ms: int) -> None:
    delete_old_documents(journal.tree, before_ms, is_known=lambda digest: digest == KNOWN)


def test_approvals_go_when_their_plan_is_not_known_any_more(journal: Journal) -> None:
    approve(journal)
    forget(journal, journal.now_ms() + 1)
    assert journal.tree.children(paths.APPROVALS) == [KNOWN]


def test_what_was_moved_aside_goes_with_its_texts(journal: Journal) -> None:
    node = journal.tree.create("/admin/reassignment_requests/request_1", "{" * 300_000)
    quarantine_document(journal.tree, node, "no JSON", None)
    forget(journal, journal.now_ms() + 1)
    assert journal.tree.children(QUARANTINE) == []


def test_what_is_younger_stays(journal: Journal) -> None:
    before_ms = journal.now_ms() - 60_000
    approve(journal)
    quarantine_document(journal.tree, journal.tree.create("/a/b", "{"), "no JSON", None)
    forget(journal, before_ms)
    assert journal.tree.children(paths.APPROVALS) == [KNOWN, FORGOTTEN]
    assert len(journal.tree.children(QUARANTINE)) == 1


def test_what_others_put_there_stays_whatever_its_name(sql_journal: Journal) -> None:
    tree = sql_journal.tree
    tree.create(f"{QUARANTINE}/notes", "mine")
    node = tree.create(f"{QUARANTINE}/doc_x", "mine too")
    rename = sa.update(tables.node).where(tables.node.c.path == node.path).values(path=f"{QUARANTINE}/\x84")
    assert isinstance(tree, SqlTree)
    with tree.database.write_transaction() as connection:
        connection.execute(rename)
    forget(sql_journal, sql_journal.now_ms() + 1)
    assert tree.children(QUARANTINE) == ["notes", "\x84"]
