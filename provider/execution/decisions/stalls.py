"""Moves that stall or copy slower than producers write: their cancellation, and the message for operators. Pure.

Two faults have similar symptoms. A *stalled* move copies nothing: something is broken. An *outpaced* move copies, but
its leader's log grows faster than the throttle lets it copy. It never completes, however long it runs, and a higher
throttle repairs it. It is detected by the replica's missing bytes, which grow over the whole observed time. When a
stage of a move completes, the next replica misses all bytes: only polls of the same added replicas are compared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kafka_steward.assignment import Move, TopicPartition
from kafka_steward.cluster.lag import bytes_missing
from kafka_steward.cluster.state import LogDir, Snapshot
from kafka_steward.execution.decisions.moves import OPEN, phase_of
from kafka_steward.execution.decisions.observe import TRANSITION_OF, Observation, ObservedState
from kafka_steward.journal.moves import Cause, MoveRow, Phase

__all__ = [
    "INDIVIDUAL_CANCEL",
    "EXTERNAL_CANCEL",
    "EVERY_S",
    "GIVEN_UP",
    "LagSample",
    "FallingBehind",
    "cancel_individually",
    "cancelled_individually",
    "retain_samples",
    "falling_behind",
    "sample_lag",
    "stall_message",
]

#: The reason for the individual cancel of a stalled move, for an operator.
_NO_PROGRESS = "no progress"
#: The reason why it is not submitted again.
GIVEN_UP = (
    "it made no progress, and was cancelled on its own (when_stalled is cancel); plan it anew when that is mended"
)
#: The reason for our cancel of the completed stages after an external cancel of a later stage.
EXTERNAL_CANCEL = TRANSITION_OF[ObservedState.CANCELLED_EXTERNALLY][1]
#: The causes for which one move is cancelled and not submitted again, with the reason for an operator.
INDIVIDUAL_CANCEL: dict[Cause, str] = {Cause.STALLED: GIVEN_UP, Cause.CANCELLED_ELSEWHERE: EXTERNAL_CANCEL}
#: Seconds between two polls of the replica lag: each costs a request to each broker.
EVERY_S = 30
#: The factor over the producers' write rate that a throttle must allow, so that a replica catches up.
_AMPLE = 1.25
#: The number of partitions that a message names.
_NAMED = 3


@dataclass(frozen=True)
class LagSample:
    """One poll: by partition, the largest number of missing bytes of a new replica, and the size of the leader's log.

    `adding` are the brokers that were receiving replicas.
    """

    at_ms: int
    missing: Mapping[TopicPartition, int] = field(default_factory=dict)
    size: Mapping[TopicPartition, int] = field(default_factory=dict)
    adding: Mapping[TopicPartition, frozenset[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class FallingBehind:
    """A partition that falls behind: the growth of its lag in bytes, and a sufficient rate in bytes/s into `broker`."""

    partition: TopicPartition
    fell_behind: int
    broker: int
    sufficient_rate: int


def sample_lag(snapshot: Snapshot, moves: Iterable[Move], log_dirs: Mapping[int, LogDir], at_ms: int) -> LagSample:
    """Return the lag of the moves in flight; partitions of unknown lag are left out."""
    missing, size, adding = {}, {}, {}
    for move in moves:
        name, partition = move.topic_partition, snapshot.partitions.get(move.topic_partition)
        if partition is None or partition.leader is None:
            continue
        lacks = [bytes_missing(log_dirs, partition, broker) for broker in move.adding - partition.isr]
        known = [each for each in lacks if each is not None]
        if known:
            missing[name] = max(known)
            size[name] = log_dirs[partition.leader].replica_bytes[name]
            adding[name] = move.adding
    return LagSample(at_ms, missing, size, adding)


def retain_samples(looks: Sequence[LagSample], newest: LagSample, *, for_s: float) -> list[LagSample]:
    """Return the polls with `newest` added, without those not needed: all but one are younger than `for_s` seconds."""
    young = [look for look in looks if look.at_ms > newest.at_ms - for_s * 1000]
    old = [look for look in looks if look.at_ms <= newest.at_ms - for_s * 1000]
    return [*old[-1:], *young, newest]


def falling_behind(looks: Sequence[LagSample], flying: Collection[Move], *, after_s: float) -> list[FallingBehind]:
    """Return the moves whose lag grew over the whole last `after_s` seconds, sorted.

    Empty until the polls cover that time.
    """
    if not looks or looks[-1].at_ms - looks[0].at_ms < after_s * 1000:
        return []
    first, last = looks[0], looks[-1]
    found = []
    # A move that only removes replicas has nothing left to copy.
    for move in sorted((each for each in flying if each.adding), key=lambda move: move.topic_partition):
        name = move.topic_partition
        alike = [look for look in looks if look.adding.get(name, move.adding) == move.adding]
        lags = [look.missing[name] for look in alike if name in look.missing]
        if len(lags) == len(looks) and lags[-1] > lags[0] == min(lags):
            broker = min(move.adding)
            together = {each.topic_partition for each in flying if broker in each.adding}
            grown = sum(last.size[each] - first.size[each] for each in together & first.size.keys() & last.size.keys())
            rate = max(0, grown) * 1000 / (last.at_ms - first.at_ms) * _AMPLE
            found.append(FallingBehind(name, lags[-1] - lags[0], broker, int(rate) + 1))
    return found


def stall_message(
    stalled: Sequence[TopicPartition], behind: Sequence[FallingBehind], *, after_s: float, throttle: int
) -> str:
    """Return the message for an operator; empty if no move is stalled or outpaced."""
    return " ".join(part for part in (_stalled(stalled, after_s), _falling_behind(behind, after_s, throttle)) if part)


def _stalled(stalled: Sequence[TopicPartition], after_s: float) -> str:
    if not stalled:
        return ""
    some = ", ".join(map(str, stalled[:_NAMED])) + (", …" if len(stalled) > _NAMED else "")
    return f"{some} made no progress for {after_s:.0f} s."


def _falling_behind(behind: Sequence[FallingBehind], after_s: float, throttle: int) -> str:
    # A rate that the throttle already allows is not the problem.
    behind = [each for each in behind if not throttle or each.sufficient_rate > throttle]
    if not behind:
        return ""
    worst = max(behind, key=lambda each: (each.sufficient_rate, each.partition))
    at = f"at a throttle of {throttle} bytes/s" if throttle else "without a throttle"
    others = f" So did {len(behind) - 1} more." if len(behind) > 1 else ""
    advice = f"; {worst.sufficient_rate} bytes/s into broker {worst.broker} would do" if throttle else ""
    return (
        f"{worst.partition} will never catch up {at}: it fell {worst.fell_behind} bytes further behind in the last "
        f"{after_s:.0f} s{advice}.{others}"
    )


def cancel_individually(
    flying: Iterable[MoveRow], stalled: Collection[TopicPartition], others: Collection[MoveRow], *, after_s: float
) -> list[tuple[MoveRow, str]]:
    """Return the moves in flight to cancel individually, and why; without `others`, which are cancelled anyway."""
    why = f"{_NO_PROGRESS} for {after_s:.0f} s"
    return [
        (row, why)
        for row in flying
        if row.topic_partition in stalled and row not in others and phase_of(row) is not Phase.CANCELLING
    ]


def cancelled_individually(findings: Iterable[Observation], rows: Iterable[MoveRow]) -> list[tuple[MoveRow, Cause]]:
    """Return the open moves of `rows` that were cancelled individually, and why they are not submitted again."""
    over = {
        finding.row.topic_partition: finding.row.cause
        for finding in findings
        if finding.standing in {ObservedState.RESTORED, ObservedState.CANNOT_ROLL_BACK}
        and phase_of(finding.row) is Phase.CANCELLING
    }
    ended = {name: cause for name, cause in over.items() if cause is not None and cause in INDIVIDUAL_CANCEL}
    return [(row, ended[row.topic_partition]) for row in rows if row.topic_partition in ended and row.state in OPEN]
