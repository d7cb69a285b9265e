"""What the audit trail says of documents, each row whole with who did it and why, and who hears of it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.document_api.request_documents import queue_add, queue_remove
from kafka_steward.execution.moves.in_flight import record_external_in_flight
from kafka_steward.execution.plans.cancel import consume_cancel_signal
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Actor, AuditRecord, Code, Outcome
from kafka_steward.journal.kip_documents import CancelRequest, InFlight
from kafka_steward.journal.mailbox import read_one
from kafka_steward.triggers.documents import AcceptedDocumentReader
from tests.documents import create_document
from tests.present import present
from tests.protocol.simulated_watch import WATCH, Yard, document, foreign
from tests.simulated_plan import WHO, move, plan_of

T0 = TopicPartition("t", 0)
FIRST = f"{paths.REQUEST_PREFIX}0000000000"
Row = tuple[AuditRecord, Outcome, str]


def rows(yard: Yard, *actions: Action, **more: Any) -> list[Row]:
    found = yard.journal.audit.rows(**more)
    return [(row.entry, row.outcome, row.detail) for row in found if row.entry.action in actions]


# Requests


def test_a_request_that_cannot_be_read(yard: Yard) -> None:
    text = "{" + "x" * 3000
    yard.journal.mailbox.append(paths.REQUEST_PREFIX, text)
    (said,) = yard.look().sentences
    assert said.startswith(f"{FIRST} was not executed: {FIRST} does not contain JSON (")
    assert re.search(
        r"\); correct or delete it\. Its content was copied to row \d+ of quarantine in the journal's", said
    )
    fault = said.removeprefix(f"{FIRST} was not executed: ").partition(" Its content")[0]
    entry = AuditRecord(Action.REQUEST, said, before=text[:2000], who=WATCH)
    assert rows(yard, Action.REQUEST) == [(entry, Outcome.REFUSED, fault)]


@pytest.mark.parametrize(
    ("wanted", "judged", "action", "outcome"),
    [
        ("t-0 19", "refused, the cluster has no broker 9", Action.REQUEST, Outcome.REFUSED),
        ("t-0 12", "nothing to do, it already has the replicas [1, 2]", Action.SKIP, Outcome.DONE),
    ],
)
def test_what_is_refused_or_unneeded(yard: Yard, wanted: str, judged: str, action: Action, outcome: Outcome) -> None:
    yard.ask(wanted)
    target = [int(digit) for digit in wanted[-2:]]
    said = f"{FIRST} asks to move t-0 to {target}: {judged}."
    assert yard.look().sentences == [said]
    entry = AuditRecord(action, said, topic="t", partition=0, after=target, who=WATCH)
    assert rows(yard, Action.REQUEST, Action.SKIP) == [(entry, outcome, judged.partition(", ")[2])]


@pytest.mark.parametrize("legacy", [False, True])
def test_the_plan_that_a_request_became(yard: Yard, legacy: bool) -> None:
    node = yard.ask("t-0 23", "t-1 234", legacy=legacy)
    said = yard.look().sentences
    (record,) = yard.journal.plans.unfinished()
    assert (record.operation, record.who) == ("apply", WATCH)
    assert f"Plan {record.digest[:12]}, requested by {FIRST}: 2 partitions." in said
    asked = {"sources": [f"{FIRST}@{node.created_id}"], "legacy": legacy}
    assert (list(record.sources), record.legacy) == (asked["sources"], legacy)
    entry = AuditRecord(
        Action.PUBLISH,
        f"2 partitions to move, requested by {FIRST}",
        plan=record.digest,
        after={"operation": "apply", "partitions": 2, **asked},
        who=WATCH,
    )
    assert rows(yard, Action.PUBLISH) == [(entry, Outcome.DONE, "")]
    assert {submitted.who for submitted, _, _ in rows(yard, Action.SUBMIT)} == {WATCH}


def test_of_many_documents_three_are_in_the_reason_and_all_in_the_trail() -> None:
    yard = Yard(f"t: {' '.join(['12'] * 21)}")
    names = [yard.ask(f"t-{number} 13").path for number in range(21)]
    yard.look()
    (record,) = yard.journal.plans.unfinished()
    ((entry, _, _),) = rows(yard, Action.PUBLISH)
    assert entry.reason == f"21 partitions to move, requested by {', '.join(names[:3])}"
    assert [source.partition("@")[0] for source in entry.after["sources"]] == names
    assert len(record.sources) == 21


def test_what_a_later_request_cancels_and_drops_names_that_request() -> None:
    yard = Yard(max_in_flight=1)
    yard.ask("t-0 23", "t-1 234")
    yard.look()
    later = [yard.ask("t-0 24"), yard.ask("t-1 235")]
    yard.look()
    why = f"superseded by {later[0].path}, {later[1].path}"
    first = yard.journal.plans.latest(2)[1]
    found = rows(yard, Action.CANCEL, Action.DROP, plan=first.digest)
    told = {(entry.action, str(entry.topic), entry.partition, entry.who): entry.reason for entry, _, _ in found}
    assert told == {
        (Action.CANCEL, "t", 0, WATCH): why,
        (Action.DROP, "t", 0, WATCH): why,
        (Action.DROP, "t", 1, WATCH): why,
    }


# The queue


def test_the_queue_that_someone_adds_and_takes_away(yard: Yard) -> None:
    queue_add(yard.journal, document([f"t-{number} 23" for number in range(60)]), who=WHO)
    node = present(read_one(yard.journal.mailbox, paths.REASSIGN_QUEUE))
    assert len(node.data) > 2000
    queue_remove(yard.journal, who=WHO)
    assert rows(yard, Action.REQUEST) == [
        (AuditRecord(Action.REQUEST, "queued 60 partitions", who=WHO), Outcome.DONE, ""),
        (AuditRecord(Action.REQUEST, "removed the queue", before=node.data[:2000], who=WHO), Outcome.DONE, ""),
    ]


def test_what_is_taken_out_of_the_queue_before_it_began() -> None:
    yard = Yard(max_in_flight=1)
    queue_add(yard.journal, document(["t-0 23", "t-1 234"]), who=WHO)
    yard.look()
    queue_remove(yard.journal, who=WHO)
    yard.look()
    (record,) = yard.journal.plans.unfinished()
    ((entry, _, _),) = rows(yard, Action.DROP, plan=record.digest)
    assert entry.reason == "removed from /admin/reassign_partitions_queue before it started"
    assert (entry.topic, entry.partition, entry.who) == ("t", 1, WATCH)


# The signal

BACK = "The external reassignment of t-0 to [3, 2] is back at [1, 2]."
CALLER = Actor("kafka_steward_watch", "manual__1", "watch", 2, "airflow")


def consume(yard: Yard, request: CancelRequest) -> list[str]:
    create_document(yard.journal.mailbox, paths.CANCEL_IN_PROGRESS, request.to_json())
    return list(present(consume_cancel_signal(yard.simulator, yard.journal, CALLER)).sentences)


def test_the_signal_is_executed_for_whoever_wrote_it(yard: Yard) -> None:
    yard.ask("t-0 23")
    yard.look()
    (record,) = yard.journal.plans.unfinished()
    request = CancelRequest(scope="plan", person="ada", reason="maintenance", even_if_disabled=True)
    said = consume(yard, request)
    assert said == [f"Plan {record.digest[:12]} is cancelled: maintenance."]
    assert present(yard.journal.plans.get(record.digest)).cancel == request
    asker = Actor(dag_id="kafka_steward_watch", task_id="watch", person="ada")
    asked, executed = rows(yard, Action.REQUEST)
    assert (asked[0].plan, asked[0].who) == (record.digest, asker)
    assert executed == (AuditRecord(Action.REQUEST, said[0], after="cancel signal", who=asker), Outcome.DONE, "")


def test_a_signal_without_words_has_its_path_for_a_reason(yard: Yard) -> None:
    yard.ask("t-0 23")
    yard.look()
    (record,) = yard.journal.plans.unfinished()
    reason = "/admin/cancel_reassignment_in_progress was created"
    assert consume(yard, CancelRequest()) == [f"Plan {record.digest[:12]} is cancelled: {reason}."]
    assert present(yard.journal.plans.get(record.digest)).cancel == CancelRequest(reason=reason)


def test_a_reason_without_end_is_cut_in_the_trail(yard: Yard) -> None:
    foreign(yard, (3, 2), None)
    names = [TopicPartition(letter * 249, 1) for letter in "t012345678"]
    record_external_in_flight(yard.journal.mailbox, dict.fromkeys(names, InFlight(None, (1,), legacy=True)))
    said = " ".join(consume(yard, CancelRequest()))
    assert len(said) > 2000
    ((entry, _, _),) = rows(yard, Action.REQUEST)
    assert entry.reason == said[:2000]


def test_a_signal_for_one_plan_leaves_the_others_and_what_others_started(yard: Yard) -> None:
    yard.ask("t-1 234")
    yard.look()
    (record,) = yard.journal.plans.unfinished()
    foreign(yard, (3, 2), (1, 2))
    where = f"In the journal of cluster {yard.journal.cluster_id}, no plan begins with zz; see "
    where += "`airflow kafka-steward plans`."
    said = f"/admin/cancel_reassignment_in_progress was refused: {where}"
    assert consume(yard, CancelRequest(plan="zz")) == [said]
    assert [(entry.reason, outcome) for entry, outcome, _ in rows(yard, Action.REQUEST)] == [(said, Outcome.REFUSED)]
    assert yard.in_flight() == ["t-0", "t-1"]
    assert yard.journal.plans.get(record.digest) == record
    short = record.digest[:12]
    assert consume(yard, CancelRequest(plan=short, reason="as printed")) == [f"Plan {short} is cancelled: as printed."]
    assert present(yard.journal.plans.get(record.digest)).cancel is not None


def taken_back(why: str, who: Actor) -> list[tuple[AuditRecord, Outcome, str]]:
    """The rows of t-0, which goes from 3 and 2 back to 1 and 2."""
    of: dict[str, Any] = {"topic": "t", "partition": 0, "after": [1, 2], "who": who}
    lost = "the cancel did not restore the replica order"
    return [
        (AuditRecord(Action.CANCEL, why, before=[3, 2], **of), Outcome.DONE, ""),
        (AuditRecord(Action.REORDER, lost, before=[2, 1], **of), Outcome.DONE, ""),
    ]


def test_what_came_by_the_old_route_is_cancelled_and_put_in_order(yard: Yard) -> None:
    foreign(yard, (3, 2), (1, 2))
    assert consume(yard, CancelRequest(reason="maintenance")) == [BACK]
    assert (yard.replicas("t-0"), yard.record("t-0")) == ((1, 2), None)
    assert rows(yard, Action.CANCEL, Action.REORDER, Action.SKIP) == taken_back(
        "external reassignment: maintenance", CALLER
    )


def test_why_one_was_not_cancelled_is_written_down_once(yard: Yard) -> None:
    foreign(yard, (3, 2), None)
    (said,) = consume(yard, CancelRequest())
    rule = said.partition(" was not cancelled: ")[2].removesuffix(".")
    skipped = AuditRecord(
        Action.SKIP, rule, topic="t", partition=0, before=[3, 2], after=None, who=CALLER, code=Code.FORBIDDEN
    )
    assert rows(yard, Action.CANCEL, Action.REORDER, Action.SKIP) == [(skipped, Outcome.DONE, "")]


@pytest.mark.parametrize("originals", [(1, 2), None])
def test_of_what_has_arrived_or_is_gone_nothing_is_changed(originals: tuple[int, ...] | None) -> None:
    yard = Yard("t: 12", "u: 12")
    u0 = TopicPartition("u", 0)
    foreign(yard, (3, 2), originals)
    yard.simulator.alter({u0: (3, 2)})
    record_external_in_flight(yard.journal.mailbox, {u0: InFlight((1, 2), (3, 2), legacy=True, top=2)})
    yard.simulator.run()
    yard.simulator.delete("u")
    assert consume(yard, CancelRequest()) == [
        "The external reassignment of t-0 to [3, 2] had already completed.",
        "The external reassignment of u-0 to [3, 2] no longer exists.",
    ]
    assert yard.replicas("t-0") == (3, 2)
    assert rows(yard, Action.CANCEL, Action.REORDER, Action.SKIP) == []
    assert (yard.record("t-0"), yard.record("u-0")) == (None, None)


def test_each_of_several_that_others_start_has_its_own_row(yard: Yard) -> None:
    create_document(yard.journal.mailbox, paths.REASSIGN_CANCEL, "")
    yard.look()
    yard.simulator.alter({TopicPartition("t", number): (4, 5) for number in range(3)})
    said = yard.look().sentences
    assert [entry.reason for entry, _, _ in rows(yard, Action.EXTERNAL)] == said
    assert [line.split()[2] for line in said] == ["t-0", "t-1", "t-2"]


# What others start while reassignments are switched off


@pytest.mark.parametrize("policy", ["report", "cancel"])
def test_what_others_start_and_what_became_of_it(policy: str) -> None:
    yard = Yard(foreign_while_disabled=policy)
    create_document(yard.journal.mailbox, paths.REASSIGN_CANCEL, "")
    yard.look()
    yard.simulator.alter({T0: (3, 2)})
    said = yard.look().sentences
    cancelled = taken_back("it was started while reassignments are disabled", WATCH)
    assert rows(yard, Action.EXTERNAL, Action.CANCEL, Action.REORDER) == [
        (AuditRecord(Action.EXTERNAL, said[0], topic="t", partition=0, who=WATCH), Outcome.DONE, ""),
        *(cancelled if policy == "cancel" else []),
    ]


# What documents asked for is an event once, whichever process carried it out

KINDS = ("cancel", "request")


def ask(yard: Yard, kind: str, wanted: str = "t-0 23") -> None:
    """One document, which a look takes up."""
    if kind == "request":
        yard.ask(wanted)
    else:
        moves = [move("t-2", "312", "315")]
        plan = plan_of(yard.simulator, moves, operation="apply").digest
        if yard.journal.plans.get(plan) is None:
            yard.publish(moves, operation="apply")
        create_document(yard.journal.mailbox, paths.CANCEL_IN_PROGRESS, CancelRequest(plan=plan).to_json())
    yard.look()


@pytest.mark.parametrize("kind", KINDS)
def test_each_is_an_event_once(yard: Yard, kind: str) -> None:
    events = AcceptedDocumentReader(yard.journal, kind)
    assert not events.has_new_event()
    ask(yard, kind)
    yard.journal.audit.record(AuditRecord(Action.HOLD, "something else"))
    assert [events.has_new_event(), events.has_new_event()] == [True, False]
    ask(yard, kind, "t-2 314")
    assert [events.has_new_event(), events.has_new_event()] == [True, False], "in the same millisecond"
    yard.run()
    yard.simulator.tick(61)
    assert not events.has_new_event()
    ask(yard, kind, "t-1 234")
    assert [events.has_new_event(), events.has_new_event()] == [True, False]


@pytest.mark.parametrize(("ago_s", "is_new"), [(59, True), (60, True), (61, False)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_new_listener_gets_the_events_of_the_last_minute(yard: Yard, kind: str, ago_s: int, is_new: bool) -> None:
    ask(yard, kind)
    yard.simulator.tick(ago_s)
    assert AcceptedDocumentReader(yard.journal, kind).has_new_event() == is_new


def test_a_signal_that_cancels_no_plan_is_no_event(yard: Yard) -> None:
    """Nothing, a reassignment of somebody else, and no plan of that name: a run would have nothing to cancel."""
    events = AcceptedDocumentReader(yard.journal, "cancel")
    for request in (CancelRequest(), CancelRequest(plan="beef")):
        assert consume(yard, request)
        assert not events.has_new_event()
    foreign(yard, (3, 2), (1, 2))
    assert consume(yard, CancelRequest()) == [BACK]
    assert not events.has_new_event()
    yard.ask("t-1 234")
    yard.look()
    assert consume(yard, CancelRequest())
    assert events.has_new_event()


@pytest.mark.parametrize("kind", KINDS)
def test_what_else_is_published_and_asked_for_is_not_meant(yard: Yard, kind: str) -> None:
    events = AcceptedDocumentReader(yard.journal, kind)
    yard.publish([move("t-1", "231", "234")], operation="rebalance")
    yard.journal.audit.record(AuditRecord(Action.PUBLISH, "no plan of a document", after=["sources"]))
    queue_add(yard.journal, document(["t-0 23"]), who=WHO)
    queue_remove(yard.journal, who=WHO)
    assert not events.has_new_event()
    ask(yard, "cancel" if kind == "request" else "request")
    assert not events.has_new_event()
