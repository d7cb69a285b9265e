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
from kafka_steward.execution.moves.reversal import Reversal, ReversalState, Verdict
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
    snapshot, noted = cluster.snapshot(), _disown_unknown_plans(journal)
    recorded = _read_recorded_originals(journal, noted)
    ours = _find_our_partitions(journal, plans, snapshot, noted)
    in_flight = {name: each for name, each in snapshot.partitions.items() if each.reassigning and name not in ours}
    # A recorded reassignment that is at rest may have lost its order, if the cancelling process crashed. Its record
    # must be deleted.
    resting = {name: each for name, each in noted.items() if each.plan is None and name not in in_flight.keys() | ours}
    found = [
        *(
            ExternalReassignment(name, each.target, recorded.get(name, each.original))
            for name, each in in_flight.items()
        ),
        *(ExternalReassignment(name, each.replicas, each.original_replicas) for name, each in resting.items()),
    ]
    return sorted(found, key=lambda each: each.partition)


def cancel_external_reassignments(
    cluster: ClusterPort,
    journal: Journal,
    found: Sequence[ExternalReassignment],
    *,
    reason: str,
    who: Actor,
    fence: Fence,
) -> list[ExternalCancel]:
    """Cancel these, restore the order of their replicas, and return the result of each, in the order of `found`.

    If the process is killed at any point, the next caller repeats the work. Raises ClusterError, JournalError,
    LockLost.
    """
    asked = {each.partition: each.reversal(reason) for each in found}
    verdicts = ReversalExecutor(cluster, AuditedCalls(journal.audit, fence), who).run(asked.values())
    cancels = [_result_of(each, verdicts[each.partition]) for each in found]
    for each in cancels:
        if each.state in {ExternalCancelState.SKIPPED, ExternalCancelState.HIDDEN}:
            code = Code.FORBIDDEN if each.state is ExternalCancelState.SKIPPED else None
            entry = asked[each.reassignment.partition].audit_record(Action.SKIP, each.why, who)
            journal.audit.record(replace(entry, code=code))
    delete_in_flight(
        journal.mailbox, None, [each.reassignment.partition for each in cancels if not each.state.may_be_in_flight]
    )
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


def _result_of(each: ExternalReassignment, verdict: Verdict) -> ExternalCancel:
    state = _RESULTS.get(verdict.state, ExternalCancelState.PENDING)
    return ExternalCancel(each, state, HIDDEN if state is ExternalCancelState.HIDDEN else verdict.why)


def _disown_unknown_plans(journal: Journal) -> dict[TopicPartition, InFlight]:
    """Return the in-flight records, after those were made external whose plans the journal does not know."""
    noted = list_in_flight(journal.mailbox)
    unknown = {plan for plan in {each.plan for each in noted.values()} if plan and is_unknown_plan(journal, plan)}
    for plan in unknown:
        disown_in_flight(journal.mailbox, plan, noted.keys())
    return list_in_flight(journal.mailbox) if unknown else noted


def _read_recorded_originals(
    journal: Journal, noted: Mapping[TopicPartition, InFlight]
) -> dict[TopicPartition, Assignment | None]:
    """Return the recorded originals of external reassignments.

    The value is None for a submission through the legacy znode that has none recorded (KIP-236).
    """
    node = read_one(journal.mailbox, paths.REASSIGN_PARTITIONS)
    try:
        asked = () if node is None else Request.from_node(node).partitions
    except DocumentError:
        asked = ()  # Kafka's own reader cannot read it either
    by_node = {each.topic_partition: each.original_replicas for each in asked}
    theirs = {name: each for name, each in noted.items() if each.plan is None}
    by_note = {name: each.original_replicas for name, each in theirs.items() if each.legacy or each.original_replicas}
    return by_node | by_note


def _find_our_partitions(
    journal: Journal, plans: Iterable[str], snapshot: Snapshot, noted: Mapping[TopicPartition, InFlight]
) -> set[TopicPartition]:
    found = (finding for digest in plans for finding in observe_moves(journal.plans.existing_rows(digest), snapshot))
    by_plan = {finding.row.topic_partition for finding in found if finding.state in _OURS}
    by_note = {name for name, each in noted.items() if each.plan is not None and _is_in_flight_to(name, each, snapshot)}
    return by_plan | by_note


def _is_in_flight_to(name: TopicPartition, noted: InFlight, snapshot: Snapshot) -> bool:
    partition = snapshot.partitions.get(name)
    return partition is not None and partition.target == noted.replicas
