"""Is everything replicated as it should be? What sensors ask and the end of a heal asserts. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.state import Partition, Snapshot

__all__ = ["Unwhole", "unwhole"]


@dataclass(frozen=True, slots=True)
class Unwhole:
    """A partition that is not whole: which of its replicas are not in sync, and whether it is moving."""

    topic: str
    partition: int
    missing: tuple[int, ...]
    reassigning: bool

    @property
    def sentence(self) -> str:
        """What is still missing."""
        name = TopicPartition(self.topic, self.partition)
        if not self.missing:
            return f"{name} is being moved."
        brokers = ", ".join(map(str, self.missing))
        return f"{name} waits for broker {brokers} to be in sync{' and is being moved' if self.reassigning else ''}."


def unwhole(snapshot: Snapshot, partitions: Collection[TopicPartition] | None = None) -> tuple[Unwhole, ...]:
    """The partitions, of those asked for or of all, with a replica out of the ISR or a reassignment in flight; sorted.

    Partitions that do not exist are left out.
    """
    asked = snapshot.partitions.keys() if partitions is None else set(partitions) & snapshot.partitions.keys()
    found = (snapshot.partitions[name] for name in sorted(asked))
    return tuple(_unwhole(partition) for partition in found if partition.reassigning or _missing(partition))


def _unwhole(partition: Partition) -> Unwhole:
    return Unwhole(partition.topic, partition.partition, _missing(partition), partition.reassigning)


def _missing(partition: Partition) -> tuple[int, ...]:
    return tuple(broker for broker in partition.replicas if broker not in partition.isr)
