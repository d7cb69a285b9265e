"""Undoing: what may be cancelled, and the moves that take completed partitions back to their originals. Pure (KIP-236).

A cancel gives back the replicas that there were. KIP-236 names two cases in which that would do harm or cannot be:

* no original replicas are recorded: our moves always carry theirs, so this is for what others began;
* none of the originals is in sync while some new replica is online: going back would take the partition offline. But
  when all of both are offline, nothing is lost by it, and it is rolled back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kafka_steward.assignment import Assignment, Move, MoveReason
from kafka_steward.cluster.state import Partition, Snapshot
from kafka_steward.journal.moves import MoveRow, MoveState

__all__ = ["Reversal", "reversal", "why_not_cancelled"]

_NO_ORIGINALS = "KIP-236: no original replicas are recorded, so there is nothing to go back to"
_WOULD_GO_OFFLINE = "KIP-236: none of the original replicas is in sync, and going back would take it offline"


def why_not_cancelled(originals: Assignment | None, partition: Partition, live: frozenset[int]) -> str | None:
    """The rule by which the cancel of a partition in flight is skipped; None when it may be cancelled."""
    if not originals:
        return _NO_ORIGINALS
    new = frozenset(partition.replicas) - frozenset(originals)
    if not frozenset(originals) & partition.isr & live and new & live:
        return _WOULD_GO_OFFLINE
    return None


@dataclass(frozen=True)
class Reversal:
    """The moves that undo a plan, and for each row that is left alone, why."""

    moves: tuple[Move, ...]
    left_alone: tuple[tuple[MoveRow, str], ...]


def reversal(rows: Iterable[MoveRow], snapshot: Snapshot, *, chunk_size: int) -> Reversal:
    """What takes every completed move of a plan back to its original replicas, order included; the last move first.

    Left alone is what someone else changed since, what was deleted or created anew, and what would need a dead broker.
    What is back at its originals already is in neither.
    """
    arrived = [row for row in rows if _arrived(row, snapshot) and not _is_back(row, snapshot)]
    judged = [(row, _why_left(row, snapshot)) for row in reversed(arrived)]
    back = [_back(row.move) for row, why in judged if why is None]
    return Reversal(
        tuple(replace(move, chunk=n // chunk_size, position=n % chunk_size) for n, move in enumerate(back)),
        tuple((row, why) for row, why in judged if why is not None),
    )


def _arrived(row: MoveRow, snapshot: Snapshot) -> bool:
    """Whether the plan took the partition to its target; Kafka may have done so after its answer was given up on."""
    partition = snapshot.partitions.get(row.topic_partition)
    given_up = row.state in {MoveState.SATISFIED, MoveState.DROPPED} and row.attempt > 0
    late = given_up and partition is not None and partition.replicas == row.move.after
    return row.state is MoveState.COMPLETED or late


def _is_back(row: MoveRow, snapshot: Snapshot) -> bool:
    partition = snapshot.partitions.get(row.topic_partition)
    return partition is not None and not partition.reassigning and partition.replicas == row.move.before


def _back(move: Move) -> Move:
    return replace(move, before=move.after, after=move.before, reason=MoveReason.GIVEN.value)


def _why_left(row: MoveRow, snapshot: Snapshot) -> str | None:
    partition, move = snapshot.partitions.get(row.topic_partition), row.move
    if partition is None:
        return "it does not exist any more"
    if move.topic_id is not None and partition.topic_id is not None and move.topic_id != partition.topic_id:
        return "its topic was deleted and created anew"
    if partition.reassigning or partition.replicas != move.after:
        return f"someone else changed its replicas to {list(partition.replicas)}"
    dead: Sequence[int] = sorted(frozenset(move.before) - snapshot.live)
    if dead:
        return f"its original broker {', '.join(map(str, dead))} is not live"
    return None
