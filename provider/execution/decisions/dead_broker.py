"""A broker failed during a plan: the moves in flight that can no longer complete, and must be cancelled. Pure.

A reassignment completes when the ISR contains the whole target. A target with a dead broker, whether that broker
receives a replica or keeps one, therefore stalls until the broker returns, and the partition's old replicas are never
released. Such a move is cancelled, its replica order is restored, and it returns to the queue: it is submitted again
when the broker is back, or the next heal plans it again. There are two exceptions. A move is not cancelled while the
broker is away for an announced restart. Nor is it cancelled if none of its original replicas is in sync and a new one
is live: a cancel would discard the only copy that can lead (KIP-236).
"""

from __future__ import annotations

from collections.abc import Iterable

from kafka_steward.cluster.state import Snapshot
from kafka_steward.execution.decisions.moves import phase_of
from kafka_steward.execution.decisions.rollback import cancel_forbidden_reason
from kafka_steward.execution.decisions.staging import completed_stages
from kafka_steward.journal.moves import MoveRow, Phase

__all__ = ["cancel_is_safe", "dead_targets", "dead_target_reason", "unfinishable"]


def cancel_is_safe(row: MoveRow, snapshot: Snapshot) -> bool:
    """Return True if a cancel can restore the original replicas without taking the partition offline."""
    partition = snapshot.partitions.get(row.move.topic_partition)
    return (
        partition is not None
        and cancel_forbidden_reason(completed_stages(row, partition).before, partition, snapshot.live) is None
    )


def unfinishable(flying: Iterable[MoveRow], snapshot: Snapshot, bouncing: frozenset[int]) -> list[MoveRow]:
    """Return the moves in flight to cancel because a broker of their target failed; in the given order."""
    return [
        row
        for row in flying
        if phase_of(row) is not Phase.CANCELLING
        and snapshot.partitions[row.move.topic_partition].reassigning
        and dead_targets(row, snapshot) - bouncing
    ]


def dead_targets(row: MoveRow, snapshot: Snapshot) -> frozenset[int]:
    """Return the brokers of the target in flight that are neither live nor in the ISR that the leader last reported.

    A broker whose log directory with the replica has failed counts as dead: its copy never completes.
    """
    partition = snapshot.partitions[row.move.topic_partition]
    return frozenset(completed_stages(row, partition).after) - (snapshot.live - partition.offline) - partition.isr


def dead_target_reason(row: MoveRow, snapshot: Snapshot) -> str:
    """Return the reason of the cancel, as a clause."""
    dead = dead_targets(row, snapshot)
    brokers = ", ".join(map(str, sorted(dead)))
    if dead and dead <= snapshot.live:
        return f"a log directory of broker {brokers} of its target failed"
    return f"broker {brokers} of its target died" if brokers else "a broker of its target died"
