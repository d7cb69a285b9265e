"""The status of requested reassignments, partition by partition: from the cluster, the documents and the journal.

`decide_status` is pure. `read_request_statuses` collects what it needs: the current state of the partitions, the
documents that wait, the rows of plans, and the audit trail, which has the reason of each refusal.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from kafka_steward.assignment import Assignment, Operation, TopicPartition
from kafka_steward.cluster.state import Partition
from kafka_steward.document_api.document_status import WaitingDocument, read_document_status
from kafka_steward.execution.cluster_queries import HIDDEN, with_hidden_topics
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Outcome, StoredAuditRecord
from kafka_steward.journal.kip_documents import ChunkPartition, Request
from kafka_steward.journal.mailbox import read_one
from kafka_steward.journal.records import Cause, MoveRow, MoveState, PlanRecord
from kafka_steward.journal.store import Journal

#: The beginning of most sentences, in the words of `kafka-reassign-partitions --verify`.
BEGINS = "Reassignment of partition"
#: The newest ended plans whose rows are read, and the newest rows of the audit trail per topic.
_PLANS, _AUDIT_ROWS = 100, 10_000


class RequestState(StrEnum):
    """The state of one requested partition."""

    #: It has the requested replicas, in their order, and no reassignment is in flight.
    COMPLETE = "complete"
    #: It is being reassigned to the requested replicas.
    STARTED = "started"
    #: A document or a plan requests it, and it has not started.
    WAITING = "waiting"
    #: It was refused; the audit trail has the reason.
    REFUSED = "refused"
    #: A later document or plan requested other replicas.
    SUPERSEDED = "superseded"
    #: It has other replicas, and nothing moves it.
    INCOMPLETE = "incomplete"

    @property
    def may_complete(self) -> bool:
        """True if it may still become complete by itself."""
        return self in {RequestState.STARTED, RequestState.WAITING}


@dataclass(frozen=True)
class RequestStatus:
    """The status of one requested partition; `plan` is the digest of the plan that moves or moved it, if any."""

    partition: TopicPartition
    target: Assignment
    state: RequestState
    sentence: str
    plan: str | None = None


@dataclass(frozen=True)
class PlannedMove:
    """A partition's row in a plan, and whether the plan has ended."""

    plan: str
    row: MoveRow
    plan_ended: bool

    @property
    def is_active(self) -> bool:
        """True if it is in flight, or may still start."""
        return not (self.plan_ended or self.row.state.settled)


@dataclass(frozen=True)
class AuditedRequest:
    """The last row of the audit trail about a partition and a target.

    `when_ms` is its time. `refusal` is the reason if the request was refused. `later` is the target of a later
    submission, and `plan` the digest of its plan.
    """

    when_ms: int = 0
    refusal: str = ""
    later: Assignment | None = None
    plan: str | None = None


@dataclass(frozen=True)
class RequestEvidence:
    """The input of `decide_status`.

    `hidden` are topics that we may not describe. `waiting` has, per partition, the last document that waits with it,
    and its target. `moves` has the rows of each partition in plans, the newest plan first.
    """

    partitions: Mapping[TopicPartition, Partition]
    hidden: Collection[str] = frozenset()
    waiting: Mapping[TopicPartition, tuple[WaitingDocument, Assignment]] = field(default_factory=dict)
    moves: Mapping[TopicPartition, Sequence[PlannedMove]] = field(default_factory=dict)
    audited: Mapping[tuple[TopicPartition, Assignment], AuditedRequest] = field(default_factory=dict)


def misplaced_sentence(name: TopicPartition, now: Assignment, wanted: Assignment) -> str:
    """Return the sentence for a partition that has other replicas than `wanted`, while nothing moves it."""
    is_now, should = (",".join(map(str, replicas)) for replicas in (now, wanted))
    return f"There is no active reassignment of partition {name}, but replica set is {is_now} rather than {should}."


def decide_status(name: TopicPartition, target: Assignment, known: RequestEvidence) -> RequestStatus:
    """Return the status of one requested partition. Pure.

    What Kafka shows comes first, then what waits or is in flight, then what the journal says about the past. An
    external reassignment comes last: the request may have been refused for it, or have ended before.
    """
    now = known.partitions.get(name)
    if now is not None and not now.reassigning and now.replicas == target:
        return RequestStatus(name, target, RequestState.COMPLETE, f"{BEGINS} {name} is completed.")
    return (
        _decide_waiting(name, target, known)
        or _decide_in_flight(name, target, now, ours=True)
        or _decide_ended(name, target, known)
        or _decide_audited(name, target, known)
        or _decide_in_flight(name, target, now, ours=False)
        or _unmoved_status(name, target, known)
    )


def _decide_waiting(name: TopicPartition, target: Assignment, known: RequestEvidence) -> RequestStatus | None:
    """Return the status of a partition that a waiting document or an unfinished plan names; None for others."""
    document, wanted = known.waiting.get(name, (None, None))
    active = next((move for move in known.moves.get(name, ()) if move.is_active), None)
    if document is not None and wanted == target and (active is None or active.row.move.after != target):
        sentence = f"{BEGINS} {name} has not started: {document.path} waits {document.why}."
        return RequestStatus(name, target, RequestState.WAITING, sentence)
    if active is not None:
        return _decide_active(name, target, active)
    if document is not None:
        sentence = f"{BEGINS} {name} is superseded: {document.path} requests {list(wanted or ())}."
        return RequestStatus(name, target, RequestState.SUPERSEDED, sentence)
    return None


def _decide_active(name: TopicPartition, target: Assignment, active: PlannedMove) -> RequestStatus:
    row = active.row
    if row.move.after != target:
        sentence = f"{BEGINS} {name} is superseded: plan {active.plan[:12]} moves it to {list(row.move.after)}."
        return RequestStatus(name, target, RequestState.SUPERSEDED, sentence, active.plan)
    if row.state is MoveState.SUBMITTED or row.stage:
        return RequestStatus(name, target, RequestState.STARTED, f"{BEGINS} {name} is still in progress.", active.plan)
    why = row.detail.rstrip(".") or f"plan {active.plan[:12]} moves it in its turn"
    sentence = f"{BEGINS} {name} has not started: {why}."
    return RequestStatus(name, target, RequestState.WAITING, sentence, active.plan)


def _decide_in_flight(
    name: TopicPartition, target: Assignment, now: Partition | None, *, ours: bool
) -> RequestStatus | None:
    """Return the status of a partition in flight that no plan has: to `target` if `ours`, else elsewhere; or None."""
    if now is None or not now.reassigning or (frozenset(now.target) == frozenset(target)) is not ours:
        return None
    if ours:
        return RequestStatus(name, target, RequestState.STARTED, f"{BEGINS} {name} is still in progress.")
    goal = sorted(now.target)
    sentence = f"{BEGINS} {name} has not started: an external reassignment moves it to the brokers {goal}."
    return RequestStatus(name, target, RequestState.INCOMPLETE, sentence)


def _decide_ended(name: TopicPartition, target: Assignment, known: RequestEvidence) -> RequestStatus | None:
    """Return the status of a partition that a plan did not move to `target`; None if none tried and said why."""
    same = (move for move in known.moves.get(name, ()) if move.row.move.after == target)
    last = next(same, None)
    if last is None or last.row.state not in {MoveState.DROPPED, MoveState.FAILED}:
        return None
    audited = known.audited.get((name, target))
    if audited is not None and audited.refusal and audited.when_ms > (last.row.settled_ms or 0):
        return None  # it was requested again since
    why = last.row.detail.rstrip(".") or f"plan {last.plan[:12]} dropped it"
    if last.row.cause is Cause.SUPERSEDED:
        return RequestStatus(name, target, RequestState.SUPERSEDED, f"{BEGINS} {name} was {why}.", last.plan)
    return RequestStatus(name, target, RequestState.INCOMPLETE, f"{BEGINS} {name} was not executed: {why}.", last.plan)


def _decide_audited(name: TopicPartition, target: Assignment, known: RequestEvidence) -> RequestStatus | None:
    """Return the status of a partition that was refused, or moved elsewhere later; None for others."""
    audited = known.audited.get((name, target))
    if audited is None:
        return None
    if audited.refusal:
        return RequestStatus(name, target, RequestState.REFUSED, f"{BEGINS} {name} was refused: {audited.refusal}.")
    if audited.later is None:
        return None
    sentence = f"{BEGINS} {name} was superseded: it was reassigned to {list(audited.later)} later."
    return RequestStatus(name, target, RequestState.SUPERSEDED, sentence, audited.plan)


def _unmoved_status(name: TopicPartition, target: Assignment, known: RequestEvidence) -> RequestStatus:
    now = known.partitions.get(name)
    if now is not None:
        return RequestStatus(name, target, RequestState.INCOMPLETE, misplaced_sentence(name, now.replicas, target))
    why = HIDDEN if name.topic in known.hidden else "there is no such partition"
    return RequestStatus(name, target, RequestState.INCOMPLETE, f"{BEGINS} {name} cannot be verified: {why}.")


def queued_partitions(journal: Journal) -> list[ChunkPartition]:
    """Return the partitions of the queue, and those that unfinished plans have started from it, sorted by name.

    Raises DocumentError when the queue is unreadable.
    """
    begun = [
        ChunkPartition(*row.topic_partition, row.move.after)
        for record in journal.plans.unfinished()
        if any(source.startswith(f"{paths.REASSIGN_QUEUE}@") for source in record.sources)
        for row in journal.plans.existing_rows(record.digest)
    ]
    node = read_one(journal.mailbox, paths.REASSIGN_QUEUE)
    waiting = () if node is None else Request.from_node(node).partitions
    # What the queue says now is later than what a plan took from it.
    targets = {move.topic_partition: move for move in (*begun, *waiting)}
    return [targets[name] for name in sorted(targets)]


def read_request_statuses(
    cluster: ClusterPort, journal: Journal, asked: Sequence[ChunkPartition]
) -> list[RequestStatus]:
    """Return the status of each requested partition, in order. Raises ClusterError, JournalError."""
    # The journal first: what ends in between is then seen at its target.
    waiting = _read_waiting(journal)
    moves = _read_moves(journal, journal.plans.unfinished()[::-1], {entry.topic_partition for entry in asked})
    snapshot = with_hidden_topics(cluster, cluster.snapshot(), {entry.topic for entry in asked})
    known = RequestEvidence(snapshot.partitions, snapshot.hidden, waiting, moves)
    statuses = [decide_status(entry.topic_partition, entry.replicas, known) for entry in asked]
    unmoved = {status.partition for status in statuses if status.state is RequestState.INCOMPLETE}
    if not unmoved:
        return statuses
    # Only for partitions that nothing moves: the past may be long.
    ended = [
        record
        for record in journal.plans.latest(_PLANS)
        if record.status.finished and record.operation == Operation.APPLY.value
    ]
    known = replace(
        known,
        moves={**moves, **_read_moves(journal, ended, unmoved)},
        audited=_read_audited(journal, [entry for entry in asked if entry.topic_partition in unmoved]),
    )
    return [decide_status(entry.topic_partition, entry.replicas, known) for entry in asked]


def _read_waiting(journal: Journal) -> dict[TopicPartition, tuple[WaitingDocument, Assignment]]:
    status = read_document_status(journal)
    # The queue after the requests, and the chunks after it, as a poll takes them.
    documents = [*status.requests, *([status.queue] if status.queue is not None else []), *status.chunks]
    return {entry.partition: (document, entry.replicas) for document in documents for entry in document.requested}


def _read_moves(
    journal: Journal, records: Iterable[PlanRecord], names: Collection[TopicPartition]
) -> dict[TopicPartition, list[PlannedMove]]:
    moves: dict[TopicPartition, list[PlannedMove]] = {}
    for record in records:
        for row in journal.plans.existing_rows(record.digest):
            if row.topic_partition in names:
                move = PlannedMove(record.digest, row, record.status.finished)
                moves.setdefault(row.topic_partition, []).append(move)
    return moves


def _read_audited(
    journal: Journal, asked: Iterable[ChunkPartition]
) -> dict[tuple[TopicPartition, Assignment], AuditedRequest]:
    """Return the last mention of each requested partition with its target, and where it was submitted to later."""
    wanted = {entry.topic_partition: entry.replicas for entry in asked}
    mentions: dict[tuple[TopicPartition, Assignment], AuditedRequest] = {}
    for topic in sorted({name.topic for name in wanted}):
        for row in journal.audit.rows(topic=topic, limit=_AUDIT_ROWS):
            name = TopicPartition(topic, -1 if row.entry.partition is None else row.entry.partition)
            if name in wanted and isinstance(row.entry.after, list):
                _note_mention(mentions, name, wanted[name], row)
    return mentions


def _note_mention(
    mentions: dict[tuple[TopicPartition, Assignment], AuditedRequest],
    name: TopicPartition,
    target: Assignment,
    row: StoredAuditRecord,
) -> None:
    entry, after = row.entry, tuple(row.entry.after)
    if after == target:
        refused = entry.action is Action.REQUEST and row.outcome is Outcome.REFUSED
        mentions[name, target] = AuditedRequest(row.when_ms, row.detail.rstrip(".") if refused else "")
    elif entry.action is Action.SUBMIT and (name, target) in mentions:
        mentions[name, target] = AuditedRequest(row.when_ms, later=after, plan=entry.plan or None)
