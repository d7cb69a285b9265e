"""Candidate plans: new assignments of every row of a shard, and their changes as the rows of a plan."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from kafka_steward.assignment import MoveReason, Operation
from kafka_steward.planning.files.formats import PLAN
from kafka_steward.planning.solver.arrays import STATES, Bools, Brokers, Ints, Rows, member
from kafka_steward.planning.solver.selection import Fate

__all__ = ["MOVES", "Draft", "left_out", "moves", "reasons", "sources"]

_INTS = pa.list_(pa.int32())

#: A plan's rows before they are put in order: `in_sync` and `short` determine the priority, `source` the sending
#: broker.
MOVES = pa.schema(
    [
        *(field for field in PLAN if field.name not in ("chunk", "position")),
        pa.field("in_sync", pa.int32(), nullable=False),
        pa.field("short", pa.int32(), nullable=False),
        pa.field("source", pa.int32(), nullable=False),
    ]
)


@dataclass(frozen=True)
class Draft:
    """New assignments, as flat as `Rows`: `broker[s]` in order within `row[s]`. `bound`: the fewest moves possible."""

    rows: Rows
    fate: Ints
    row: Ints
    broker: Ints
    bound: int
    #: Notes for readers of the proof, such as a goal that could not be met in full.
    notes: tuple[str, ...] = ()

    @cached_property
    def start(self) -> Ints:
        """The start of each row's new slots, followed by the end of the last row's slots."""
        return np.searchsorted(self.row, np.arange(len(self.rows) + 1))

    @cached_property
    def added(self) -> Bools:
        """A mask of the new slots on brokers that did not hold the row."""
        return ~member(self.row, self.broker, self.rows.row, self.rows.broker)

    @cached_property
    def removed(self) -> Bools:
        """A mask of the old slots on brokers that no longer hold the row."""
        return ~member(self.rows.row, self.rows.broker, self.row, self.broker)

    @cached_property
    def changed(self) -> Ints:
        """The rows whose assignment differs, even if only in its order."""
        degree = np.diff(self.start)
        differs = degree != self.rows.degree
        place = np.arange(len(self.row)) - self.start[self.row]
        same_length = ~differs[self.row]
        at = self.rows.start[self.row[same_length]] + place[same_length]
        other = self.rows.broker[at] != self.broker[same_length]
        differs[self.row[same_length][other]] = True
        return np.flatnonzero(differs)

    @cached_property
    def lead_lost(self) -> Bools:
        """A mask of the rows that get another preferred leader."""
        return np.asarray(self.broker[self.start[:-1]] != self.rows.broker[self.rows.start[:-1]], bool)


def moves(draft: Draft, brokers: Brokers, topic_ids: pa.Array, why: pa.Array) -> pa.Table:
    """Return the changed rows as `MOVES`.

    `topic_ids` has one value per row of the shard, `why` one per changed row.
    """
    rows, at = draft.rows, draft.changed
    columns = {
        "topic": pa.array(rows.topics, pa.string()).take(pa.array(rows.topic[at])),
        "topic_id": topic_ids.take(pa.array(at)),
        "partition": pa.array(rows.number[at], pa.int32()),
        "before": _lists(rows.row, rows.broker, at, brokers),
        "after": _lists(draft.row, draft.broker, at, brokers),
        "adding": _lists(*_sorted(draft.row[draft.added], draft.broker[draft.added]), at, brokers),
        "removing": _lists(*_sorted(rows.row[draft.removed], rows.broker[draft.removed]), at, brokers),
        "bytes": pa.array(rows.size[at], pa.int64(), mask=rows.unsized[at]),
        "reason": why,
        "in_sync": pa.array(rows.in_sync_count[at], pa.int32()),
        "short": pa.array(rows.degree[at] - rows.in_sync_count[at], pa.int32()),
        "source": pa.array(sources(rows, brokers)[at], pa.int32()),
    }
    return pa.Table.from_arrays([columns[name] for name in MOVES.names], schema=MOVES)


def sources(rows: Rows, brokers: Brokers) -> Ints:
    """Return the id of the broker that will send each row's data: its leader, or its first replica that is in sync."""
    first = rows.start[:-1]
    in_sync = np.flatnonzero(rows.in_sync)
    fallback = brokers.ids[rows.broker[first]]
    found = np.searchsorted(rows.row[in_sync], np.arange(len(rows)))
    has = found < len(in_sync)
    has[has] = rows.row[in_sync[found[has]]] == np.flatnonzero(has)
    fallback[has] = brokers.ids[rows.broker[in_sync[found[has]]]]
    return np.where(rows.leader >= 0, rows.leader, fallback)


def left_out(draft: Draft) -> list[tuple[str, int, str]]:
    """List topic, partition and reason of each partition that needs a change and does not get it."""
    rows = draft.rows
    return [
        (rows.topics[rows.topic[row]], int(rows.number[row]), Fate(draft.fate[row]).word)
        for row in np.flatnonzero(draft.fate > Fate.PLANNED)
    ]


def reasons(draft: Draft, brokers: Brokers, spread_badly: Bools, operation: Operation) -> pa.Array:
    """Return the reason why each changed row moves: the most severe one that applies."""
    rows, at = draft.rows, draft.changed
    moved = _rows_with(draft.row[draft.added], rows) | _rows_with(rows.row[draft.removed], rows)
    on = {state: _rows_with(rows.row[draft.removed & brokers.having(state)[rows.broker]], rows) for state in STATES}
    applies = [
        (np.full(len(rows), operation in (Operation.APPLY, Operation.ROLLBACK)), MoveReason.GIVEN),
        (~moved, MoveReason.REORDER),
        (on["failed"], MoveReason.BROKER_FAILED),
        (_rows_with(rows.row[draft.removed & rows.lost], rows), MoveReason.LOG_DIR_FAILED),
        (on["draining"], MoveReason.BROKER_DRAINING),
        (np.diff(draft.start) != rows.degree, MoveReason.REPLICATION_FACTOR),
        (spread_badly, MoveReason.RACK_SPREAD),
    ]
    words = pa.array([*(word.value for _, word in applies), MoveReason.BALANCE.value], pa.string())
    found = np.select([which for which, _ in applies], range(len(applies)), len(applies))
    return words.take(pa.array(found[at]))


def _rows_with(row: Ints, rows: Rows) -> Bools:
    found = np.zeros(len(rows), bool)
    found[row] = True
    return found


def _sorted(row: Ints, broker: Ints) -> tuple[Ints, Ints]:
    order = np.lexsort((broker, row))
    return row[order], broker[order]


def _lists(row: Ints, broker: Ints, at: Ints, brokers: Brokers) -> pa.Array:
    index = np.searchsorted(at, row)
    inside = index < len(at)
    inside[inside] = at[index[inside]] == row[inside]
    counts = np.bincount(index[inside], minlength=len(at))
    offsets = np.concatenate([[0], np.cumsum(counts)])
    ids = pa.array(brokers.ids[broker[inside]], pa.int32())
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), ids).cast(_INTS)
