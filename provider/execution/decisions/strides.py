"""One added replica of a partition at a time (KIP-236's staggering): which reassignment comes next. Pure.

A move that adds several replicas may be carried out as a series of reassignments, its *strides*, each of which adds
one. Until the last of them the partition keeps all its original replicas, in their order, and gets what arrives behind
them; the last one adds what is missing and lets go of what leaves. From 123 to 456, that is 1234, 12345, 456. So the
preferred leader stays as long as it can, and whoever cancels in the middle copies nothing: the originals are all there,
and the new ones are only let go of.

Between two strides a partition rests *halfway*. Where it is says which stride comes next: nothing is stored but, with
a submission, how many of the new replicas are there when it has arrived: the row's `stage`. By that number a stride
that arrived is told from one that someone cancelled.

A replica that is not in sync would hang a stride in which it stays: then everything that is left comes at once. So a
partition that a heal makes whole never waits for its second new replica.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from kafka_steward.assignment import Assignment, Move
from kafka_steward.cluster.state import Partition
from kafka_steward.execution.decisions.moves import OPEN
from kafka_steward.journal.moves import MoveRow

__all__ = [
    "ahead",
    "bound_for",
    "flown",
    "goes_back",
    "halfway",
    "may_go_back",
    "next_stride",
    "stage_of",
    "stops",
    "words",
]


def halfway(move: Move, replicas: Collection[int]) -> int:
    """How many new replicas there are when `replicas`, in whatever order, is where `move` rests between two strides.

    0 when it is no such place; a move that adds one replica has none.
    """
    new = _new(move)
    here = len(move.adding & frozenset(replicas))
    return here if here < len(new) and frozenset(replicas) == frozenset((*move.before, *new[:here])) else 0


def stops(move: Move) -> list[Assignment]:
    """Where `move` rests between its strides, first to last."""
    new = _new(move)
    return [(*move.before, *new[:count]) for count in range(1, len(new))]


def ahead(row: MoveRow, partition: Partition | None) -> Move:
    """What is left of a move: all of it, or, when it rests halfway, what comes from there on."""
    if partition is None or not _rests_halfway(row, partition):
        return row.move
    return replace(row.move, before=partition.replicas)


def may_go_back(row: MoveRow, partition: Partition | None, live: frozenset[int]) -> bool:
    """Whether it rests halfway, and can let go of what has arrived: a dead original would hang that (ZooKeeper)."""
    return partition is not None and _rests_halfway(row, partition) and frozenset(row.move.before) <= live


def next_stride(move: Move, partition: Partition, live: frozenset[int]) -> Move:
    """The reassignment that adds the next replica of `move`, which begins where the partition is."""
    new = _new(move)
    if len(new) < 2 or not frozenset(move.before) <= partition.isr & live:
        return move
    return replace(move, after=(*move.before, new[0]))


def bound_for(move: Move, partition: Partition) -> Assignment | None:
    """The target of what flies, if it is that of `move` or of one of its strides."""
    if not partition.reassigning:
        return None
    target = tuple(broker for broker in partition.replicas if broker not in partition.removing)
    strides = not partition.removing and halfway(move, target)
    return target if target == move.after or strides else None


def goes_back(move: Move, partition: Partition) -> bool:
    """Whether what flies only lets go of what had arrived, and ends at the originals in their order."""
    kept = tuple(broker for broker in partition.replicas if broker not in partition.removing)
    return not partition.adding and kept == move.before and frozenset(partition.removing) <= move.adding


def flown(row: MoveRow, partition: Partition | None) -> Move:
    """What is in flight of a submitted move: the whole of it, or one stride."""
    target = None if partition is None else bound_for(row.move, partition)
    if partition is None or target is None or frozenset(partition.adding) == row.move.adding:
        return row.move
    before = tuple(broker for broker in partition.replicas if broker not in partition.adding)
    return replace(row.move, before=before, after=target)


def stage_of(move: Move, target: Assignment) -> int:
    """Return how many new replicas there are at `target`."""
    return len(move.adding & frozenset(target))


def words(move: Move, stage: int) -> str:
    """Return for a person how many new replicas there are at a stage; empty for a move as a whole, which is stage 0."""
    return f"{stage} of {len(move.adding)} new replicas" if stage else ""


def _rests_halfway(row: MoveRow, partition: Partition) -> bool:
    tried = row.state in OPEN and row.attempt > 0 and not partition.reassigning
    return tried and halfway(row.move, partition.replicas) > 0


def _new(move: Move) -> list[int]:
    return [broker for broker in move.after if broker in move.adding]
