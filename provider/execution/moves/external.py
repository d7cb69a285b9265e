"""External reassignments: finding them, and cancelling them by KIP-236's rules.

A reassignment submitted through the Admin API (`kafka-reassign-partitions --bootstrap-server`, Cruise Control) is
reverted to its replicas without the adding ones, in the order in which Kafka lists them: Kafka knows no more about the
originals. A reassignment submitted through `/admin/reassign_partitions` is reverted to the `original_replicas` that are
recorded for it, in their order; the KIP skips it if none are recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from kafka_steward.assignment import Assignment, Move, MoveReason, TopicPartition
from kafka_steward.cluster.state import Snapshot
from kafka_steward.errors import DocumentError
from kafka_steward.execution.cluster_queries import HIDDEN
from kafka_steward.execution.effects import AuditedCalls
from kafka_steward.execution.moves.in_flight import delete_in_flight, disown_in_flight, is_unknown_plan, list_in_flight
from kafka_steward.execution.moves.observe import ObservedState, observe_moves
from kafka_steward.execution.moves.reversal import Reversal, ReversalState
from kafka_steward.execution.moves.reversal_execution import ReversalExecutor
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Actor, Code
from kafka_steward.journal.kip_documents import InFlight, Request
from kafka_steward.journal.locks import Fence
from kafka_steward.journal.mailbox import read_one
from kafka_steward.journal.store import Journal

#: The states in which one of our plans has the partition in flight.
_OURS = {
    ObservedState.IN_FLIGHT,
    ObservedState.ADOPTED,
    ObservedState.STILL_IN_FLIGHT,
    ObservedState.CANCELLING,
    ObservedState.RETURNING,
}


@dataclass(frozen=True)
class ExternalReassignment:
    """An external reassignment to `target`, from `originals`; None if they are not known.

    With `cancelled`, an earlier call has cancelled it, and only its end is waited for.
    """

    partition: TopicPartition
    target: Assignment
    originals: Assignment | None
    cancelled: bool = False

    def reversal(self, reason: str) -> Reversal:
        """Return what takes it back."""
        move = Move(*self.partition, self.originals or (), self.target, 0, 0, MoveReason.GIVEN.value)
        return Reversal(move, reason, cancelled=self.cancelled)


class ExternalCancelState(StrEnum):
    """The state of an external reassignment after an attempt to cancel it."""

    CANCELLED = "cancelled"
    #: A rule of KIP-236 forbids the cancel.
    SKIPPED = "skipped"
    #: The reassignment was complete already.
    COMPLETED = "completed"
    DELETED = "deleted"
    #: The cancel was submitted, and Kafka does not show the end of it yet.
    PENDING = "pending"
    #: Kafka does not let us describe the topic: its state is unknown, and its record is kept.
    HIDDEN = "hidden"

    @property
    def may_be_in_flight(self) -> bool:
        """Return True if the reassignment remains in flight, as far as Kafka shows, or may do so unseen."""
        return self in {ExternalCancelState.SKIPPED, ExternalCancelState.PENDING, ExternalCancelState.HIDDEN}

    @property
    def is_news(self) -> bool:
        """Return False if nothing was in flight: of some, only a record was left, maybe of long ago."""
        return self not in {ExternalCancelState.COMPLETED, ExternalCancelState.DELETED}


@dataclass(frozen=True)
class ExternalCancel:
    """The result for `reassignment`; `why` is the reason why it was not cancelled, or not restored whole."""

    reassignment: ExternalReassignment
    state: ExternalCancelState
    why: str = ""

    @property
    def sentence(self) -> str:
        """The message for a person."""
        name, target = self.reassignment.partition, list(self.reassignment.target)
        whose = f"The external reassignment of {name} to {target}"
        if self.state is ExternalCancelState.CANCELLED and self.why:
            return f"{whose} is cancelled, and {self.why.rstrip('.')}."
        return {
            ExternalCancelState.CANCELLED: f"{whose} is back at {list(self.reassignment.originals or ())}.",
            ExternalCancelState.SKIPPED: f"{whose} was not cancelled: {self.why}.",
            ExternalCancelState.HIDDEN: f"{whose} was not cancelled: {self.why}.",
            ExternalCancelState.COMPLETED: f"{whose} had already completed.",
            ExternalCancelState.DELETED: f"{whose} no longer exists.",
            ExternalCancelState.PENDING: f"{whose} is being cancelled, and Kafka still lists it.",
        }[self.state]

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain values."""
        asked = self.reassignment
        named = {"topic": asked.partition.topic, "partition": asked.partition.partition, "target": list(asked.target)}
        back = None if asked.originals is None else list(asked.originals)
        return {**named, "originals": back, "state": self.state.value, "why": self.why}


def find_external_reassignments(
    cluster: ClusterPort, journal: Journal, plans: Iterable[str]
) -> list[ExternalReassignment]:
    """Return the external reassignments, sorted by partition. Raises ClusterError, JournalError.

    They are in flight and neither belong to one of `plans` nor are recorded as ours. Recorded external reassignments
    that are no longer in flight are included.
    """
    snapshot, documents = cluster.snapshot(), _disown_unknown_plans(journal)
    recorded = _read_recorded_originals(journal, documents)
    ours = _find_our_partitions(journal, plans, snapshot, documents)
    in_flight = {name: partition for name, partition in snapshot.reassigning.items() if name not in ours}
    # A recorded reassignment that is at rest may have lost its order, if the cancelling process crashed. Its record
    # must be deleted.
    external = {name: document for name, document in documents.items() if document.plan is None}
    resting = {name: document for name, document in external.items() if name not in in_flight.keys() | ours}
    reassignments = [
        *(
            ExternalReassignment(name, partition.target, recorded.get(name, partition.original))
            for name, partition in in_flight.items()
        ),
        *(
            ExternalReassignment(name, document.replicas, document.original_replicas)
            for name, document in resting.items()
        ),
    ]
    return sorted(reassignments, key=lambda reassignment: reassignment.partition)


def cancel_external_reassignments(
    cluster: ClusterPort,
    journal: Journal,
    reassignments: Sequence[ExternalReassignment],
    *,
    reason: str,
    who: Actor,
    fence: Fence,
) -> list[ExternalCancel]:
    """Cancel these, restore the order of their replicas, and return the results, in the order of `reassignments`.

    If the process is killed at any point, the next caller repeats the work. Raises ClusterError, JournalError,
    LockLost.
    """
    asked = {reassignment.partition: reassignment.reversal(reason) for reassignment in reassignments}
    verdicts = ReversalExecutor(cluster, AuditedCalls(journal.audit, fence), who).run(asked.values())
    cancels = []
    for reassignment in reassignments:
        verdict = verdicts[reassignment.partition]
        state = _RESULTS.get(verdict.state, ExternalCancelState.PENDING)
        why = HIDDEN if state is ExternalCancelState.HIDDEN else verdict.why
        cancels.append(ExternalCancel(reassignment, state, why))
        if state in {ExternalCancelState.SKIPPED, ExternalCancelState.HIDDEN}:
            code = Code.FORBIDDEN if state is ExternalCancelState.SKIPPED else None
            entry = asked[reassignment.partition].audit_record(Action.SKIP, why, who)
            journal.audit.record(replace(entry, code=code))
    # Deleted last: by these records, the caller after a crash finds what is to be done again.
    ended = [cancel.reassignment.partition for cancel in cancels if not cancel.state.may_be_in_flight]
    delete_in_flight(journal.mailbox, None, ended)
    return cancels


_RESULTS = {
    ReversalState.RESTORED: ExternalCancelState.CANCELLED,
    ReversalState.REFUSED: ExternalCancelState.CANCELLED,
    ReversalState.CANNOT_CANCEL: ExternalCancelState.SKIPPED,
    ReversalState.HIDDEN: ExternalCancelState.HIDDEN,
    ReversalState.COMPLETED: ExternalCancelState.COMPLETED,
    ReversalState.ELSEWHERE: ExternalCancelState.COMPLETED,
    ReversalState.GONE: ExternalCancelState.DELETED,
}


def _disown_unknown_plans(journal: Journal) -> dict[TopicPartition, InFlight]:
    """Return the in-flight records, after those were made external whose plans the journal does not know."""
    documents = list_in_flight(journal.mailbox)
    plans = {document.plan for document in documents.values()}
    unknown = {plan for plan in plans if plan and is_unknown_plan(journal, plan)}
    for plan in unknown:
        disown_in_flight(journal.mailbox, plan, documents.keys())
    return list_in_flight(journal.mailbox) if unknown else documents


def _read_recorded_originals(
    journal: Journal, documents: Mapping[TopicPartition, InFlight]
) -> dict[TopicPartition, Assignment | None]:
    """Return the recorded originals of external reassignments.

    The value is None for a submission through the legacy znode that has none recorded (KIP-236).
    """
    node = read_one(journal.mailbox, paths.REASSIGN_PARTITIONS)
    try:
        asked = () if node is None else Request.from_node(node).partitions
    except DocumentError:
        asked = ()  # Kafka's own reader cannot read it either
    by_node = {entry.topic_partition: entry.original_replicas for entry in asked}
    by_document = {
        name: document.original_replicas
        for name, document in documents.items()
        if document.plan is None and (document.legacy or document.original_replicas)
    }
    return by_node | by_document


def _find_our_partitions(
    journal: Journal, plans: Iterable[str], snapshot: Snapshot, documents: Mapping[TopicPartition, InFlight]
) -> set[TopicPartition]:
    findings = (finding for digest in plans for finding in observe_moves(journal.plans.existing_rows(digest), snapshot))
    by_plan = {finding.row.topic_partition for finding in findings if finding.state in _OURS}
    by_document = {
        name
        for name, document in documents.items()
        if document.plan is not None
        and (partition := snapshot.partitions.get(name)) is not None
        and partition.target == document.replicas
    }
    return by_plan | by_document
