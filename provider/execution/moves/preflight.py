"""The checks before a move is submitted: one small function per reason. Pure.

The inputs, besides the plan, are derived from one poll of the cluster. A reason has one of three results. The move is
*held*: it may be submitted later, and the next step checks again. It is *dropped*: it can never be executed as
planned. Or it is *satisfied*: nothing is left to do. `states.py` defines which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kafka_steward.assignment import (
    Assignment,
    Move,
    TopicPartition,
    below_min_isr_reason,
    bring_back,
    only_reorders,
)
from kafka_steward.cluster.state import BrokerLogDirs, Directory, Partition, Snapshot
from kafka_steward.execution.announcements import restart_clause
from kafka_steward.execution.moves.staging import out_of_sync_before_better
from kafka_steward.execution.moves.states import DELETION_PENDING, TOPIC_DELETED, Held, HoldReason


@dataclass(frozen=True, slots=True)
class LogDirRoom:
    """A log directory that may receive new replicas: its number of logs, and the bytes that it may still receive.

    `path` is empty for the only directory of a broker.
    """

    path: str
    logs: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class IncomingReplica:
    """A replica that a broker is receiving: its partition, and the bytes that are not copied yet."""

    partition: TopicPartition
    left_bytes: int


@dataclass(frozen=True)
class PreflightInputs:
    """The inputs of preflight besides the plan.

    `disabled` says by whom, since when and why reassignments are disabled, and how to enable them; it is empty while
    they are enabled (KIP-236). `unapproved` is the plan's short digest if a required approval is missing. `bouncing`
    are brokers that announced a shutdown (KIP-46), with the time until which in milliseconds, if it was stated.
    `min_isr` is min.insync.replicas by topic, where known. `unclean` are topics that allow unclean leader elections.
    `sizes` are the partitions' current sizes on their leaders, where the leaders report them. `rooms` maps a broker to
    the bytes that each of its log directories may still receive before less than `min_free` of its volume is left,
    where known.
    `silent` are receiving brokers that did not answer for their log directories, and `unanswered` has why, also for
    leaders. `cordoned` brokers receive no new replicas (KIP-1066). `under_min_isr_elsewhere` are partitions outside the
    plan that are under their min ISR, with their brokers: moves from and to these brokers are held. `left_bytes` are
    the bytes that each partition in flight has yet to copy to a broker, where known. `auto_generated` is the flag of
    KIP-46, and `rolls_back` is set for a rollback.
    """

    snapshot: Snapshot
    auto_generated: bool = False
    rolls_back: bool = False
    disabled: str = ""
    unapproved: str = ""
    bouncing: Mapping[int, int | None] = field(default_factory=dict)
    min_isr: Mapping[str, int] = field(default_factory=dict)
    unclean: frozenset[str] = frozenset()
    sizes: Mapping[TopicPartition, int] = field(default_factory=dict)
    rooms: Mapping[int, tuple[LogDirRoom, ...]] = field(default_factory=dict)
    silent: frozenset[int] = frozenset()
    unanswered: Mapping[int, str] = field(default_factory=dict)
    cordoned: frozenset[int] = frozenset()
    under_min_isr_elsewhere: Mapping[TopicPartition, frozenset[int]] = field(default_factory=dict)
    left_bytes: Mapping[TopicPartition, int] = field(default_factory=dict)


def is_satisfied(move: Move, partition: Partition, live: frozenset[int]) -> bool:
    """Return True if a move is not needed any more (KIP-46).

    That is so if every broker of the current assignment is live, and there are at least as many as in `before`. A
    replica in a failed log directory counts as one on a dead broker.
    """
    return frozenset(partition.replicas) <= live - partition.offline and len(partition.replicas) >= len(move.before)


def compute_rooms(
    log_dirs: Mapping[int, BrokerLogDirs], *, min_free: float, arriving: Mapping[int, Sequence[IncomingReplica]]
) -> dict[int, tuple[LogDirRoom, ...]]:
    """Return the bytes that each log directory may still receive before less than `min_free` of its volume is free.

    Directories that receive no replicas are left out. `arriving` are the replicas that a broker is receiving. Brokers
    with a directory that does not report its size (Kafka before 3.3) are left out. Directories that share a volume each
    count all of its free space as their own.
    """
    by_broker = {}
    for broker, dirs in log_dirs.items():
        taking = [directory for directory in dirs.directories if directory.takes_replicas]
        free = [_free_bytes(directory, min_free) for directory in taking]
        if taking and None not in free:
            has_choice = len(dirs.directories) > 1
            rooms = tuple(
                LogDirRoom(directory.path if has_choice else "", directory.logs, left or 0)
                for directory, left in zip(taking, free, strict=True)
            )
            by_broker[broker] = _subtract_incoming(rooms, taking, arriving.get(broker, ()))
    return by_broker


@dataclass(frozen=True, slots=True)
class Placement:
    """A new replica's directory on one broker: the rooms afterwards, and its path if Kafka has to be asked for it."""

    rooms: tuple[LogDirRoom, ...]
    asked_path: str = ""


def place_replica(rooms: tuple[LogDirRoom, ...], size: int) -> Placement | None:
    """Return where a replica of `size` bytes is placed; None if no directory has room for it.

    Kafka chooses the directory with the fewest logs, regardless of its free space. Where it does not fit there, the
    directory with the most room is asked for (KIP-113).
    """
    at = choose_room(rooms)
    if at.free_bytes >= size:
        return Placement(_take_room(rooms, at, size, logs=1))
    roomiest = max(rooms, key=lambda room: (room.free_bytes, room.path))
    return None if roomiest.free_bytes < size else Placement(_take_room(rooms, roomiest, size, logs=1), roomiest.path)


def choose_room(rooms: tuple[LogDirRoom, ...]) -> LogDirRoom:
    """Return the directory in which Kafka places the next replica.

    Among directories with equally few logs, the fullest is assumed, since Kafka may choose it.
    """
    return min(rooms, key=lambda room: (room.logs, room.free_bytes))


def _free_bytes(directory: Directory, min_free: float) -> int | None:
    if directory.usable_bytes is None or directory.total_bytes is None:
        return None
    return int(directory.usable_bytes - min_free * directory.total_bytes)


def _subtract_incoming(
    rooms: tuple[LogDirRoom, ...], taking: Sequence[Directory], arriving: Sequence[IncomingReplica]
) -> tuple[LogDirRoom, ...]:
    """Return the rooms minus the bytes that they are still receiving."""
    for replica in arriving:
        here = next((at for at, directory in enumerate(taking) if replica.partition in directory.replica_bytes), None)
        # Its log is not created yet: Kafka will choose the directory as it does for the next replica.
        if here is None:
            rooms = _take_room(rooms, choose_room(rooms), replica.left_bytes, logs=1)
        else:
            rooms = _take_room(rooms, rooms[here], replica.left_bytes, logs=0)
    return rooms


def _take_room(rooms: tuple[LogDirRoom, ...], at: LogDirRoom, size: int, *, logs: int) -> tuple[LogDirRoom, ...]:
    fuller = LogDirRoom(at.path, at.logs + logs, at.free_bytes - size)
    return tuple(fuller if room is at else room for room in rooms)


def find_under_min_isr_elsewhere(
    snapshot: Snapshot, plan: Iterable[TopicPartition], min_isr: Mapping[str, int]
) -> dict[TopicPartition, frozenset[int]]:
    """Return the partitions outside `plan` that are under their min ISR although all their replicas are live, sorted.

    The values are their brokers, which can bear no more load now. A partition with a dead broker, a failed log
    directory or no leader is left out: other moves do not make it worse, and healing must not wait.
    """
    inside = frozenset(plan)
    return {
        name: frozenset(partition.replicas)
        for name, partition in sorted(snapshot.partitions.items())
        if name not in inside
        and partition.leader is not None
        and len(partition.isr) < min(min_isr.get(name.topic, 0), len(partition.replicas))
        and frozenset(partition.replicas) <= snapshot.live - partition.offline
    }


def find_out_of_sync_elsewhere(
    snapshot: Snapshot, plan: Iterable[TopicPartition]
) -> dict[TopicPartition, frozenset[int]]:
    """Return the partitions outside `plan` with a replica out of the ISR on a live broker, although nothing moves it.

    The values are their brokers, which are under load; the partitions are sorted. Those with a dead broker or a failed
    log directory are left out: other moves do not make them worse. So are those that are being reassigned: their new
    replicas have yet to arrive.
    """
    inside = frozenset(plan)
    return {
        name: frozenset(partition.replicas)
        for name, partition in sorted(snapshot.partitions.items())
        if len(partition.isr) < len(partition.replicas)
        and name not in inside
        and not partition.reassigning
        and frozenset(partition.replicas) <= snapshot.live - partition.offline
    }


#: The finding of a check, for its message; None if the check has no objection to the move.
_Found = str | None

#: The finding for a reason whose message does not use it.
_UNREPORTED = ""


def preflight(move: Move, inputs: PreflightInputs, *, between_stages: bool = False) -> Held | None:
    """Return the first reason, in the order of CHECKS, that prevents `move`; None if it may be submitted.

    `between_stages` is True for what remains of a move whose first stage has completed: it has replicas that its end
    removes.
    """
    objection = find_objection(move, inputs, between_stages=between_stages)
    return None if objection is None else Held.of(move.topic_partition, *objection)


def find_objection(move: Move, inputs: PreflightInputs, *, between_stages: bool) -> tuple[HoldReason, str] | None:
    """Return the first reason that prevents `move`, and the finding for its message."""
    partition = inputs.snapshot.partitions.get(move.topic_partition)
    if partition is None:
        if move.topic in inputs.snapshot.hidden:
            return HoldReason.TOPIC_HIDDEN, _UNREPORTED
        return HoldReason.PARTITION_GONE, DELETION_PENDING if move.topic in inputs.snapshot.deleting else TOPIC_DELETED
    for reason, check in CHECKS:
        finding = None if between_stages and reason in _BEFORE_IT_BEGINS else check(move, partition, inputs)
        if finding is not None:
            return reason, finding
    return None


def _check_satisfied(move: Move, partition: Partition, inputs: PreflightInputs) -> _Found:
    if inputs.auto_generated and is_satisfied(move, partition, inputs.snapshot.live):
        if partition.replicas == move.before:
            return f"all its brokers, {', '.join(map(str, partition.replicas))}, are live again"
        return f"its replicas were changed elsewhere to {list(partition.replicas)}, whose brokers are all live"
    return None


def _check_target_restarting(move: Move, partition: Partition, inputs: PreflightInputs) -> _Found:
    if not move.adding:
        return None
    live = inputs.snapshot.live
    # A replica that is kept stands in the way only while its broker is down: nothing is put there.
    restarting = (move.adding | frozenset(move.after) - live) & inputs.bouncing.keys()
    if move.topic in inputs.unclean:
        # While all sources restart, an unclean election would make the new replica the leader, which has less.
        sources = frozenset(move.before) & live - partition.offline
        restarting |= sources if sources <= inputs.bouncing.keys() else frozenset()
    if not restarting:
        return None
    broker = min(restarting)
    return f"{broker} {restart_clause(inputs.bouncing[broker])}{'' if broker in live else ' and has not returned'}"


def _check_no_leader(move: Move, partition: Partition, inputs: PreflightInputs) -> _Found:
    if not move.adding or partition.leader is not None:
        return None
    return bring_back(partition.last_in_sync(inputs.snapshot), inputs.snapshot.live)


def _check_out_of_sync(move: Move, partition: Partition, inputs: PreflightInputs) -> _Found:
    # What adds replicas does so behind the others first (staging.py).
    if move.adding or move.topic not in inputs.unclean:
        return None
    live = inputs.snapshot.live
    broker = out_of_sync_before_better(move, partition, live - partition.offline)
    if broker is None:
        return None
    why = ", which is not live," if broker not in live else ", whose log directory failed,"
    return f"{broker}{why if broker not in live - partition.offline else ''}"


def _check_below_min_isr(move: Move, _: Partition, inputs: PreflightInputs) -> _Found:
    least = inputs.min_isr.get(move.topic)
    return str(least) if below_min_isr_reason(len(move.before), len(move.after), least) else None


def _check_disk_unknown(move: Move, _: Partition, inputs: PreflightInputs) -> _Found:
    silent = move.adding & inputs.silent
    return _unanswered_clause(min(silent), inputs) if silent else None


def _check_size_unknown(move: Move, partition: Partition, inputs: PreflightInputs) -> _Found:
    # Without a receiving broker of known free space, the size is not needed.
    matters = move.adding & inputs.rooms.keys() and move.topic_partition not in inputs.sizes
    if not matters:
        return None
    if partition.leader is None or partition.leader in inputs.unanswered:
        return _unanswered_clause(partition.leader, inputs)
    return f"broker {partition.leader}, its leader, answers DescribeLogDirs without it"


def _check_disk_full(move: Move, _: Partition, inputs: PreflightInputs) -> _Found:
    size = inputs.sizes.get(move.topic_partition, 0)
    for broker in sorted(move.adding & inputs.rooms.keys()):
        rooms = inputs.rooms[broker]
        if place_replica(rooms, size) is None:
            return f"{broker}, in whichever of its log directories," if len(rooms) > 1 else str(broker)
    return None


def _check_under_min_isr_elsewhere(move: Move, partition: Partition, inputs: PreflightInputs) -> _Found:
    copying = frozenset({partition.leader}) | move.adding if move.adding else frozenset()
    return next((str(name) for name, brokers in inputs.under_min_isr_elsewhere.items() if brokers & copying), None)


#: In the order of evaluation: roughly, moves that are not needed, impossible moves, moves that must wait.
CHECKS: Sequence[tuple[HoldReason, Callable[[Move, Partition, PreflightInputs], _Found]]] = (
    (HoldReason.RECREATED, lambda move, now, _: _UNREPORTED if now.is_recreated(move.topic_id) else None),
    (HoldReason.EXTERNAL_REASSIGNMENT, lambda _, now, __: str(list(now.target)) if now.reassigning else None),
    (HoldReason.ALREADY_THERE, lambda move, now, _: str(list(move.after)) if now.replicas == move.after else None),
    (HoldReason.SATISFIED, _check_satisfied),
    (
        HoldReason.CHANGED_ELSEWHERE,
        lambda move, now, _: str(list(now.replicas)) if now.replicas != move.before else None,
    ),
    (HoldReason.DUPLICATE_REPLICA, lambda move, *_: None if _is_assignment(move.after) else str(list(move.after))),
    (HoldReason.CLUSTER_DISABLED, lambda _, __, inputs: inputs.disabled or None),
    (HoldReason.NOT_APPROVED, lambda _, __, inputs: inputs.unapproved or None),
    (HoldReason.TARGET_RESTARTING, _check_target_restarting),
    (HoldReason.TARGET_DEAD, lambda move, _, inputs: _lowest_broker(move.adding - inputs.snapshot.live)),
    (HoldReason.KEPT_REPLICA_DEAD, lambda move, now, inputs: _lowest_broker(_kept(move, now) - inputs.snapshot.live)),
    # Before the other reason of a cordon: a rollback ends with what it could restore, and waits for nobody.
    (
        HoldReason.ORIGINAL_CORDONED,
        lambda move, _, inputs: _lowest_broker(move.adding & inputs.cordoned) if inputs.rolls_back else None,
    ),
    (HoldReason.TARGET_CORDONED, lambda move, _, inputs: _lowest_broker(move.adding & inputs.cordoned)),
    (HoldReason.KEPT_REPLICA_OFFLINE, lambda move, now, _: _lowest_broker(_kept(move, now) & now.offline)),
    (HoldReason.NO_LEADER, _check_no_leader),
    (HoldReason.OUT_OF_SYNC, _check_out_of_sync),
    (HoldReason.BELOW_MIN_ISR, _check_below_min_isr),
    (HoldReason.DISK_UNKNOWN, _check_disk_unknown),
    (HoldReason.SIZE_UNKNOWN, _check_size_unknown),
    (HoldReason.DISK_FULL, _check_disk_full),
    (HoldReason.UNDER_MIN_ISR_ELSEWHERE, _check_under_min_isr_elsewhere),
)

#: The checks of a move as a whole, which its remaining stages would not pass or need.
_BEFORE_IT_BEGINS = frozenset({HoldReason.SATISFIED, HoldReason.BELOW_MIN_ISR})


def _unanswered_clause(broker: int | None, inputs: PreflightInputs) -> str:
    if broker is None:
        return "it has no leader"
    why = inputs.unanswered.get(broker, f"broker {broker} did not answer DescribeLogDirs").rstrip(".")
    return f"{why[0].lower()}{why[1:]}"


def _kept(move: Move, partition: Partition) -> frozenset[int]:
    """Return the brokers whose replicas a move keeps and waits for; none if it only reorders, for which none is."""
    # Kafka completes a new order of the same replicas at once, whatever their state.
    return frozenset() if only_reorders(partition.replicas, move.after) else frozenset(move.after) - move.adding


def _is_assignment(replicas: Assignment) -> bool:
    return 0 < len(frozenset(replicas)) == len(replicas)


def _lowest_broker(brokers: frozenset[int]) -> _Found:
    return str(min(brokers)) if brokers else None
