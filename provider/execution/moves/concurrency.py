"""The moves to submit now, and the maintenance windows of plans. Pure.

Equal input gives equal output, in a total order.

The window is in bytes. The bytes in transfer into a broker are at most what the throttle copies until the next step can
submit more: the throttle times the interval of the steps and the time since the last step, by the journal's clock, in
which a step's own work and its wait both show. The bytes in transfer out of a broker are at most five times that, or
once that if leaders are throttled too. So a broker receives without a break, small partitions start by the hundred, and
a partition larger than the window starts while its receiving brokers receive nothing else. A partition that is copied
in less time than the controller takes to accept it counts as nothing: such moves never accumulate, and while large ones
are copied the controller is not idle. Each move that starts widens the window by the throttle times the time of its
submission. `ConcurrencyLimits` has upper limits in counts.

Small partitions that start together also end together, and the brokers' clients wait for what the brokers do then. Into
one broker a step therefore starts few, and at first no more are in transfer. As moves end, those of a second step are
in transfer beside them, so that the broker is busy until a step notices the end of the first. More start only when
almost all have ended before the next step.

Without a throttle nothing says what a broker can copy, and without a size nothing says what a move weighs. The window
is then learned, as TCP learns its own: it begins small, and doubles after each step in which at least half of the moves
in flight ended. What is learned is kept by the process only. A process that resumes the plan begins small again.

What somebody else reassigns counts as what we move does, until it has been in flight for `stuck_after`: it may never
end. Heals, fills and rollbacks do not wait for it at all: they restore replicas, and a day is too long for that.

The window is reduced while the cluster is under pressure (`Pressure`): moves go on, more slowly. Where only some
brokers are, it is reduced for the moves from and to these.

Some operations wait for a maintenance window; the message says which and until when.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from operator import attrgetter

from kafka_steward.assignment import URGENT_OPERATIONS, Move, TopicPartition, name_brokers
from kafka_steward.cluster.state import Partition, Snapshot
from kafka_steward.cluster.transport import MAX_BATCH
from kafka_steward.escaping import utc_text
from kafka_steward.execution.moves.memory import SettledMoves
from kafka_steward.execution.moves.preflight import LogDirRoom, place_replica
from kafka_steward.execution.moves.states import OPEN, filter_unsettled
from kafka_steward.journal.records import MoveRow, PlanRecord
from kafka_steward.maintenance import parse_window
from kafka_steward.planning.files.reassignment import Replica
from kafka_steward.settings import Settings


class Pressure(StrEnum):
    """A sign that the cluster cannot bear more load now."""

    #: A partition outside the plan is out of sync although its brokers are live: moves from and to them are slowed.
    OUT_OF_SYNC = "out_of_sync"
    #: The controller took long to answer the last submission: all moves are slowed.
    CONTROLLER_SLOW = "controller_slow"


@dataclass(frozen=True, slots=True)
class LearnedWindow:
    """Findings of the last steps of a process; a new process begins with the defaults.

    `doublings` is the number of times that the window of unknown rates and sizes was doubled, `widenings` the number of
    times that the replicas which start into one broker were. `overlaps` is the number of steps that found moves ended,
    up to those after which the replicas of two steps may be in transfer. `slowest_call_ms` is the longest time that the
    controller took for a request of the last step. `stalled` partitions transfer nothing now.
    """

    doublings: int = 0
    widenings: int = 0
    overlaps: int = 0
    slowest_call_ms: int = 0
    stalled: frozenset[TopicPartition] = frozenset()

    def update(
        self, *, ended: int, remained: int, slowest_call_ms: int, stalled: Collection[TopicPartition]
    ) -> LearnedWindow:
        """Return what is known after a step, which found `ended` moves ended and `remained` in flight."""
        slow = slowest_call_ms > SLOW_CALL_MS
        any_ended = ended > 0
        return LearnedWindow(
            _count_growth(self.doublings, any_ended and ended >= remained, slow, most=_MOST_DOUBLINGS),
            _count_growth(self.widenings, any_ended and ended >= _ALMOST_ALL * remained, slow, most=_MOST_DOUBLINGS),
            _count_growth(self.overlaps, any_ended, slow, most=_OVERLAPS),
            slowest_call_ms,
            frozenset(stalled),
        )

    def after_failure(self, slowest_call_ms: int) -> LearnedWindow:
        """Return what is known after a step that failed: no move is known to have ended.

        `slowest_call_ms` also counts a request without an answer; 0 if none was sent.
        """
        slowest_ms = slowest_call_ms or self.slowest_call_ms
        return self.update(ended=0, remained=0, slowest_call_ms=slowest_ms, stalled=self.stalled)


def _count_growth(known: int, grows: bool, slow: bool, *, most: int) -> int:
    # A slow controller takes back one doubling for each step.
    return max(known - 1, 0) if slow else min(known + grows, most)


#: A request to the controller that takes longer is a sign of pressure. A ZooKeeper-mode controller needs about 15 ms
#: for each of the 50 partitions of a request.
SLOW_CALL_MS = 5000

#: The doublings after which only the counts limit the moves.
_MOST_DOUBLINGS = 20

#: The bytes per broker, and the moves of unknown size, with which a window that has to be learned begins.
_FIRST_BYTES, _FIRST_MOVES = 64_000_000, 5

#: The replicas that a step may start into one broker at first, however small. What brokers do at the start and at the
#: end of each comes at once for those that start together, and clients wait meanwhile.
_FIRST_STARTS = 50

#: The steps that must have found moves ended before the moves of two steps may be in transfer together. Without this,
#: most moves of a plan with few small ones would be in transfer at once.
_OVERLAPS = 2

#: The moves that must have ended for each one that is left, before a step starts more of them than the last one did:
#: only then do the brokers run out of work before the next step.
_ALMOST_ALL = 3

#: The smallest window: the bytes of one response to a follower's fetch (replica.fetch.response.max.bytes), which the
#: throttle does not divide.
_LEAST_BYTES = 10_000_000

#: The longest time between two steps that counts, in seconds, beyond the interval of the steps: a clock may jump, and a
#: plan may have waited.
LONGEST_GAP_S = 30.0

#: The receiving brokers that one broker may keep busy, unless leaders are throttled as well.
_RECEIVERS = 5

#: The divisor of the window under pressure.
_REDUCED = 4


@dataclass(frozen=True, slots=True)
class ConcurrencyLimits:
    """The limits in flight: replicas into one broker, replicas out of one broker, partitions in the cluster.

    `bytes_per_broker` limits the bytes in transfer into one broker, and `receivers` times as many those out of one;
    None for no limit. A transfer counts with what it can copy until the next step: its bytes, but no more than the
    limit. A move of unknown size counts as `unknown_bytes`, and one of up to `least_bytes` as nothing. A broker with
    less than `refill_bytes` in transfer would have nothing to do before the next step: one more move starts, however
    large; 1 for one that transfers nothing.
    Without `zero_counts`, a size of 0 is unknown: no throttle limits what an empty partition turns out to be.
    `starts` limits the replicas that one step starts into one broker, and `in_transfer` those in transfer into it as
    `into` does, but without those that have stalled; None for no limit.
    """

    into: int
    out_of: int
    total: int
    bytes_per_broker: int | None = None
    unknown_bytes: int = 0
    least_bytes: int = 0
    refill_bytes: int = 1
    receivers: int = _RECEIVERS
    zero_counts: bool = True
    starts: int | None = None
    in_transfer: int | None = None

    def with_window(
        self,
        learned: LearnedWindow,
        *,
        throttle: int,
        interval_s: float,
        since_last_ms: int,
        leaders_throttled: bool = False,
        starts_in_turn: bool = False,
    ) -> ConcurrencyLimits:
        """Return the limits with the window in bytes.

        `throttle` is in bytes per second, 0 for none; with `leaders_throttled` brokers that send have it as well.
        `since_last_ms` is the time since the end of the last step. With `starts_in_turn`, the controller itself starts
        moves one after the other, as a ZooKeeper-mode controller does.
        """
        gap_s = min(max(since_last_ms, 0) / 1000, interval_s + LONGEST_GAP_S)
        rated = max(int(throttle * (interval_s + gap_s)), _LEAST_BYTES)
        window = rated if throttle else _FIRST_BYTES << learned.doublings
        # What a call has beside the controller's work for its moves, and calls with fewer moves, make this too small.
        submission_ms = learned.slowest_call_ms // MAX_BATCH
        starts = None if starts_in_turn else _FIRST_STARTS << learned.widenings
        return replace(
            self,
            bytes_per_broker=window,
            unknown_bytes=max(1, window // (_FIRST_MOVES << learned.doublings)),
            least_bytes=throttle * submission_ms // 1000,
            refill_bytes=max(1, int(throttle * interval_s)),
            # A throttle of the leader's own lets no more out of it.
            receivers=1 if leaders_throttled and throttle else _RECEIVERS,
            zero_counts=throttle > 0,
            starts=starts,
            in_transfer=None if starts is None else starts + starts * learned.overlaps // _OVERLAPS,
        )

    def under(self, pressure: Pressure | None) -> ConcurrencyLimits:
        """Return the limits under this pressure; None for no pressure."""
        if pressure is None:
            return self
        window = self.bytes_per_broker
        return replace(
            self,
            into=max(1, self.into // _REDUCED),
            out_of=max(1, self.out_of // _REDUCED),
            total=max(1, self.total // _REDUCED),
            bytes_per_broker=None if window is None else window // _REDUCED,
            least_bytes=0,
            refill_bytes=1,
            starts=None if self.starts is None else self.starts // _REDUCED,
            in_transfer=None if self.in_transfer is None else self.in_transfer // _REDUCED,
        )


@dataclass(frozen=True, slots=True)
class ActiveTransfer:
    """A reassignment in flight of any origin: the receiving brokers, and the sending leader, None without a leader.

    `left_bytes` is the number of bytes that each of the brokers still receives, where known. One that has `stalled`
    transfers nothing now.
    """

    into: frozenset[int]
    out_of: int | None
    left_bytes: int = 0
    stalled: bool = False


def active_transfers(
    snapshot: Snapshot,
    left_bytes: Mapping[TopicPartition, int] | None = None,
    stalled: Collection[TopicPartition] = (),
    *,
    sizes: Collection[TopicPartition] | None = None,
    unknown_bytes: int = 0,
    without: Collection[TopicPartition] = (),
) -> list[ActiveTransfer]:
    """Return the reassignments in flight in the cluster, `without` these, with the bytes left where they are known.

    With `sizes`, the partitions whose size is known, any other one counts as `unknown_bytes`, unless some bytes are
    known to be left: it must not count as nothing. The `stalled` partitions count without their bytes: they transfer
    nothing now, and must not keep others waiting.
    """
    left = dict(left_bytes or {})
    if sizes is not None:
        receiving = {name for name, moving in snapshot.reassigning.items() if moving.adding}
        left |= {name: unknown_bytes for name in receiving if name not in sizes and not left.get(name)}
    return [
        ActiveTransfer(
            frozenset(moving.adding), moving.leader, 0 if name in stalled else left.get(name, 0), name in stalled
        )
        for name, moving in snapshot.reassigning.items()
        if name not in without
    ]


def foreign_wait_message(
    kept: Move,
    leader: int | None,
    foreign: Mapping[TopicPartition, Partition],
    in_flight: Collection[ActiveTransfer],
    *,
    caps: ConcurrencyLimits,
    until_ms: Mapping[TopicPartition, int],
) -> str:
    """Return which reassignments of others keep the move `kept` waiting, by which setting, and what a person can do.

    `foreign` are those that count, each until `until_ms`, and `in_flight` are all transfers, with what starts now.
    """
    into = Counter(broker for flow in in_flight for broker in flow.into)
    sent = sum(len(flow.into) for flow in in_flight if flow.out_of == leader)
    full = {broker for broker in kept.adding if into[broker] >= caps.into}
    receiving = {name: partition for name, partition in foreign.items() if kept.adding.intersection(partition.adding)}
    sending = {name: partition for name, partition in foreign.items() if partition.leader == leader}
    if len(in_flight) >= caps.total:
        names, where, setting = set(foreign), "", "max_in_flight"
    elif any(full.intersection(partition.adding) for partition in receiving.values()):
        names = {name for name, partition in receiving.items() if full.intersection(partition.adding)}
        at = full.intersection(*(foreign[name].adding for name in sorted(names)[:1]))
        where, setting = f" into {name_brokers(sorted(at))}", "max_in_per_broker"
    elif sending and sent + len(kept.adding) > caps.out_of:
        names, where, setting = set(sending), f" out of broker {leader}", "max_out_per_broker"
    else:
        names = set(receiving or sending or foreign)
        where, setting = f" into {name_brokers(sorted(kept.adding))}", "throttle"
    first = min(names, key=lambda name: (until_ms[name], name))
    more = f" and of {len(names) - 1} more" if len(names) > 1 else ""
    return (
        f"Moves{where} wait: the reassignment of {first}{more}, which somebody else has in flight, counts towards "
        f"{setting} until {utc_text(until_ms[first])} UTC (stuck_after); to start them sooner, complete it, cancel it "
        f"(kafka-reassign-partitions.sh --cancel), or raise {setting}."
    )


def _largest_size(move: Move, reported: Mapping[TopicPartition, int], *, zero_counts: bool) -> int | None:
    """Return the bytes with which a move counts in the window: as planned or as reported now, whichever is more.

    A leader that suddenly reports far less than before must not open the window for all of its partitions. None is
    unknown; so is 0 without `zero_counts`.
    """
    known = max(reported.get(move.topic_partition, 0), move.size_bytes or 0)
    if known == 0 and (not zero_counts or (move.size_bytes is None and move.topic_partition not in reported)):
        return None
    return known


def find_pressure(strained: Collection[int], slowest_call_ms: int) -> Pressure | None:
    """Return the pressure that the moves are under: the one that slows most of them, None without one.

    `strained` are the brokers of these moves that also have a partition outside the plan which is out of sync.
    """
    if slowest_call_ms > SLOW_CALL_MS:
        return Pressure.CONTROLLER_SLOW
    return Pressure.OUT_OF_SYNC if strained else None


def pressure_message(
    pressure: Pressure | None,
    strained: Collection[int],
    slowest_call_ms: int,
    *,
    under_min_isr: Mapping[TopicPartition, frozenset[int]],
    out_of_sync: Mapping[TopicPartition, frozenset[int]],
) -> str:
    """Return why moves start more slowly, and a partition outside the plan that is under its min ISR; else empty.

    `strained` are those of `find_pressure`. The mappings are the partitions outside the plan, with their brokers.
    """
    if pressure is Pressure.CONTROLLER_SLOW:
        return f"Moves start more slowly: the controller took {slowest_call_ms / 1000:.0f} s for a request."
    for partitions, state in ((under_min_isr, _UNDER_MIN_ISR), (out_of_sync, "is out of sync")):
        for name, brokers in partitions.items():
            shared = sorted(brokers & frozenset(strained))
            if shared:
                at = name_brokers(shared)
                return f"Moves from and to {at} start more slowly: {name}, outside this plan, {state}."
    for name in under_min_isr:
        return f"{name}, outside this plan, {_UNDER_MIN_ISR}; no move of this plan copies from or to its brokers."
    return ""


_UNDER_MIN_ISR = "has fewer replicas in sync than min.insync.replicas"


def select_chunk_moves(rows: Sequence[MoveRow], *, barrier: bool) -> list[MoveRow]:
    """Return the open moves that the chunks allow: with `barrier`, those of the first unsettled chunk (KIP-46)."""
    left = filter_unsettled(rows)
    first = min((row.move.chunk for row in left), default=None)
    return [row for row in left if row.state in OPEN and (row.move.chunk == first or not barrier)]


def chunk_pause_left_ms(rows: Sequence[MoveRow], settled: SettledMoves, *, pause_ms: int, now_ms: int) -> int:
    """Return the milliseconds until the next chunk may begin, `pause_ms` after the previous chunk settled; 0: now.

    `settled` are the settled moves that `rows` does not contain.
    """
    first = min((row.move.chunk for row in filter_unsettled(rows)), default=0)
    if first in settled.attempted or any(row.move.chunk == first and row.attempt for row in rows):
        return 0
    before = [row.settled_ms for row in rows if row.move.chunk < first and row.settled_ms is not None]
    before += [ended_ms for chunk, ended_ms in settled.ended_ms.items() if chunk < first]
    return max(0, max(before) + pause_ms - now_ms) if before else 0


def directories_by_partition(admission: Admission) -> dict[TopicPartition, str]:
    """Return a clause for each partition about the log directories that are asked for."""
    places: dict[TopicPartition, list[str]] = {}
    for (name, broker), path in sorted(admission.directories.items()):
        places.setdefault(name, []).append(f"{path} of broker {broker}")
    return {name: f"into the log directory {', '.join(paths)} (KIP-113)" for name, paths in places.items()}


@dataclass(frozen=True)
class Admission:
    """The moves to submit now, and the log directories to ask for before, by partition and receiving broker."""

    moves: list[Move]
    directories: dict[Replica, str]


def admit_moves(
    waiting: Sequence[Move],
    in_flight: Collection[ActiveTransfer],
    caps: ConcurrencyLimits,
    *,
    leaders: Mapping[TopicPartition, int | None],
    rooms: Mapping[int, tuple[LogDirRoom, ...]],
    sizes: Mapping[TopicPartition, int] | None = None,
    strained: Collection[int] = (),
) -> Admission:
    """Choose the moves to submit now, in plan order, so that no broker exceeds `caps` or its `rooms`.

    A move that exceeds a limit is skipped and does not block the moves behind it. A move that alone exceeds
    `caps.out_of` starts while its leader sends nothing else. A move that alone exceeds `caps.bytes_per_broker` starts
    while its brokers receive less than `caps.refill_bytes` else. Brokers that `rooms` does not name have enough space.
    `sizes` are the current sizes on the leaders; the planned size replaces a missing one. Moves from and to `strained`
    brokers have the limits that apply under pressure. Pure reorders copy nothing and use no capacity.
    """
    load = _BrokerLoad.of(in_flight, rooms, sizes or {}, caps)
    # The moves of other brokers must not keep these waiting.
    reduced = replace(caps.under(Pressure.OUT_OF_SYNC), total=caps.total)
    in_order = sorted(waiting, key=attrgetter("chunk", "position", "topic_partition"))
    chosen: set[TopicPartition] = set()
    while True:
        # Moves that were passed over may fit into the window as the moves behind them have widened it.
        # It ends: each further round has a wider window, and so has admitted at least one move.
        before = load.window
        for move in in_order:
            leader = leaders.get(move.topic_partition)
            if (move.adding and (move.adding, leader) in load.full) or move.topic_partition in chosen:
                continue
            limits = caps if leader not in strained and move.adding.isdisjoint(strained) else reduced
            if load.admit_move(move, leader, limits):
                chosen.add(move.topic_partition)
        if load.window == before:
            moves = [move for move in in_order if move.topic_partition in chosen]
            return Admission(moves, load.directories)


@dataclass
class _BrokerLoad:
    """The load of the brokers during the choice of moves."""

    into: Counter[int]
    #: Nothing is counted for None: without a leader, no broker sends.
    out_of: Counter[int | None]
    total: int
    rooms: dict[int, tuple[LogDirRoom, ...]]
    sizes: Mapping[TopicPartition, int]
    window: int | None
    least_bytes: int = 0
    #: The replicas in transfer, without those that have stalled, and those of them that were admitted.
    moving_into: Counter[int] = field(default_factory=Counter)
    admitted_into: Counter[int] = field(default_factory=Counter)
    directories: dict[Replica, str] = field(default_factory=dict)
    bytes_into: Counter[int] = field(default_factory=Counter)
    bytes_out_of: Counter[int | None] = field(default_factory=Counter)
    #: The receiving brokers and the leader of moves that exceed a limit in counts, which only grow: so will the next.
    full: set[tuple[frozenset[int], int | None]] = field(default_factory=set)

    @classmethod
    def of(
        cls,
        in_flight: Iterable[ActiveTransfer],
        rooms: Mapping[int, tuple[LogDirRoom, ...]],
        sizes: Mapping[TopicPartition, int],
        caps: ConcurrencyLimits,
    ) -> _BrokerLoad:
        load = cls(Counter(), Counter(), 0, dict(rooms), sizes, caps.bytes_per_broker, caps.least_bytes)
        for flow in in_flight:
            load.add_transfer(flow)
        return load

    def admit_move(self, move: Move, leader: int | None, caps: ConcurrencyLimits) -> bool:
        # Another order of the same replicas copies nothing.
        if not (move.adding or move.removing):
            return True
        known = _largest_size(move, self.sizes, zero_counts=caps.zero_counts)
        flow = ActiveTransfer(move.adding, leader, caps.unknown_bytes if known is None else known)
        if not self._is_below_limits(flow, caps):
            self.full.add((flow.into, leader))
            return False
        if not self._is_in_window(flow, caps):
            return False
        size = self.sizes.get(move.topic_partition, move.size_bytes) or 0
        after = {broker: place_replica(self.rooms[broker], size) for broker in flow.into & self.rooms.keys()}
        fitting = {broker: placed for broker, placed in after.items() if placed is not None}
        # One of the receiving brokers has no directory with room for it.
        if len(fitting) < len(after):
            return False
        self.add_transfer(flow)
        self.admitted_into.update(flow.into)
        for broker, placed in fitting.items():
            self.rooms[broker] = placed.rooms
            if placed.asked_path:
                self.directories[move.topic_partition, broker] = placed.asked_path
        if self.window is not None:
            # The next step comes later by the submission, in which the throttle lets so many bytes through.
            self.window += self.least_bytes
        return True

    def add_transfer(self, flow: ActiveTransfer) -> None:
        self.into.update(flow.into)
        self.moving_into.update(() if flow.stalled else flow.into)
        self.total += 1
        soon = self._bytes_soon(flow)
        for broker in flow.into:
            self.bytes_into[broker] += soon
        if flow.out_of is not None:
            self.out_of[flow.out_of] += len(flow.into)
            self.bytes_out_of[flow.out_of] += len(flow.into) * soon

    def _bytes_soon(self, flow: ActiveTransfer) -> int:
        """Return the bytes with which a transfer counts."""
        if flow.left_bytes <= self.least_bytes:
            return 0
        # More than the window does not arrive until the next step.
        return flow.left_bytes if self.window is None else min(flow.left_bytes, self.window)

    def _is_below_limits(self, flow: ActiveTransfer, caps: ConcurrencyLimits) -> bool:
        sent = self.out_of[flow.out_of]
        counted = ((self.into, caps.into), (self.admitted_into, caps.starts), (self.moving_into, caps.in_transfer))
        return (
            self.total < caps.total
            and (sent == 0 or sent + len(flow.into) <= caps.out_of)
            and all(
                limit is None or all(replicas[broker] < limit for broker in flow.into) for replicas, limit in counted
            )
        )

    def _is_in_window(self, flow: ActiveTransfer, caps: ConcurrencyLimits) -> bool:
        # Under pressure, nothing widens the window.
        window = self.window if caps.least_bytes else caps.bytes_per_broker
        if window is None:
            return True
        soon = self._bytes_soon(flow)
        if soon == 0:
            return True
        sent, to_send = self.bytes_out_of[flow.out_of], len(flow.into) * soon
        received = (self.bytes_into[broker] for broker in flow.into)
        return (sent < caps.refill_bytes or sent + to_send <= caps.receivers * window) and all(
            bytes_ < caps.refill_bytes or bytes_ + soon <= window for bytes_ in received
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
