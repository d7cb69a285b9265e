"""Turn a candidate plan into the rows of a plan: changes with their reasons, in an order, and cut into chunks.

The partitions that are nearest to data loss come first: the fewest in-sync replicas, then the most missing. Among
equals, moves are in the order in which the brokers that they need are expected to be free. Each broker is assumed to
process its moves from the largest to the smallest, as many at a time as it may, and a move starts when the last of its
brokers reaches it. Any part of the plan therefore keeps all brokers busy, and large partitions do not come last.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_steward.assignment import GIVEN_OPERATIONS, MoveReason, Operation
from kafka_steward.planning.files.formats import PLAN
from kafka_steward.planning.options import Options
from kafka_steward.planning.solver.candidate import CandidatePlan
from kafka_steward.planning.solver.fair_shares import rack_spread_violated
from kafka_steward.planning.solver.problem import STATES, Bools, Brokers, Ints, PartitionTable, sum_by
from kafka_steward.planning.solver.room import fits

Floats = npt.NDArray[np.float64]
_INTS = pa.list_(pa.int32())

#: A plan's rows before they are put in order: `in_sync` and `out_of_sync` determine the priority, `source` the sending
#: broker.
MOVES = pa.schema(
    [
        *(field for field in PLAN if field.name not in ("chunk", "position")),
        pa.field("in_sync", pa.int32(), nullable=False),
        pa.field("out_of_sync", pa.int32(), nullable=False),
        pa.field("source", pa.int32(), nullable=False),
    ]
)


def planned_moves(candidate: CandidatePlan, brokers: Brokers, topic_ids: pa.Array, operation: Operation) -> pa.Table:
    """Return the changed rows as `MOVES`. `topic_ids` has one value per row of the shard."""
    rows, at = candidate.rows, candidate.changed_rows
    columns = {
        "topic": pa.array(rows.topics, pa.string()).take(pa.array(rows.topic[at])),
        "topic_id": topic_ids.take(pa.array(at)),
        "partition": pa.array(rows.number[at], pa.int32()),
        "before": _broker_lists(rows.row, rows.broker, at, brokers),
        "after": _broker_lists(candidate.row, candidate.broker, at, brokers),
        "adding": _sorted_broker_lists(candidate.row, candidate.broker, candidate.added, at, brokers),
        "removing": _sorted_broker_lists(rows.row, rows.broker, candidate.removed, at, brokers),
        "bytes": pa.array(rows.size[at], pa.int64(), mask=rows.unsized[at]),
        "reason": move_reasons(candidate, brokers, operation),
        "in_sync": pa.array(rows.in_sync_count[at], pa.int32()),
        "out_of_sync": pa.array(rows.replica_count[at] - rows.in_sync_count[at], pa.int32()),
        "source": pa.array(sending_brokers(rows, brokers)[at], pa.int32()),
    }
    return pa.Table.from_arrays([columns[name] for name in MOVES.names], schema=MOVES)


def sending_brokers(rows: PartitionTable, brokers: Brokers) -> Ints:
    """Return the id of the broker that will send each row's data: its leader, or its first replica that is in sync."""
    sender = brokers.ids[rows.broker[rows.row_starts[:-1]]]
    in_sync = np.flatnonzero(rows.in_sync)[::-1]
    # A row is assigned once for each of its replicas in sync, and the last assignment counts: the first replica in
    # order.
    sender[rows.row[in_sync]] = brokers.ids[rows.broker[in_sync]]
    return np.where(rows.leader >= 0, rows.leader, sender)


def move_reasons(candidate: CandidatePlan, brokers: Brokers, operation: Operation) -> pa.Array:
    """Return why each changed row moves: the first reason in the list below that applies, and else balance."""
    rows, at = candidate.rows, candidate.changed_rows
    removed = candidate.removed
    moved = _row_mask(candidate.row[candidate.added], rows) | _row_mask(rows.row[removed], rows)
    on = {state: _row_mask(rows.row[removed & brokers.state_mask(state)[rows.broker]], rows) for state in STATES}
    resized = np.diff(candidate.row_starts) != rows.replica_count
    applies = [
        (np.full(len(rows), operation in GIVEN_OPERATIONS), MoveReason.GIVEN),
        (~moved, MoveReason.REORDER),
        (np.full(len(rows), operation is Operation.RELIEVE), MoveReason.DISK_FULL),
        # A lower factor drops a replica on a dead broker first: that is which replica goes, not why one does.
        (resized & (operation is Operation.SET_REPLICATION_FACTOR), MoveReason.REPLICATION_FACTOR),
        (on["failed"] | on["down"], MoveReason.BROKER_FAILED),
        (_row_mask(rows.row[removed & rows.lost], rows), MoveReason.LOG_DIR_FAILED),
        (on["draining"], MoveReason.BROKER_DRAINING),
        (resized, MoveReason.REPLICATION_FACTOR),
        (rack_spread_violated(rows.row, rows.broker, len(rows), brokers), MoveReason.RACK_SPREAD),
    ]
    words = pa.array([*(word.value for _, word in applies), MoveReason.BALANCE.value], pa.string())
    reason = np.select([which for which, _ in applies], range(len(applies)), len(applies))
    return words.take(pa.array(reason[at]))


def _row_mask(row: Ints, rows: PartitionTable) -> Bools:
    mask = np.zeros(len(rows), bool)
    mask[row] = True
    return mask


def _sorted_broker_lists(row: Ints, broker: Ints, which: Bools, at: Ints, brokers: Brokers) -> pa.Array:
    row, broker = row[which], broker[which]
    order = np.lexsort((broker, row))
    return _broker_lists(row[order], broker[order], at, brokers)


def _broker_lists(row: Ints, broker: Ints, at: Ints, brokers: Brokers) -> pa.Array:
    """Return the ids of the brokers of each row in `at`, as lists."""
    inside = np.isin(row, at)
    # `at` is ascending and the replicas are in order of their rows, so that the lists come out in order.
    counts = np.bincount(np.searchsorted(at, row[inside]), minlength=len(at))
    offsets = np.concatenate([[0], np.cumsum(counts)])
    ids = pa.array(brokers.ids[broker[inside]], pa.int32())
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), ids).cast(_INTS)


@dataclass(frozen=True)
class MoveQueue:
    """Moves as arrays: replicas in sync and out of sync, bytes, and sending broker of each move.

    The receiving brokers are pairs: the move `owner[i]` adds a replica on the broker `into[i]`.
    """

    in_sync: Ints
    out_of_sync: Ints
    size: Ints
    source: Ints
    owner: Ints
    into: Ints


def order_plan(moves: pa.Table, brokers: Brokers, options: Options) -> pa.Table:
    """Return moves (see `MOVES`) as the rows of a plan: in order, with chunk and position."""
    moves = _sort_by_name(moves)
    order = start_order(_move_queue(moves), options)
    if _brokers_short_of_room(moves, brokers):
        order, _ = _order_within_room(moves, brokers, order)
    moves = moves.take(pa.array(order))
    number = np.arange(len(moves))
    moves = moves.append_column("chunk", pa.array(number // options.chunk_size, pa.int32()))
    moves = moves.append_column("position", pa.array(number % options.chunk_size, pa.int32()))
    return moves.select(PLAN.names).cast(PLAN)


def brokers_without_room(moves: pa.Table, brokers: Brokers, options: Options) -> Bools:
    """Return a mask of the brokers that some moves cannot get to in any order, for lack of room."""
    if not _brokers_short_of_room(moves, brokers):
        return np.zeros(len(brokers), bool)
    moves = _sort_by_name(moves)
    return _order_within_room(moves, brokers, start_order(_move_queue(moves), options))[1]


def _brokers_short_of_room(moves: pa.Table, brokers: Brokers) -> list[int]:
    """Return the brokers that have no room for all that they receive, if nothing leaves them before."""
    owner, into = _flatten(moves.column("adding"))
    into, size = np.searchsorted(brokers.ids, into), _sizes(moves)[owner]
    coming = sum_by(size, into, len(brokers))
    # Most brokers have room for far more than comes: only the sizes at the others are looked at one by one.
    doubtful = [
        broker
        for broker, rooms in enumerate(brokers.rooms)
        if rooms is not None and coming[broker] > (rooms[0] if len(rooms) == 1 else 0)
    ]
    return [broker for broker in doubtful if not fits(brokers.rooms[broker], size[into == broker].tolist())]


def _sort_by_name(moves: pa.Table) -> pa.Table:
    return moves.sort_by([("topic", "ascending"), ("partition", "ascending")]).combine_chunks()


def _move_queue(moves: pa.Table) -> MoveQueue:
    names = ("in_sync", "out_of_sync", "source")
    in_sync, out_of_sync, source = (moves.column(name).to_numpy().astype(np.int64) for name in names)
    owner, into = _flatten(moves.column("adding"))
    return MoveQueue(in_sync, out_of_sync, _sizes(moves), source, owner, into)


def _sizes(moves: pa.Table) -> Ints:
    return np.asarray(moves.column("bytes").fill_null(0).to_numpy(), np.int64)


def _flatten(column: pa.ChunkedArray) -> tuple[Ints, Ints]:
    """Return the number of the list of each value, and the values."""
    lists = column.combine_chunks()
    owner = np.repeat(np.arange(len(lists)), lists.value_lengths().to_numpy(False))
    return owner, lists.flatten().to_numpy(False).astype(np.int64)


def _order_within_room(moves: pa.Table, brokers: Brokers, order: Ints) -> tuple[Ints, Bools]:
    """Return the order in which the moves fit, as near to `order` as can be, and a mask of brokers that lack room.

    A move that does not fit waits until enough has left its brokers; more urgent ones still come first.
    """
    size, urgency = _sizes(moves), moves.column("in_sync").to_numpy()
    owner, into = _flatten(moves.column("adding"))
    into = np.searchsorted(brokers.ids, into)
    tight = _brokers_short_of_room(moves, brokers)
    rooms = {broker: list(brokers.rooms[broker] or ()) for broker in tight}
    free = {broker: room[0] for broker, room in rooms.items() if len(room) == 1}
    lacking = np.zeros(len(brokers), bool)
    lacking[[broker for broker in tight if broker not in free]] = True
    if not free:
        return order, lacking
    leaves, out_of = _flatten(moves.column("removing"))
    arrives = _lists_of(owner, into, len(moves), free)
    departs = _lists_of(leaves, np.searchsorted(brokers.ids, out_of), len(moves), free)
    # If the moves do not fit in their order, those that leave a full broker come first.
    makes_room = np.array([bool(brokers) for brokers in departs])
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    for tried in (order, np.lexsort((rank, ~makes_room, urgency))):
        queue = _RoomQueue(size.tolist(), arrives, departs, dict(free))
        ordered, later = queue.put_in_order(np.split(tried, np.flatnonzero(np.diff(urgency[tried])) + 1))
        if not later:
            return np.array(ordered, np.int64), lacking
    lacking[queue.full_for(later)] = True
    return order, lacking


@dataclass(frozen=True)
class _RoomQueue:
    """The sizes of moves, the tight brokers to which they bring a replica and which they leave, and what is free."""

    size: list[int]
    arrives: list[list[int]]
    departs: list[list[int]]
    free: dict[int, int]

    def put_in_order(self, parts: Sequence[Ints]) -> tuple[list[int], list[int]]:
        """Return the moves in an order in which they fit, part after part, and the first ones that never do."""
        ordered = list[int]()
        for part in parts:
            waiting = part.tolist()
            while waiting:
                placed, later = self.pass_through(waiting)
                if not placed:
                    return ordered, later
                ordered += placed
                waiting = later
        return ordered, []

    def pass_through(self, waiting: list[int]) -> tuple[list[int], list[int]]:
        """Return the moves that fit, one after the other, and those that do not yet."""
        placed, later = list[int](), list[int]()
        for move in waiting:
            if any(self.size[move] > self.free[broker] for broker in self.arrives[move]):
                later.append(move)
                continue
            placed.append(move)
            for broker in self.arrives[move]:
                self.free[broker] -= self.size[move]
            for broker in self.departs[move]:
                self.free[broker] += self.size[move]
        return placed, later

    def full_for(self, moves: list[int]) -> list[int]:
        """Return the brokers that have no room for some of the moves."""
        return [broker for move in moves for broker in self.arrives[move] if self.size[move] > self.free[broker]]


def _lists_of(move: Ints, broker: Ints, moves: int, among: Collection[int]) -> list[list[int]]:
    """Return the brokers of each move that are `among` some."""
    lists: list[list[int]] = [[] for _ in range(moves)]
    for at, one in zip(move.tolist(), broker.tolist(), strict=True):
        if one in among:
            lists[at].append(one)
    return lists


def start_order(queue: MoveQueue, options: Options) -> Ints:
    """Return the moves' numbers in the order in which they should start."""
    # Every move costs its brokers a minimum of work, so that empty partitions take turns too.
    work = queue.size.astype(np.float64) + 1.0
    by_urgency = np.lexsort((np.arange(len(work)), -work, -queue.out_of_sync, queue.in_sync))
    rank = np.empty_like(by_urgency)
    rank[by_urgency] = np.arange(len(work))
    start = _work_before(queue.source, rank, work, options.max_out_per_broker)
    np.maximum.at(
        start, queue.owner, _work_before(queue.into, rank[queue.owner], work[queue.owner], options.max_in_per_broker)
    )
    return np.lexsort((rank, start, -queue.out_of_sync, queue.in_sync))


def _work_before(broker: Ints, rank: Ints, work: Floats, at_once: int) -> Floats:
    """Return the work that comes before each item on its broker, which does `at_once` items at the same time."""
    by_broker = np.lexsort((rank, broker))
    done = np.cumsum(work[by_broker]) - work[by_broker]
    first = np.searchsorted(broker[by_broker], broker[by_broker])
    waits = np.empty_like(done)
    waits[by_broker] = (done - done[first]) / at_once
    return waits
