"""A simulated Kafka, in which time passes only when it is told to: it is a `ClusterPort`.

It keeps what a plan's execution depends on: replicas, the ISR, leaders, the bytes that each broker has of a partition,
reassignments, and the settings of topics and brokers. Its traps are Kafka's:

* a cancelled reassignment keeps the set of replicas and loses their order;
* submitting the originals of a move in flight wedges a KRaft partition until a null cancel; ZooKeeper mode reverts;
* KRaft takes a dead target and hangs; ZooKeeper mode refuses it.

The simulator of the tests is this one, with the faults that clusters have and the requests that a plan does not make.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.cluster.configs import BrokerRate, ConfigChange, ConfigOp
from kafka_steward.cluster.state import Broker, BrokerLogDirs, Directory, LogStart, Partition, Reassignment, Snapshot
from kafka_steward.errors import BrokerUnreachable, ClusterError, KafkaRefused
from kafka_steward.execution.throttles.rates import ThrottleSide

#: Kafka's error codes of the refusals that a simulated cluster returns.
_UNKNOWN_PARTITION, _REPLICATION_FACTOR, _INVALID_ASSIGNMENT, _NO_REASSIGNMENT = 3, 38, 39, 85
_PREFERRED_LEADER_NOT_AVAILABLE = 80

UNCLEAN = "unclean.leader.election.enable"


@dataclass
class Replicated:
    """A partition: who has it, who is in sync, how many bytes of it each broker holds."""

    replicas: Assignment
    topic_id: str | None
    size: int
    isr: set[int]
    leader: int | None
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    wedged: bool = False
    topic: str = ""
    offline: set[int] = field(default_factory=set)
    held: dict[int, int] = field(default_factory=dict)

    @property
    def reassigning(self) -> bool:
        """True while a reassignment of it is in flight."""
        return bool(self.adding or self.removing)

    @property
    def original(self) -> Assignment:
        """Its replicas before the reassignment."""
        return tuple(broker for broker in self.replicas if broker not in self.adding)

    @property
    def target(self) -> Assignment:
        """Its replicas once the reassignment is complete."""
        return tuple(broker for broker in self.replicas if broker not in self.removing)


class SimulatedCluster:
    """`mode` is "kraft" or "zookeeper"; `racks` has the rack of each broker, all of which are alive at first.

    `disk_bytes` is the size of each broker's only volume, or that of each broker.
    """

    def __init__(
        self, cluster_id: str, racks: Mapping[int, str | None], *, mode: str, now_ms: int, disk_bytes: int
    ) -> None:
        self.cluster_id = cluster_id
        self.secured = False
        self.mode = mode
        #: Whether the KRaft controllers are known.
        self.changes_dead_brokers = False
        self.now_ms = now_ms
        self.racks = dict(racks)
        self.alive = set(racks)
        self.disk_bytes = disk_bytes
        self.topics: dict[TopicPartition, Replicated] = {}
        self.topic_settings: dict[str, dict[str, str]] = {}
        self.broker_settings: dict[int, dict[str, str]] = {broker: {} for broker in racks}
        #: What stands in server.properties of each broker.
        self.broker_files: dict[int, dict[str, str]] = {}
        #: What is set for all brokers; a broker's own settings hide it.
        self.broker_defaults: dict[str, str] = {}

    # what is asked of it: a ClusterPort, whose docstrings say what each method does

    def snapshot(self, topics: Collection[str] | None = None) -> Snapshot:
        partitions = {
            name: Partition(
                *name,
                partition.replicas,
                frozenset(partition.isr),
                partition.leader,
                partition.topic_id,
                partition.adding,
                partition.removing,
                offline=frozenset(partition.offline | (set(partition.replicas) - self.alive)),
            )
            for name, partition in sorted(self.topics.items())
            if topics is None or name.topic in topics
        }
        return Snapshot(self.cluster_id, self.now_ms, self.listed_brokers(), partitions)

    @property
    def zookeeper_mode(self) -> bool:
        return self.mode == "zookeeper"

    @property
    def in_migration(self) -> bool:
        return False

    def live_brokers(self) -> dict[int, Broker]:
        return {broker: entry for broker, entry in self.listed_brokers().items() if not entry.fenced}

    def live_views(self, brokers: Collection[int], *, timeout_s: float = 2.0) -> dict[int, frozenset[int]]:
        del timeout_s  # nobody hangs here
        return {broker: frozenset(self.alive) for broker in brokers if broker in self.alive}

    def reassignments(self) -> dict[TopicPartition, Reassignment]:
        return {
            name: Reassignment(partition.replicas, partition.adding, partition.removing)
            for name, partition in self.unfinished()
            if partition.reassigning
        }

    def alter(
        self, targets: Mapping[TopicPartition, Assignment], *, keep_factor: bool = False
    ) -> dict[TopicPartition, KafkaRefused | None]:
        changing = {
            name
            for name, target in targets.items()
            if keep_factor and name in self.topics and len(target) != len(self.topics[name].target)
        }
        changes = refused(_REPLICATION_FACTOR, "The replication factor would change.")
        return dict.fromkeys(changing, changes) | self._apply(
            {name: target for name, target in targets.items() if name not in changing}
        )

    def name_directories(
        self, wanted: Mapping[tuple[TopicPartition, int], str]
    ) -> dict[tuple[TopicPartition, int], ClusterError | None]:
        # Each broker has one volume.
        return dict.fromkeys(wanted)

    def cancel(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, KafkaRefused | None]:
        return self._apply(dict.fromkeys(partitions))

    def elect_leaders(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, KafkaRefused | None]:
        answers: dict[TopicPartition, KafkaRefused | None] = {}
        for name in partitions:
            partition = self.topics.get(name)
            preferred = None if partition is None else partition.replicas[0]
            ok = partition is not None and preferred in partition.isr & self.alive
            unavailable = refused(_PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available.")
            answers[name] = None if ok else unavailable
            if partition is not None and ok:
                partition.leader = preferred
        return answers

    def log_dirs(self, brokers: Collection[int]) -> dict[int, BrokerLogDirs]:
        answers = {}
        for broker in self.alive & set(brokers):
            held = {name: partition.held[broker] for name, partition in self.topics.items() if broker in partition.held}
            free = self.disk_bytes - sum(held.values())
            volume = Directory("/disk-1", held, len(held), self.disk_bytes, free)
            answers[broker] = BrokerLogDirs(held, self.disk_bytes, free, (volume,))
        return answers

    @property
    def log_dirs_failures(self) -> Mapping[int, str]:
        return {}

    def directories(self, brokers: Collection[int], *, timeout_s: float = 2.0) -> dict[int, BrokerLogDirs]:
        del timeout_s
        return {
            broker: replace(
                dirs,
                replica_bytes={},
                directories=tuple(replace(one, replica_bytes={}) for one in dirs.directories),
            )
            for broker, dirs in self.log_dirs(brokers).items()
        }

    def log_sizes(self, held: Mapping[int, Collection[TopicPartition]]) -> dict[tuple[TopicPartition, int], int]:
        return {
            (name, broker): self.topics[name].held[broker]
            for broker, names in held.items()
            if broker in self.alive
            for name in names
            if name in self.topics and broker in self.topics[name].held
        }

    def hidden_topics(self, topics: Collection[str]) -> frozenset[str]:  # noqa: ARG002 - nothing is hidden
        return frozenset()

    def log_starts(
        self,
        held: Mapping[int, Collection[TopicPartition]],  # noqa: ARG002 - sizes are those of local logs
    ) -> dict[tuple[TopicPartition, int], LogStart]:
        return {}

    def topic_configs(
        self, topics: Collection[str], names: Collection[str], *, own_only: bool = False
    ) -> dict[str, dict[str, str]]:
        defaults = {} if own_only else {"min.insync.replicas": "1", UNCLEAN: "false"}
        values = {topic: {**defaults, **self.topic_settings[topic]} for topic in topics if topic in self.topic_settings}
        return {topic: {name: of[name] for name in names if name in of} for topic, of in values.items()}

    def broker_configs(
        self, brokers: Collection[int], names: Collection[str], *, own_only: bool = False
    ) -> dict[int, dict[str, str]]:
        defaults = {} if own_only else self.broker_defaults
        values = {broker: {**defaults, **self.broker_settings[broker]} for broker in brokers if broker in self.alive}
        return {broker: {name: of[name] for name in names if name in of} for broker, of in values.items()}

    def broker_rates(self, brokers: Collection[int], keys: Collection[str]) -> dict[str, dict[int, BrokerRate]]:
        own, shared = self.broker_configs(brokers, keys, own_only=True), self.broker_defaults
        files = {broker: self.broker_files.get(broker, {}) for broker in own}
        return {
            key: {
                broker: BrokerRate(of.get(key), shared.get(key), files[broker].get(key)) for broker, of in own.items()
            }
            for key in keys
        }

    def change_topic_configs(self, changes: Mapping[str, Sequence[ConfigChange]]) -> dict[str, KafkaRefused | None]:
        return {topic: self._change(self.topic_settings.get(topic), several) for topic, several in changes.items()}

    def change_broker_configs(self, changes: Mapping[int, Sequence[ConfigChange]]) -> dict[int, ClusterError | None]:
        gone = {broker: BrokerUnreachable(broker, f"Broker {broker} does not answer.") for broker in changes}
        able = self.broker_settings.keys() if self.changes_dead_brokers else self.alive
        return {
            broker: self._change(self.broker_settings[broker], several) if broker in able else gone[broker]
            for broker, several in changes.items()
        }

    def change_default_broker_configs(self, changes: Sequence[ConfigChange]) -> KafkaRefused | None:
        self._change(self.broker_defaults, changes)
        return None

    # how it works inside

    def unfinished(self) -> Iterable[tuple[TopicPartition, Replicated]]:
        """Return the partitions that are being reassigned or have replicas out of sync, at least."""
        return sorted(self.topics.items())

    def listed_brokers(self) -> dict[int, Broker]:
        """Return the brokers that the cluster lists."""
        # KRaft lists a dead broker, as fenced; ZooKeeper mode does not.
        listed = self.racks if self.mode == "kraft" else self.alive
        return {
            broker: Broker(broker, "127.0.0.1", 9000 + broker, self.racks[broker], broker not in self.alive)
            for broker in sorted(listed)
        }

    def rate(self, broker: int, side: ThrottleSide) -> int | None:
        """Return the rate that applies to throttled replication on this broker, in bytes/s; None without one."""
        rate = self.broker_settings[broker].get(side.rate_key, self.broker_defaults.get(side.rate_key))
        return None if rate is None else int(rate)

    def complete(self, partition: Replicated) -> None:
        """End the reassignment of a partition if all of its target is in sync."""
        copies = bool(partition.adding or partition.removing)
        if partition.wedged or (copies and not set(partition.target) <= partition.isr & self.alive):
            return
        self._drop(partition, set(partition.removing))
        partition.replicas, partition.adding, partition.removing = partition.target, (), ()
        if partition.leader not in partition.replicas:
            self.elect(partition)

    def elect(self, partition: Replicated) -> None:
        """Let the first live replica in sync lead the partition."""
        able = [broker for broker in partition.replicas if broker in partition.isr & self.alive]
        partition.leader = able[0] if able else None

    def _apply(self, targets: Mapping[TopicPartition, Assignment | None]) -> dict[TopicPartition, KafkaRefused | None]:
        return {
            name: self._cancel_one(name) if target is None else self._alter_one(name, target)
            for name, target in targets.items()
        }

    def _is_valid(self, target: Assignment) -> bool:
        return bool(target) and len(set(target)) == len(target) and self.listable().issuperset(target)

    def listable(self) -> frozenset[int]:
        """Return the brokers that a target may name."""
        return frozenset(self.racks)

    def _alter_one(self, name: TopicPartition, target: Assignment) -> KafkaRefused | None:
        partition = self.topics.get(name)
        if partition is None:
            return refused(_UNKNOWN_PARTITION, f"Unable to find partition {name}.")
        if not self._is_valid(target):
            return refused(_INVALID_ASSIGNMENT, "The manual partition assignment is not valid.")
        original = partition.original
        if self.mode == "zookeeper" and set(target) - set(original) - self.alive:
            return refused(_INVALID_ASSIGNMENT, "Replica assignment has brokers that are not alive.")
        wedges = partition.reassigning and set(target) == set(original) and bool(partition.adding)
        if wedges and self.mode == "kraft":
            partition.removing, partition.wedged = partition.adding, True
            return None
        self._drop(partition, set(partition.adding) - set(target))
        partition.adding = tuple(broker for broker in target if broker not in original)
        partition.removing = tuple(broker for broker in original if broker not in target)
        partition.replicas = (*target, *partition.removing)
        self.complete(partition)
        return None

    def _cancel_one(self, name: TopicPartition) -> KafkaRefused | None:
        partition = self.topics.get(name)
        if partition is None or not partition.reassigning:
            return refused(_NO_REASSIGNMENT, "No partition reassignment is in progress.")
        original = partition.original
        if self.mode == "kraft" and not partition.isr & set(original):
            unclean = "Unable to revert partition assignment: it would require an unclean leader election."
            return refused(_INVALID_ASSIGNMENT, unclean)
        self._drop(partition, set(partition.adding))
        partition.replicas, partition.adding, partition.removing, partition.wedged = original, (), (), False
        if partition.leader not in original:
            self.elect(partition)
        return None

    def _drop(self, partition: Replicated, brokers: Collection[int]) -> None:
        partition.isr.difference_update(brokers)
        partition.offline.difference_update(brokers)
        for broker in brokers:
            partition.held.pop(broker, None)

    @staticmethod
    def _change(settings: dict[str, str] | None, changes: Sequence[ConfigChange]) -> KafkaRefused | None:
        if settings is None:
            return refused(_UNKNOWN_PARTITION, "This server does not host this topic-partition.")
        for change in changes:
            there = [entry for entry in settings.get(change.name, "").split(",") if entry]
            entries = (change.value or "").split(",")
            if change.op is ConfigOp.DELETE:
                settings.pop(change.name, None)
            elif change.op is ConfigOp.SET:
                settings[change.name] = change.value or ""
            elif change.op is ConfigOp.APPEND:
                settings[change.name] = ",".join(there + [entry for entry in entries if entry not in there])
            else:
                settings[change.name] = ",".join(entry for entry in there if entry not in entries)
        return None


def refused(code: int, message: str) -> KafkaRefused:
    """Return a refusal with Kafka's error code and words."""
    return KafkaRefused(code, message, f"Kafka refused: {message}")
