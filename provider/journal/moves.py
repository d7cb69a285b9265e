"""The state of each partition of a plan, as the journal stores it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kafka_steward.assignment import Move, TopicPartition


class MoveState(str, Enum):
    """The state of one partition of a plan."""

    #: Not submitted yet.
    WAITING = "waiting"
    #: Preflight held it back; it may be submitted later.
    HELD = "held"
    #: Submitted to Kafka, or about to be: Kafka is the source of truth.
    SUBMITTED = "submitted"
    #: At its target, and the ISR was observed to contain the whole target once (KIP-46).
    COMPLETED = "completed"
    #: No change is needed any more: fully replicated, or already at its target (KIP-46).
    SATISFIED = "satisfied"
    #: It will not be moved; `detail` is the reason.
    DROPPED = "dropped"
    #: It could not be moved; `detail` is the reason.
    FAILED = "failed"

    @property
    def settled(self) -> bool:
        """True if the state is final."""
        return self in _SETTLED


_SETTLED = {MoveState.COMPLETED, MoveState.SATISFIED, MoveState.DROPPED, MoveState.FAILED}


class Phase(str, Enum):
    """The known progress of a SUBMITTED move."""

    #: The request may or may not have been sent to Kafka.
    INTENDED = "intended"
    #: Kafka accepted the request.
    ACCEPTED = "accepted"
    #: The move is being cancelled.
    CANCELLING = "cancelling"

    def message(self, sentence: str = "") -> str:
        """Return the `detail` for users: the phase, and the reason in `sentence`."""
        return f"{self.value}: {sentence}" if sentence else self.value


class Cause(str, Enum):
    """The cause of a move's cancellation, drop or failure; `detail` is the same for users."""

    #: A cancel of its plan was requested (KIP-236).
    REQUESTED = "requested"
    #: It made no progress, and `when_stalled` is cancel.
    STALLED = "stalled"
    #: A broker of its target failed.
    BROKER_DIED = "broker_died"
    #: A later request has another target for its partition (KIP-236).
    SUPERSEDED = "superseded"
    #: An external client cancelled it.
    CANCELLED_ELSEWHERE = "cancelled_elsewhere"
    #: An external client gave the partition another target or assignment.
    REASSIGNED_ELSEWHERE = "reassigned_elsewhere"


@dataclass(frozen=True, slots=True)
class MoveRow:
    """One partition of a plan. Times are by the journal's clock, in milliseconds since 1970.

    `attempt` counts submissions, and `submitted_ms` is the time of the last one. `isr_seen` is True once the ISR was
    observed to contain the whole target. `detail` is for users only; decisions use typed fields: `phase` of a submitted
    move, None otherwise; `stage`, the number of new replicas once the submitted stage has completed, 0 if the whole
    move is one stage; and `cause`. `unacknowledged` is True if Kafka has not answered a submission, which may therefore
    still start.
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
        """The partition that is moved."""
        return self.move.topic_partition
