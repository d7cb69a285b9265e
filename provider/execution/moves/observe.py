"""The results of submitted moves: a comparison of journal rows and a snapshot of the cluster. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from kafka_steward.assignment import Assignment, Move, TopicPartition, only_reorders
from kafka_steward.cluster.state import Partition, Snapshot
from kafka_steward.execution.moves.reversal import Reversal, ReversalState, is_listed_as_in_flight, next_action
from kafka_steward.execution.moves.staging import is_between_stages, part_in_flight, stage_reached, target_in_flight
from kafka_steward.execution.moves.states import DELETION_PENDING, OPEN, TOPIC_DELETED, TOPIC_RECREATED, Event, phase_of
from kafka_steward.journal.records import Cause, MoveRow, MoveState, Phase


class ObservedState(Enum):
    """The state of a move as observed in one poll of the cluster."""

    #: Kafka lists it with our target; or it is at the target, and the ISR does not contain the whole target yet.
    IN_FLIGHT = "in flight"
    #: Absent from the list, at the target in order, and the ISR contains the whole target.
    ARRIVED = "arrived"
    #: Absent from the list and at the target; the replicas missing from the ISR are on brokers that are dead now, or in
    #: log directories that have failed.
    ARRIVED_SINCE_SHRUNK = "arrived, since shrunk"
    #: It has its replicas in another order, which Kafka changes at once, also while some are out of sync.
    REORDERED = "reordered"
    #: It is in phase INTENDED, and Kafka shows no trace of it.
    NOT_STARTED = "not started"
    #: The journal has it as not in flight, and it is in flight to our target: an answer was lost.
    ADOPTED = "adopted"
    #: The journal knows of no submission, and Kafka shows ours: an older copy of the journal was restored.
    RECOVERED = "recovered"
    #: A stage that counted as complete is in flight, and the next one cannot be submitted.
    STILL_IN_FLIGHT = "still in flight"
    #: Kafka accepted it, and it is back at its original replicas.
    CANCELLED_EXTERNALLY = "cancelled by someone"
    #: An external reassignment gave the partition another target or assignment.
    TAKEN_OVER = "taken over"
    #: The topic was deleted.
    GONE = "gone"
    #: The brokers do not show it, and the deletion of the topic is pending.
    DELETING = "deleting"
    #: Kafka does not let us describe the topic: its state is unknown.
    HIDDEN = "hidden"
    #: The topic was deleted and re-created.
    RECREATED = "recreated"
    #: The same, and Kafka applies the move to the new topic, which came between the last poll and the submission.
    RECREATED_IN_FLIGHT = "recreated, in flight"
    #: The same, and Kafka has completed the move, or a stage of it, on the new topic.
    RECREATED_AT_TARGET = "recreated, at the target"
    #: We cancel it, and Kafka still lists it.
    CANCELLING = "cancelling"
    #: We cancelled it; its replicas are the originals in another order, or the originals and those of completed stages.
    ORDER_CHANGED = "order changed"
    #: We cancelled it, and the original replicas are restored in their order.
    RESTORED = "restored"
    #: A stage has completed, and the next may be submitted.
    BETWEEN_STAGES = "between stages"
    #: An external cancel ended a stage; the replicas of the stages before it are still there.
    CANCELLED_BETWEEN_STAGES = "cancelled by someone, between stages"
    #: We cancelled it, and Kafka is removing the replicas of completed stages.
    RETURNING = "returning"
    #: We cancelled it, and it cannot be rolled back: an original broker is dead, or its log directory failed.
    CANNOT_ROLL_BACK = "cannot be rolled back"


#: The event and the journal text for each state; a state that is not listed causes no event yet.
TRANSITION_OF: dict[ObservedState, tuple[Event, str]] = {
    ObservedState.ARRIVED: (Event.COMPLETE, "complete, every replica in sync"),
    ObservedState.ARRIVED_SINCE_SHRUNK: (
        Event.COMPLETE,
        "complete; the broker or the log directory of a replica that was in sync has failed since",
    ),
    ObservedState.REORDERED: (Event.COMPLETE, "complete, in the new order"),
    ObservedState.NOT_STARTED: (Event.NOT_STARTED, "Kafka did not receive the request"),
    ObservedState.ADOPTED: (Event.SUBMIT, "Kafka applied it, and its response was lost"),
    ObservedState.RECOVERED: (
        Event.SUBMIT,
        "it is in Kafka, and its row did not say so: an older copy of the journal was restored, or others sent it",
    ),
    ObservedState.STILL_IN_FLIGHT: (Event.SUBMIT, "Kafka has not completed its stage"),
    ObservedState.CANCELLED_EXTERNALLY: (Event.DROP, "someone else cancelled it"),
    ObservedState.TAKEN_OVER: (Event.TAKE_OVER, "someone else reassigned the partition"),
    ObservedState.GONE: (Event.DROP, TOPIC_DELETED),
    ObservedState.DELETING: (Event.DROP, DELETION_PENDING),
    ObservedState.RECREATED: (Event.DROP, TOPIC_RECREATED),
    ObservedState.RECREATED_IN_FLIGHT: (
        Event.DROP,
        f"{TOPIC_RECREATED}; what Kafka began with the new one is cancelled, whose replicas may be in another order",
    ),
    ObservedState.RECREATED_AT_TARGET: (
        Event.DROP,
        f"{TOPIC_RECREATED}, and the new one has replicas of this move; which it had before is not known",
    ),
    ObservedState.RESTORED: (Event.CANCEL_COMPLETED, "cancelled, and restored to its original replicas"),
    ObservedState.BETWEEN_STAGES: (Event.STAGE_COMPLETED, "a new replica is in sync, and the next stage may start"),
    ObservedState.CANNOT_ROLL_BACK: (
        Event.CANCEL_COMPLETED,
        "cancelled between stages; an original broker or its log directory failed, so it keeps its current replicas",
    ),
}

#: The cause recorded for a move that an external actor ended.
CAUSES: dict[ObservedState, Cause] = {
    ObservedState.CANCELLED_EXTERNALLY: Cause.CANCELLED_ELSEWHERE,
    ObservedState.TAKEN_OVER: Cause.REASSIGNED_ELSEWHERE,
}


@dataclass(frozen=True)
class Observation:
    """A move and its observed state. `found` is the observed assignment, None if the partition does not exist any more.

    `isr_whole` is True if the ISR contains the whole target at this moment. `in_flight` is the part of the move that
    is in flight.
    """

    row: MoveRow
    state: ObservedState
    found: Assignment | None
    isr_whole: bool = False
    in_flight: Move | None = None


def observe_moves(rows: Iterable[MoveRow], snapshot: Snapshot) -> list[Observation]:
    """Return the state of each move that is submitted, or in flight after a lost answer; in the order of `rows`."""
    findings = []
    for row in rows:
        partition = snapshot.partitions.get(row.move.topic_partition)
        seen = observe_move(row, partition, snapshot.live)
        if seen is ObservedState.GONE and row.move.topic in snapshot.hidden:
            seen = ObservedState.HIDDEN
        elif seen is ObservedState.GONE and row.move.topic in snapshot.deleting:
            seen = ObservedState.DELETING
        if seen is not None:
            replicas, isr = (partition.replicas, partition.isr) if partition else (None, frozenset())
            findings.append(
                Observation(row, seen, replicas, isr >= frozenset(row.move.after), part_in_flight(row, partition))
            )
    return findings


def recover_moves(
    rows: Iterable[MoveRow],
    snapshot: Snapshot,
    owners: Mapping[TopicPartition, str | None],
    plan: str,
    *,
    documents_are_newer: bool,
) -> list[Observation]:
    """Return the moves of `plan` that were submitted although their rows, never submitted, do not say so.

    That is so after an older copy of the journal was restored. `owners` are the plans that the in-flight documents of
    these partitions name. `documents_are_newer` is True if they are in ZooKeeper, which was not restored: only what
    they name is the plan's then. In the database, they are as old as the rows. There a reassignment from exactly the
    originals to exactly the target is taken for the plan's, unless a document names another plan. If someone else did
    begin it, a cancel of this plan ends theirs: whoever cancels does not want that target, and the originals are known.
    """
    findings = []
    for row in rows:
        name = row.topic_partition
        partition, owner = snapshot.partitions.get(name), owners.get(name)
        if partition is None or partition.is_recreated(row.move.topic_id):
            continue
        if owner == plan:
            begun = target_in_flight(row.move, partition) is not None or _has_ended(row, partition)
        else:
            alike = partition.reassigning and partition.target == row.move.after
            from_originals = frozenset(partition.original) == frozenset(row.move.before)
            begun = owner is None and not documents_are_newer and alike and from_originals
        if begun:
            found = part_in_flight(row, partition)
            findings.append(Observation(row, ObservedState.RECOVERED, partition.replicas, in_flight=found))
    return findings


def find_recoverable(rows: Iterable[MoveRow], snapshot: Snapshot) -> list[MoveRow]:
    """Return the rows without a submission whose partition is being reassigned, or is at the target already."""
    candidates = ((row, snapshot.partitions.get(row.topic_partition)) for row in rows if not row.attempt)
    return [row for row, now in candidates if now and (now.reassigning or _has_ended(row, now))]


def _has_ended(row: MoveRow, partition: Partition) -> bool:
    return not partition.reassigning and partition.replicas == row.move.after


def observe_move(row: MoveRow, partition: Partition | None, live: frozenset[int]) -> ObservedState | None:
    """Return the state of one move; None if it is neither submitted nor in flight after a lost answer.

    `partition` is None if Kafka knows no such partition.
    """
    if row.state in OPEN:
        if not (row.attempt and partition and target_in_flight(row.move, partition)):
            return None
        return ObservedState.STILL_IN_FLIGHT if row.stage and not row.unacknowledged else ObservedState.ADOPTED
    if row.state is not MoveState.SUBMITTED:
        return None
    if partition is None:
        return ObservedState.GONE
    if partition.is_recreated(row.move.topic_id):
        return _observe_recreated(row, partition)
    observe = _observe_reversal if phase_of(row) is Phase.CANCELLING else _observe_submitted
    return observe(row, partition, live)


def _observe_recreated(row: MoveRow, partition: Partition) -> ObservedState:
    target = partition.target
    if target != row.move.after and not is_between_stages(row, target):
        return ObservedState.RECREATED
    return ObservedState.RECREATED_IN_FLIGHT if partition.reassigning else ObservedState.RECREATED_AT_TARGET


def _observe_submitted(row: MoveRow, partition: Partition, live: frozenset[int]) -> ObservedState:
    if not partition.reassigning:
        return _observe_at_rest(row, partition, live - partition.offline)
    target = target_in_flight(row.move, partition)
    return ObservedState.IN_FLIGHT if target == row.move.after or (target and row.stage) else ObservedState.TAKEN_OVER


#: A move that is being cancelled, by the state of its reversal.
_OF_REVERSAL = {
    ReversalState.IN_FLIGHT: ObservedState.CANCELLING,
    ReversalState.CANNOT_CANCEL: ObservedState.CANCELLING,
    ReversalState.RETURNING: ObservedState.RETURNING,
    ReversalState.ORDER_LOST: ObservedState.ORDER_CHANGED,
    ReversalState.RESTORED: ObservedState.RESTORED,
    ReversalState.CANNOT_RESTORE: ObservedState.CANNOT_ROLL_BACK,
    ReversalState.STALE: ObservedState.IN_FLIGHT,
}


def _observe_reversal(row: MoveRow, partition: Partition, live: frozenset[int]) -> ObservedState:
    state = next_action(Reversal(row.move, row.detail, stage=row.stage), partition, live).state
    if state is ReversalState.COMPLETED:
        return _observe_at_target(row, partition, live - partition.offline)
    return _OF_REVERSAL.get(state, ObservedState.TAKEN_OVER)


def _observe_at_rest(row: MoveRow, partition: Partition, live: frozenset[int]) -> ObservedState:
    # Without an answer to the request, a partition at its originals means that it was not received.
    not_started = phase_of(row) is Phase.INTENDED
    if partition.replicas == row.move.after:
        return _observe_at_target(row, partition, live)
    if is_between_stages(row, partition.replicas):
        if stage_reached(row.move, partition.replicas) >= row.stage:
            return ObservedState.BETWEEN_STAGES
        return ObservedState.NOT_STARTED if not_started else ObservedState.CANCELLED_BETWEEN_STAGES
    # Of a move that only removes replicas, Kafka lists the originals while it is in flight: this comes first.
    if frozenset(partition.replicas) == frozenset(row.move.before):
        in_order = partition.replicas == row.move.before
        return ObservedState.NOT_STARTED if not_started and in_order else ObservedState.CANCELLED_EXTERNALLY
    if is_listed_as_in_flight(row.move, partition.replicas):
        return ObservedState.IN_FLIGHT  # it has ended, and the queried broker has stale metadata
    return ObservedState.TAKEN_OVER


def _observe_at_target(row: MoveRow, partition: Partition, live: frozenset[int]) -> ObservedState:
    missing = frozenset(row.move.after) - partition.isr
    # In sync once is enough: a replica that has fallen behind since does not undo the move (KIP-46).
    if row.isr_seen or not missing:
        return ObservedState.ARRIVED
    if only_reorders(row.move.before, row.move.after):
        return ObservedState.REORDERED
    # Kafka completes a reassignment only when the ISR contains the whole target: Kafka observed it, even if we did not.
    return ObservedState.IN_FLIGHT if missing & live else ObservedState.ARRIVED_SINCE_SHRUNK
