"""The moves of a plan that have settled, as totals, so that a step reads only the moves that may still change.

A settled move never changes again (`TRANSITIONS` has no event for it). So a process may keep the totals between its
steps, whichever process settled the moves: only which moves have settled since its last step is unknown, and those are
read by name. A number of rows that does not match, as after a restored backup, makes the next step read all rows again.

Rows are only changed by the holder of the step lock. Where nobody else held it since the last step of this process, the
rows are as that step left them, and only their numbers by state are read, which a loss of rows changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kafka_steward.assignment import TopicPartition
from kafka_steward.execution.moves.states import bytes_to_copy
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
