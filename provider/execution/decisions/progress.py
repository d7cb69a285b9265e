"""How far a plan is: what a step returns, what the log line and the page show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kafka_steward.assignment import TopicPartition
from kafka_steward.execution.decisions.catchup import Track, copied_bytes, counted_bytes, eta_s
from kafka_steward.execution.decisions.holds import Held
from kafka_steward.execution.decisions.moves import unsettled
from kafka_steward.journal.moves import MoveRow, MoveState
from kafka_steward.journal.records import PlanRecord, PlanStatus

__all__ = ["Progress", "progress_of"]

#: Between steps while small partitions come and go faster than the interval.
_EAGER_S = 0.5
#: Held and stalled partitions that are told in full; the rest is counted.
_TOLD = 20


@dataclass(frozen=True)
class Progress:
    """Where a plan stands after a step. Bytes count each copy once; `bytes_per_s` and `eta_s` are None while unknown.

    `partitions_settled` is the sum of the four ways to settle. `chunk` is the first with something left to do. `left`
    counts partitions that the plan does not make whole: they could not be, or were handed back. `busy`: another
    process was stepping, and this one did nothing.
    """

    digest: str
    status: PlanStatus
    partitions_total: int
    partitions_settled: int
    in_flight: int
    waiting: int
    completed: int
    satisfied: int
    dropped: int
    failed: int
    held: tuple[Held, ...]
    bytes_total: int
    bytes_done: int
    bytes_per_s: float | None
    eta_s: float | None
    stalled: tuple[TopicPartition, ...]
    chunk: int | None
    chunks: int
    left: int
    busy: bool
    sentence: str
    #: Whether this step got something done and more could begin at once.
    eager: bool = False
    #: Whether the run is to fail because of what is stalled (`when_stalled`).
    stops: bool = False

    def pause_s(self, interval_s: float) -> float:
        """Seconds to wait before the next step, at most `interval_s`: short while places in the window fall free."""
        return min(interval_s, _EAGER_S) if self.eager else interval_s

    @property
    def ended(self) -> bool:
        """Whether nothing more will be done."""
        return self.status.finished

    @property
    def waits_for_person(self) -> bool:
        """Whether stepping on is of no use until someone acts."""
        return self.status in {PlanStatus.STUCK, PlanStatus.PAUSED} and not self.busy

    def to_json(self) -> dict[str, Any]:
        """Plain values, some KB at most."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return plain | {
            "status": self.status.value,
            "held": [[str(TopicPartition(held.topic, held.partition)), held.sentence] for held in self.held[:_TOLD]],
            "stalled": [str(partition) for partition in self.stalled[:_TOLD]],
        }


def progress_of(
    record: PlanRecord,
    rows: Sequence[MoveRow],
    *,
    held: Sequence[Held] = (),
    track: Track | None = None,
    stalled: Sequence[TopicPartition] = (),
    busy: bool = False,
    sentence: str = "",
    note: str = "",
) -> Progress:
    """The progress of a plan from its rows; without `sentence`, one is made from the numbers and from the `note`."""
    counts = Counter(row.state for row in rows)
    left_over = unsettled(rows)
    total, done = _bytes(rows, track)
    rate = track.bytes_per_s if track else None
    return Progress(
        digest=record.digest,
        status=record.status,
        partitions_total=len(rows),
        partitions_settled=len(rows) - len(left_over),
        in_flight=counts[MoveState.SUBMITTED],
        waiting=counts[MoveState.WAITING] + counts[MoveState.HELD],
        completed=counts[MoveState.COMPLETED],
        satisfied=counts[MoveState.SATISFIED],
        dropped=counts[MoveState.DROPPED],
        failed=counts[MoveState.FAILED],
        held=tuple(held),
        bytes_total=total,
        bytes_done=done,
        bytes_per_s=rate,
        eta_s=eta_s(total - done, rate),
        stalled=tuple(stalled),
        chunk=min((row.move.chunk for row in left_over), default=None),
        chunks=1 + max((row.move.chunk for row in rows), default=-1),
        left=record.left,
        busy=busy,
        sentence=sentence or _sentence(record, rows, counts, held, note),
    )


#: Moves whose bytes belong to the total: what was skipped or given up is not copied.
_COUNTED = {MoveState.WAITING, MoveState.HELD, MoveState.SUBMITTED, MoveState.COMPLETED}
_COPIED = {MoveState.COMPLETED}


def _bytes(rows: Sequence[MoveRow], track: Track | None) -> tuple[int, int]:
    """How many there are to copy, and how many have been."""
    total, done = (sum(copied_bytes(row.move) for row in rows if row.state in of) for of in (_COUNTED, _COPIED))
    flying = (row.move for row in rows if row.state is MoveState.SUBMITTED)
    return total, done + (counted_bytes(flying, track.arrived) if track else 0)


def _sentence(
    record: PlanRecord, rows: Sequence[MoveRow], counts: Counter[MoveState], held: Sequence[Held], note: str
) -> str:
    if record.status.finished or record.status in {PlanStatus.STUCK, PlanStatus.PAUSED}:
        return record.reason
    settled = sum(counts[state] for state in MoveState if state.settled)
    told = f"{settled} of {len(rows)} partitions settled, {counts[MoveState.SUBMITTED]} in flight"
    waiting = counts[MoveState.WAITING] + counts[MoveState.HELD]
    told += f", {waiting} waiting." if waiting else "."
    more = held[0].sentence if held else note if waiting else ""
    return f"{told} {more}" if more else told
