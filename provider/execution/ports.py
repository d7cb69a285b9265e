"""The interface of a cluster for execution, and the context of execution, which holds it.

`KafkaCluster` implements the interface, and so does the simulated cluster of forecasts and tests.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.cluster.configs import BrokerRate, ConfigChange
from kafka_steward.cluster.state import Broker, BrokerLogDirs, LogStart, Reassignment, Snapshot
from kafka_steward.errors import ClusterError, KafkaRefused
from kafka_steward.journal.audit import Actor
from kafka_steward.journal.store import Journal
from kafka_steward.planning.files.reassignment import Replica
from kafka_steward.settings import Settings


class ClusterPort(Protocol):
    """One Kafka cluster. Any method may raise ClusterUnreachable.

    A change may raise KafkaTimeout, whether or not Kafka has executed it. The refusal of a part of a request is
    returned, in Kafka's own words, and not raised.
    """

    @property
    def cluster_id(self) -> str:
        """Kafka's own id of the cluster."""

    @property
    def secured(self) -> bool:
        """True if clients need more than an address to connect."""

    @property
    def zookeeper_mode(self) -> bool:
        """True if ZooKeeper keeps this cluster's metadata; its controller is then one of the brokers."""

    @property
    def changes_dead_brokers(self) -> bool:
        """True if `change_broker_configs` also changes brokers that are down, whose settings nobody can read then."""

    @property
    def in_migration(self) -> bool:
        """True if the cluster is being migrated from ZooKeeper to KRaft (KIP-866)."""

    def snapshot(self, topics: Collection[str] | None = None) -> Snapshot:
        """Return brokers, partitions and reassignments in flight, without sizes; only of `topics`, if given.

        Those of `topics` that we may not describe are not in `partitions`, as if they did not exist, but in `hidden`.
        """

    def live_brokers(self) -> dict[int, Broker]:
        """Return the brokers that serve."""

    def live_views(self, brokers: Collection[int], *, timeout_s: float = 2.0) -> dict[int, frozenset[int]]:
        """Return the brokers that each of `brokers` itself lists as live; a broker that does not answer is left out."""

    def reassignments(self) -> dict[TopicPartition, Reassignment]:
        """Return all reassignments in flight, ours and external ones."""

    def alter(
        self, targets: Mapping[TopicPartition, Assignment], *, keep_factor: bool = False
    ) -> dict[TopicPartition, KafkaRefused | None]:
        """Submit new assignments; with `keep_factor`, only such as change no replication factor (KIP-860)."""

    def name_directories(self, wanted: Mapping[Replica, str]) -> dict[Replica, ClusterError | None]:
        """Name the log directories of replicas that their brokers do not have yet (KIP-113)."""

    def cancel(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, KafkaRefused | None]:
        """Cancel the reassignments in flight of these partitions; the order of the replicas is lost."""

    def elect_leaders(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, KafkaRefused | None]:
        """Elect the preferred leaders of these partitions."""

    def log_dirs(self, brokers: Collection[int]) -> dict[int, BrokerLogDirs]:
        """Return bytes by replica, and the disks' space; a broker that does not answer is left out."""

    @property
    def log_dirs_failures(self) -> Mapping[int, str]:
        """The brokers that did not answer the last request for log directories, and why, as sentences."""

    def directories(self, brokers: Collection[int], *, timeout_s: float = 2.0) -> dict[int, BrokerLogDirs]:
        """Return the same without the contents of the directories: failed and cordoned ones. Fast, for the watch."""

    def log_sizes(self, held: Mapping[int, Collection[TopicPartition]]) -> dict[tuple[TopicPartition, int], int]:
        """Return the bytes of `held`'s partitions on those brokers.

        A replica that a broker does not have or does not report is left out.
        """

    def hidden_topics(self, topics: Collection[str]) -> frozenset[str]:
        """Return those of `topics` that we may not describe: it is unknown whether they exist."""

    def log_starts(self, held: Mapping[int, Collection[TopicPartition]]) -> dict[tuple[TopicPartition, int], LogStart]:
        """Return where the local logs of partitions with remote storage begin, by partition and broker."""

    def topic_configs(
        self, topics: Collection[str], names: Collection[str], *, own_only: bool = False
    ) -> dict[str, dict[str, str]]:
        """Return values by topic and key; with `own_only` only those set on the topic itself."""

    def broker_configs(
        self, brokers: Collection[int], names: Collection[str], *, own_only: bool = False
    ) -> dict[int, dict[str, str]]:
        """Return values by broker and key; with `own_only` only those set on the broker itself."""

    def broker_rates(self, brokers: Collection[int], keys: Collection[str]) -> dict[str, dict[int, BrokerRate]]:
        """Return the rates `keys` by broker: its own, and the one that applies without it.

        A broker that does not answer is left out.
        """

    def change_topic_configs(self, changes: Mapping[str, Sequence[ConfigChange]]) -> dict[str, KafkaRefused | None]:
        """Change single keys of topics."""

    def change_broker_configs(self, changes: Mapping[int, Sequence[ConfigChange]]) -> dict[int, ClusterError | None]:
        """Change single keys of brokers."""

    def change_default_broker_configs(self, changes: Sequence[ConfigChange]) -> KafkaRefused | None:
        """Change keys of the cluster-wide default, which applies to brokers without a value of their own."""


@dataclass(frozen=True)
class ClusterContext:
    """One cluster with its journal and settings, and the actor whom the audit trail names for each change."""

    cluster: ClusterPort
    journal: Journal
    settings: Settings
    actor: Actor
