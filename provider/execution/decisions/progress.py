"""The progress of a plan: the result of a step, for the log line and the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kafka_steward.assignment import TopicPartition
from kafka_steward.execution.decisions.holds import Held
from kafka_steward.execution.decisions.moves import unsettled
from kafka_steward.execution.decisions.transfer_rate import TransferRate, copied_bytes, counted_bytes, eta_s
from kafka_steward.journal.moves import MoveRow, MoveState
from kafka_steward.journal.records import PlanRecord, PlanStatus

__all__ = ["Progress", "progress_of"]

#: Seconds between steps while small partitions complete faster than the interval.
_EAGER_S = 0.5
#: The number of held and of stalled partitions that are listed.
_TOLD = 20


@dataclass(frozen=True)
class Progress:
    """The progress of a plan after a step.

    Bytes count each copy once. `bytes_per_s` and `eta_s` are None while unknown.

    `partitions_settled` is the sum of the counts of the four settled states. `chunk` is the first chunk with unsettled
    moves. `left` counts partitions that the plan does not fully replicate: it could not, or they were deferred to the
    next plan. `busy` means that another process was executing a step, and this one did nothing.
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
    #: True if this step made progress and more moves could be submitted immediately.
    eager: bool = False
    #: True if the run is to fail because of stalled moves (`when_stalled`).
    stops: bool = False

    def pause_s(self, interval_s: float) -> float:
        """Return the seconds to wait before the next step, at most `interval_s`: short while `eager`."""
        return min(interval_s, _EAGER_S) if self.eager else interval_s

    @property
    def ended(self) -> bool:
        """Return True if the plan is finished."""
        return self.status.finished

    @property
    def waits_for_person(self) -> bool:
        """Return True if further steps have no effect until an operator acts."""
        return self.status in {PlanStatus.STUCK, PlanStatus.PAUSED} and not self.busy

    def to_json(self) -> dict[str, Any]:
        """Return the progress as JSON values, a few KB at most."""
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
    track: TransferRate | None = None,
    stalled: Sequence[TopicPartition] = (),
    busy: bool = False,
    sentence: str = "",
    note: str = "",
) -> Progress:
    """Return the progress of a plan from its rows; without `sentence`, make one from the counts and the `note`."""
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


#: States of moves whose bytes belong to the total: skipped and dropped moves copy nothing.
_COUNTED = {MoveState.WAITING, MoveState.HELD, MoveState.SUBMITTED, MoveState.COMPLETED}
_COPIED = {MoveState.COMPLETED}


def _bytes(rows: Sequence[MoveRow], track: TransferRate | None) -> tuple[int, int]:
    """Return the number of bytes to copy, and the number of bytes copied."""
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
