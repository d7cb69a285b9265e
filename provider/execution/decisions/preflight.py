"""The checks before a move is submitted: one small function per reason. Pure.

A reason has one of three results. The move is *held*: it may be submitted later, and the next step checks again. It is
*dropped*: it can never be executed as planned. Or it is *satisfied*: nothing is left to do. `holds.py` defines which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kafka_steward.assignment import Move
from kafka_steward.cluster.state import Partition
from kafka_steward.execution.decisions.holds import Held, HoldReason
from kafka_steward.execution.decisions.preflight_inputs import PreflightInputs, next_room, placed, satisfied

__all__ = ["CHECKS", "preflight"]

#: The finding of a check, for its message; None if the check has no objection to the move.
_Found = str | None
#: The finding for a reason whose message does not use it.
_UNREPORTED = ""


def preflight(move: Move, outlook: PreflightInputs) -> Held | None:
    """Return the first reason, in the order of CHECKS, that prevents `move`; None if it may be submitted."""
    partition = outlook.snapshot.partitions.get(move.topic_partition)
    if partition is None:
        hidden = move.topic in outlook.snapshot.hidden
        return Held.of(move.topic_partition, HoldReason.TOPIC_HIDDEN if hidden else HoldReason.PARTITION_GONE)
    for reason, check in CHECKS:
        found = check(move, partition, outlook)
        if found is not None:
            return Held.of(move.topic_partition, reason, found)
    return None


def _recreated(move: Move, partition: Partition, _: PreflightInputs) -> _Found:
    known = move.topic_id is not None and partition.topic_id is not None
    return _UNREPORTED if known and move.topic_id != partition.topic_id else None


def _external(_: Move, partition: Partition, __: PreflightInputs) -> _Found:
    if not partition.reassigning:
        return None
    return str([broker for broker in partition.replicas if broker not in partition.removing])


def _already_there(move: Move, partition: Partition, _: PreflightInputs) -> _Found:
    return str(list(move.after)) if partition.replicas == move.after else None


def _satisfied(move: Move, partition: Partition, outlook: PreflightInputs) -> _Found:
    if outlook.auto_generated and satisfied(move, partition, outlook.snapshot.live):
        return _brokers(partition.replicas)
    return None


def _changed(move: Move, partition: Partition, _: PreflightInputs) -> _Found:
    return str(list(partition.replicas)) if partition.replicas != move.before else None


def _duplicate(move: Move, _: Partition, __: PreflightInputs) -> _Found:
    return str(list(move.after)) if not move.after or len(frozenset(move.after)) < len(move.after) else None


def _disabled(_: Move, __: Partition, outlook: PreflightInputs) -> _Found:
    return outlook.disabled or None


def _unapproved(_: Move, __: Partition, outlook: PreflightInputs) -> _Found:
    return outlook.unapproved or None


def _restarting(move: Move, _: Partition, outlook: PreflightInputs) -> _Found:
    return _lowest(frozenset(move.after) & outlook.bouncing) if move.adding else None


def _target_dead(move: Move, _: Partition, outlook: PreflightInputs) -> _Found:
    return _lowest(move.adding - outlook.snapshot.live)


def _kept_dead(move: Move, partition: Partition, outlook: PreflightInputs) -> _Found:
    if frozenset(move.after) == frozenset(partition.replicas):
        return None  # A pure reorder copies nothing and waits for no broker.
    return _lowest(frozenset(move.after) - move.adding - outlook.snapshot.live)


def _kept_offline(move: Move, partition: Partition, _: PreflightInputs) -> _Found:
    if frozenset(move.after) == frozenset(partition.replicas):
        return None
    return _lowest((frozenset(move.after) - move.adding) & partition.offline)


def _target_cordoned(move: Move, _: Partition, outlook: PreflightInputs) -> _Found:
    return _lowest(move.adding & outlook.cordoned)


def _no_leader(move: Move, partition: Partition, _: PreflightInputs) -> _Found:
    return _brokers(partition.replicas) if move.adding and partition.leader is None else None


def _below_min_isr(move: Move, _: Partition, outlook: PreflightInputs) -> _Found:
    least = outlook.min_isr.get(move.topic, len(move.after))
    return str(least) if len(move.after) < least and len(move.after) <= len(move.before) else None


def _disk_unknown(move: Move, _: Partition, outlook: PreflightInputs) -> _Found:
    return _lowest(move.adding & outlook.silent)


def _size_unknown(move: Move, partition: Partition, outlook: PreflightInputs) -> _Found:
    # Without a receiving broker of known free space, the size is not needed.
    matters = move.adding & outlook.rooms.keys() and move.topic_partition not in outlook.sizes
    return str(partition.leader) if matters else None


def _disk_full(move: Move, _: Partition, outlook: PreflightInputs) -> _Found:
    size = outlook.sizes.get(move.topic_partition, 0)
    for broker in sorted(move.adding & outlook.rooms.keys()):
        rooms = outlook.rooms[broker]
        if placed(rooms, size) is None:
            path = next_room(rooms).path
            return f"{broker}, in the log directory {path} where Kafka would put it," if path else str(broker)
    return None


def _under_min_isr_elsewhere(move: Move, _: Partition, outlook: PreflightInputs) -> _Found:
    return str(outlook.under_min_isr_elsewhere[0]) if outlook.under_min_isr_elsewhere and move.adding else None


#: In the order of evaluation: roughly, moves that are not needed, impossible moves, moves that must wait.
CHECKS: Sequence[tuple[HoldReason, Callable[[Move, Partition, PreflightInputs], _Found]]] = (
    (HoldReason.RECREATED, _recreated),
    (HoldReason.EXTERNAL_REASSIGNMENT, _external),
    (HoldReason.ALREADY_THERE, _already_there),
    (HoldReason.SATISFIED, _satisfied),
    (HoldReason.CHANGED_ELSEWHERE, _changed),
    (HoldReason.DUPLICATE_REPLICA, _duplicate),
    (HoldReason.CLUSTER_DISABLED, _disabled),
    (HoldReason.NOT_APPROVED, _unapproved),
    (HoldReason.TARGET_RESTARTING, _restarting),
    (HoldReason.TARGET_DEAD, _target_dead),
    (HoldReason.KEPT_REPLICA_DEAD, _kept_dead),
    (HoldReason.TARGET_CORDONED, _target_cordoned),
    (HoldReason.KEPT_REPLICA_OFFLINE, _kept_offline),
    (HoldReason.NO_LEADER, _no_leader),
    (HoldReason.BELOW_MIN_ISR, _below_min_isr),
    (HoldReason.DISK_UNKNOWN, _disk_unknown),
    (HoldReason.SIZE_UNKNOWN, _size_unknown),
    (HoldReason.DISK_FULL, _disk_full),
    (HoldReason.UNDER_MIN_ISR_ELSEWHERE, _under_min_isr_elsewhere),
)


def _lowest(brokers: frozenset[int]) -> _Found:
    return str(min(brokers)) if brokers else None


def _brokers(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, brokers))
