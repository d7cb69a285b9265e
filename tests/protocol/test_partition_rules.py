"""What documents that ask for reassignments mean: laws for any documents, the cases, and the status of partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_steward.assignment import Assignment, Move, TopicPartition
from kafka_steward.cluster.state import Partition, Snapshot
from kafka_steward.document_api.document_status import WaitingDocument, read_document_status
from kafka_steward.document_api.partition_rules import (
    ActiveReassignment,
    ClusterView,
    RequestDecision,
    RequestedAssignment,
    RequestOutcome,
    decide_requests,
)
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
from kafka_steward.execution.announcements import disable_reassignment, enable_reassignment
from kafka_steward.execution.plans.cancel import send_cancel_signal
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Actor
from kafka_steward.journal.kip_documents import CancelRequest, Request
from kafka_steward.journal.mailbox import Node, read_one
from kafka_steward.journal.records import Cause, MoveRow, MoveState
from tests.documents import change_document, create_document
from tests.present import present
from tests.protocol.simulated_watch import Yard, document
from tests.simulator import Simulator

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def snapshot(*dead: int, foreign: tuple[int, ...] = ()) -> Snapshot:
    simulator = Simulator.of("1a 2b 3c 4a 5b", "t: 123 231")
    for broker in dead:
        simulator.kill(broker)
    if foreign:
        simulator.alter({T0: foreign})
    return simulator.snapshot()


def asked(
    replicas: str, partition: TopicPartition = T0, *, source: str = "/r/1", legacy: bool = False
) -> RequestedAssignment:
    return RequestedAssignment(partition, tuple(map(int, replicas)), source, legacy)


def fate(one: RequestedAssignment, sight: ClusterView) -> tuple[str, str]:
    (decision,) = decide_requests([one], sight)
    return decision.outcome.value, decision.why


ACTIVE = ActiveReassignment((2, 3, 4), (1, 2, 3), plan="p")
GROWS = ActiveReassignment((1, 2, 3, 4), (1, 2, 3), plan="p")
TOO_FEW = (
    "its 3 original replicas are fewer than min.insync.replicas, 4; ask for more replicas than it has, or lower "
    "min.insync.replicas of its topic"
)
NO_LEADER = "it has no leader to copy from; bring back its broker 1 with its data"
NO_REMOVAL = ", without which Kafka removes no replica"
FEWER = (
    "it would go from 3 to 2 replicas, and min.insync.replicas is 3; ask for more replicas, or lower "
    "min.insync.replicas of its topic"
)
CORDONED = (
    "broker 4 is cordoned and receives no replicas; remove its directories from cordoned.log.dirs, or name another "
    "broker"
)
DELETING = replace(snapshot(), deleting={"x": (4, 5)})
CASES = [
    (
        asked("12", TopicPartition("x", 0)),
        ClusterView(DELETING),
        ("refuse", "its deletion is pending; it ends when brokers 4 and 5 are back"),
    ),
    (asked("145"), ClusterView(snapshot()), ("move", "")),
    (asked("321"), ClusterView(snapshot()), ("move", "")),
    (asked("123"), ClusterView(snapshot()), ("done", "it already has the replicas [1, 2, 3]")),
    (asked("12", TopicPartition("t", 7)), ClusterView(snapshot()), ("refuse", "there is no such partition")),
    (asked("12", TopicPartition("x", 0)), ClusterView(snapshot()), ("refuse", "there is no such partition")),
    (asked(""), ClusterView(snapshot()), ("refuse", "it names no broker")),
    (asked("129"), ClusterView(snapshot()), ("refuse", "the cluster has no broker 9")),
    (asked("124"), ClusterView(snapshot(4)), ("refuse", "broker 4 is not live; submit it again when it is")),
    (asked("145"), ClusterView(snapshot(3, 2, 1)), ("refuse", NO_LEADER)),
    (asked("145"), ClusterView(snapshot(3, 2, 1), min_isr={"t": 4}), ("refuse", NO_LEADER)),
    (asked("12"), ClusterView(snapshot(3, 2, 1)), ("refuse", NO_LEADER.replace(" to copy from", NO_REMOVAL))),
    (asked("321"), ClusterView(snapshot(3, 2, 1)), ("move", "")),
    (asked("123"), ClusterView(snapshot(3, 2, 1)), ("done", "it already has the replicas [1, 2, 3]")),
    (asked("123"), ClusterView(snapshot(3, 2, 1), {T0: ACTIVE}), ("supersede", "")),
    (asked("145"), ClusterView(snapshot(foreign=(5, 2, 3))), ("refuse", "an external reassignment is moving it")),
    (asked("145"), ClusterView(snapshot(foreign=(2, 3, 4)), {T0: ACTIVE}), ("supersede", "")),
    (asked("123"), ClusterView(snapshot(foreign=(2, 3, 4)), {T0: ACTIVE}), ("supersede", "")),
    (
        asked("234"),
        ClusterView(snapshot(foreign=(2, 3, 4)), {T0: ACTIVE}),
        ("done", "it is already being reassigned to [2, 3, 4]"),
    ),
    (
        asked("145", legacy=True),
        ClusterView(snapshot(), {T0: ACTIVE}),
        ("refuse", "it is already being reassigned by another API, a request"),
    ),
    (
        asked("145"),
        ClusterView(snapshot(), {T0: ActiveReassignment((2, 3, 4), None, legacy=True)}),
        ("refuse", "it is already being reassigned by another API, /admin/reassign_partitions"),
    ),
    (asked("145"), ClusterView(snapshot(), min_isr={"t": 4}), ("refuse", TOO_FEW)),
    (asked("145"), ClusterView(snapshot(), min_isr={"t": 3}), ("move", "")),
    (
        asked("145"),
        ClusterView(snapshot(foreign=(2, 3, 4)), {T0: ACTIVE}, min_isr={"t": 4}),  # four replicas while it is in flight
        ("refuse", TOO_FEW),
    ),
    (
        asked("145"),
        ClusterView(snapshot(foreign=(2, 3, 4)), {T0: ActiveReassignment((2, 3, 4), None, plan="p")}, min_isr={"t": 4}),
        ("supersede", ""),
    ),
    (asked("1234"), ClusterView(snapshot(), min_isr={"t": 5}), ("move", "")),  # it grows
    (asked("312"), ClusterView(snapshot(), min_isr={"t": 4}), ("refuse", TOO_FEW)),
    # The way back from a reassignment that added replicas.
    (asked("123"), ClusterView(snapshot(foreign=(1, 2, 3, 4)), {T0: GROWS}, min_isr={"t": 4}), ("supersede", "")),
    (asked("145"), ClusterView(snapshot(), min_isr={"u": 4}), ("move", "")),
    (asked("145"), ClusterView(snapshot(), {T0: ActiveReassignment((2, 3, 4), (), plan="p")}), ("supersede", "")),
    (asked("12"), ClusterView(snapshot(), min_isr={"t": 3}), ("refuse", FEWER)),
    (asked("12"), ClusterView(snapshot(), min_isr={"t": 2}), ("move", "")),
    (asked("124"), ClusterView(snapshot(), cordoned=frozenset({4})), ("refuse", CORDONED)),
    (asked("132"), ClusterView(snapshot(), cordoned=frozenset({3})), ("move", "")),  # it keeps what it has
]


@pytest.mark.parametrize(("one", "sight", "expected"), CASES)
def test_what_becomes_of_one(one: RequestedAssignment, sight: ClusterView, expected: tuple[str, str]) -> None:
    assert fate(one, sight) == expected


def test_a_replica_may_stay_on_a_broker_that_is_gone_altogether() -> None:
    seen = snapshot(3)
    seen = replace(seen, brokers={broker: each for broker, each in seen.brokers.items() if broker != 3})
    assert fate(asked("312"), ClusterView(seen)) == ("move", "")
    assert fate(asked("312", T1), ClusterView(seen)) == ("move", "")


def test_of_two_that_ask_at_once_the_later_counts() -> None:
    both = [asked("145", source="/r/1"), asked("245", source="/r/2"), asked("145", T1, source="/r/2")]
    told = decide_requests(both, ClusterView(snapshot()))
    assert [each.outcome for each in told] == [RequestOutcome.OVERTAKEN, RequestOutcome.MOVE, RequestOutcome.MOVE]
    assert told[0].why == "/r/2 has since requested [2, 4, 5]"


def test_of_two_that_ask_at_once_by_two_routes_the_earlier_counts() -> None:
    told = decide_requests([asked("145"), asked("245", legacy=True)], ClusterView(snapshot()))
    assert [each.outcome for each in told] == [RequestOutcome.MOVE, RequestOutcome.REFUSE]


BROKERS = st.lists(st.sampled_from([1, 2, 3, 4, 5, 9]), max_size=4, unique=True).map(tuple)
NAMES = st.sampled_from([T0, T1, TopicPartition("t", 2)])
ASKED = st.builds(RequestedAssignment, NAMES, BROKERS, st.sampled_from(["/r/1", "/r/2"]), st.booleans())
FLIGHT = st.builds(ActiveReassignment, BROKERS, st.none() | BROKERS, st.booleans(), st.sampled_from(["p", "q", None]))
SIGHTS = st.builds(
    ClusterView,
    st.sampled_from([snapshot(), snapshot(4), snapshot(1, 5), snapshot(foreign=(5, 2, 3))]),
    st.dictionaries(NAMES, FLIGHT, max_size=3),
    st.dictionaries(st.just("t"), st.integers(1, 4), max_size=1),
)


def begins(decision: RequestDecision) -> bool:
    return decision.outcome in {RequestOutcome.MOVE, RequestOutcome.SUPERSEDE}


@given(st.lists(ASKED, max_size=8), SIGHTS)
def test_laws(documents: list[RequestedAssignment], sight: ClusterView) -> None:
    told = decide_requests(documents, sight)
    assert [each.asked for each in told] == documents
    beginning = [each for each in told if begins(each)]
    assert len({each.asked.partition for each in beginning}) == len(beginning)
    for each in beginning:
        asked_for, flight = each.asked, sight.active.get(each.asked.partition)
        assert asked_for.replicas
        assert frozenset(asked_for.replicas) <= frozenset(range(1, 6))
        assert flight is None or flight.legacy == asked_for.legacy
        assert (each.outcome is RequestOutcome.SUPERSEDE) == (flight is not None) == (each.active is not None)
        # Nobody who asked later, by the same route and for something that can be, was passed over.
        after = told[told.index(each) + 1 :]
        assert not [one for one in after if one.asked.partition == asked_for.partition and begins(one)]
    for each in told:
        said = {RequestOutcome.REFUSE, RequestOutcome.DONE, RequestOutcome.OVERTAKEN}
        assert bool(each.why) == (each.outcome in said)


@given(st.lists(ASKED, max_size=6), SIGHTS)
def test_what_is_refused_changes_no_other(documents: list[RequestedAssignment], sight: ClusterView) -> None:
    told = decide_requests(documents, sight)
    kept = [each for each in told if each.outcome is not RequestOutcome.REFUSE]
    assert [(each.asked, each.outcome) for each in decide_requests([each.asked for each in kept], sight)] == [
        (each.asked, each.outcome) for each in kept
    ]


WHO = Actor(person="ada")
HERE, WANTED, OTHER = (1, 2), (2, 3), (2, 4)
COMPLETE, STARTED, WAITS = RequestState.COMPLETE, RequestState.STARTED, RequestState.WAITING
REFUSED, SUPERSEDED, INCOMPLETE = RequestState.REFUSED, RequestState.SUPERSEDED, RequestState.INCOMPLETE


def partition(replicas: tuple[int, ...], **more: Any) -> Partition:
    return Partition("t", 0, replicas, frozenset(replicas), replicas[0], **more)


def move(after: tuple[int, ...], state: MoveState, *, plan_ended: bool = False, **more: Any) -> PlannedMove:
    return PlannedMove("c0ffee" * 4, MoveRow(Move("t", 0, HERE, after, 0, 0, "given"), state, **more), plan_ended)


def dropped(detail: str = "gone", **more: Any) -> PlannedMove:
    return move(WANTED, MoveState.DROPPED, plan_ended="cause" not in more, detail=detail, **more)


def waits(target: tuple[int, ...]) -> Mapping[TopicPartition, Any]:
    return {T0: (WaitingDocument("/admin/reassignment_requests/r", 1, (), "for the next poll"), target)}


AT_REST = partition(HERE)
IN_FLIGHT = partition((2, 3, 1), adding=(3,), removing=(1,))
AWAY = partition((2, 4, 1), adding=(4,), removing=(1,))
LAST = "There is no active reassignment of partition t-0, but replica set is 1,2 rather than 2,3."


@pytest.mark.parametrize(
    ("now", "known", "state", "says"),
    [
        (partition(WANTED), {}, COMPLETE, "Reassignment of partition t-0 is completed."),
        (partition((3, 2)), {}, INCOMPLETE, "replica set is 3,2 rather than 2,3"),
        (IN_FLIGHT, {}, STARTED, "is still in progress"),
        (AWAY, {}, INCOMPLETE, "an external reassignment moves it to the brokers [2, 4]"),
        (AWAY, {"audited": AuditedRequest(5, "an external one")}, REFUSED, "was refused: an external one."),
        (AWAY, {"moves": [dropped("it is gone.")]}, INCOMPLETE, "was not executed: it is gone."),
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
        (IN_FLIGHT, {"moves": [move(WANTED, MoveState.SUBMITTED)], "waiting": waits(OTHER)}, STARTED, "in progress"),
        (AT_REST, {"moves": [dropped("it is gone.")]}, INCOMPLETE, "was not executed: it is gone."),
        (AT_REST, {"moves": [dropped("superseded by r", cause=Cause.SUPERSEDED)]}, SUPERSEDED, "was superseded by r."),
        (AT_REST, {"audited": AuditedRequest(5, "it names no broker")}, REFUSED, "was refused: it names no broker."),
        (AT_REST, {"audited": AuditedRequest(5)}, INCOMPLETE, LAST),
        (AT_REST, {"audited": AuditedRequest(5, later=OTHER)}, SUPERSEDED, "it was reassigned to [2, 4] later."),
        (
            AT_REST,
            {"moves": [dropped(settled_ms=9)], "audited": AuditedRequest(5, "no")},
            INCOMPLETE,
            "executed: gone.",
        ),
        (AT_REST, {"moves": [dropped(settled_ms=3)], "audited": AuditedRequest(5, "no")}, REFUSED, "was refused: no."),
    ],
)
def test_the_status_of_a_partition(
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


def test_a_later_request_supersedes_one_that_waits_one_in_flight_and_one_that_is_complete(yard: Yard) -> None:
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
    node = present(read_one(yard.journal.mailbox, paths.REASSIGN_QUEUE))
    change_document(yard.journal.mailbox, node.path, document(["t-0 23", "t-1 245"]))
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
    node = present(read_one(yard.journal.mailbox, f"{paths.REASSIGNMENT_REQUESTS}/{name}"))
    remove = yard.journal.mailbox.delete

    def accepted_before(nodes: Sequence[Node]) -> list[Node]:
        yard.journal.mailbox.delete = remove  # type: ignore[method-assign]
        yard.look()  # another process publishes the plan at this moment, and dies before it deletes the request
        create_document(yard.journal.mailbox, node.path, node.data)
        return remove(nodes)

    yard.journal.mailbox.delete = accepted_before  # type: ignore[method-assign]
    with pytest.raises(RequestError, match=r"is executed by plan [0-9a-f]{12}; to stop that, cancel the plan"):
        request_remove(yard.journal, name, who=WHO)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "does not contain JSON"),
        ("[" * 100_000, "does not contain JSON"),
        ("[]", "^The reassignment is a list; it should be {"),
        ('{"topics": [{"topic": "t"}]}', r"^The reassignment is a file of topics, which kafka-reassign-partitions "),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "logDirs": ["any"]}]}',
            r'^The reassignment of t-0 has the key "logDirs", which is not known; known are topic, ',
        ),
        ('{"partitions": []}', r"lists no partition; it should be {\"version\": 1, \"partitions\": \[...\]}.$"),
        ('{"partitions": [{"topic": "\\ud800", "partition": 0, "replicas": [1]}]}', "topic should be text"),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": []}]}',
            "The reassignment of t-0 names no broker.",
        ),
        (document(["t-0 12", "t-0 21"]), "lists t-0 twice"),
        (
            '{"version": 2, "partitions": [{"topic": "t", "partition": 0, "replicas": [1]}]}',
            "has version 2; only version 1",
        ),
    ],
)
def test_what_is_no_reassignment_is_one_sentence_and_nothing_is_written(yard: Yard, text: str, says: str) -> None:
    for add in (queue_add, request_add):
        with pytest.raises(RequestError, match=says) as caught:
            add(yard.journal, text, who=WHO)
        assert "\n" not in str(caught.value)
    assert read_one(yard.journal.mailbox, paths.REASSIGN_QUEUE) is None
    assert yard.requests() == []
    assert yard.journal.audit.rows() == []


def test_kip_236s_other_format_is_taken_and_written_in_kafkas(yard: Yard) -> None:
    request_add(yard.journal, '{"version": 1, "assignments": {"t": {"0": [2, 3]}}}', who=WHO)
    node = present(read_one(yard.journal.mailbox, f"{paths.REASSIGNMENT_REQUESTS}/{yard.requests()[0]}"))
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
