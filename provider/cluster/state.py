"""What a cluster looked like at one moment, in plain frozen values.

::

    Snapshot
    ├── brokers      id -> Broker        live ones, and registered ones that are fenced
    └── partitions   TopicPartition -> Partition
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from kafka_steward.assignment import Assignment, TopicPartition

__all__ = ["Broker", "LogDir", "Partition", "Reassignment", "Snapshot"]


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker that the cluster knows. A KRaft cluster keeps listing a dead broker, with `fenced` set."""

    id: int
    host: str
    port: int
    rack: str | None = None
    fenced: bool = False


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A reassignment in flight as Kafka lists it: `replicas` is the target followed by what is being removed."""

    replicas: Assignment
    adding: Assignment
    removing: Assignment

    @property
    def target(self) -> Assignment:
        """The replicas once it is complete."""
        return tuple(broker for broker in self.replicas if broker not in self.removing)

    @property
    def original(self) -> Assignment:
        """The replicas before it began, as a set in list order: Kafka keeps no record of the original order."""
        return tuple(broker for broker in self.replicas if broker not in self.adding)


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition. `leader` is None while it is offline; `isr` has no order; an unknown `leader_epoch` is -1."""

    topic: str
    partition: int
    replicas: Assignment
    isr: frozenset[int]
    leader: int | None
    topic_id: str | None = None
    adding: Assignment = ()
    removing: Assignment = ()
    leader_epoch: int = -1

    @property
    def topic_partition(self) -> TopicPartition:
        """Its name."""
        return TopicPartition(self.topic, self.partition)

    @property
    def reassigning(self) -> bool:
        """Whether a reassignment of it is in flight."""
        return bool(self.adding or self.removing)

    @property
    def under_replicated(self) -> bool:
        """KIP-352: the assigned replicas, those being added left out, outnumber the ISR; as Kafka's own tool counts."""
        return len(frozenset(self.replicas) - frozenset(self.adding)) > len(self.isr)


@dataclass(frozen=True, slots=True)
class LogDir:
    """One broker's disks: bytes per replica that belongs there, and what is free and usable in total, if told."""

    replica_bytes: Mapping[TopicPartition, int]
    total_bytes: int | None = None
    usable_bytes: int | None = None


@dataclass(frozen=True)
class Snapshot:
    """A cluster at one moment. `taken_ms` is the caller's clock, in milliseconds since 1970."""

    cluster_id: str
    taken_ms: int
    brokers: Mapping[int, Broker]
    partitions: Mapping[TopicPartition, Partition]
    topics_internal: frozenset[str] = field(default_factory=frozenset)

    @cached_property
    def live(self) -> frozenset[int]:
        """Brokers that serve: registered and not fenced."""
        return frozenset(broker.id for broker in self.brokers.values() if not broker.fenced)

    @cached_property
    def hosting(self) -> frozenset[int]:
        """Brokers that some partition's assignment names, live or not."""
        return frozenset(broker for partition in self.partitions.values() for broker in partition.replicas)

    @cached_property
    def reassigning(self) -> Mapping[TopicPartition, Partition]:
        """Partitions with a reassignment in flight."""
        return {name: partition for name, partition in self.partitions.items() if partition.reassigning}
