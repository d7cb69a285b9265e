"""The results of submitted moves: a comparison of journal and cluster. Pure: no clock, no Kafka, no journal."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from kafka_steward.assignment import Assignment, Move
from kafka_steward.cluster.state import Partition, Snapshot
from kafka_steward.execution.decisions.moves import OPEN, Event, phase_of
from kafka_steward.execution.decisions.strides import bound_for, flown, goes_back, halfway
from kafka_steward.journal.moves import Cause, MoveRow, MoveState, Phase

__all__ = ["CAUSES", "MEANING", "Finding", "Standing", "settle", "standing"]


class Standing(Enum):
    """The state of a move as observed in one poll of the cluster."""

    #: Kafka lists it with our target; or it is at the target, and the ISR does not contain the whole target yet.
    FLYING = "flying"
    #: Absent from the list, at the target in order, and the ISR contains the whole target.
    ARRIVED = "arrived"
    #: Absent from the list and at the target; the replicas missing from the ISR are on brokers that are now dead.
    ARRIVED_SINCE_SHRUNK = "arrived, since shrunk"
    #: It is in phase INTENDED, and Kafka shows no trace of it.
    NEVER_BEGAN = "never began"
    #: The journal has it as not in flight, and it is in flight to our target: an answer was lost.
    ADOPTED = "adopted"
    #: Kafka accepted it, and it is back at its original replicas.
    CANCELLED_BY_SOMEONE = "cancelled by someone"
    #: An external reassignment gave the partition another target or assignment.
    TAKEN_OVER = "taken over"
    #: The topic was deleted.
    GONE = "gone"
    #: Kafka does not let us describe the topic: its state is unknown.
    HIDDEN = "hidden"
    #: The topic was deleted and re-created.
    CREATED_ANEW = "created anew"
    #: We cancel it, and Kafka still lists it.
    CANCELLING = "cancelling"
    #: We cancelled it; its replicas are the originals in another order, or the originals and those of completed stages.
    DISORDERED = "disordered"
    #: We cancelled it, and the original replicas are restored in their order.
    RESTORED = "restored"
    #: A stage has completed, and the next may be submitted.
    HALFWAY = "halfway"
    #: An external cancel ended a stage; the replicas of the stages before it are still there.
    CANCELLED_HALFWAY = "cancelled by someone, halfway"
    #: We cancelled it, and Kafka is removing the replicas of completed stages.
    RETURNING = "returning"
    #: We cancelled it, and it cannot be rolled back: an original broker is dead.
    STRANDED = "stranded"


#: The event and the journal text for each standing; a standing that is not listed causes no event yet.
MEANING: dict[Standing, tuple[Event, str]] = {
    Standing.ARRIVED: (Event.COMPLETE, "complete, every replica in sync"),
    Standing.ARRIVED_SINCE_SHRUNK: (Event.COMPLETE, "complete; a replica that was in sync has died since"),
    Standing.NEVER_BEGAN: (Event.NEVER_BEGAN, "Kafka was not asked, or did not hear"),
    Standing.ADOPTED: (Event.SUBMIT, "Kafka applied it after its answer was lost"),
    Standing.CANCELLED_BY_SOMEONE: (Event.DROP, "someone else cancelled it"),
    Standing.TAKEN_OVER: (Event.LOSE, "someone else reassigned the partition"),
    Standing.GONE: (Event.DROP, "the topic was deleted"),
    Standing.CREATED_ANEW: (Event.DROP, "the topic was deleted and created anew"),
    Standing.RESTORED: (Event.HAND_BACK, "cancelled, and as it was before"),
    Standing.HALFWAY: (Event.GO_ON, "a new replica has arrived, and the next may begin"),
    Standing.STRANDED: (Event.HAND_BACK, "cancelled halfway; an original broker is dead, so it keeps what it has"),
}

#: The cause recorded for a move that an external actor ended.
CAUSES: dict[Standing, Cause] = {
    Standing.CANCELLED_BY_SOMEONE: Cause.CANCELLED_ELSEWHERE,
    Standing.TAKEN_OVER: Cause.REASSIGNED_ELSEWHERE,
}


@dataclass(frozen=True)
class Finding:
    """A move and its observed state. `found` is the observed assignment, None if the partition does not exist any more.

    `isr_whole` is True if the ISR contains the whole target at this moment. `flies` is the part of the move that is in
    flight.
    """

    row: MoveRow
    standing: Standing
    found: Assignment | None
    isr_whole: bool = False
    flies: Move | None = None


def settle(rows: Iterable[MoveRow], snapshot: Snapshot) -> list[Finding]:
    """Return the state of each move that is submitted, or in flight after a lost answer; in the order of `rows`."""
    findings = []
    for row in rows:
        partition = snapshot.partitions.get(row.move.topic_partition)
        seen = standing(row, partition, snapshot.live)
        if seen is Standing.GONE and row.move.topic in snapshot.hidden:
            seen = Standing.HIDDEN
        if seen is not None:
            found, isr = (partition.replicas, partition.isr) if partition else (None, frozenset())
            findings.append(Finding(row, seen, found, isr >= frozenset(row.move.after), flown(row, partition)))
    return findings


def standing(row: MoveRow, partition: Partition | None, live: frozenset[int]) -> Standing | None:
    """Return the state of one move; None if it is neither submitted nor in flight after a lost answer.

    `partition` is None if Kafka knows no such partition.
    """
    if row.state in OPEN:
        return Standing.ADOPTED if row.attempt and partition and bound_for(row.move, partition) else None
    if row.state is not MoveState.SUBMITTED:
        return None
    if partition is None:
        return Standing.GONE
    if _another(row.move.topic_id, partition.topic_id):
        return Standing.CREATED_ANEW
    if partition.reassigning:
        return _in_flight(row, partition, live)
    return _at_rest(row, partition, live)


def _in_flight(row: MoveRow, partition: Partition, live: frozenset[int]) -> Standing:
    target, cancelling = bound_for(row.move, partition), phase_of(row) is Phase.CANCELLING
    if target == row.move.after or (target and row.stage):
        return Standing.CANCELLING if cancelling else Standing.FLYING
    if not (cancelling and goes_back(row.move, partition)):
        return Standing.TAKEN_OVER
    return Standing.RETURNING if frozenset(row.move.before) <= live else Standing.CANCELLING


def _at_rest(row: MoveRow, partition: Partition, live: frozenset[int]) -> Standing:
    if partition.replicas == row.move.after:
        return _arrived(row, partition, live)
    if halfway(row.move, partition.replicas) and row.stage:
        return _at_rest_halfway(row, partition, live)
    if _as_in_flight(row.move, partition.replicas):
        return Standing.FLYING  # it has ended, and the queried broker has stale metadata
    if frozenset(partition.replicas) != frozenset(row.move.before):
        return Standing.TAKEN_OVER
    return _back(row, in_order=partition.replicas == row.move.before)


def _back(row: MoveRow, *, in_order: bool) -> Standing:
    phase = phase_of(row)
    if phase is Phase.CANCELLING:
        return Standing.RESTORED if in_order else Standing.DISORDERED
    if phase is Phase.INTENDED and in_order:
        return Standing.NEVER_BEGAN
    return Standing.CANCELLED_BY_SOMEONE


def _at_rest_halfway(row: MoveRow, partition: Partition, live: frozenset[int]) -> Standing:
    phase = phase_of(row)
    if phase is Phase.CANCELLING:
        return Standing.DISORDERED if frozenset(row.move.before) <= live else Standing.STRANDED
    if halfway(row.move, partition.replicas) >= row.stage:
        return Standing.HALFWAY
    return Standing.NEVER_BEGAN if phase is Phase.INTENDED else Standing.CANCELLED_HALFWAY


def _arrived(row: MoveRow, partition: Partition, live: frozenset[int]) -> Standing:
    missing = frozenset(row.move.after) - partition.isr
    if row.isr_seen or not missing:
        return Standing.ARRIVED
    # Kafka completes a reassignment only when the ISR contains the whole target: Kafka observed it, even if we did not.
    return Standing.FLYING if missing & live else Standing.ARRIVED_SINCE_SHRUNK


def _as_in_flight(move: Move, replicas: Assignment) -> bool:
    """Return True if Kafka lists the whole move like this in flight: the target, then the replicas to remove."""
    wanted = len(move.after)
    return replicas[:wanted] == move.after and frozenset(replicas[wanted:]) == move.removing


def _another(known: str | None, seen: str | None) -> bool:
    return known is not None and seen is not None and known != seen
