"""The progress of a plan: bytes copied, transfer rate, stalled partitions, and the message of a step. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka_steward.assignment import Move, TopicPartition, counted
from kafka_steward.cluster.state import BrokerLogDirs
from kafka_steward.execution.moves.concurrency import LONGEST_GAP_S, Pressure
from kafka_steward.execution.moves.memory import SettledMoves
from kafka_steward.execution.moves.rows import MoveRows
from kafka_steward.execution.moves.states import Held, bytes_to_copy
from kafka_steward.execution.throttles.rates import ExternalRate
from kafka_steward.journal.records import MoveRow, MoveState, PlanRecord, PlanStatus

#: The weight of the newest interval in the smoothed rate: about the last five polls count.
_NEWEST = 0.3

#: Seconds without a copied byte after which no time left is stated, and the longest time left that is stated.
_QUIET_S, _LONGEST_S = 30.0, 365 * 86_400.0


@dataclass(frozen=True)
class TransferRate:
    """The state observed up to `at_ms`: bytes copied, the time each partition last grew, smoothed bytes per second.

    `copied_ms` is the time at which bytes were last seen to have been copied. A rate of less than 1 byte/s is 0.
    """

    at_ms: int
    done_bytes: int
    arrived: Mapping[TopicPartition, int] = field(default_factory=dict)
    grew_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    bytes_per_s: float | None = None
    copied_ms: int | None = None

    def update(
        self,
        at_ms: int,
        done_bytes: int,
        arrived: Mapping[TopicPartition, int],
        *,
        longest_gap_ms: int = int(LONGEST_GAP_S * 1000),
    ) -> TransferRate:
        """Return the rate after another poll. A partition that was not tracked before counts as grown now.

        Of the time since the last poll, at most `longest_gap_ms` count: a clock may have jumped, and nobody has looked
        while Kafka did not answer.
        """
        unseen_ms = max(0, at_ms - self.at_ms - longest_gap_ms)
        grew = {
            partition: self.grew_ms[partition] + unseen_ms
            if partition in self.arrived and copied <= self.arrived[partition]
            else at_ms
            for partition, copied in arrived.items()
        }
        copied_ms = at_ms if done_bytes > self.done_bytes or self.copied_ms is None else self.copied_ms + unseen_ms
        rate = self._smoothed_rate(at_ms, done_bytes)
        return TransferRate(at_ms, done_bytes, dict(arrived), grew, rate, copied_ms)

    @property
    def steady_bytes_per_s(self) -> float | None:
        """The rate from which a time left follows; None while nothing has been copied for half a minute."""
        quiet_ms = 0 if self.copied_ms is None else self.at_ms - self.copied_ms
        return None if quiet_ms >= _QUIET_S * 1000 else self.bytes_per_s

    def _smoothed_rate(self, at_ms: int, done_bytes: int) -> float | None:
        if at_ms <= self.at_ms:
            return self.bytes_per_s
        newest = max(0, done_bytes - self.done_bytes) * 1000 / (at_ms - self.at_ms)
        rate = newest if self.bytes_per_s is None else _NEWEST * newest + (1 - _NEWEST) * self.bytes_per_s
        return rate if rate >= 1 else 0.0


def arrived_bytes(in_flight: Iterable[Move], log_dirs: Mapping[int, BrokerLogDirs]) -> dict[TopicPartition, int]:
    """Return the bytes copied to the receiving brokers, by partition.

    This exceeds the planned size if producers keep writing.
    """
    return {
        move.topic_partition: sum(
            log_dirs[broker].replica_bytes.get(move.topic_partition, 0) for broker in move.adding if broker in log_dirs
        )
        for move in in_flight
    }


def count_progress_bytes(in_flight: Iterable[Move], arrived: Mapping[TopicPartition, int]) -> int:
    """Return the copied bytes that count for the plan's progress: for each move at most the planned bytes."""
    return sum(min(bytes_to_copy(move), arrived.get(move.topic_partition, 0)) for move in in_flight)


def eta_s(left_bytes: int, bytes_per_s: float | None) -> float | None:
    """Return the seconds until `left_bytes` are copied; None if the rate is unknown or 0, or for more than a year."""
    if left_bytes <= 0:
        return 0.0
    left_s = left_bytes / bytes_per_s if bytes_per_s else None
    return None if left_s is None or left_s > _LONGEST_S else left_s


def find_stalled(
    track: TransferRate, in_flight: Collection[TopicPartition], *, after_s: float
) -> tuple[TopicPartition, ...]:
    """Return the partitions in flight that have not grown for `after_s` seconds, sorted."""
    limit_ms = track.at_ms - after_s * 1000
    return tuple(sorted(partition for partition in in_flight if track.grew_ms.get(partition, track.at_ms) <= limit_ms))


#: Seconds between steps while moves start and end faster than the interval, and when the last of them are due.
_EAGER_S, _LEAST_S = 0.3, 0.1

#: Of the time that passed without progress, how much more is waited: as much later is the end noticed, at most.
_QUIET_SHARE = 0.2


def next_step_s(*, ended: int, left: int, since_s: float, quiet_s: float) -> float:
    """Return the seconds until a step may find more moves ended.

    A step found `ended` moves that ended within `since_s` seconds, and `left` that have not. Half of the time in which
    the rest ends at the same rate is waited: the end of the last ones is noticed soon, and the steps before it are few.
    If no step of the last `quiet_s` seconds made progress, a fifth of that time is waited, so that the steps become
    rarer and the end is noticed late by a fifth at most.
    """
    if quiet_s > 0:
        return max(_EAGER_S, _QUIET_SHARE * quiet_s)
    return min(_EAGER_S, max(_LEAST_S, since_s * left / ended / 2)) if ended else _EAGER_S


#: The number of held and of stalled partitions that are listed.
_LISTED = 20


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
    #: The reason for which moves start more slowly than the throttle permits; None without one.
    pressure: Pressure | None = None
    #: The seconds until the next step may find more progress; None if nothing says when.
    soon_s: float | None = None
    #: True if the run is to fail because of stalled moves (`when_stalled`).
    stops: bool = False
    #: The rates of others that apply instead of the plan's, or slow moves that make no progress.
    external_rates: tuple[ExternalRate, ...] = ()
    #: The rate of the plan, in bytes per second into one broker, 0 for none.
    throttle: int = 0

    @property
    def share(self) -> float:
        """The partitions of which the plan was carried out, as a fraction of all; 1 of a plan without moves."""
        done = self.completed + self.satisfied
        return done / self.partitions_total if self.partitions_total else 1.0

    def pause_s(self, interval_s: float) -> float:
        """Return the seconds to wait before the next step, at most `interval_s`.

        The wait is short while moves end, longer while nothing ends, and ends about when the bytes in
        flight have arrived.
        """
        # The last bytes may have arrived without an end: nothing says when it comes.
        due_s = max(_EAGER_S, self.eta_s) if self.eta_s else interval_s
        return min(interval_s, due_s if self.soon_s is None else min(self.soon_s, due_s))

    @property
    def ended(self) -> bool:
        """Return True if the plan is finished."""
        return self.status.finished

    @property
    def waits_for_person(self) -> bool:
        """Return True if further steps have no effect until an operator acts."""
        return self.status is PlanStatus.STUCK and not self.busy

    @property
    def run_is_over(self) -> bool:
        """Return True if the loop that steps the plan is to stop: it has ended, needs an operator, or has stalled."""
        return self.ended or self.waits_for_person or self.stops

    def to_json(self) -> dict[str, Any]:
        """Return the progress as JSON values, a few KB at most."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return plain | {
            "status": self.status.value,
            "pressure": None if self.pressure is None else self.pressure.value,
            "held": [[str(TopicPartition(held.topic, held.partition)), held.sentence] for held in self.held[:_LISTED]],
            "stalled": [str(partition) for partition in self.stalled[:_LISTED]],
            "external_rates": [rate.to_json() for rate in self.external_rates[:_LISTED]],
        }


def progress_of(
    record: PlanRecord,
    rows: Sequence[MoveRow],
    *,
    settled: SettledMoves | None = None,
    held: Sequence[Held] = (),
    track: TransferRate | None = None,
    stalled: Sequence[TopicPartition] = (),
    busy: bool = False,
    sentence: str = "",
    note: str = "",
) -> Progress:
    """Return the progress of a plan from its rows; without `sentence`, make one from the counts and the `note`.

    `settled` are the totals of the settled moves that `rows` does not contain.
    """
    before = settled or SettledMoves()
    rows = rows if isinstance(rows, MoveRows) else MoveRows(rows)
    counts = before.counts + rows.counts
    number = len(before) + len(rows)
    total = before.bytes_copied + sum(rows.bytes_to_copy[state] for state in _COUNTED)
    done = before.bytes_copied + rows.bytes_to_copy[MoveState.COMPLETED]
    done += count_progress_bytes((row.move for row in rows.submitted), track.arrived) if track else 0
    return Progress(
        digest=record.digest,
        status=record.status,
        partitions_total=number,
        partitions_settled=number - len(rows.unsettled),
        in_flight=counts[MoveState.SUBMITTED],
        waiting=counts[MoveState.WAITING] + counts[MoveState.HELD],
        completed=counts[MoveState.COMPLETED],
        satisfied=counts[MoveState.SATISFIED],
        dropped=counts[MoveState.DROPPED],
        failed=counts[MoveState.FAILED],
        held=tuple(held),
        bytes_total=total,
        bytes_done=done,
        bytes_per_s=track.bytes_per_s if track else None,
        # Of a plan that is being cancelled, what is left will not be copied; of one that is held, nobody knows when.
        eta_s=None
        if (record.cancel and not record.status.finished) or (held and not counts[MoveState.SUBMITTED])
        else eta_s(total - done, track.steady_bytes_per_s if track else None),
        stalled=tuple(stalled),
        chunk=rows.first_chunk,
        chunks=1 + max(before.last_chunk, rows.last_chunk),
        left=record.left,
        busy=busy,
        sentence=sentence or _progress_message(record, counts, held, note),
    )


#: States of moves whose bytes belong to the total: skipped and dropped moves copy nothing.
_COUNTED = {MoveState.WAITING, MoveState.HELD, MoveState.SUBMITTED, MoveState.COMPLETED}


def _progress_message(record: PlanRecord, counts: Counter[MoveState], held: Sequence[Held], note: str) -> str:
    if record.status.finished or record.status in {PlanStatus.STUCK, PlanStatus.PREEMPTED, PlanStatus.IDLE}:
        return record.reason
    if not counts.total():
        return "There is nothing to move."
    settled = sum(counts[state] for state in MoveState if state.settled)
    message = f"{settled} of {counted(counts.total(), 'partition')} settled, {counts[MoveState.SUBMITTED]} in flight"
    waiting = counts[MoveState.WAITING] + counts[MoveState.HELD]
    message += f", {waiting} waiting." if waiting else "."
    more = _held_message(held) if held else note if waiting else ""
    return f"{message} {more}" if more else message


#: The number of reasons that a message words; the progress has all of them.
_WORDED = 3


def _held_message(held: Sequence[Held]) -> str:
    """Return the sentence of the first move that is held for each reason, and of several reasons their counts."""
    counts, first = Counter(hold.code for hold in held), {hold.code: hold.sentence for hold in reversed(held)}
    if len(counts) == 1:
        return held[0].sentence
    also = {code: f" The same holds {count - 1} more." if count > 1 else "" for code, count in counts.items()}
    return " ".join(f"{first[code]}{also[code]}" for code, _ in counts.most_common(_WORDED))


def cancel_outcome_message(
    record: PlanRecord, rows: Sequence[MoveRow], failed_rollback: PlanRecord | None = None
) -> str:
    """Return one message; empty for a plan that nobody cancelled, or that completed before its cancel.

    Of one that had failed before its cancel, it says how.

    `rows` are the plan's moves. `failed_rollback` is the record of its rollback if that was itself cancelled or
    abandoned.
    """
    if failed_rollback is not None:
        return f"The rollback of plan {record.digest[:12]} was itself cancelled or abandoned: {failed_rollback.reason}"
    asked = record.cancel
    by = f" by {asked.person}" if asked is not None and asked.person else ""
    why = f" ({asked.reason})" if asked is not None and asked.reason else ""
    if record.status is not PlanStatus.CANCELLED and not record.rolled_back:
        failed = asked is not None and record.status is PlanStatus.FAILED
        return f"{record.reason} Its cancel{by}{why} found nothing of it in flight or waiting." if failed else ""
    message = f"Plan {record.digest[:12]} was cancelled{by}{why}"
    if record.status is PlanStatus.ROLLED_BACK:
        return f"{message}, and {record.reason}: what it had begun to move has its original replicas."
    if record.not_rolled_back is not None:
        return f"{message}, and {record.reason}."
    arrived = sum(row.state is MoveState.COMPLETED for row in rows)
    if not arrived:
        none = f"none of its {len(rows)} moves had completed" if rows[1:] else "its only move had not completed"
        none = none if rows else "it had nothing to move"
        return f"{message}; {none}."
    stays, are = ("stays", "is") if arrived == 1 else ("stay", "are")
    stays = f"{are} still to be reverted" if asked is not None and asked.scope == "plan" else stays
    return f"{message}; {arrived} of {counted(len(rows), 'move')} had completed, and {stays}."
