"""The status of requested partitions: the decision, and what the journal and the cluster say of real requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from kafka_steward.assignment import Assignment, Move, TopicPartition
from kafka_steward.cluster.state import Partition
from kafka_steward.document_api.document_reports import DocumentReporter, document_values
from kafka_steward.document_api.document_status import WaitingDocument, read_document_status
from kafka_steward.document_api.request_documents import (
    parse_reassignment_text,
    queue_add,
    queue_list,
    queue_remove,
    request_add,
    request_remove,
)
from kafka_steward.document_api.request_status import (
    AuditedRequest,
    PlannedMove,
    RequestEvidence,
    RequestState,
    decide_status,
    queued_partitions,
    read_request_statuses,
)
from kafka_steward.errors import JournalError, JournalUnreachable, RequestError
from kafka_steward.execution.cancel_signal import send_cancel_signal
from kafka_steward.execution.readiness import disable_reassignment, enable_reassignment
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Actor
from kafka_steward.journal.kip_documents import CancelRequest, Request
from kafka_steward.journal.records import Cause, MoveRow, MoveState, PlanStatus
from kafka_steward.journal.schema import tables
from kafka_steward.journal.store import Journal, open_journal
from kafka_steward.page_data import documents as document_data
from kafka_steward.page_data import plans as plan_data
from kafka_steward.page_data.reader import JournalReader, open_reader
from tests.present import present
from tests.protocol.simulated_watch import Yard, document
from tests.protocol.written_documents import ADA, CANCELLED, WAITING, write_documents

WHO = Actor(person="ada")
T0 = TopicPartition("t", 0)
HERE, WANTED, OTHER = (1, 2), (2, 3), (2, 4)
COMPLETE, STARTED, WAITS = RequestState.COMPLETE, RequestState.STARTED, RequestState.WAITING
REFUSED, SUPERSEDED, INCOMPLETE = RequestState.REFUSED, RequestState.SUPERSEDED, RequestState.INCOMPLETE


def partition(replicas: tuple[int, ...], **more: Any) -> Partition:
    return Partition("t", 0, replicas, frozenset(replicas), replicas[0], **more)


def move(after: tuple[int, ...], state: MoveState, *, plan_ended: bool = False, **more: Any) -> PlannedMove:
    return PlannedMove("c0ffee" * 4, MoveRow(Move("t", 0, HERE, after, 0, 0, "given"), state, **more), plan_ended)


def waits(target: tuple[int, ...]) -> Mapping[TopicPartition, Any]:
    return {T0: (WaitingDocument("/admin/reassignment_requests/r", 1, (), "for the next poll"), target)}


AT_REST = partition(HERE)
FLYING = partition((2, 3, 1), adding=(3,), removing=(1,))
AWAY = partition((2, 4, 1), adding=(4,), removing=(1,))
LAST = "There is no active reassignment of partition t-0, but replica set is 1,2 rather than 2,3."


@pytest.mark.parametrize(
    ("now", "known", "state", "says"),
    [
        (partition(WANTED), {}, COMPLETE, "Reassignment of partition t-0 is completed."),
        (partition((3, 2)), {}, INCOMPLETE, "replica set is 3,2 rather than 2,3"),
        (FLYING, {}, STARTED, "is still in progress"),
        (AWAY, {}, INCOMPLETE, "an external reassignment moves it to the brokers [2, 4]"),
        (AT_REST, {}, INCOMPLETE, LAST),
        (None, {}, INCOMPLETE, "cannot be verified: there is no such partition"),
        (None, {"hidden": {"t"}}, INCOMPLETE, "cannot be verified: Kafka"),
        (AT_REST, {"waiting": waits(WANTED)}, WAITS, "/admin/reassignment_requests/r waits for the next poll."),
        (AT_REST, {"waiting": waits(OTHER)}, SUPERSEDED, "/admin/reassignment_requests/r requests [2, 4]"),
        (AT_REST, {"moves": [move(WANTED, MoveState.WAITING)]}, WAITS, "plan c0ffeec0ffee moves it in its turn"),
        (AT_REST, {"moves": [move(WANTED, MoveState.HELD, detail="no room.")]}, WAITS, "not started: no room."),
        (AT_REST, {"moves": [move(WANTED, MoveState.SUBMITTED)]}, STARTED, "is still in progress"),
        (AT_REST, {"moves": [move(WANTED, MoveState.WAITING, stage=1)]}, STARTED, "is still in progress"),
        (AT_REST, {"moves": [move(OTHER, MoveState.WAITING)]}, SUPERSEDED, "plan c0ffeec0ffee moves it to [2, 4]"),
        # A document that asks for ours will supersede that plan.
        (AWAY, {"moves": [move(OTHER, MoveState.SUBMITTED)], "waiting": waits(WANTED)}, WAITS, "has not started"),
        # One that asks for something else has not superseded ours yet.
        (FLYING, {"moves": [move(WANTED, MoveState.SUBMITTED)], "waiting": waits(OTHER)}, STARTED, "in progress"),
        (
            AT_REST,
            {"moves": [move(WANTED, MoveState.DROPPED, plan_ended=True, detail="it is gone.")]},
            INCOMPLETE,
            "was not executed: it is gone.",
        ),
        (
            AT_REST,
            {"moves": [move(WANTED, MoveState.DROPPED, cause=Cause.SUPERSEDED, detail="superseded by r")]},
            SUPERSEDED,
            "was superseded by r.",
        ),
        (AT_REST, {"audited": AuditedRequest(5, "it names no broker")}, REFUSED, "was refused: it names no broker."),
        (AT_REST, {"audited": AuditedRequest(5)}, INCOMPLETE, LAST),
        (AT_REST, {"audited": AuditedRequest(5, later=OTHER)}, SUPERSEDED, "it was reassigned to [2, 4] later."),
        (
            AT_REST,
            {
                "moves": [move(WANTED, MoveState.DROPPED, plan_ended=True, settled_ms=9, detail="gone")],
                "audited": AuditedRequest(5, "no"),
            },
            INCOMPLETE,
            "was not executed: gone.",
        ),
        (
            AT_REST,
            {
                "moves": [move(WANTED, MoveState.DROPPED, plan_ended=True, settled_ms=3, detail="gone")],
                "audited": AuditedRequest(5, "no"),
            },
            REFUSED,
            "was refused: no.",
        ),
    ],
)
def test_what_is_said_of_a_partition(
    now: Partition | None, known: dict[str, Any], state: RequestState, says: str
) -> None:
    target: Assignment = WANTED
    audited = {(T0, target): known["audited"]} if "audited" in known else {}
    found = RequestEvidence(
        {} if now is None else {T0: now},
        known.get("hidden", ()),
        known.get("waiting", {}),
        {T0: known.get("moves", ())},
        audited,
    )
    status = decide_status(T0, WANTED, found)
    assert (status.state, says in status.sentence) == (state, True), status.sentence


def states(yard: Yard, *wanted: str) -> list[str]:
    asked = parse_reassignment_text(document(wanted))
    return [each.state.value for each in read_request_statuses(yard.simulator, yard.journal, asked)]


def test_a_request_waits_is_started_and_completes(yard: Yard) -> None:
    disable_reassignment(yard.journal, who=WHO, reason="racks")
    name, count = request_add(yard.journal, document(["t-0 23", "t-1 235"]), who=WHO)
    assert (name, count) == (yard.requests()[0], 2)
    assert states(yard, "t-0 23", "t-1 235", "t-2 312") == ["waiting", "waiting", "complete"]
    (waiting,) = read_document_status(yard.journal).requests
    assert waiting.why == "until reassignments are enabled"
    enable_reassignment(yard.journal, who=WHO)
    assert read_document_status(yard.journal).requests[0].why == "for the next poll of a watch"
    yard.look()
    assert states(yard, "t-0 23", "t-1 235") == ["started", "started"]
    yard.run()
    assert states(yard, "t-0 23", "t-1 235") == ["complete", "complete"]
    assert states(yard, "t-0 12") == ["incomplete"]


def test_one_that_is_refused_says_why(yard: Yard) -> None:
    request_add(yard.journal, document(["t-0 29", "t-7 23"]), who=WHO)
    yard.run()
    asked = parse_reassignment_text(document(["t-0 29", "t-7 23"]))
    found = read_request_statuses(yard.simulator, yard.journal, asked)
    assert [each.state for each in found] == [REFUSED, REFUSED]
    assert found[0].sentence == "Reassignment of partition t-0 was refused: the cluster has no broker 9."


def test_a_later_request_supersedes_one_that_waits_that_flies_and_that_is_complete(yard: Yard) -> None:
    request_add(yard.journal, document(["t-0 23"]), who=WHO)
    request_add(yard.journal, document(["t-0 24"]), who=WHO)
    assert states(yard, "t-0 23") == ["superseded"]
    yard.look()
    assert states(yard, "t-0 23", "t-1 231") == ["superseded", "complete"]
    request_add(yard.journal, document(["t-0 25"]), who=WHO)
    yard.look()
    yard.run()
    assert yard.replicas("t-0") == (2, 5)
    assert states(yard, "t-0 23") == ["superseded"]
    assert states(yard, "t-0 24") == ["superseded"]
    assert states(yard, "t-0 25") == ["complete"]
    request_add(yard.journal, document(["t-0 12"]), who=WHO)
    yard.run()
    assert states(yard, "t-0 25") == ["superseded"]


def test_a_cancelled_one_is_not_complete_and_says_so(yard: Yard) -> None:
    request_add(yard.journal, document(["t-0 23"]), who=WHO)
    yard.look()
    send_cancel_signal(yard.journal, CancelRequest(person="ada", reason="peak"), WHO)
    yard.run()
    assert yard.replicas("t-0") == (1, 2)
    (status,) = read_request_statuses(yard.simulator, yard.journal, parse_reassignment_text(document(["t-0 23"])))
    assert status.state is INCOMPLETE
    assert "was not executed" in status.sentence
    assert "peak" in status.sentence


def test_the_queue_and_what_was_started_from_it_are_verified_together() -> None:
    yard = Yard(max_in_flight=1)
    queue_add(yard.journal, document(["t-0 23", "t-1 235"]), who=WHO)
    assert [str(each.topic_partition) for each in queued_partitions(yard.journal)] == ["t-0", "t-1"]
    yard.look()
    assert len(queue_list(yard.journal)) == 1
    assert [str(each.topic_partition) for each in queued_partitions(yard.journal)] == ["t-0", "t-1"]
    assert sorted(states(yard, "t-0 23", "t-1 235")) == ["started", "waiting"]
    status = read_document_status(yard.journal)
    assert status.queue is not None
    assert status.queue.why.startswith("for plan ")
    # What is added to it, or given another target there, is what counts.
    node = present(yard.journal.tree.get(paths.REASSIGN_QUEUE))
    yard.journal.tree.set(node.path, document(["t-0 23", "t-1 245"]), version=node.version)
    assert [each.replicas for each in queued_partitions(yard.journal)] == [(2, 3), (2, 4, 5)]
    queue_remove(yard.journal, who=WHO)
    yard.run()
    assert queued_partitions(yard.journal) == []


def test_a_request_is_withdrawn_before_it_is_accepted_only(yard: Yard) -> None:
    name, _ = request_add(yard.journal, document(["t-0 23"]), who=WHO)
    request_remove(yard.journal, name, who=WHO)
    yard.run()
    assert yard.replicas("t-0") == (1, 2)
    rows = yard.journal.audit.rows(action=Action.REQUEST)
    assert [row.entry.who.person for row in rows] == ["ada", "ada"]
    with pytest.raises(RequestError, match=f"There is no request {name}"):
        request_remove(yard.journal, name, who=WHO)
    for strange in ("a/b", "", ".", "x\udc80"):
        with pytest.raises(RequestError, match="is no request"):
            request_remove(yard.journal, strange, who=WHO)


def test_a_request_that_a_plan_executes_already_is_not_said_to_be_withdrawn(yard: Yard) -> None:
    name, _ = request_add(yard.journal, document(["t-0 23"]), who=WHO)
    node = present(yard.journal.tree.get(f"{paths.REASSIGNMENT_REQUESTS}/{name}"))
    remove = yard.journal.tree.delete

    def accepted_before(path: str, *, version: int) -> None:
        yard.journal.tree.delete = remove  # type: ignore[method-assign]
        yard.look()  # another process publishes the plan at this moment, and dies before it deletes the request
        yard.journal.tree.create(path, node.data)
        remove(path, version=version)

    yard.journal.tree.delete = accepted_before  # type: ignore[method-assign]
    with pytest.raises(RequestError, match=r"is executed by plan [0-9a-f]{12}; to stop that, cancel the plan"):
        request_remove(yard.journal, name, who=WHO)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "does not contain JSON"),
        ("{", "does not contain JSON"),
        ("[" * 100_000, "does not contain JSON"),
        ("[]", "^The reassignment holds a list where an object is expected; correct or delete it.$"),
        ('{"version": 1}', "has no 'partitions'"),
        ('{"partitions": []}', r"lists no partition; it should be {\"version\": 1, \"partitions\": \[...\]}.$"),
        ('{"partitions": [{"topic": "my topic", "partition": 0, "replicas": [1]}]}', "where a topic"),
        ('{"partitions": [{"topic": "\\ud800", "partition": 0, "replicas": [1]}]}', "where a topic"),
        ('{"partitions": [{"topic": "t", "partition": -1, "replicas": [1]}]}', "a whole number"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": []}]}', "names no broker for t-0"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}', "a broker twice"),
        (document(["t-0 12", "t-0 21"]), "lists t-0 twice"),
        ('{"version": 2, "partitions": [{"topic": "t", "partition": 0, "replicas": [1]}]}', "newer Kafka Steward"),
    ],
)
def test_what_is_no_reassignment_is_one_sentence_and_nothing_is_written(yard: Yard, text: str, says: str) -> None:
    for add in (queue_add, request_add):
        with pytest.raises(RequestError, match=says) as caught:
            add(yard.journal, text, who=WHO)
        assert "\n" not in str(caught.value)
    assert yard.journal.tree.get(paths.REASSIGN_QUEUE) is None
    assert yard.requests() == []
    assert yard.journal.audit.rows() == []


def test_kip_236s_other_format_is_taken_and_written_in_kafkas(yard: Yard) -> None:
    request_add(yard.journal, '{"version": 1, "assignments": {"t": {"0": [2, 3]}}}', who=WHO)
    node = present(yard.journal.tree.get(f"{paths.REASSIGNMENT_REQUESTS}/{yard.requests()[0]}"))
    assert [each.replicas for each in Request.from_node(node).partitions] == [(2, 3)]
    assert '"partitions"' in node.data


def test_a_second_signal_is_refused_until_the_first_is_executed(yard: Yard) -> None:
    said = send_cancel_signal(yard.journal, CancelRequest(scope="plan", reason="racks"), WHO)
    assert said == (
        "The cancel of everything that is pending is signalled, and the completed moves are rolled back: racks."
    )
    with pytest.raises(RequestError, match="an earlier signal has not been executed yet"):
        send_cancel_signal(yard.journal, CancelRequest(), WHO)
    yard.run()
    send_cancel_signal(yard.journal, CancelRequest(), WHO)


# The documents as the page shows them: every kind with its fields, written when they change, and never a failure

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
    journal.plans.update(present(journal.plans.get(WAITING)), status=PlanStatus.COMPLETED)
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
