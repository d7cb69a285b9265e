"""What preflight knows beside the plan, and how it is read from a look at the cluster. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kafka_steward.assignment import Move, TopicPartition
from kafka_steward.cluster.state import LogDir, Partition, Snapshot

__all__ = ["Outlook", "room_bytes", "satisfied", "strained"]


@dataclass(frozen=True)
class Outlook:
    """What preflight knows beside the plan.

    `disabled` says by whom and since when reassignments are switched off, empty while they are not (KIP-236);
    `unapproved` is the plan's short digest when an approval that it needs is missing;
    `bouncing` are brokers that announced a shutdown (KIP-46); `min_isr` is min.insync.replicas by topic, where known;
    `room_bytes` says how much more a broker may take before less than `min_free` of its disk is left, where known;
    `strained` are partitions outside the plan that are under their min ISR; `auto_generated` is KIP-46's.
    """

    snapshot: Snapshot
    auto_generated: bool = False
    disabled: str = ""
    unapproved: str = ""
    bouncing: frozenset[int] = frozenset()
    min_isr: Mapping[str, int] = field(default_factory=dict)
    room_bytes: Mapping[int, int] = field(default_factory=dict)
    strained: Sequence[TopicPartition] = ()


def satisfied(move: Move, partition: Partition, live: frozenset[int]) -> bool:
    """KIP-46: every broker of the current assignment is live, and there are as many as the partition is to have."""
    return frozenset(partition.replicas) <= live and len(partition.replicas) >= len(move.before)


def room_bytes(log_dirs: Mapping[int, LogDir], *, min_free: float, incoming: Mapping[int, int]) -> dict[int, int]:
    """Bytes that each broker may still take before less than the fraction `min_free` of its disk is free.

    `incoming` is what is on its way to a broker and not there yet. Brokers that do not tell their sizes are left out.
    """
    return {
        broker: int(dirs.usable_bytes - min_free * dirs.total_bytes) - incoming.get(broker, 0)
        for broker, dirs in log_dirs.items()
        if dirs.usable_bytes is not None and dirs.total_bytes is not None
    }


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
