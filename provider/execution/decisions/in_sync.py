"""Detection of partitions that are not fully replicated, for sensors and for the end of a heal. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.state import Partition, Snapshot

__all__ = ["OutOfSyncPartition", "out_of_sync"]


@dataclass(frozen=True, slots=True)
class OutOfSyncPartition:
    """A partition that is not fully replicated: its replicas that are not in sync, and the reassignment flag."""

    topic: str
    partition: int
    missing: tuple[int, ...]
    reassigning: bool

    @property
    def sentence(self) -> str:
        """Return a message that names the brokers that are not in sync, or the reassignment in flight."""
        name = TopicPartition(self.topic, self.partition)
        if not self.missing:
            return f"{name} is being moved."
        brokers = ", ".join(map(str, self.missing))
        return f"{name} waits for broker {brokers} to be in sync{' and is being moved' if self.reassigning else ''}."


def out_of_sync(
    snapshot: Snapshot, partitions: Collection[TopicPartition] | None = None
) -> tuple[OutOfSyncPartition, ...]:
    """Return the partitions with a replica out of the ISR or a reassignment in flight, sorted.

    Only `partitions` are checked, or all if it is None. Partitions that do not exist are left out.
    """
    asked = snapshot.partitions.keys() if partitions is None else set(partitions) & snapshot.partitions.keys()
    found = (snapshot.partitions[name] for name in sorted(asked))
    return tuple(_out_of_sync(partition) for partition in found if partition.reassigning or _missing(partition))


def _out_of_sync(partition: Partition) -> OutOfSyncPartition:
    return OutOfSyncPartition(partition.topic, partition.partition, _missing(partition), partition.reassigning)


def _missing(partition: Partition) -> tuple[int, ...]:
    return tuple(broker for broker in partition.replicas if broker not in partition.isr)
