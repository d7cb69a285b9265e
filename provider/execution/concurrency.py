"""The moves to submit now, and the maintenance windows of plans. Pure.

Equal input gives equal output, in a total order.

Some operations wait for a maintenance window; the message says which and until when.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kafka_steward.assignment import URGENT_OPERATIONS, Move, TopicPartition
from kafka_steward.cluster.state import Snapshot
from kafka_steward.execution.moves import OPEN, filter_unsettled
from kafka_steward.execution.preflight import LogDirRoom, place_replica
from kafka_steward.journal.records import MoveRow, PlanRecord
from kafka_steward.maintenance import parse_window
from kafka_steward.settings import Settings


@dataclass(frozen=True, slots=True)
class ConcurrencyLimits:
    """The limits in flight: replicas into one broker, replicas out of one broker, partitions in the cluster."""

    into: int
    out_of: int
    total: int


@dataclass(frozen=True, slots=True)
class ActiveTransfer:
    """A reassignment in flight of any origin: the receiving brokers, and the sending leader, None without a leader."""

    into: frozenset[int]
    out_of: int | None


def active_transfers(snapshot: Snapshot) -> list[ActiveTransfer]:
    """Return all reassignments that are in flight in the cluster."""
    return [ActiveTransfer(frozenset(moving.adding), moving.leader) for moving in snapshot.reassigning.values()]


def select_chunk_moves(rows: Sequence[MoveRow], *, barrier: bool) -> list[MoveRow]:
    """Return the open moves that the chunks allow: with `barrier`, those of the first unsettled chunk (KIP-46)."""
    left = filter_unsettled(rows)
    first = min((row.move.chunk for row in left), default=None)
    return [row for row in left if row.state in OPEN and (row.move.chunk == first or not barrier)]


def chunk_pause_left_ms(rows: Sequence[MoveRow], *, pause_ms: int, now_ms: int) -> int:
    """Return the milliseconds until the next chunk may begin, `pause_ms` after the previous chunk settled; 0: now."""
    first = min((row.move.chunk for row in filter_unsettled(rows)), default=0)
    if any(row.move.chunk == first and row.attempt for row in rows):
        return 0
    before = [row.settled_ms for row in rows if row.move.chunk < first and row.settled_ms is not None]
    return max(0, max(before) + pause_ms - now_ms) if before else 0


def admit_moves(
    waiting: Sequence[Move],
    in_flight: Collection[ActiveTransfer],
    caps: ConcurrencyLimits,
    *,
    leaders: Mapping[TopicPartition, int | None],
    rooms: Mapping[int, tuple[LogDirRoom, ...]],
    sizes: Mapping[TopicPartition, int] | None = None,
) -> list[Move]:
    """Choose the moves to submit now, in plan order, so that no broker exceeds `caps` or its `rooms`.

    A move that exceeds a limit is skipped and does not block the moves behind it. A move that alone exceeds
    `caps.out_of` starts while its leader sends nothing else. Brokers that `rooms` does not name have enough space.
    `sizes` are the current sizes on the leaders; the planned size replaces a missing one. Pure reorders copy nothing
    and use no capacity.
    """
    load = _BrokerLoad.of(in_flight, rooms, sizes or {})
    in_order = sorted(waiting, key=lambda move: (move.chunk, move.position, move.topic_partition))
    return [move for move in in_order if load.admit_move(move, leaders.get(move.topic_partition), caps)]


@dataclass
class _BrokerLoad:
    """The load of the brokers during the choice of moves."""

    into: Counter[int]
    #: Nothing is counted for None: without a leader, no broker sends.
    out_of: Counter[int | None]
    total: int
    rooms: dict[int, tuple[LogDirRoom, ...]]
    sizes: Mapping[TopicPartition, int]

    @classmethod
    def of(
        cls,
        in_flight: Iterable[ActiveTransfer],
        rooms: Mapping[int, tuple[LogDirRoom, ...]],
        sizes: Mapping[TopicPartition, int],
    ) -> _BrokerLoad:
        load = cls(Counter(), Counter(), 0, dict(rooms), sizes)
        for flow in in_flight:
            load.add_transfer(flow)
        return load

    def admit_move(self, move: Move, leader: int | None, caps: ConcurrencyLimits) -> bool:
        if frozenset(move.before) == frozenset(move.after):
            return True
        flow = ActiveTransfer(move.adding, leader)
        if not self._is_below_limits(flow, caps):
            return False
        size = self.sizes.get(move.topic_partition, move.size_bytes or 0)
        after = {broker: place_replica(self.rooms[broker], size) for broker in flow.into & self.rooms.keys()}
        fitting = {broker: rooms for broker, rooms in after.items() if rooms is not None}
        if len(fitting) < len(after):
            return False
        self.add_transfer(flow)
        self.rooms |= fitting
        return True

    def add_transfer(self, flow: ActiveTransfer) -> None:
        self.into.update(flow.into)
        self.total += 1
        if flow.out_of is not None:
            self.out_of[flow.out_of] += len(flow.into)

    def _is_below_limits(self, flow: ActiveTransfer, caps: ConcurrencyLimits) -> bool:
        sent = self.out_of[flow.out_of]
        return (
            self.total < caps.total
            and all(self.into[broker] < caps.into for broker in flow.into)
            and (sent == 0 or sent + len(flow.into) <= caps.out_of)
        )


def outside_window_reason(record: PlanRecord, settings: Settings, now_ms: int) -> str:
    """Return why the plan submits no move now, and when it resumes; empty while its maintenance window is open.

    Heals, fills and rollbacks are urgent, and never wait for a window.
    """
    if record.operation in URGENT_OPERATIONS:
        return ""
    window = parse_window(settings.maintenance_window, settings.maintenance_timezone)
    opens_ms = None if window is None else window.closed_until_ms(now_ms)
    return "" if window is None or opens_ms is None else window.sentence(opens_ms)
