"""The state of a cluster at one moment in frozen dataclasses, and functions for the lag of replicas.

::

    Snapshot
    ├── brokers      id -> Broker        live brokers, and registered brokers that are fenced
    └── partitions   TopicPartition -> Partition
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

from kafka_steward.assignment import Assignment, TopicPartition, last_in_sync, name_brokers
from kafka_steward.service_topics import matches_any


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker that the cluster lists. A KRaft cluster continues to list a failed broker, with `fenced` set."""

    id: int
    host: str
    port: int
    rack: str | None = None
    fenced: bool = False

    @property
    def address(self) -> str:
        """Where clients connect to it."""
        return f"{self.host}:{self.port}"


class _Reassigned:
    """Where a reassignment in flight leads from and to, by the three lists that Kafka shows of it."""

    __slots__ = ()
    replicas: Assignment
    adding: Assignment
    removing: Assignment

    @property
    def target(self) -> Assignment:
        """The replicas once the reassignment is complete."""
        return tuple(broker for broker in self.replicas if broker not in self.removing)

    @property
    def original(self) -> Assignment:
        """The replicas before the reassignment, in list order: Kafka does not store the original order."""
        return tuple(broker for broker in self.replicas if broker not in self.adding)


@dataclass(frozen=True, slots=True)
class Reassignment(_Reassigned):
    """A reassignment in flight as Kafka lists it: `replicas` is the target followed by the replicas being removed."""

    replicas: Assignment
    adding: Assignment
    removing: Assignment


@dataclass(frozen=True, slots=True)
class Partition(_Reassigned):
    """One partition. `leader` is None while it is offline; `isr` has no order; an unknown `leader_epoch` is -1.

    `offline` are the replicas that Kafka reports as offline: those on failed brokers or in failed log directories.
    `eligible` are the replicas outside the ISR that may lead without a loss (eligible leader replicas, KIP-966), where
    Kafka has them; they are known of partitions without a leader, and of those that would have none after a cancel.
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
    eligible: frozenset[int] = frozenset()

    @property
    def topic_partition(self) -> TopicPartition:
        """The topic and partition number."""
        return TopicPartition(self.topic, self.partition)

    @property
    def reassigning(self) -> bool:
        """True if a reassignment of the partition is in flight."""
        return bool(self.adding or self.removing)

    def is_recreated(self, topic_id: str | None) -> bool:
        """Return True if its topic is not `topic_id` but another topic of that name; False if either id is unknown."""
        return None not in (topic_id, self.topic_id) and topic_id != self.topic_id

    @property
    def under_replicated(self) -> bool:
        """True if the assigned replicas, except those being added, outnumber the ISR (KIP-352), as in Kafka's tool."""
        return len(frozenset(self.replicas) - frozenset(self.adding)) > len(self.isr)

    def live_replicas(self, snapshot: Snapshot) -> frozenset[int]:
        """Return the brokers that serve a replica: they are live, and the replica's log directory has not failed."""
        return snapshot.live.intersection(self.replicas) - self.offline

    @property
    def may_lack_a_leader(self) -> bool:
        """True if it has no leader, or would have none after a cancel of its reassignment."""
        return self.leader is None or (self.reassigning and self.isr.isdisjoint(self.original))

    def last_in_sync(self, snapshot: Snapshot) -> list[int]:
        """Return the brokers one of which has to come back so that the partition has a leader without a loss."""
        return last_in_sync(self.replicas, self.isr | self.eligible, self.live_replicas(snapshot))

    def lagging(self, snapshot: Snapshot) -> frozenset[int]:
        """Return the live brokers whose replica is out of sync, except for those that a reassignment adds."""
        return self.live_replicas(snapshot) - self.isr - frozenset(self.adding)


@dataclass(frozen=True, slots=True)
class Directory:
    """One log directory: bytes per replica in it, and the total and usable bytes of its volume, if known.

    `logs` counts all logs in it, including future replicas that are being moved from another directory of the broker.
    `error` is Kafka's error code: a directory with a code other than 0 has failed, and nothing else is known about it.
    A `cordoned` directory keeps its replicas and receives no new ones (KIP-1066, Kafka 4.3).
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
        """True if Kafka may place a new replica in the directory."""
        return not self.error and not self.cordoned


@dataclass(frozen=True, slots=True)
class BrokerLogDirs:
    """One broker's disks: bytes per replica, the totals of its directories that accept replicas, and each directory.

    The totals exclude directories that have failed or are cordoned. They are None if a directory does not report its
    own.
    """

    replica_bytes: Mapping[TopicPartition, int]
    total_bytes: int | None = None
    usable_bytes: int | None = None
    directories: tuple[Directory, ...] = ()

    @property
    def cordoned(self) -> bool:
        """True if the broker receives no new replicas: none of its directories accepts one (KIP-1066)."""
        return bool(self.directories) and not any(directory.takes_replicas for directory in self.directories)

    @property
    def failed_paths(self) -> tuple[str, ...]:
        """The paths of the failed directories, sorted."""
        return tuple(sorted(directory.path for directory in self.directories if directory.error))


@dataclass(frozen=True)
class Snapshot:
    """A cluster at one moment. `taken_ms` is by the caller's clock, in milliseconds since 1970."""

    cluster_id: str
    taken_ms: int
    brokers: Mapping[int, Broker]
    partitions: Mapping[TopicPartition, Partition]
    #: Topics that may exist and that Kafka does not allow us to describe: they are not in `partitions`.
    hidden: frozenset[str] = field(default_factory=frozenset)
    #: Topics whose deletion is pending, with the brokers that are down and have replicas of them.
    deleting: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    #: Partitions of these topics that a reassignment still moves, and that the brokers do not show any more.
    unshown: Mapping[TopicPartition, Partition] = field(default_factory=dict)

    def without_deleted(
        self, topics: Mapping[str, Collection[int]], listed: Mapping[TopicPartition, Reassignment]
    ) -> Snapshot:
        """Return the snapshot without `topics`, whose deletion is pending, but with what a reassignment still moves.

        `topics` has the brokers of their replicas, and `listed` are the reassignments that the controller lists. Kafka
        deletes a topic only after its reassignments have ended.
        """
        if not topics:
            return self
        kept = {
            name: partition
            for name, partition in self.partitions.items()
            if name.topic not in topics or partition.reassigning
        }
        waits = {topic: tuple(sorted(frozenset(brokers) - self.live)) for topic, brokers in sorted(topics.items())}
        unshown = {
            name: Partition(*name, entry.replicas, frozenset(), None, adding=entry.adding, removing=entry.removing)
            for name, entry in listed.items()
            if name.topic in topics and name not in self.partitions
        }
        return replace(self, partitions=kept, deleting=waits, unshown=unshown)

    @property
    def deletion_sentences(self) -> tuple[str, ...]:
        """A sentence for each topic whose deletion is pending."""
        return tuple(f"Topic {topic}: {self.deletion_clause(topic)}." for topic in self.deleting)

    def deletion_clause(self, topic: str) -> str:
        """Return that the deletion of a topic is pending, and until when, as a clause; empty if it is not."""
        dead = self.deleting.get(topic, ())
        until = f"; it ends when {name_brokers(dead)} {'is' if len(dead) == 1 else 'are'} back" if dead else ""
        return f"its deletion is pending{until}" if topic in self.deleting else ""

    @cached_property
    def live(self) -> frozenset[int]:
        """The live brokers: registered and not fenced."""
        return frozenset(broker.id for broker in self.brokers.values() if not broker.fenced)

    @cached_property
    def topics(self) -> frozenset[str]:
        """The topics of `partitions`."""
        return frozenset(name.topic for name in self.partitions)

    @cached_property
    def hosting_brokers(self) -> frozenset[int]:
        """The brokers in any partition's assignment, live or not."""
        return frozenset(broker for partition in self.partitions.values() for broker in partition.replicas)

    @cached_property
    def dead_hosting_brokers(self) -> frozenset[int]:
        """The brokers in any partition's assignment that are not live."""
        # -1 in a ZooKeeper-mode assignment is a placeholder for a pending replica, not a broker.
        return frozenset(broker for broker in self.hosting_brokers - self.live if broker >= 0)

    def hosting_besides(self, service_topics: Sequence[str]) -> frozenset[int]:
        """Return the brokers in an assignment of a topic that matches none of these regular expressions.

        A live broker without such a replica is new, or empty.
        """
        service = {topic for topic in self.topics if matches_any(topic, service_topics)}
        if not service:
            return self.hosting_brokers
        return frozenset(
            broker
            for name, partition in self.partitions.items()
            if name.topic not in service
            for broker in partition.replicas
        )

    @cached_property
    def offline_on_live_brokers(self) -> Mapping[int, tuple[TopicPartition, ...]]:
        """The offline replicas of each live broker: those in failed log directories. Sorted."""
        offline: dict[int, list[TopicPartition]] = {}
        for name, partition in sorted(self.partitions.items()):
            for broker in partition.offline & self.live & frozenset(partition.replicas):
                offline.setdefault(broker, []).append(name)
        return {broker: tuple(offline[broker]) for broker in sorted(offline)}

    @cached_property
    def reassigning(self) -> Mapping[TopicPartition, Partition]:
        """The partitions with a reassignment in flight."""
        return {name: partition for name, partition in self.partitions.items() if partition.reassigning}

    @property
    def in_flight(self) -> Mapping[TopicPartition, Partition]:
        """The same, with those of topics that the brokers do not show any more: for counts."""
        return {**self.reassigning, **self.unshown}


@dataclass(frozen=True, slots=True)
class LogStart:
    """Offsets of a replica of a topic with remote storage.

    `local` is the first one of its local log, `tiered` the last one in remote storage, -1 for none, `end` the next one.
    """

    local: int
    tiered: int
    end: int

    @property
    def share_after_tiered(self) -> float:
        """The share of the local log that is not in remote storage, in offsets."""
        span = self.end - self.local
        return 1.0 if span <= 0 else min(1.0, (self.end - 1 - self.tiered) / span)


class LogEndSource(Protocol):
    """A source of log end offsets, such as KafkaCluster."""

    def log_ends(
        self, held: Mapping[int, Collection[TopicPartition]], *, timeout_s: float | None = None
    ) -> dict[tuple[TopicPartition, int], int]:
        """Return the log end offsets of `held`'s partitions on those brokers."""

    def local_starts(
        self, held: Mapping[int, Collection[TopicPartition]], *, timeout_s: float | None = None
    ) -> dict[tuple[TopicPartition, int], int]:
        """Return the first offsets of `held`'s partitions in the local logs of those brokers."""


def partitions_by_broker(partitions: Iterable[Partition]) -> dict[int, list[TopicPartition]]:
    """Return, by broker, the partitions whose log ends are needed for the lag of all replicas of `partitions`."""
    held: dict[int, list[TopicPartition]] = {}
    for partition in partitions:
        for broker in partition.replicas:
            held.setdefault(broker, []).append(partition.topic_partition)
    return held


def lag(ends: Mapping[tuple[TopicPartition, int], int], partition: Partition, broker: int) -> int | None:
    """Return the lag of `broker`'s replica in messages; None while either end is unknown. Never negative.

    0 for a follower means that it had caught up with the leader's end at the time of the request. Only the ISR shows
    whether the follower is in sync. Request each end from the broker that holds the log, by ListOffsets with the
    debugging replica id, which followers answer too. The `offset_lag` of DescribeLogDirs cannot be used: it compares a
    follower with its own high watermark, and so is about 0 for every follower.
    """
    if partition.leader is None:
        return None
    leader_end = ends.get((partition.topic_partition, partition.leader))
    own_end = ends.get((partition.topic_partition, broker))
    return None if leader_end is None or own_end is None else max(0, leader_end - own_end)


def bytes_missing(dirs: Mapping[int, BrokerLogDirs], partition: Partition, broker: int) -> int | None:
    """Return the bytes of the leader's log that `broker` is missing; None while either is unknown. Never negative.

    A broker that responded and has no such replica yet is missing all bytes. If it did not respond, the result is None.
    """
    if partition.leader is None or partition.leader not in dirs or broker not in dirs:
        return None
    whole = dirs[partition.leader].replica_bytes.get(partition.topic_partition)
    return None if whole is None else max(0, whole - dirs[broker].replica_bytes.get(partition.topic_partition, 0))


def without_stray_replicas(directory: BrokerLogDirs, snapshot: Snapshot, broker: int) -> BrokerLogDirs:
    """Return `directory` without stray replicas, which `snapshot` does not assign to `broker`.

    In ZooKeeper mode a broker that was offline still reports replicas that were moved off it, and deletes them a little
    later.
    """
    kept = {
        name: size
        for name, size in directory.replica_bytes.items()
        if name in snapshot.partitions and broker in snapshot.partitions[name].replicas
    }
    return replace(directory, replica_bytes=kept)
