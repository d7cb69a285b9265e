"""The documents as the page shows them: every kind with its fields, written when they change, and never a failure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from kafka_steward.document_api.document_reports import DocumentReporter, document_values
from kafka_steward.errors import JournalError, JournalUnreachable
from kafka_steward.execution.readiness import enable_reassignment
from kafka_steward.journal import paths
from kafka_steward.journal.records import PlanStatus
from kafka_steward.journal.schema import tables
from kafka_steward.journal.store import Journal, open_journal
from kafka_steward.page_data import documents as document_data
from kafka_steward.page_data import plans as plan_data
from kafka_steward.page_data.reader import JournalReader, open_reader
from tests.protocol.written_documents import ADA, CANCELLED, WAITING, write_documents

CLUSTER = "cluster-d"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/journal.db"


@pytest.fixture
def journal(url: str) -> Iterator[Journal]:
    with open_journal(url, CLUSTER, host="h") as opened:
        yield opened


@pytest.fixture
def reader(journal: Journal, url: str) -> Iterator[JournalReader]:
    with open_reader(url, host="h") as opened:
        yield opened


def shown(reader: JournalReader) -> dict[str, tuple[Any, ...]]:
    """The documents by kind, as the page reads them."""
    return {kind: each.documents for kind, each in document_data.documents(reader, CLUSTER).by_kind.items()}


def test_every_kind_is_reported_with_its_fields(journal: Journal, reader: JournalReader) -> None:
    name = write_documents(journal)
    DocumentReporter(journal).report()
    found = shown(reader)
    assert {kind: len(several) for kind, several in found.items()} == dict.fromkeys(document_data.KINDS, 1)
    (switch,), (signal,), (cancel,) = found["switch"], found["signal"], found["cancels"]
    assert (switch["person"], switch["reason"]) == ("ada", "the racks are being rewired")
    assert (signal["plan"], signal["scope"], signal["person"]) == (CANCELLED, "pending", "ada")
    assert (cancel["plan"], cancel["status"], cancel["scope"]) == (CANCELLED, PlanStatus.RUNNING.value, "plan")
    (request,), (queue,), (chunk,) = found["requests"], found["queue"], found["chunks"]
    assert (request["name"], request["partitions"], request["error"]) == (name, 1, "")
    assert request["first"] == [{"topic": "r", "partition": 7, "replicas": [3, 1]}]
    assert (queue["partitions"], [each["partition"] for each in queue["first"]]) == (4, [0, 1, 2])
    assert chunk["first"][0]["topic"] == "c"
    (waiting,), (restart,) = found["waiting_plans"], found["restarts"]
    assert (waiting["plan"], waiting["operation"]) == (WAITING, "drain")
    assert (restart["broker"], restart["until_ms"] - restart["announced_ms"]) == (5, 60_000)
    assert found["pending_replicas"] == ({"topic": "p", "partition": 3, "brokers": [1, 2], "missing": 1},)
    assert found["deferred_partitions"] == ({"topic": "d", "count": 12, "asked_by": "ada"},)


def test_a_journal_without_documents_has_every_kind_and_none_of_it(journal: Journal) -> None:
    assert document_values(journal) == {kind: [] for kind in document_data.KINDS}


def test_what_is_gone_is_no_longer_shown(journal: Journal, reader: JournalReader) -> None:
    reporter = DocumentReporter(journal)
    write_documents(journal)
    reporter.report()
    enable_reassignment(journal, who=ADA)
    (node,) = [each for each in [journal.tree.get(paths.rolling_bounce(5))] if each]
    journal.tree.delete(node.path, version=node.version)
    reporter.report()
    assert (shown(reader)["switch"], shown(reader)["restarts"]) == ((), ())


def test_a_request_that_cannot_be_read_is_shown_with_its_error(journal: Journal, reader: JournalReader) -> None:
    journal.tree.create_sequential(paths.REQUEST_PREFIX, "no json")
    DocumentReporter(journal).report()
    (request,) = shown(reader)["requests"]
    assert (request["partitions"], request["first"]) == (0, [])
    assert request["error"]


def test_an_unchanged_poll_writes_nothing(journal: Journal) -> None:
    reporter = DocumentReporter(journal)
    write_documents(journal)
    reporter.report()
    assert journal.watch_reports is not None
    statements: list[str] = []
    engine = journal.watch_reports.database.engine
    sa.event.listen(engine, "before_cursor_execute", lambda *sent: statements.append(sent[2]))
    reporter.report()
    assert [each for each in statements if each.startswith(("INSERT", "UPDATE", "DELETE"))] == []


def test_a_plan_whose_row_is_missing_is_shown_also_one_that_ended(journal: Journal, reader: JournalReader) -> None:
    write_documents(journal)
    record = journal.plans.get(WAITING)
    assert record is not None
    journal.plans.update(record, status=PlanStatus.COMPLETED)
    assert journal.watch_reports is not None
    with journal.watch_reports.database.write_transaction() as connection:
        connection.execute(sa.delete(tables.plan))
    DocumentReporter(journal).report()
    assert {each.digest: each.status for each in plan_data.plans(reader, CLUSTER).rows} == {
        WAITING: PlanStatus.COMPLETED,
        CANCELLED: PlanStatus.RUNNING,
    }


def test_a_document_that_cannot_be_recorded_never_stops_the_watch(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(error: Exception) -> Any:
        def read(_journal: Journal) -> Any:
            raise error

        return read

    module = "kafka_steward.document_api.document_reports.read_document_status"
    monkeypatch.setattr(module, fail(JournalError("The tree is\x1b[31m broken.")))
    DocumentReporter(journal).report()
    assert "could not be recorded for the page" in caplog.text
    assert "\x1b" not in caplog.text
    # A journal that does not answer is what the watch itself reports, and waits for.
    monkeypatch.setattr(module, fail(JournalUnreachable("It does not answer.")))
    with pytest.raises(JournalUnreachable):
        DocumentReporter(journal).report()
