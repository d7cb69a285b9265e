"""Staged moves, which add one replica of a partition at a time: the next reassignment. Pure.

A move that adds several replicas may be executed as a series of reassignments, its *stages*, each of which adds one.
Until the last stage the partition keeps all its original replicas, in their order, and the new replicas follow them.
The last stage adds the last new replica and removes the replicas that leave. From 123 to 456, the stages are 1234,
12345, 456. So the preferred leader stays as long as possible, and a cancel between stages copies nothing: all original
replicas are present, and only the new ones are removed.

The assignment of a partition between two stages determines the next stage. Only one number is stored, with each
submission: the row's `stage`, the number of new replicas after its completion. That number distinguishes a completed
stage from a cancelled one.

A kept replica that is not in sync would stall a stage. Then all remaining replicas are submitted at once. So a
partition that a heal makes fully replicated never waits for its second new replica.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from kafka_steward.assignment import Assignment, Move
from kafka_steward.cluster.state import Partition
from kafka_steward.execution.moves import OPEN
from kafka_steward.journal.records import MoveRow


def stage_reached(move: Move, replicas: Collection[int]) -> int:
    """Return the number of new replicas if `replicas`, in any order, is an assignment of `move` between two stages.

    Returns 0 if it is not. A move that adds one replica has no such assignment.
    """
    new = _new_replicas(move)
    here = len(move.adding & frozenset(replicas))
    return here if here < len(new) and frozenset(replicas) == frozenset((*move.before, *new[:here])) else 0


def intermediate_assignments(move: Move) -> list[Assignment]:
    """Return the assignments of `move` between its stages, first to last."""
    new = _new_replicas(move)
    return [(*move.before, *new[:count]) for count in range(1, len(new))]


def remaining_move(row: MoveRow, partition: Partition | None) -> Move:
    """Return the remaining part of a move: the whole move, or the remaining stages if it is between stages."""
    if partition is None or not _is_between_stages(row, partition):
        return row.move
    return replace(row.move, before=partition.replicas)


def can_roll_back_stages(row: MoveRow, partition: Partition | None, live: frozenset[int]) -> bool:
    """Return True if the move is between stages and can be rolled back.

    The removal of the new replicas would stall on a dead original broker (ZooKeeper).
    """
    return partition is not None and _is_between_stages(row, partition) and frozenset(row.move.before) <= live


def next_stage(move: Move, partition: Partition, live: frozenset[int]) -> Move:
    """Return the reassignment that adds the next replica of `move`, whose `before` is the current assignment.

    Returns the whole move if it adds fewer than two replicas, or if not all replicas in `before` are live and in sync.
    """
    new = _new_replicas(move)
    if len(new) < 2 or not frozenset(move.before) <= partition.isr & live:
        return move
    return replace(move, after=(*move.before, new[0]))


def target_in_flight(move: Move, partition: Partition) -> Assignment | None:
    """Return the target of the reassignment in flight, if it is the target of `move` or of one of its stages."""
    if not partition.reassigning:
        return None
    target = tuple(broker for broker in partition.replicas if broker not in partition.removing)
    stages = not partition.removing and stage_reached(move, target)
    return target if target == move.after or stages else None


def is_rolling_back(move: Move, partition: Partition) -> bool:
    """Return True if the reassignment in flight only removes new replicas, and ends at the originals in their order."""
    kept = tuple(broker for broker in partition.replicas if broker not in partition.removing)
    return not partition.adding and kept == move.before and frozenset(partition.removing) <= move.adding


def part_in_flight(row: MoveRow, partition: Partition | None) -> Move:
    """Return the part of a submitted move that is in flight: the whole move, or one stage."""
    target = None if partition is None else target_in_flight(row.move, partition)
    if partition is None or target is None or frozenset(partition.adding) == row.move.adding:
        return row.move
    before = tuple(broker for broker in partition.replicas if broker not in partition.adding)
    return replace(row.move, before=before, after=target)


def stage_number(move: Move, target: Assignment) -> int:
    """Return the number of new replicas in `target`."""
    return len(move.adding & frozenset(target))


def stage_text(move: Move, stage: int) -> str:
    """Return the number of new replicas at a stage as text; empty for a whole move, which is stage 0."""
    return f"{stage} of {len(move.adding)} new replicas" if stage else ""


def _is_between_stages(row: MoveRow, partition: Partition) -> bool:
    tried = row.state in OPEN and row.attempt > 0 and not partition.reassigning
    return tried and stage_reached(row.move, partition.replicas) > 0


def _new_replicas(move: Move) -> list[int]:
    return [broker for broker in move.after if broker in move.adding]
