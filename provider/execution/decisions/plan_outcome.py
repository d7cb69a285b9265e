"""The outcome of a plan that an operator requested: every partition, in one message and a list. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kafka_steward.journal.moves import MoveRow, MoveState

__all__ = ["PlanOutcome", "outcome_of"]


@dataclass(frozen=True, slots=True)
class PlanOutcome:
    """The counts of partitions by result; `not_done` lists the planned partitions that were not moved, with reasons."""

    moved: int
    satisfied: int
    not_done: Sequence[tuple[str, str]]

    @property
    def sentence(self) -> str:
        """Return a message: the moves that were done, and those that were not, with the reason."""
        told = f"{self.moved} partitions were moved"
        told += f", {self.satisfied} needed nothing any more." if self.satisfied else "."
        if not self.not_done:
            return told
        name, why = self.not_done[0]
        more = f" The same or other reasons hold {len(self.not_done) - 1} more back." if len(self.not_done) > 1 else ""
        verb = "partition was" if len(self.not_done) == 1 else "partitions were"
        return (
            f"{told} {len(self.not_done)} {verb} not moved as approved, and nothing was put in their place: {name}, "
            f"{why.rstrip('.')}.{more}"
        )


def outcome_of(rows: Sequence[MoveRow]) -> PlanOutcome:
    """Return the outcome of a finished plan from its rows."""
    counts = Counter(row.state for row in rows)
    done = (MoveState.COMPLETED, MoveState.SATISFIED)
    left = [(str(row.topic_partition), row.detail or row.state.value) for row in rows if row.state not in done]
    return PlanOutcome(counts[MoveState.COMPLETED], counts[MoveState.SATISFIED], left)
