"""The inputs of preflight besides the plan, derived from one poll of the cluster. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kafka_steward.assignment import Move, TopicPartition
from kafka_steward.cluster.state import Directory, LogDir, Partition, Snapshot

__all__ = [
    "IncomingReplica",
    "PreflightInputs",
    "Room",
    "next_room",
    "placed",
    "rooms_of",
    "satisfied",
    "under_min_isr_elsewhere",
]


@dataclass(frozen=True, slots=True)
class Room:
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

    `disabled` says by whom, since when and why reassignments are disabled; it is empty while they are enabled
    (KIP-236). `unapproved` is the plan's short digest if a required approval is missing. `bouncing` are brokers that
    announced a shutdown (KIP-46). `min_isr` is min.insync.replicas by topic, where known. `sizes` are the partitions'
    current sizes on their leaders, where the leaders report them. `rooms` maps a broker to the bytes that each of its
    log directories may still receive before less than `min_free` of its volume is left, where known. `silent` are
    receiving brokers that did not report their log directories. `cordoned` brokers receive no new replicas (KIP-1066).
    `strained` are partitions outside the plan that are under their min ISR. `auto_generated` is the flag of KIP-46.
    """

    snapshot: Snapshot
    auto_generated: bool = False
    disabled: str = ""
    unapproved: str = ""
    bouncing: frozenset[int] = frozenset()
    min_isr: Mapping[str, int] = field(default_factory=dict)
    sizes: Mapping[TopicPartition, int] = field(default_factory=dict)
    rooms: Mapping[int, tuple[Room, ...]] = field(default_factory=dict)
    silent: frozenset[int] = frozenset()
    cordoned: frozenset[int] = frozenset()
    under_min_isr_elsewhere: Sequence[TopicPartition] = ()


def satisfied(move: Move, partition: Partition, live: frozenset[int]) -> bool:
    """Return True if a move is not needed any more (KIP-46).

    That is so if every broker of the current assignment is live, and there are at least as many as in `before`. A
    replica in a failed log directory counts as one on a dead broker.
    """
    return frozenset(partition.replicas) <= live - partition.offline and len(partition.replicas) >= len(move.before)


def rooms_of(
    log_dirs: Mapping[int, LogDir], *, min_free: float, arriving: Mapping[int, Sequence[IncomingReplica]]
) -> dict[int, tuple[Room, ...]]:
    """Return the bytes that each log directory may still receive before less than `min_free` of its volume is free.

    Directories that receive no replicas are left out. `arriving` are the replicas that a broker is receiving. Brokers
    with a directory that does not report its size (Kafka before 3.3) are left out. Directories that share a volume each
    count all of its free space as their own.
    """
    found = {}
    for broker, dirs in log_dirs.items():
        taking = [each for each in dirs.directories if each.takes_replicas]
        free = [_free_bytes(each, min_free) for each in taking]
        if taking and None not in free:
            several = len(dirs.directories) > 1
            rooms = tuple(
                Room(each.path if several else "", each.logs, left or 0)
                for each, left in zip(taking, free, strict=True)
            )
            found[broker] = _awaiting(rooms, taking, arriving.get(broker, ()))
    return found


def placed(rooms: tuple[Room, ...], size: int) -> tuple[Room, ...] | None:
    """Return the rooms after Kafka placed a replica of `size` bytes; None if it does not fit.

    Kafka chooses the directory with the fewest logs, regardless of its free space. Among directories with equally few
    logs, the fullest is assumed, since Kafka may choose it.
    """
    at = next_room(rooms)
    return None if at.free_bytes < size else _with(rooms, at, size, logs=1)


def next_room(rooms: tuple[Room, ...]) -> Room:
    """Return the directory in which Kafka places the next replica."""
    return min(rooms, key=lambda room: (room.logs, room.free_bytes))


def _free_bytes(directory: Directory, min_free: float) -> int | None:
    if directory.usable_bytes is None or directory.total_bytes is None:
        return None
    return int(directory.usable_bytes - min_free * directory.total_bytes)


def _awaiting(
    rooms: tuple[Room, ...], taking: Sequence[Directory], arriving: Sequence[IncomingReplica]
) -> tuple[Room, ...]:
    """Return the rooms minus the bytes that they are still receiving."""
    for each in arriving:
        here = next((at for at, one in enumerate(taking) if each.partition in one.replica_bytes), None)
        if here is None:
            rooms = _with(rooms, next_room(rooms), each.left_bytes, logs=1)
        else:
            rooms = _with(rooms, rooms[here], each.left_bytes, logs=0)
    return rooms


def _with(rooms: tuple[Room, ...], at: Room, size: int, *, logs: int) -> tuple[Room, ...]:
    fuller = Room(at.path, at.logs + logs, at.free_bytes - size)
    return tuple(fuller if room is at else room for room in rooms)


def under_min_isr_elsewhere(
    snapshot: Snapshot, plan: Iterable[TopicPartition], min_isr: Mapping[str, int]
) -> list[TopicPartition]:
    """Return the partitions outside `plan` that are under their min ISR although all their brokers are live.

    Such partitions show that the cluster cannot bear more load now. A partition with a dead broker is left out: other
    moves do not make it worse, and healing must not wait.
    """
    inside = frozenset(plan)
    return sorted(
        name
        for name, partition in snapshot.partitions.items()
        if name not in inside
        and len(partition.isr) < min(min_isr.get(name.topic, 0), len(partition.replicas))
        and frozenset(partition.replicas) <= snapshot.live
    )
