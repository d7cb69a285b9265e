"""How far each partition of a plan is, as the journal keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kafka_steward.assignment import Move, TopicPartition

__all__ = ["Cause", "MoveRow", "MoveState", "Phase"]


class MoveState(str, Enum):
    """Where one partition of a plan stands."""

    #: Not submitted yet.
    WAITING = "waiting"
    #: Preflight held it back; it may go on later.
    HELD = "held"
    #: Submitted to Kafka, or about to be: ask Kafka.
    SUBMITTED = "submitted"
    #: At its target, and the ISR was seen to hold all of it once (KIP-46).
    COMPLETED = "completed"
    #: It needed nothing any more: whole, or at its target already (KIP-46).
    SATISFIED = "satisfied"
    #: It will not be done; `detail` says why.
    DROPPED = "dropped"
    #: It could not be done; `detail` says why.
    FAILED = "failed"

    @property
    def settled(self) -> bool:
        """Whether nothing more will be done for it."""
        return self in _SETTLED


_SETTLED = {MoveState.COMPLETED, MoveState.SATISFIED, MoveState.DROPPED, MoveState.FAILED}


class Phase(str, Enum):
    """How far a SUBMITTED move is known to have come."""

    #: Kafka may or may not have been asked.
    INTENDED = "intended"
    #: Kafka took it.
    ACCEPTED = "accepted"
    #: It is being cancelled.
    CANCELLING = "cancelling"

    def because(self, sentence: str = "") -> str:
        """Return the `detail` for a person: the phase, and why."""
        return f"{self.value}: {sentence}" if sentence else self.value


class Cause(str, Enum):
    """Why a move is being cancelled, was dropped, or failed; `detail` says the same to a person."""

    #: Someone asked for the cancel of its plan (KIP-236).
    REQUESTED = "requested"
    #: It made no progress, and `when_stalled` is cancel.
    STALLED = "stalled"
    #: A broker of its target died.
    BROKER_DIED = "broker_died"
    #: A later document asks for something else of its partition (KIP-236).
    SUPERSEDED = "superseded"
    #: Someone else cancelled it.
    CANCELLED_ELSEWHERE = "cancelled_elsewhere"
    #: Someone else gave the partition another target or assignment.
    REASSIGNED_ELSEWHERE = "reassigned_elsewhere"


@dataclass(frozen=True, slots=True)
class MoveRow:
    """One partition of a plan. Times are the journal's, in milliseconds since 1970.

    `attempt` counts submissions; `isr_seen` says that the ISR was seen to hold the whole target. `detail` is for
    people only; what decides is typed: the `phase` of what is submitted, None otherwise; `stage`, how many new replicas
    there are when what is submitted has arrived, 0 for the whole move at once; `cause`. `unacknowledged` says that
    Kafka has given no answer to a submission, so that it may still begin.
    """

    move: Move
    state: MoveState = MoveState.WAITING
    detail: str = ""
    attempt: int = 0
    submitted_ms: int | None = None
    settled_ms: int | None = None
    isr_seen: bool = False
    phase: Phase | None = None
    stage: int = 0
    cause: Cause | None = None
    unacknowledged: bool = False

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that moves."""
        return self.move.topic_partition
