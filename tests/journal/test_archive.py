"""What is old is put away: rows of the audit trail, plans that ended, and documents that nothing reads any more."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import JournalUnreachable, RequestError, VersionConflict
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Actor, Audit, AuditRecord, StoredAuditRecord
from kafka_steward.journal.columns import audit_facts
from kafka_steward.journal.copy import copy_journal
from kafka_steward.journal.listing import QUARANTINE, quarantine_document
from kafka_steward.journal.plans import Approval
from kafka_steward.journal.records import MoveState, PlanRecord, PlanStatus
from kafka_steward.journal.retention import archive_audit, delete_old_documents
from kafka_steward.journal.schema import tables
from kafka_steward.journal.sql.tree import SqlTree
from kafka_steward.journal.store import Journal, open_journal
from tests.journal.test_plans import moves_of, record_of
from tests.present import present

ME = Actor(person="ada")


def reasons(journal: Journal) -> list[str]:
    return [row.entry.reason for row in journal.audit.rows()]


def archive(journal: Journal, file: Path, before_ms: int | None = None) -> int:
    before_ms = journal.now_ms() + 1 if before_ms is None else before_ms
    return archive_audit(journal, before_ms, file, as_values=audit_facts, who=ME)


@pytest.fixture
def history(sql_journal: Journal) -> Journal:
    """A row of a plan that is known, one of a plan that is not, and more than are read at once of none."""
    sql_journal.plans.publish(record_of(sql_journal, "d1"), moves_of(1))
    sql_journal.audit.record_all([AuditRecord(Action.PUBLISH, f"of {plan}", plan=plan) for plan in ("d1", "d0")])
    sql_journal.audit.record_all([AuditRecord(Action.DETECT, f"row {at}", broker=at) for at in range(600)])
    return sql_journal


@pytest.mark.parametrize("name", ["audit.jsonl", "audit.jsonl.gz"])
def test_all_but_the_rows_of_known_plans_are_in_the_file_and_in_the_journal_no_more(
    history: Journal, tmp_path: Path, name: str
) -> None:
    before = {row.entry.reason: row for row in history.audit.rows()}
    file = tmp_path / name
    before_ms = history.now_ms() + 1
    assert archive(history, file, before_ms) == 601
    assert reasons(history) == ["of d1", f"601 rows of the audit trail were archived in {file}"]
    entry = history.audit.rows()[-1].entry
    assert (entry.action, entry.who, entry.after) == (Action.REQUEST, ME, {"rows": 601, "before_ms": before_ms})
    text = gzip.decompress(file.read_bytes()).decode() if name.endswith(".gz") else file.read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["reason"] for line in lines] == ["of d0", *(f"row {at}" for at in range(600))]
    assert all(line == {"id": before[line["reason"]].id, **audit_facts(before[line["reason"]])} for line in lines)


def test_rows_that_are_younger_stay(history: Journal, tmp_path: Path) -> None:
    oldest_ms = min(row.when_ms for row in history.audit.rows())
    assert archive(history, tmp_path / "audit.jsonl", before_ms=oldest_ms) == 0
    assert len(reasons(history)) == 603


def test_another_clusters_rows_stay(history: Journal, tmp_path: Path) -> None:
    other = AuditRecord(Action.DETECT, "elsewhere", broker=1)
    database = history.audit._table._database
    elsewhere = type(history.audit._table)(type(database)(database.engine, f"{database.cluster_id}-2", database.host))
    Audit(elsewhere).record(other)
    archive(history, tmp_path / "audit.jsonl")
    assert [row.entry for row in Audit(elsewhere).rows()] == [other]


def test_a_file_that_is_there_is_left_and_nothing_is_deleted(history: Journal, tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    file.write_text("precious")
    with pytest.raises(RequestError) as refused:
        archive(history, file)
    assert str(refused.value) == (f"{file} cannot be written (File exists); nothing was deleted: name another.")
    assert file.read_text() == "precious"
    assert len(reasons(history)) == 602


def test_a_failure_that_the_system_does_not_describe_is_named_by_its_kind(
    history: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise TimeoutError

    monkeypatch.setattr("os.fsync", fail)
    file = tmp_path / "audit.jsonl"
    with pytest.raises(RequestError) as refused:
        archive(history, file)
    assert str(refused.value) == f"{file} cannot be written (TimeoutError); nothing was deleted: name another."
    assert (len(reasons(history)), file.exists()) == (602, False)


def test_nothing_is_deleted_before_all_is_written(
    history: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = history.audit.pages

    def fails_in_the_middle(before_ms: int) -> Iterator[list[StoredAuditRecord]]:
        yield next(real(before_ms))
        raise JournalUnreachable("The database is gone.")

    monkeypatch.setattr(history.audit, "pages", fails_in_the_middle)
    file = tmp_path / "audit.jsonl"
    with pytest.raises(JournalUnreachable):
        archive(history, file)
    assert len(reasons(history)) == 602
    assert not file.exists()


KNOWN, FORGOTTEN = "a" * 64, "b" * 64


def approve(journal: Journal) -> None:
    for digest in (KNOWN, FORGOTTEN):
        journal.tree.create(paths.approval(digest), Approval(digest, "ada").to_json())


def forget(journal: Journal, before_ms: int) -> None:
    delete_old_documents(journal.tree, before_ms, is_known=lambda digest: digest == KNOWN)


def test_approvals_of_plans_that_are_not_known_any_more_and_what_was_moved_aside_go_when_they_are_old(
    journal: Journal,
) -> None:
    before_ms = journal.now_ms() - 60_000
    approve(journal)
    node = journal.tree.create("/admin/reassignment_requests/request_1", "{" * 300_000)
    quarantine_document(journal.tree, node, "no JSON", None)
    forget(journal, before_ms)
    assert journal.tree.children(paths.APPROVALS) == [KNOWN, FORGOTTEN]
    assert len(journal.tree.children(QUARANTINE)) == 1
    forget(journal, journal.now_ms() + 1)
    assert journal.tree.children(paths.APPROVALS) == [KNOWN]
    assert journal.tree.children(QUARANTINE) == [], "with its texts"


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


def ended(journal: Journal, digest: str = "d1", **changes: Any) -> PlanRecord:
    """A plan that is complete."""
    record = journal.plans.publish(record_of(journal, digest), moves_of(2))
    journal.plans.set_move_states(
        digest, [move.topic_partition for move in moves_of(2)], MoveState.COMPLETED, fence=None
    )
    return journal.plans.update(record, status=PlanStatus.COMPLETED, **changes)


def put_away(journal: Journal, needed: str = "", most: int = 9) -> list[str]:
    """Whatever has ended by now."""
    return journal.plans.archive(journal.now_ms() + 1, is_needed=lambda record: record.digest == needed, most=most)


def test_it_leaves_the_tree_and_is_known_as_before(journal: Journal) -> None:
    before = ended(journal, reason="done")
    rows = journal.plans.rows("d1")
    assert put_away(journal) == ["d1"]
    assert journal.tree.children(paths.PLANS) == []
    assert journal.plans.recent() == journal.plans.unfinished() == []
    assert journal.plans.get("d1") == before
    assert journal.plans.latest(9) == [before]
    assert journal.plans.digests() == ["d1"]
    assert journal.plans.rows("d1") == rows
    assert put_away(journal) == []
    assert journal.plans.publish(record_of(journal), moves_of(2)) == before, "the same plan again"


def test_what_has_not_ended_or_is_needed_or_ended_lately_stays(journal: Journal) -> None:
    journal.plans.publish(record_of(journal, "d1"), moves_of(1))
    ended(journal, "d2")
    assert put_away(journal, needed="d2") == []
    assert journal.plans.archive(journal.now_ms() - 60_000, is_needed=lambda _: False, most=9) == []
    assert [record.digest for record in journal.plans.recent()] == ["d1", "d2"]


def test_so_many_plans_are_put_away_at_once(journal: Journal) -> None:
    for digest in ("d1", "d2", "d3"):
        ended(journal, digest)
    assert [len(put_away(journal, most=2)) for _ in range(3)] == [2, 1, 0]


def test_the_latest_are_those_published_last_wherever_they_are(journal: Journal) -> None:
    for digest in ("d1", "d2", "d3"):
        ended(journal, digest)
    put_away(journal, needed="d2")
    journal.plans.publish(record_of(journal, "d4"), moves_of(1))
    assert [record.digest for record in journal.plans.latest(3)] == ["d4", "d3", "d2"]
    assert len(journal.plans.latest(9)) == 4


def test_one_that_changes_is_among_the_others_again(journal: Journal) -> None:
    ended(journal)
    put_away(journal)
    found = present(journal.plans.get("d1"))
    changed = journal.plans.update(found, status=PlanStatus.ROLLED_BACK)
    assert journal.plans.recent() == [changed]
    assert journal.plans.latest(9) == [changed]
    with pytest.raises(VersionConflict):
        journal.plans.update(found, status=PlanStatus.ABANDONED)
    put_away(journal)
    assert journal.plans.get("d1") == changed


def test_one_that_changes_is_in_the_tree_alone(journal: Journal) -> None:
    ended(journal, "d1")
    ended(journal, "d2")
    put_away(journal)
    journal.plans.update(present(journal.plans.get("d1")), reason="looked at again")
    assert journal.tree.children(paths.PLANS) == ["d1"]
    assert journal.plans._ended.digests() == ["d2"]


def test_it_is_forgotten_with_its_rows_like_any_other(journal: Journal) -> None:
    ended(journal)
    put_away(journal)
    assert journal.plans.purge(journal.now_ms() - 60_000) == []
    assert journal.plans.purge(journal.now_ms() + 1) == ["d1"]
    assert journal.plans.get("d1") is None
    assert journal.plans.rows("d1") == []


def test_a_process_that_dies_in_between_leaves_it_where_it_was(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = ended(journal)

    def die(*_: object, **__: object) -> None:
        raise JournalUnreachable("The process died.")

    with monkeypatch.context() as patched:
        patched.setattr(journal.tree, "delete", die)
        with pytest.raises(JournalUnreachable):
            put_away(journal)
    assert journal.plans.recent() == journal.plans.latest(9) == [before]
    assert put_away(journal) == ["d1"]
    assert journal.plans.latest(9) == [before]


def test_a_process_that_dies_while_it_comes_back_loses_none_of_its_rows(journal: Journal) -> None:
    ended(journal)
    put_away(journal)
    found = present(journal.plans.get("d1"))
    # As where tree and rows are two stores: the node is there again, and the old row still is.
    journal.tree.create(paths.plan("d1"), replace(found, status=PlanStatus.RUNNING).to_json())
    assert journal.plans.purge(journal.now_ms() + 1) == []
    assert len(journal.plans.rows("d1")) == 2
    assert journal.plans._ended.digests() == []


def test_a_copy_has_the_plan_that_ended_too(journal: Journal, tmp_path_factory: pytest.TempPathFactory) -> None:
    before = ended(journal)
    put_away(journal)
    url = f"sqlite:///{tmp_path_factory.mktemp('copy')}/journal.db"
    with open_journal(url, journal.cluster_id) as target:
        assert copy_journal(journal, target).plans == 1
        assert target.plans.get("d1") == before
        assert target.plans.rows("d1")[0].topic_partition == TopicPartition("orders", 0)
        assert target.plans.recent() == []
