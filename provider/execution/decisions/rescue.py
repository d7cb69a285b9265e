"""A broker died in the middle: which moves in flight can no longer end, and must be cancelled. Pure.

A reassignment ends when the ISR holds the whole target. A target with a dead broker in it, whether it was to receive a
replica or to keep one, therefore hangs until that broker returns, with the partition's old replicas never released.
Such a move is cancelled, its order restored, and it is handed back: it begins again when the broker is back, or the
next heal plans it anew. A broker that announced its restart is waited for instead; and so is an original replica, where
none of them is in sync and a new one is: a cancel would throw away the only copy that can lead (KIP-236).
"""

from __future__ import annotations

from collections.abc import Iterable

from kafka_steward.cluster.state import Snapshot
from kafka_steward.execution.decisions.moves import phase_of
from kafka_steward.execution.decisions.reverse import why_not_cancelled
from kafka_steward.execution.decisions.strides import flown
from kafka_steward.journal.moves import MoveRow, Phase

__all__ = ["can_go_back", "dead_targets", "death", "hopeless"]


def can_go_back(row: MoveRow, snapshot: Snapshot) -> bool:
    """Whether a cancel takes what flies back to where it began, and not offline."""
    partition = snapshot.partitions.get(row.move.topic_partition)
    return partition is not None and why_not_cancelled(flown(row, partition).before, partition, snapshot.live) is None


def hopeless(flying: Iterable[MoveRow], snapshot: Snapshot, bouncing: frozenset[int]) -> list[MoveRow]:
    """The moves in flight to be cancelled because a broker of their target died; in the order given."""
    return [
        row
        for row in flying
        if phase_of(row) is not Phase.CANCELLING
        and snapshot.partitions[row.move.topic_partition].reassigning
        and dead_targets(row, snapshot) - bouncing
    ]


def dead_targets(row: MoveRow, snapshot: Snapshot) -> frozenset[int]:
    """Brokers of the target in flight that are neither live nor, by what the leader last said, in sync.

    One whose log directory with the replica has failed is as good as dead: its copy never ends.
    """
    partition = snapshot.partitions[row.move.topic_partition]
    return frozenset(flown(row, partition).after) - (snapshot.live - partition.offline) - partition.isr


def death(row: MoveRow, snapshot: Snapshot) -> str:
    """Why it is cancelled, as a clause."""
    dead = dead_targets(row, snapshot)
    brokers = ", ".join(map(str, sorted(dead)))
    if dead and dead <= snapshot.live:
        return f"a log directory of broker {brokers} of its target failed"
    return f"broker {brokers} of its target died" if brokers else "a broker of its target died"
