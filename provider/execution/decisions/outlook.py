"""What preflight knows beside the plan, and how it is read from a look at the cluster. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kafka_steward.assignment import Move, TopicPartition
from kafka_steward.cluster.state import Directory, LogDir, Partition, Snapshot

__all__ = ["Arriving", "Outlook", "Room", "next_room", "placed", "rooms_of", "satisfied", "strained"]


@dataclass(frozen=True, slots=True)
class Room:
    """A log directory that may get new replicas: how many logs it has, and the bytes that it may still take.

    `path` is empty for the only directory of a broker.
    """

    path: str
    logs: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class Arriving:
    """A replica on its way to a broker: its partition, and the bytes of it that are not there yet."""

    partition: TopicPartition
    left_bytes: int


@dataclass(frozen=True)
class Outlook:
    """What preflight knows beside the plan.

    `disabled` says by whom and since when reassignments are switched off, empty while they are not (KIP-236);
    `unapproved` is the plan's short digest when an approval that it needs is missing;
    `bouncing` are brokers that announced a shutdown (KIP-46); `min_isr` is min.insync.replicas by topic, where known;
    `sizes` are the partitions' sizes on their leaders now, where those tell; `rooms` says how much more each log
    directory of a broker may take before less than `min_free` of its volume is left, where known; `silent` are brokers
    that are to receive something and did not say what their directories have; `cordoned` get nothing new (KIP-1066);
    `strained` are partitions outside the plan that are under their min ISR; `auto_generated` is KIP-46's.
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
    strained: Sequence[TopicPartition] = ()


def satisfied(move: Move, partition: Partition, live: frozenset[int]) -> bool:
    """KIP-46: every broker of the current assignment is live, and there are as many as the partition is to have.

    A replica in a log directory that has failed counts as one on a dead broker.
    """
    return frozenset(partition.replicas) <= live - partition.offline and len(partition.replicas) >= len(move.before)


def rooms_of(
    log_dirs: Mapping[int, LogDir], *, min_free: float, arriving: Mapping[int, Sequence[Arriving]]
) -> dict[int, tuple[Room, ...]]:
    """What each log directory that takes replicas may still take before less than `min_free` of its volume is free.

    `arriving` is on its way to a broker. Brokers of which a directory does not tell its size (Kafka before 3.3) are
    left out. Directories that share a volume each count all of it as their own.
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
    """The rooms after a replica of `size` bytes was put where Kafka puts it; None when it does not fit there.

    Kafka takes the directory with the fewest logs, whatever is free in it; of those with as few, it may be the fullest.
    """
    at = next_room(rooms)
    return None if at.free_bytes < size else _with(rooms, at, size, logs=1)


def next_room(rooms: tuple[Room, ...]) -> Room:
    """The directory into which Kafka puts the next replica."""
    return min(rooms, key=lambda room: (room.logs, room.free_bytes))


def _free_bytes(directory: Directory, min_free: float) -> int | None:
    if directory.usable_bytes is None or directory.total_bytes is None:
        return None
    return int(directory.usable_bytes - min_free * directory.total_bytes)


def _awaiting(rooms: tuple[Room, ...], taking: Sequence[Directory], arriving: Sequence[Arriving]) -> tuple[Room, ...]:
    """The rooms less what is still to come into them."""
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


def strained(snapshot: Snapshot, plan: Iterable[TopicPartition], min_isr: Mapping[str, int]) -> list[TopicPartition]:
    """Partitions outside `plan` under their min ISR though all their brokers live: the cluster cannot bear more now.

    A partition that misses a dead broker is left out: moving others makes it no worse, and healing must not wait.
    """
    inside = frozenset(plan)
    return sorted(
        name
        for name, partition in snapshot.partitions.items()
        if name not in inside
        and len(partition.isr) < min(min_isr.get(name.topic, 0), len(partition.replicas))
        and frozenset(partition.replicas) <= snapshot.live
    )
