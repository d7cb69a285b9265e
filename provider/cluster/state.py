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

__all__ = ["Broker", "Directory", "LogDir", "Partition", "Reassignment", "Snapshot"]


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
    """One partition. `leader` is None while it is offline; `isr` has no order; an unknown `leader_epoch` is -1.

    `offline` are the replicas that Kafka calls so: those of dead brokers, and those in failed log directories.
    """

    topic: str
    partition: int
    replicas: Assignment
    isr: frozenset[int]
    leader: int | None
    topic_id: str | None = None
    adding: Assignment = ()
    removing: Assignment = ()
    leader_epoch: int = -1
    offline: frozenset[int] = frozenset()

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
class Directory:
    """One log directory: bytes per replica in it, and what its volume has and may still take, if told.

    `logs` counts everything in it, copies on their way from another directory of the broker included. `error` is
    Kafka's code: anything but 0 is a directory that has failed, of which nothing else is known. A `cordoned` one keeps
    what it has and gets nothing new (KIP-1066, Kafka 4.3).
    """

    path: str
    replica_bytes: Mapping[TopicPartition, int] = field(default_factory=dict)
    logs: int = 0
    total_bytes: int | None = None
    usable_bytes: int | None = None
    error: int = 0
    cordoned: bool = False

    @property
    def takes_replicas(self) -> bool:
        """Whether Kafka may put a new replica there."""
        return not self.error and not self.cordoned


@dataclass(frozen=True, slots=True)
class LogDir:
    """One broker's disks: bytes per replica that belongs there, what may take new ones in total, each directory.

    The totals leave out directories that have failed or are cordoned, and are None where one does not tell its own.
    """

    replica_bytes: Mapping[TopicPartition, int]
    total_bytes: int | None = None
    usable_bytes: int | None = None
    directories: tuple[Directory, ...] = ()

    @property
    def cordoned(self) -> bool:
        """Whether the broker gets no new replica: none of its directories takes one (KIP-1066)."""
        return bool(self.directories) and not any(each.takes_replicas for each in self.directories)

    @property
    def failed_paths(self) -> tuple[str, ...]:
        """The directories that have failed, sorted."""
        return tuple(sorted(each.path for each in self.directories if each.error))


@dataclass(frozen=True)
class Snapshot:
    """A cluster at one moment. `taken_ms` is the caller's clock, in milliseconds since 1970."""

    cluster_id: str
    taken_ms: int
    brokers: Mapping[int, Broker]
    partitions: Mapping[TopicPartition, Partition]
    topics_internal: frozenset[str] = field(default_factory=frozenset)
    #: Topics that exist for all that we know, and that Kafka does not let us describe: they are not in `partitions`.
    hidden: frozenset[str] = field(default_factory=frozenset)

    @cached_property
    def live(self) -> frozenset[int]:
        """Brokers that serve: registered and not fenced."""
        return frozenset(broker.id for broker in self.brokers.values() if not broker.fenced)

    @cached_property
    def topics(self) -> frozenset[str]:
        """The topics of `partitions`."""
        return frozenset(name.topic for name in self.partitions)

    @cached_property
    def hosting(self) -> frozenset[int]:
        """Brokers that some partition's assignment names, live or not."""
        return frozenset(broker for partition in self.partitions.values() for broker in partition.replicas)

    @cached_property
    def lost_on_live(self) -> Mapping[int, tuple[TopicPartition, ...]]:
        """Live brokers to their offline replicas: those in log directories that have failed. Sorted."""
        found: dict[int, list[TopicPartition]] = {}
        for name, partition in sorted(self.partitions.items()):
            for broker in partition.offline & self.live & frozenset(partition.replicas):
                found.setdefault(broker, []).append(name)
        return {broker: tuple(found[broker]) for broker in sorted(found)}

    @cached_property
    def reassigning(self) -> Mapping[TopicPartition, Partition]:
        """Partitions with a reassignment in flight."""
        return {name: partition for name, partition in self.partitions.items() if partition.reassigning}
