"""Verdicts of preflight, kept from one step of a process to the next for the moves of which nothing has changed.

A plan may have ten thousands of moves that wait, and a step that checks all of them again takes seconds. What `CHECKS`
look at is the move, its partition, whether its size is known and fits, and facts that are the same for all moves. Where
all of these are as in the last step, so is the verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from kafka_steward.assignment import Move, TopicPartition
from kafka_steward.cluster.state import Partition
from kafka_steward.execution.moves.preflight import PreflightInputs, preflight
from kafka_steward.execution.moves.staging import remaining_move
from kafka_steward.execution.moves.states import Held
from kafka_steward.journal.records import MoveRow


class Verdict(NamedTuple):
    """The verdict about one move: its row, what remains of it, and why it is not submitted, None if it may be."""

    row: MoveRow
    left: Move
    held: Held | None


class _Facts(NamedTuple):
    """The facts that a verdict depends on, besides the row and those that are the same for all moves."""

    partition: Partition | None
    size_known: bool
    too_large_for: tuple[int, ...]


@dataclass
class KnownVerdicts:
    """The verdicts of the last step of a process, with what they depend on; a new process begins with none."""

    _shared: PreflightInputs | None = None
    _found: dict[TopicPartition, tuple[_Facts, Verdict]] = field(default_factory=dict)

    def judge(self, rows: Sequence[MoveRow], inputs: PreflightInputs) -> list[Verdict]:
        """Return the verdict of `preflight` about each of the open moves of a plan."""
        shared = _without_partitions(inputs)
        known = self._found if shared == self._shared else {}
        free = {broker: max(room.free_bytes for room in rooms) for broker, rooms in inputs.rooms.items()}
        self._shared, self._found, verdicts = shared, {}, []
        for row in rows:
            name = row.topic_partition
            facts = _facts_of(row, inputs, free)
            before = known.get(name)
            if before is None or before[0] != facts or before[1].row != row:
                left = remaining_move(row, facts.partition)
                before = facts, Verdict(row, left, preflight(left, inputs, between_stages=left is not row.move))
            self._found[name] = before
            verdicts.append(before[1])
        return verdicts


def _facts_of(row: MoveRow, inputs: PreflightInputs, free: dict[int, int]) -> _Facts:
    name = row.topic_partition
    size = inputs.sizes.get(name)
    larger = tuple(broker for broker in row.move.adding if broker in free and (size or 0) > free[broker])
    return _Facts(inputs.snapshot.partitions.get(name), size is not None, larger)


def _without_partitions(inputs: PreflightInputs) -> PreflightInputs:
    """Return the facts that are the same for all moves: of the snapshot, the brokers, and of rooms, whose are known."""
    brokers = replace(inputs.snapshot, taken_ms=0, partitions={})
    rooms = dict.fromkeys(inputs.rooms, ())
    return replace(inputs, snapshot=brokers, sizes={}, left_bytes={}, rooms=rooms)
