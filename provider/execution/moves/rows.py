"""The rows of a plan's moves as a step asks for them: each question is answered once, for the next steps as well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property

from kafka_steward.assignment import Move, TopicPartition
from kafka_steward.execution.moves.states import OPEN, bytes_to_copy
from kafka_steward.journal.records import MoveRow, MoveState


class MoveRows(tuple[MoveRow, ...]):
    """Rows in plan order. They never change: while a plan waits, its steps use the same ones, and what they answer.

    A step of ten thousands of moves would otherwise look at each of them for each question.
    """

    @cached_property
    def unsettled(self) -> Sequence[MoveRow]:
        """The moves that may still change their state."""
        return [row for row in self if not row.state.settled]

    @cached_property
    def open(self) -> Sequence[MoveRow]:
        """The moves that may still be submitted."""
        return [row for row in self if row.state in OPEN]

    @cached_property
    def submitted(self) -> Sequence[MoveRow]:
        """The moves that are in flight, as far as the rows know."""
        return [row for row in self if row.state is MoveState.SUBMITTED]

    @cached_property
    def started(self) -> Sequence[MoveRow]:
        """The moves that are, or were, submitted."""
        return [row for row in self if row.attempt or row.stage or row.state is MoveState.SUBMITTED]

    @cached_property
    def open_kinds(self) -> Sequence[Move]:
        """Of the open moves, one for all of a topic that have the same replicas before and after."""
        return list({(row.move.topic, row.move.before, row.move.after): row.move for row in self.open}.values())

    @cached_property
    def names(self) -> Sequence[TopicPartition]:
        """The partitions."""
        return [row.move.topic_partition for row in self]

    @cached_property
    def places(self) -> dict[TopicPartition, int]:
        """The place of each partition in the rows."""
        return {name: place for place, name in enumerate(self.names)}

    @cached_property
    def counts(self) -> Counter[MoveState]:
        """The numbers of moves by state."""
        return Counter(row.state for row in self)

    @cached_property
    def bytes_to_copy(self) -> Counter[MoveState]:
        """The bytes that whole moves copy, by state."""
        total = Counter[MoveState]()
        for row in self:
            total[row.state] += bytes_to_copy(row.move)
        return total

    @cached_property
    def first_chunk(self) -> int | None:
        """The first chunk with a move that is not settled; None without any."""
        return min((row.move.chunk for row in self.unsettled), default=None)

    @cached_property
    def last_chunk(self) -> int:
        """The highest chunk, -1 without any move."""
        return max((row.move.chunk for row in self), default=-1)
