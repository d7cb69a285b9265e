"""Candidate plans: new assignments of every row of a shard, and their changes as the rows of a plan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from kafka_steward.assignment import Assignment, MoveReason, Operation, TopicPartition
from kafka_steward.errors import PlanError
from kafka_steward.planning.files.formats import PLAN
from kafka_steward.planning.files.reassignment import parse_reassignment
from kafka_steward.planning.solver.fair_shares import rack_spread_violated
from kafka_steward.planning.solver.problem import (
    STATES,
    Bools,
    Brokers,
    Disposition,
    Ints,
    PartitionTable,
    Problem,
    member,
)

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
class CandidatePlan:
    """New assignments, as flat as the rows: `broker[i]` in order within `row[i]`. `bound` is the fewest moves."""

    rows: PartitionTable
    disposition: Ints
    row: Ints
    broker: Ints
    bound: int
    #: Notes for readers of the proof, such as a goal that could not be met in full.
    notes: tuple[str, ...] = ()

    @cached_property
    def start(self) -> Ints:
        """The start of each row's new replicas, followed by the end of the last row's replicas."""
        return np.searchsorted(self.row, np.arange(len(self.rows) + 1))

    @cached_property
    def added(self) -> Bools:
        """A mask of the new replicas on brokers that did not hold the row."""
        return ~member(self.row, self.broker, self.rows.row, self.rows.broker)

    @cached_property
    def removed(self) -> Bools:
        """A mask of the old replicas on brokers that no longer hold the row."""
        return ~member(self.rows.row, self.rows.broker, self.row, self.broker)

    @cached_property
    def changed(self) -> Ints:
        """The rows whose assignment differs, even if only in its order."""
        differs = np.diff(self.start) != self.rows.degree
        same_length = ~differs[self.row]
        row = self.row[same_length]
        place = np.arange(len(self.row))[same_length] - self.start[row]
        differs[row[self.rows.broker[self.rows.start[row] + place] != self.broker[same_length]]] = True
        return np.flatnonzero(differs)

    @cached_property
    def lead_lost(self) -> Bools:
        """A mask of the rows that get another preferred leader."""
        return np.asarray(self.broker[self.start[:-1]] != self.rows.broker[self.rows.start[:-1]], bool)


def unchanged(rows: PartitionTable, disposition: Ints) -> CandidatePlan:
    """Return a plan that moves nothing."""
    return CandidatePlan(rows, disposition, rows.row, rows.broker, bound=0)


def merged(rows: PartitionTable, stays: Bools, row: Ints, broker: Ints) -> tuple[Ints, Ints]:
    """Return the old replicas in `stays` and the new replicas (row, broker) in order of their rows."""
    both = np.concatenate([rows.row[stays], row])
    order = np.argsort(both, kind="stable")
    return both[order], np.concatenate([rows.broker[stays], broker])[order]


def apply_reassignment(problem: Problem) -> CandidatePlan:
    """Return the given assignments as new ones.

    Raises PlanError that names a partition or broker that the snapshot does not have, or a broker that has failed.
    """
    rows, brokers = problem.rows, problem.brokers
    given = parse_reassignment(problem.options.reassignment)
    wanted = _rows_of(rows, given)
    disposition = np.full(len(rows), int(Disposition.UNTOUCHED))
    disposition[wanted] = np.where(rows.moving[wanted], Disposition.IN_FLIGHT, Disposition.PLANNED)
    planned = np.flatnonzero(disposition == Disposition.PLANNED)
    index = {int(broker): at for at, broker in enumerate(brokers.ids)}
    row, broker = [], []
    for at in planned.tolist():
        target = given[TopicPartition(rows.topics[rows.topic[at]], int(rows.number[at]))]
        for one in target:
            _refuse_unusable(brokers, index, rows.name(at), one)
        row += [at] * len(target)
        broker += [index[one] for one in target]
    new = merged(rows, (disposition != Disposition.PLANNED)[rows.row], np.array(row, int), np.array(broker, int))
    candidate = CandidatePlan(rows, disposition, *new, bound=0)
    # No plan reaches exactly these assignments with fewer moves than they differ by.
    return replace(candidate, bound=int(candidate.added.sum()))


def _rows_of(rows: PartitionTable, given: dict[TopicPartition, Assignment]) -> Ints:
    known = {topic: at for at, topic in enumerate(rows.topics)}
    first = np.searchsorted(rows.topic, np.arange(len(rows.topics) + 1))
    found = []
    for name in given:
        if name.topic not in known:
            continue
        low, high = first[known[name.topic] : known[name.topic] + 2]
        at = low + int(np.searchsorted(rows.number[low:high], name.partition))
        if at >= high or rows.number[at] != name.partition:
            raise PlanError(f"The reassignment names {name}, which the snapshot does not have.")
        found.append(at)
    return np.array(found, np.int64)


def _refuse_unusable(brokers: Brokers, index: dict[int, int], name: str, broker: int) -> None:
    if broker not in index:
        raise PlanError(f"The reassignment of {name} names broker {broker}, which the snapshot does not have.")
    if brokers.state[index[broker]] == "failed":
        raise PlanError(f"The reassignment of {name} names broker {broker}, which has failed.")


def moves(candidate: CandidatePlan, brokers: Brokers, topic_ids: pa.Array, operation: Operation) -> pa.Table:
    """Return the changed rows as `MOVES`. `topic_ids` has one value per row of the shard."""
    rows, at = candidate.rows, candidate.changed
    columns = {
        "topic": pa.array(rows.topics, pa.string()).take(pa.array(rows.topic[at])),
        "topic_id": topic_ids.take(pa.array(at)),
        "partition": pa.array(rows.number[at], pa.int32()),
        "before": _lists(rows.row, rows.broker, at, brokers),
        "after": _lists(candidate.row, candidate.broker, at, brokers),
        "adding": _sorted_lists(candidate.row, candidate.broker, candidate.added, at, brokers),
        "removing": _sorted_lists(rows.row, rows.broker, candidate.removed, at, brokers),
        "bytes": pa.array(rows.size[at], pa.int64(), mask=rows.unsized[at]),
        "reason": reasons(candidate, brokers, operation),
        "in_sync": pa.array(rows.in_sync_count[at], pa.int32()),
        "short": pa.array(rows.degree[at] - rows.in_sync_count[at], pa.int32()),
        "source": pa.array(senders(rows, brokers)[at], pa.int32()),
    }
    return pa.Table.from_arrays([columns[name] for name in MOVES.names], schema=MOVES)


def senders(rows: PartitionTable, brokers: Brokers) -> Ints:
    """Return the id of the broker that will send each row's data: its leader, or its first replica that is in sync."""
    sender = brokers.ids[rows.broker[rows.start[:-1]]]
    in_sync = np.flatnonzero(rows.in_sync)[::-1]
    # Of several replicas of a row, the one that is assigned last counts: the first in order.
    sender[rows.row[in_sync]] = brokers.ids[rows.broker[in_sync]]
    return np.where(rows.leader >= 0, rows.leader, sender)


def reasons(candidate: CandidatePlan, brokers: Brokers, operation: Operation) -> pa.Array:
    """Return the reason why each changed row moves: the most severe one that applies."""
    rows, at = candidate.rows, candidate.changed
    removed = candidate.removed
    moved = _rows_with(candidate.row[candidate.added], rows) | _rows_with(rows.row[removed], rows)
    on = {state: _rows_with(rows.row[removed & brokers.having(state)[rows.broker]], rows) for state in STATES}
    applies = [
        (np.full(len(rows), operation in (Operation.APPLY, Operation.ROLLBACK)), MoveReason.GIVEN),
        (~moved, MoveReason.REORDER),
        (on["failed"], MoveReason.BROKER_FAILED),
        (_rows_with(rows.row[removed & rows.lost], rows), MoveReason.LOG_DIR_FAILED),
        (on["draining"], MoveReason.BROKER_DRAINING),
        (np.diff(candidate.start) != rows.degree, MoveReason.REPLICATION_FACTOR),
        (rack_spread_violated(rows.row, rows.broker, len(rows), brokers), MoveReason.RACK_SPREAD),
    ]
    words = pa.array([*(word.value for _, word in applies), MoveReason.BALANCE.value], pa.string())
    found = np.select([which for which, _ in applies], range(len(applies)), len(applies))
    return words.take(pa.array(found[at]))


def _rows_with(row: Ints, rows: PartitionTable) -> Bools:
    found = np.zeros(len(rows), bool)
    found[row] = True
    return found


def _sorted_lists(row: Ints, broker: Ints, which: Bools, at: Ints, brokers: Brokers) -> pa.Array:
    row, broker = row[which], broker[which]
    order = np.lexsort((broker, row))
    return _lists(row[order], broker[order], at, brokers)


def _lists(row: Ints, broker: Ints, at: Ints, brokers: Brokers) -> pa.Array:
    """Return the ids of the brokers of each row in `at`, as lists."""
    inside = np.isin(row, at)
    counts = np.bincount(np.searchsorted(at, row[inside]), minlength=len(at))
    offsets = np.concatenate([[0], np.cumsum(counts)])
    ids = pa.array(brokers.ids[broker[inside]], pa.int32())
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), ids).cast(_INTS)
