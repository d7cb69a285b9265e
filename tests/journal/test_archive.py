"""What is old is put away: rows of the audit trail, and documents that nothing reads any more."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_steward.errors import JournalUnreachable, RequestError
from kafka_steward.journal.audit import Action, Actor, Audit, AuditRecord, StoredAuditRecord
from kafka_steward.journal.columns import audit_facts
from kafka_steward.journal.listing import QUARANTINE, quarantine_document
from kafka_steward.journal.retention import archive_audit, delete_old_rows
from kafka_steward.journal.store import Journal
from tests.documents import create_document
from tests.journal.test_plans import moves_of, record_of

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


def test_what_was_moved_aside_goes_when_it_is_old(journal: Journal) -> None:
    before_ms = journal.now_ms() - 60_000
    node = create_document(journal.mailbox, "/admin/reassignment_requests/request_1", "{" * 300_000)
    quarantine_document(journal.mailbox, journal.state, node, "no JSON", None)
    delete_old_rows(journal, before_ms)
    assert len(journal.rows(QUARANTINE).all()) == 1
    delete_old_rows(journal, journal.now_ms() + 1)
    assert journal.rows(QUARANTINE).all() == []
