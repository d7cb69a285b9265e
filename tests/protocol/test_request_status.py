"""The status of requested partitions: the decision, and what the journal and the cluster say of real requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kafka_steward.assignment import Assignment, Move, TopicPartition
from kafka_steward.cluster.state import Partition
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
from kafka_steward.errors import RequestError
from kafka_steward.execution.cancel_signal import send_cancel_signal
from kafka_steward.execution.readiness import disable_reassignment, enable_reassignment
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Actor
from kafka_steward.journal.kip_documents import CancelRequest, Request
from kafka_steward.journal.records import Cause, MoveRow, MoveState, PlanStatus
from tests.protocol.simulated_watch import Yard, document

WHO = Actor(person="ada")
T0 = TopicPartition("t", 0)
HERE, WANTED, OTHER = (1, 2), (2, 3), (2, 4)
COMPLETE, STARTED, WAITING = RequestState.COMPLETE, RequestState.STARTED, RequestState.WAITING
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
        (AT_REST, {"waiting": waits(WANTED)}, WAITING, "/admin/reassignment_requests/r waits for the next poll."),
        (AT_REST, {"waiting": waits(OTHER)}, SUPERSEDED, "/admin/reassignment_requests/r requests [2, 4]"),
        (AT_REST, {"moves": [move(WANTED, MoveState.WAITING)]}, WAITING, "plan c0ffeec0ffee moves it in its turn"),
        (AT_REST, {"moves": [move(WANTED, MoveState.HELD, detail="no room.")]}, WAITING, "not started: no room."),
        (AT_REST, {"moves": [move(WANTED, MoveState.SUBMITTED)]}, STARTED, "is still in progress"),
        (AT_REST, {"moves": [move(WANTED, MoveState.WAITING, stage=1)]}, STARTED, "is still in progress"),
        (AT_REST, {"moves": [move(OTHER, MoveState.WAITING)]}, SUPERSEDED, "plan c0ffeec0ffee moves it to [2, 4]"),
        # A document that asks for ours will supersede that plan.
        (AWAY, {"moves": [move(OTHER, MoveState.SUBMITTED)], "waiting": waits(WANTED)}, WAITING, "has not started"),
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


def test_a_request_waits_is_started_and_completes() -> None:
    yard = Yard()
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


def test_one_that_is_refused_says_why() -> None:
    yard = Yard()
    request_add(yard.journal, document(["t-0 29", "t-7 23"]), who=WHO)
    yard.run()
    asked = parse_reassignment_text(document(["t-0 29", "t-7 23"]))
    found = read_request_statuses(yard.simulator, yard.journal, asked)
    assert [each.state for each in found] == [REFUSED, REFUSED]
    assert found[0].sentence == "Reassignment of partition t-0 was refused: the cluster has no broker 9."


def test_a_later_request_supersedes_one_that_waits_that_flies_and_that_is_complete() -> None:
    yard = Yard()
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


def test_a_cancelled_one_is_not_complete_and_says_so() -> None:
    yard = Yard()
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
    node = yard.journal.tree.get(paths.REASSIGN_QUEUE)
    assert node is not None
    yard.journal.tree.set(node.path, document(["t-0 23", "t-1 245"]), version=node.version)
    assert [each.replicas for each in queued_partitions(yard.journal)] == [(2, 3), (2, 4, 5)]
    queue_remove(yard.journal, who=WHO)
    yard.run()
    assert queued_partitions(yard.journal) == []


def test_a_plan_of_a_queue_that_is_complete_is_read_no_more() -> None:
    yard = Yard()
    queue_add(yard.journal, document(["t-0 23"]), who=WHO)
    yard.run()
    assert queued_partitions(yard.journal) == []
    assert [each.status for each in yard.journal.plans.latest(1)] == [PlanStatus.COMPLETED]


def test_a_request_is_withdrawn_before_it_is_accepted_only() -> None:
    yard = Yard()
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


def test_a_request_that_a_plan_executes_already_is_not_said_to_be_withdrawn() -> None:
    yard = Yard()
    name, _ = request_add(yard.journal, document(["t-0 23"]), who=WHO)
    node = yard.journal.tree.get(f"{paths.REASSIGNMENT_REQUESTS}/{name}")
    assert node is not None
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
        ("[]", "a list where an object is expected"),
        ('{"partitions": []}', "lists no partition"),
        ('{"partitions": [{"topic": "my topic", "partition": 0, "replicas": [1]}]}', "where a topic"),
        ('{"partitions": [{"topic": "\\ud800", "partition": 0, "replicas": [1]}]}', "where a topic"),
        ('{"partitions": [{"topic": "t", "partition": -1, "replicas": [1]}]}', "a whole number"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": []}]}', "names no broker for t-0"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}', "a broker twice"),
        (document(["t-0 12", "t-0 21"]), "lists t-0 twice"),
        ('{"version": 2, "partitions": [{"topic": "t", "partition": 0, "replicas": [1]}]}', "newer Kafka Steward"),
    ],
)
def test_what_is_no_reassignment_is_one_sentence_and_nothing_is_written(text: str, says: str) -> None:
    yard = Yard()
    for add in (queue_add, request_add):
        with pytest.raises(RequestError, match=says) as caught:
            add(yard.journal, text, who=WHO)
        assert "\n" not in str(caught.value)
    assert yard.journal.tree.get(paths.REASSIGN_QUEUE) is None
    assert yard.requests() == []
    assert yard.journal.audit.rows() == []


def test_kip_236s_other_format_is_taken_and_written_in_kafkas() -> None:
    yard = Yard()
    request_add(yard.journal, '{"version": 1, "assignments": {"t": {"0": [2, 3]}}}', who=WHO)
    node = yard.journal.tree.get(f"{paths.REASSIGNMENT_REQUESTS}/{yard.requests()[0]}")
    assert node is not None
    assert [each.replicas for each in Request.from_node(node).partitions] == [(2, 3)]
    assert '"partitions"' in node.data


def test_a_second_signal_is_refused_until_the_first_is_executed() -> None:
    yard = Yard()
    said = send_cancel_signal(yard.journal, CancelRequest(scope="plan", reason="racks"), WHO)
    assert said == (
        "The cancel of everything that is pending is signalled, and the completed moves are rolled back: racks."
    )
    with pytest.raises(RequestError, match="an earlier signal has not been executed yet"):
        send_cancel_signal(yard.journal, CancelRequest(), WHO)
    yard.run()
    send_cancel_signal(yard.journal, CancelRequest(), WHO)
