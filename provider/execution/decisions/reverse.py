"""Undoing: what may be cancelled, and the moves that take completed partitions back to their originals. Pure (KIP-236).

A cancel gives back the replicas that there were. KIP-236 names two cases in which that would do harm or cannot be:

* no original replicas are recorded: our moves always carry theirs, so this is for what others began;
* none of the originals is in sync while some new replica is online: going back would take the partition offline. But
  when all of both are offline, nothing is lost by it, and it is rolled back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from kafka_steward.assignment import Assignment, Move, MoveReason, TopicPartition
from kafka_steward.cluster.state import Partition, Snapshot
from kafka_steward.execution.decisions.strides import halfway
from kafka_steward.journal.moves import MoveRow, MoveState

__all__ = ["HIDDEN", "Reversal", "changed_by", "reversal", "subject", "why_not_cancelled"]

#: Why nothing can be said of a partition whose topic an ACL hides.
HIDDEN = "Kafka does not let us describe its topic; grant our principal DESCRIBE on it"
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


def changed_by(found: Assignment, others: Iterable[tuple[str, MoveRow]]) -> str | None:
    """Return the plan that gave a partition the replicas `found`, also while they are on their way; None for nobody's.

    `others` are the moves of that partition in other plans, by digest, the latest last.
    """
    return next((digest for digest, row in reversed(list(others)) if _leads_to(row, found)), None)


def subject(plan: str | None) -> str:
    """Return who changed a partition, as the subject of a sentence: a plan of ours, or someone else."""
    return "someone else" if plan is None else f"plan {plan[:12]}"


def _leads_to(row: MoveRow, found: Assignment) -> bool:
    """Whether the move ends, flies or rests there; what is to be removed follows the target while it flies."""
    target = row.move.after
    there = row.state in {MoveState.COMPLETED, MoveState.SUBMITTED} and found[: len(target)] == target
    return there or (row.attempt > 0 and halfway(row.move, found) > 0)


def reversal(
    rows: Iterable[MoveRow],
    snapshot: Snapshot,
    *,
    chunk_size: int,
    others: Mapping[TopicPartition, Sequence[tuple[str, MoveRow]]] | None = None,
) -> Reversal:
    """What takes every completed move of a plan back to its original replicas, order included; the last move first.

    Left alone is what someone else, or one of the `others` (`changed_by`), changed since, what was deleted or created
    anew, and what would need a dead broker. What is back at its originals already is in neither.
    """
    later = others or {}
    touched = [row for row in rows if _touched(row, snapshot) and not _is_back(row, snapshot)]
    judged = [(row, _why_left(row, snapshot, later.get(row.topic_partition, ()))) for row in reversed(touched)]
    back = [_back(row.move, snapshot) for row, why in judged if why is None]
    return Reversal(
        tuple(replace(move, chunk=n // chunk_size, position=n % chunk_size) for n, move in enumerate(back)),
        tuple((row, why) for row, why in judged if why is not None),
    )


def _touched(row: MoveRow, snapshot: Snapshot) -> bool:
    """Whether the plan took the partition to its target, or left it halfway, or in another order.

    Kafka may have carried out what was given up on when its answer was lost; and a cancel of ours in flight by someone
    else, with Kafka's own tool, loses the order of the replicas.
    """
    partition = snapshot.partitions.get(row.topic_partition)
    given_up = row.state in {MoveState.SATISFIED, MoveState.DROPPED} and row.attempt > 0
    left_so = given_up and partition is not None and _as_left(row.move, partition)
    taken_over = row.state is MoveState.FAILED and partition is not None
    return row.state is MoveState.COMPLETED or left_so or taken_over


def _as_left(move: Move, partition: Partition) -> bool:
    in_disorder = frozenset(partition.replicas) == frozenset(move.before)
    return in_disorder or partition.replicas == move.after or halfway(move, partition.replicas) > 0


def _is_back(row: MoveRow, snapshot: Snapshot) -> bool:
    partition = snapshot.partitions.get(row.topic_partition)
    return partition is not None and not partition.reassigning and partition.replicas == row.move.before


def _back(move: Move, snapshot: Snapshot) -> Move:
    now = snapshot.partitions[move.topic_partition].replicas
    return replace(move, before=now, after=move.before, reason=MoveReason.GIVEN.value)


def _why_left(row: MoveRow, snapshot: Snapshot, others: Sequence[tuple[str, MoveRow]]) -> str | None:
    partition, move = snapshot.partitions.get(row.topic_partition), row.move
    if partition is None:
        return HIDDEN if row.move.topic in snapshot.hidden else "it does not exist any more"
    if move.topic_id is not None and partition.topic_id is not None and move.topic_id != partition.topic_id:
        return "its topic was deleted and created anew"
    expected = partition.replicas == move.after or row.state is not MoveState.COMPLETED
    if partition.reassigning or not expected or row.state is MoveState.FAILED:
        return f"{subject(changed_by(partition.replicas, others))} changed its replicas to {list(partition.replicas)}"
    dead: Sequence[int] = sorted(frozenset(move.before) - snapshot.live)
    if dead and frozenset(partition.replicas) != frozenset(move.before):
        return f"its original broker {', '.join(map(str, dead))} is not live"
    return None
