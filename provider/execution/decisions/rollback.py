"""Cancel and rollback: the rules for a cancel, and the moves that restore the original replicas. Pure (KIP-236).

A cancel restores the original replicas. KIP-236 names two cases in which that is harmful or impossible:

* No original replicas are recorded. Our moves always carry theirs, so this applies to external reassignments.
* None of the originals is in sync while some new replica is online: the cancel would take the partition offline. If
  all original and new replicas are offline, a cancel loses nothing, and the partition is rolled back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from kafka_steward.assignment import Assignment, Move, MoveReason, TopicPartition
from kafka_steward.cluster.state import Partition, Snapshot
from kafka_steward.execution.decisions.staging import is_staged
from kafka_steward.journal.moves import MoveRow, MoveState

__all__ = ["HIDDEN", "RollbackMoves", "changed_by", "plan_rollback", "subject", "cancel_forbidden_reason"]

#: The reason for a partition whose topic an ACL hides: its state is unknown.
HIDDEN = "Kafka does not let us describe its topic; grant our principal DESCRIBE on it"
_NO_ORIGINALS = "KIP-236: no original replicas are recorded, so there is nothing to go back to"
_WOULD_GO_OFFLINE = "KIP-236: none of the original replicas is in sync, and going back would take it offline"


def cancel_forbidden_reason(originals: Assignment | None, partition: Partition, live: frozenset[int]) -> str | None:
    """Return the rule that forbids the cancel of a partition in flight; None if it may be cancelled."""
    if not originals:
        return _NO_ORIGINALS
    new = frozenset(partition.replicas) - frozenset(originals)
    if not frozenset(originals) & partition.isr & live and new & live:
        return _WOULD_GO_OFFLINE
    return None


@dataclass(frozen=True)
class RollbackMoves:
    """The moves that roll back a plan, and the rows that are skipped, each with the reason."""

    moves: tuple[Move, ...]
    skipped: tuple[tuple[MoveRow, str], ...]


def changed_by(found: Assignment, others: Iterable[tuple[str, MoveRow]]) -> str | None:
    """Return the plan that gave a partition the replicas `found`, or is moving it there; None if no plan did.

    `others` are the moves of that partition in other plans, by digest, the latest last.
    """
    return next((digest for digest, row in reversed(list(others)) if _leads_to(row, found)), None)


def subject(plan: str | None) -> str:
    """Return the actor that changed a partition, as the subject of a message: one of our plans, or an external one."""
    return "someone else" if plan is None else f"plan {plan[:12]}"


def _leads_to(row: MoveRow, found: Assignment) -> bool:
    """Return True if the move completed, is in flight to, or rests between stages at the replicas `found`.

    While it is in flight, Kafka lists the replicas to remove behind the target.
    """
    target = row.move.after
    there = row.state in {MoveState.COMPLETED, MoveState.SUBMITTED} and found[: len(target)] == target
    return there or (row.attempt > 0 and is_staged(row.move, found) > 0)


def plan_rollback(
    rows: Iterable[MoveRow],
    snapshot: Snapshot,
    *,
    chunk_size: int,
    others: Mapping[TopicPartition, Sequence[tuple[str, MoveRow]]] | None = None,
) -> RollbackMoves:
    """Return the moves that restore the original replicas of a plan, in their order; the last move first.

    They cover every completed move, and every other move that changed its partition. `left_alone` are partitions that
    an external actor or one of the `others` (`changed_by`) changed since, deleted or re-created ones, and those whose
    rollback needs a dead broker. Partitions that already are at their original replicas are in neither.
    """
    later = others or {}
    touched = [row for row in rows if _touched(row, snapshot) and not _is_back(row, snapshot)]
    judged = [(row, _skip_reason(row, snapshot, later.get(row.topic_partition, ()))) for row in reversed(touched)]
    back = [_back(row.move, snapshot) for row, why in judged if why is None]
    return RollbackMoves(
        tuple(replace(move, chunk=n // chunk_size, position=n % chunk_size) for n, move in enumerate(back)),
        tuple((row, why) for row, why in judged if why is not None),
    )


def _touched(row: MoveRow, snapshot: Snapshot) -> bool:
    """Return True if the plan took the partition to its target, or left it between stages or in another replica order.

    Kafka may have executed a move that was dropped after its answer was lost. And an external cancel of a move in
    flight, with Kafka's own tool, loses the replica order. A FAILED move counts if its partition exists.
    """
    partition = snapshot.partitions.get(row.topic_partition)
    given_up = row.state in {MoveState.SATISFIED, MoveState.DROPPED} and row.attempt > 0
    left_so = given_up and partition is not None and _as_left(row.move, partition)
    taken_over = row.state is MoveState.FAILED and partition is not None
    return row.state is MoveState.COMPLETED or left_so or taken_over


def _as_left(move: Move, partition: Partition) -> bool:
    in_disorder = frozenset(partition.replicas) == frozenset(move.before)
    return in_disorder or partition.replicas == move.after or is_staged(move, partition.replicas) > 0


def _is_back(row: MoveRow, snapshot: Snapshot) -> bool:
    partition = snapshot.partitions.get(row.topic_partition)
    return partition is not None and not partition.reassigning and partition.replicas == row.move.before


def _back(move: Move, snapshot: Snapshot) -> Move:
    now = snapshot.partitions[move.topic_partition].replicas
    return replace(move, before=now, after=move.before, reason=MoveReason.GIVEN.value)


def _skip_reason(row: MoveRow, snapshot: Snapshot, others: Sequence[tuple[str, MoveRow]]) -> str | None:
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
