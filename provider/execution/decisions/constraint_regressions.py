"""The constraints that a plan makes worse, for an operator to review before execution. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kafka_steward.assignment import Assignment, Move
from kafka_steward.planning.files.formats import SnapshotFolder

__all__ = ["constraint_regressions"]


def constraint_regressions(moves: Sequence[Move], snapshot: SnapshotFolder) -> list[str]:
    """Return a message for each regression: fewer racks, fewer replicas, fewer replicas than min.insync.replicas.

    Producers with acks=all fail in the last case.
    """
    racks = {row["broker"]: row["rack"] for row in snapshot.brokers.to_pylist()}
    topics = snapshot.partitions.group_by("topic").aggregate([("min_isr", "max")])
    min_isr = {row["topic"]: row["min_isr_max"] for row in topics.to_pylist()}
    return [sentence for move in moves for sentence in _of(move, racks, min_isr.get(move.topic))]


def _of(move: Move, racks: Mapping[int, str | None], min_isr: int | None) -> Iterator[str]:
    name = move.topic_partition
    before, after = _spread(move.before, racks), _spread(move.after, racks)
    if after < before and after < len(move.after):
        yield f"{name} will be on {after} racks instead of {before}."
    if len(move.after) < len(move.before):
        yield f"{name} will have {len(move.after)} replicas instead of {len(move.before)}."
    if min_isr is not None and len(move.after) < min_isr <= len(move.before):
        yield f"{name} will have fewer replicas than min.insync.replicas, {min_isr}: producers with acks=all will fail."


def _spread(replicas: Assignment, racks: Mapping[int, str | None]) -> int:
    """Return the number of racks that hold the replicas; a broker without a rack counts as a rack of its own."""
    return len({racks.get(broker) or broker for broker in replicas})
