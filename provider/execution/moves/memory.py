"""What a process remembers of the moves of a plan between its steps; a new process begins with nothing.

`KnownMoves`: a settled move never changes again (`TRANSITIONS` has no event for it). So a process may keep the totals
of settled moves, whichever process settled them: only which moves have settled since its last step is unknown, and
those are read by name. A number of rows that does not match, as after a restored backup, makes the next step read all
rows again. Rows are only changed by the holder of the step lock. Where nobody else held it since the last step of this
process, the rows are as that step left them, and only their numbers by state are read, which a loss of rows changes.

`KnownVerdicts`: a plan may have ten thousands of moves that wait, and a step that checks all of them again takes
seconds. What `CHECKS` look at is the move, its partition, whether its size is known and fits, and facts that are the
same for all moves. Where all of these are as in the last step, so is the verdict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from kafka_steward.assignment import Move, TopicPartition
from kafka_steward.cluster.state import Partition
from kafka_steward.execution.moves.preflight import PreflightInputs, preflight
from kafka_steward.execution.moves.staging import remaining_move
from kafka_steward.execution.moves.states import Held, bytes_to_copy
from kafka_steward.journal.locks import Fence
from kafka_steward.journal.plans import Plans
from kafka_steward.journal.records import MoveRow, MoveState, PlanRecord


@dataclass
class SettledMoves:
    """Totals of settled moves of one plan.

    `bytes_copied` are the bytes of the completed ones. `last_chunk` is their highest chunk, -1 without any. `ended_ms`
    is the time at which the last of a chunk's moves settled, and `attempted` are the chunks with a move that was
    submitted.
    """

    names: set[TopicPartition] = field(default_factory=set)
    counts: Counter[MoveState] = field(default_factory=Counter)
    bytes_copied: int = 0
    last_chunk: int = -1
    ended_ms: dict[int, int] = field(default_factory=dict)
    attempted: set[int] = field(default_factory=set)

    def add(self, rows: Iterable[MoveRow]) -> None:
        """Add settled moves."""
        for row in rows:
            chunk = row.move.chunk
            self.names.add(row.topic_partition)
            self.counts[row.state] += 1
            self.last_chunk = max(self.last_chunk, chunk)
            if row.state is MoveState.COMPLETED:
                self.bytes_copied += bytes_to_copy(row.move)
            if row.settled_ms is not None:
                self.ended_ms[chunk] = max(row.settled_ms, self.ended_ms.get(chunk, row.settled_ms))
            if row.attempt:
                self.attempted.add(chunk)

    def __len__(self) -> int:
        return len(self.names)


class _KeptRows(NamedTuple):
    """The rows that are not settled, as the step with this fencing token left them, and the numbers of all by state."""

    rows: list[MoveRow]
    counts: Counter[MoveState]
    token: int


class KnownMoves:
    """The moves of one plan, as far as a process knows them between its steps.

    `settled` are the totals of the moves that were settled when `read_unsettled` was called last.
    """

    def __init__(self) -> None:
        self.settled = SettledMoves()
        self._unsettled: frozenset[TopicPartition] | None = None
        self._kept: _KeptRows | None = None

    def read_unsettled(self, plans: Plans, digest: str, record: PlanRecord | None, fence: Fence) -> list[MoveRow]:
        """Return the moves that are not settled, in plan order; the first time, all rows of the plan are read for it.

        Raises PlanError as `Plans.rows` does.
        """
        kept, self._kept = self._kept, None
        if kept is not None and fence.token == kept.token + 1 and plans.count_states(digest) == kept.counts:
            return kept.rows
        if self._unsettled is not None:
            number, rows = plans.unsettled_rows(digest, record)
            names = frozenset(row.topic_partition for row in rows)
            self._add_settled(plans.rows_of(digest, self._unsettled - names))
            if len(self.settled) + len(rows) == number:
                self._unsettled = names
                return rows
        self.settled, self._unsettled = SettledMoves(), frozenset()
        return self._add_rows(plans.rows(digest, record))

    def keep(self, rows: Sequence[MoveRow], fence: Fence) -> None:
        """Keep what a step settled, and left; `rows` are those of `read_unsettled`, as the step left them."""
        unsettled = self._add_rows(rows)
        counts = self.settled.counts + Counter(row.state for row in unsettled)
        self._kept = _KeptRows(unsettled, counts, fence.token)

    def _add_rows(self, rows: Collection[MoveRow]) -> list[MoveRow]:
        unsettled = [row for row in rows if not row.state.settled]
        self._add_settled(row for row in rows if row.state.settled)
        self._unsettled = frozenset(row.topic_partition for row in unsettled)
        return unsettled

    def _add_settled(self, rows: Iterable[MoveRow]) -> None:
        self.settled.add(row for row in rows if row.topic_partition not in self.settled.names)


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
