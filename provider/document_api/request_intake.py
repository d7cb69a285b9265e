"""Request intake: evaluate request documents, supersede reassignments if necessary, and publish plans.

A document is deleted only after its plan is published, or after it was refused. If a process crashes before that, the
next process resumes: it finds the document, and the plan if that was published already. A request is marked as accepted
before it has any effect. The mark is a compare-and-set, as the removal of a request is a compare-and-delete: one of the
two comes first, so that a request that was withdrawn is never executed.

A later document may supersede partitions of an active plan (KIP-236); `PartialCancel` removes them. Moves that have not
started are dropped. Reassignments in flight are cancelled, and their replica order is restored, before a new target is
submitted. So no replica remains on a broker that is neither in the original nor in the new target.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby

from kafka_steward.assignment import Assignment, Move, MoveReason, TopicPartition, counted
from kafka_steward.cluster.state import Partition, Snapshot
from kafka_steward.document_api.document_plans import DocumentPlans, publish_document_plan
from kafka_steward.document_api.partition_rules import (
    ActiveReassignment,
    ClusterView,
    RequestDecision,
    RequestOutcome,
    decide_requests,
)
from kafka_steward.document_api.request_documents import RequestDocument, mark_accepted
from kafka_steward.errors import ClusterError
from kafka_steward.execution.cluster_queries import HIDDEN, cordoned_brokers, readable_topic_configs, with_hidden_topics
from kafka_steward.execution.effects import AuditedCalls
from kafka_steward.execution.moves.directories import chosen_by_broker_note, held_directories
from kafka_steward.execution.moves.in_flight import delete_in_flight, list_in_flight, retarget_in_flight
from kafka_steward.execution.moves.observe import Observation, ObservedState, observe_moves
from kafka_steward.execution.moves.reversal import NextAction, ReversalState, Verdict
from kafka_steward.execution.moves.reversal_execution import LateRetraction, MoveReversals, ReversalExecutor
from kafka_steward.execution.moves.states import OPEN, SETTLED, Event, phase_of
from kafka_steward.execution.moves.store import Decision, MoveStore
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Actor, AuditRecord, Outcome
from kafka_steward.journal.listing import quarantine_document
from kafka_steward.journal.locks import Fence
from kafka_steward.journal.mailbox import Node
from kafka_steward.journal.records import Cause, MoveRow, MoveState, Phase, PlanRecord, PlanStatus
from kafka_steward.journal.store import Journal
from kafka_steward.planning.files.reassignment import Replica
from kafka_steward.settings import Settings

_MIN_ISR = "min.insync.replicas"
_BEGINS = {RequestOutcome.MOVE, RequestOutcome.SUPERSEDE}


@dataclass
class IntakeResult:
    """The result of one intake: digests of published plans, messages for the log, and whether it must be resumed.

    `refusals` are those of the messages that say that a request is not executed. `marked` has the nodes of the requests
    that were marked as accepted, by path.
    """

    plans: list[str] = field(default_factory=list)
    marked: dict[str, Node] = field(default_factory=dict)
    sentences: list[str] = field(default_factory=list)
    refusals: set[str] = field(default_factory=set)
    unfinished: bool = False


class RequestIntake:
    """Accepts the request documents of one cluster.

    `who` is the actor that runs the intake; the documents do not name the requester.
    """

    def __init__(self, cluster: ClusterPort, journal: Journal, settings: Settings, who: Actor) -> None:
        self._cluster = cluster
        self._journal = journal
        self._settings = settings
        self._who = who

    def accept(self, documents: Sequence[RequestDocument], plans: DocumentPlans) -> IntakeResult:
        """Publish plans for the reassignments that these documents request.

        The caller deletes the documents, unless the result is `unfinished`.

        Raises ClusterError, JournalError; LockLost while another process steps a plan that must be superseded.
        """
        admitted = IntakeResult()
        readable = [document for document in documents if not document.parse_error]
        for document in documents:
            if document.parse_error:
                self._refuse_document(document, admitted)
        view = self._load_cluster_view(readable, plans)
        decisions = decide_requests((asked for document in readable for asked in document.requested), view)
        begun = [decision for decision in decisions if decision.outcome in _BEGINS]
        if not self._mark_accepted(readable, {decision.asked.source for decision in begun}, admitted):
            admitted.unfinished = True  # one was removed or changed since it was read: the next poll decides again
            return admitted
        # Before any plan is published: two plans must not move one partition.
        blocked = self._cancel_superseded(
            [decision for decision in begun if decision.outcome is RequestOutcome.SUPERSEDE]
        )
        if blocked:
            admitted.unfinished = True
            admitted.sentences += [f"{name} waits: {why}." for name, why in blocked.items()]
            return admitted
        self._record_decisions([decision for decision in decisions if decision.outcome not in _BEGINS], admitted)
        admitted.sentences += _directory_notes(begun, view)
        self._publish_plans(begun, readable, admitted)
        return admitted

    def _load_cluster_view(self, documents: Sequence[RequestDocument], plans: DocumentPlans) -> ClusterView:
        topics = {asked.partition.topic for document in documents for asked in document.requested}
        snapshot = with_hidden_topics(self._cluster, self._cluster.snapshot(), topics)
        values, refused = readable_topic_configs(self._cluster, sorted(topics & snapshot.topics), [_MIN_ISR])
        min_isr = {topic: int(of[_MIN_ISR]) for topic, of in values.items() if _MIN_ISR in of}
        words = {topic: error.message for topic, error in refused.items()}
        named = {replica for document in documents for asked in document.requested for replica in asked.directories}
        held = held_directories(self._cluster, snapshot, named)
        targets = {broker for document in documents for asked in document.requested for broker in asked.replicas}
        cordoned = frozenset[int]()
        with suppress(ClusterError):  # a move to a cordoned broker is then held before it starts
            cordoned = cordoned_brokers(self._cluster, targets & snapshot.live)
        return ClusterView(snapshot, active_reassignments(self._journal, plans), min_isr, words, held, cordoned)

    def _mark_accepted(
        self, documents: Sequence[RequestDocument], begun: Collection[str], admitted: IntakeResult
    ) -> bool:
        """Mark the requests that begin something; return False if one was removed or changed since it was read."""
        for document in documents:
            if document.node.path in begun and document.node.path.startswith(f"{paths.REASSIGNMENT_REQUESTS}/"):
                node = mark_accepted(self._journal.mailbox, document)
                if node is None:
                    return False
                admitted.marked[document.node.path] = node
        return True

    def _cancel_superseded(self, decisions: Sequence[RequestDecision]) -> dict[TopicPartition, str]:
        """Cancel reassignments in flight to another target; returns partitions that cannot be cancelled yet, and why.

        Moves of these partitions that have not started are dropped from their plans.
        """
        blocked: dict[TopicPartition, str] = {}
        ordered = sorted(decisions, key=_superseded_plan)
        for plan, superseding in groupby(ordered, key=_superseded_plan):
            blocked |= self._cancel_in_plan(plan, list(superseding))
        return blocked

    def _cancel_in_plan(self, plan: str, decisions: Sequence[RequestDecision]) -> dict[TopicPartition, str]:
        why = f"superseded by {', '.join(sorted({decision.asked.source for decision in decisions})[:3])}"
        # Before the cancel: the record of the originals becomes the request's, and outlives the superseded move.
        for source, targets in _by_source(decisions).items():
            retarget_in_flight(self._journal.mailbox, source, targets)
        with self._journal.step_lock() as fence:
            withdrawal = PartialCancel(self._cluster, self._journal, plan, why=why, who=self._who, fence=fence)
            return withdrawal.run([decision.asked.partition for decision in decisions])

    def _publish_plans(
        self, begun: Sequence[RequestDecision], documents: Sequence[RequestDocument], admitted: IntakeResult
    ) -> None:
        if not begun:
            return
        snapshot = with_hidden_topics(
            self._cluster, self._cluster.snapshot(), {decision.asked.partition.topic for decision in begun}
        )
        if snapshot.hidden:  # since the decision
            admitted.unfinished = True
            return
        sizes = self._fetch_partition_sizes(snapshot, begun)
        elsewhere = {decision.asked.partition for decision in begun if _needs_move(decision, snapshot.partitions)}
        # Of the others, the cancel has restored the requested replicas: no move is needed.
        there = [decision for decision in begun if decision.asked.partition not in elsewhere]
        for source, targets in _by_source(there).items():
            delete_in_flight(self._journal.mailbox, source, list(targets))
        by_path = {document.node.path: document.document_id for document in documents}
        for legacy in (False, True):
            chosen = [
                decision
                for decision in begun
                if decision.asked.legacy is legacy and decision.asked.partition in elsewhere
            ]
            if chosen:
                sources = {by_path[decision.asked.source] for decision in chosen}
                moves = _build_moves(chosen, snapshot.partitions, sizes, self._settings.heal_chunk_size)
                record = publish_document_plan(self._journal, moves, sources=sources, legacy=legacy, who=self._who)
                admitted.plans.append(record.digest)
                admitted.sentences.append(
                    f"Plan {record.digest[:12]}, {record.reason}: {counted(len(moves), 'partition')}."
                )

    def _fetch_partition_sizes(
        self, snapshot: Snapshot, decisions: Sequence[RequestDecision]
    ) -> Mapping[TopicPartition, int]:
        names = [decision.asked.partition for decision in decisions]
        leaders = {name: snapshot.partitions[name].leader for name in names if name in snapshot.partitions}
        try:
            dirs = self._cluster.log_dirs(sorted({leader for leader in leaders.values() if leader is not None}))
        except ClusterError:
            return {}  # no move needs its size to start: sizes only serve the progress report
        sizes = {name: dirs[leader].replica_bytes.get(name) for name, leader in leaders.items() if leader in dirs}
        return {name: size for name, size in sizes.items() if size is not None}

    def _refuse_document(self, document: RequestDocument, admitted: IntakeResult) -> None:
        kept = quarantine_document(
            self._journal.mailbox, self._journal.state, document.node, document.parse_error, None
        )
        where = "" if kept is None else f" Its content was copied to {kept}."
        sentence = f"{document.node.path} was not executed: {document.parse_error}{where}"
        text = document.node.data[:2000]
        self._journal.audit.record(
            AuditRecord(Action.REQUEST, sentence, before=text, who=self._who), Outcome.REFUSED, document.parse_error
        )
        admitted.sentences.append(sentence)
        admitted.refusals.add(sentence)

    def _record_decisions(self, decisions: Sequence[RequestDecision], admitted: IntakeResult) -> None:
        """Record what begins nothing, in one transaction: a document may name thousands of partitions."""
        records = []
        for decision in decisions:
            asked, refused = decision.asked, decision.outcome is RequestOutcome.REFUSE
            sentence = f"{asked.source} asks to move {asked.partition} to {list(asked.replicas)}: " + (
                f"refused, {decision.why}." if refused else f"nothing to do, {decision.why}."
            )
            action, outcome = (Action.REQUEST, Outcome.REFUSED) if refused else (Action.SKIP, Outcome.DONE)
            topic, number = asked.partition
            after = list(asked.replicas)
            entry = AuditRecord(action, sentence, topic=topic, partition=number, after=after, who=self._who)
            records.append((entry, outcome, decision.why))
            admitted.sentences.append(sentence)
            if refused:
                admitted.refusals.add(sentence)
        self._journal.audit.record_decisions(records)


def active_reassignments(journal: Journal, plans: DocumentPlans) -> dict[TopicPartition, ActiveReassignment]:
    """Return reassignments in flight or waiting, in KIP-236's order of sources: in-flight records, then plans.

    In-flight records that name a plan are skipped: the rows of the unfinished plans in `plans.requested` replace them,
    because rows carry more information.
    """
    active = {
        partition: ActiveReassignment(document.replicas, document.original_replicas, document.legacy)
        for partition, document in list_in_flight(journal.mailbox).items()
        if document.plan is None
    }
    for plan in plans.requested:
        for row in journal.plans.rows(plan.digest):
            if not row.state.settled:
                move, waits, stuck = row.move, _waiting_reason(plan, row), plan.status is PlanStatus.STUCK
                active[row.topic_partition] = ActiveReassignment(
                    move.after, move.before, plan.legacy, plan.digest, waits, stuck
                )
    return active


def _waiting_reason(plan: PlanRecord, row: MoveRow) -> str:
    """Return why a plan has not submitted a move, as a clause; empty if it has."""
    if row.state is MoveState.SUBMITTED or row.stage:
        return ""
    detail = row.detail.removesuffix(".")
    begins = f"plan {plan.digest[:12]} has the same target, and has not submitted it"
    if plan.status is PlanStatus.STUCK:
        return f"{begins}: it is stuck, and is to be resumed or cancelled{f'; {detail}' if detail else ''}"
    return f"{begins}: {detail or 'its turn has not come'}"


def _directory_notes(decisions: Sequence[RequestDecision], view: ClusterView) -> list[str]:
    """Return which documents name log directories that the brokers choose instead."""
    named: dict[str, dict[Replica, str]] = {}
    for decision in decisions:
        named.setdefault(decision.asked.source, {}).update(decision.asked.directories)
    notes = (chosen_by_broker_note(source, directories, view.directories) for source, directories in named.items())
    return [note for note in notes if note]


def _by_source(decisions: Sequence[RequestDecision]) -> dict[str, dict[TopicPartition, Assignment]]:
    """Return the targets by partition of each document that asks for them."""
    targets: dict[str, dict[TopicPartition, Assignment]] = {}
    for decision in decisions:
        targets.setdefault(decision.asked.source, {})[decision.asked.partition] = decision.asked.replicas
    return targets


def _superseded_plan(decision: RequestDecision) -> str:
    return "" if decision.active is None else decision.active.plan or ""


def _needs_move(decision: RequestDecision, partitions: Mapping[TopicPartition, Partition]) -> bool:
    """Return whether the partition exists and its replicas differ from the requested ones."""
    partition = partitions.get(decision.asked.partition)
    return partition is not None and partition.replicas != decision.asked.replicas


def _build_moves(
    decisions: Sequence[RequestDecision],
    partitions: Mapping[TopicPartition, Partition],
    sizes: Mapping[TopicPartition, int],
    chunk_size: int,
) -> list[Move]:
    """Return the moves from the current replicas to the requested ones, in chunks."""
    moves = []
    for number, (name, target) in enumerate(
        (decision.asked.partition, decision.asked.replicas) for decision in decisions
    ):
        before, place = partitions[name], divmod(number, chunk_size)
        moves.append(
            Move(*name, before.replicas, target, *place, MoveReason.GIVEN.value, before.topic_id, sizes.get(name))
        )
    return moves


_IN_PROGRESS = "its cancel is in progress"
_UNSETTLED = frozenset(MoveState) - SETTLED


class PartialCancel:
    """Removes partitions from the plan `digest`, for the holder of the step lock. `why` is a clause for the record."""

    def __init__(
        self, cluster: ClusterPort, journal: Journal, digest: str, *, why: str, who: Actor, fence: Fence
    ) -> None:
        self._cluster = cluster
        self._why = why
        self._moves = MoveStore(journal, digest, who, fence)
        calls, retraction = AuditedCalls(journal.audit, fence), LateRetraction(cluster, journal, digest, who)
        self._reversals = MoveReversals(digest, self._moves, ReversalExecutor(cluster, calls, who, retraction))

    def run(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, str]:
        """Remove partitions from the plan as far as possible now; returns the remaining partitions, and why.

        Raises ClusterError, JournalError; LockLost when another process took over.
        """
        findings, snapshot = self._observe(partitions)
        self._reversals.extend_external_cancels(findings)
        in_flight = [finding.row for finding in findings if finding.state is ObservedState.IN_FLIGHT]
        verdicts = self._reversals.judge([finding.row for finding in findings], snapshot)
        able = [row for row in in_flight if verdicts[row.topic_partition].action is NextAction.CANCEL]
        self._moves.record_cancelling([(row, self._why, Cause.SUPERSEDED) for row in able])
        open_moves = self._find_unsettled(partitions, OPEN)
        self._reversals.begin_between_stages(open_moves, snapshot, self._why, Cause.SUPERSEDED)
        self._drop_open_moves(partitions, snapshot)
        submitted = self._find_unsettled(partitions, {MoveState.SUBMITTED})
        self._reversals.run([row for row in submitted if phase_of(row) is Phase.CANCELLING], self._why)
        # Read again: as far as Kafka shows it, the cancels have ended by now.
        _, snapshot = self._observe(partitions)
        self._drop_open_moves(partitions, snapshot)
        left = self._find_unsettled(partitions)
        return {row.topic_partition: _delay_reason(verdicts.get(row.topic_partition)) for row in left}

    def _observe(self, partitions: Collection[TopicPartition]) -> tuple[Sequence[Observation], Snapshot]:
        """Record what became of the moves of these partitions; return it, and the snapshot that shows it."""
        rows = self._find_unsettled(partitions)
        snapshot = self._cluster.snapshot(sorted({row.move.topic for row in rows}))
        findings = observe_moves(rows, snapshot)
        self._moves.record_observations(
            [finding for finding in findings if finding.state is not ObservedState.IN_FLIGHT]
        )
        return findings, snapshot

    def _drop_open_moves(self, partitions: Collection[TopicPartition], snapshot: Snapshot) -> None:
        rows = self._find_unsettled(partitions, OPEN)
        self._reversals.end_moves([Decision(row, Event.DROP, self._why, Cause.SUPERSEDED) for row in rows], snapshot)

    def _find_unsettled(
        self, partitions: Collection[TopicPartition], states: Collection[MoveState] = _UNSETTLED
    ) -> list[MoveRow]:
        return [row for row in self._moves.rows() if row.topic_partition in partitions and row.state in states]


def _delay_reason(verdict: Verdict | None) -> str:
    """Return why a move in flight cannot be taken out of its plan yet.

    A reassignment that has completed, but whose replicas are not all in sync, is waited for instead of cancelled.
    """
    if verdict is None:
        return _IN_PROGRESS
    if verdict.state is ReversalState.COMPLETED:
        return "it has completed, and not all its replicas are in sync yet"
    return HIDDEN if verdict.state is ReversalState.HIDDEN else verdict.why or _IN_PROGRESS
