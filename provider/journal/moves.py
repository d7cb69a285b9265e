"""How far each partition of a plan is, as the journal keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kafka_steward.assignment import Move, TopicPartition

__all__ = ["MoveRow", "MoveState"]


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


@dataclass(frozen=True, slots=True)
class MoveRow:
    """One partition of a plan. Times are the journal's, in milliseconds since 1970.

    `attempt` counts submissions; `isr_seen` says that the ISR was seen to hold the whole target.
    """

    move: Move
    state: MoveState = MoveState.WAITING
    detail: str = ""
    attempt: int = 0
    submitted_ms: int | None = None
    settled_ms: int | None = None
    isr_seen: bool = False

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that moves."""
        return self.move.topic_partition
