"""What execution needs of a cluster. `KafkaCluster` satisfies it, and so does the simulator of the tests."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.cluster.state import Broker, LogDir, Reassignment, Snapshot
from kafka_steward.cluster.throttles import Configurable
from kafka_steward.errors import KafkaRefused

__all__ = ["ClusterPort"]


class ClusterPort(Configurable, Protocol):
    """One Kafka cluster. Any method may raise ClusterUnreachable; a change may raise KafkaTimeout, be it done or not.

    A refusal of a part is returned, in Kafka's own words, and not raised.
    """

    @property
    def cluster_id(self) -> str:
        """Kafka's own id of the cluster."""

    def snapshot(self, topics: Collection[str] | None = None) -> Snapshot:
        """Brokers, partitions and what is in flight, without sizes."""

    def live_brokers(self) -> dict[int, Broker]:
        """The brokers that serve."""

    def live_views(self, brokers: Collection[int], *, timeout_s: float = 2.0) -> dict[int, frozenset[int]]:
        """What each of `brokers` itself lists as live; one that does not answer is left out."""

    def reassignments(self) -> dict[TopicPartition, Reassignment]:
        """Everything in flight, whoever started it."""

    def alter(
        self, targets: Mapping[TopicPartition, Assignment], *, keep_factor: bool = False
    ) -> dict[TopicPartition, KafkaRefused | None]:
        """Ask for new assignments; with `keep_factor`, only such as change no replication factor (KIP-860)."""

    def cancel(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, KafkaRefused | None]:
        """Cancel what is in flight; the order of replicas is lost."""

    def elect_leaders(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, KafkaRefused | None]:
        """Make the preferred leaders lead."""

    def log_dirs(self, brokers: Collection[int]) -> dict[int, LogDir]:
        """Bytes by replica, and the disks' space; a broker that does not answer is left out."""

    def directories(self, brokers: Collection[int], *, timeout_s: float = 2.0) -> dict[int, LogDir]:
        """The same without what is in the directories: which have failed, which are cordoned. Soon, for the watch."""

    def log_sizes(self, held: Mapping[int, Collection[TopicPartition]]) -> dict[tuple[TopicPartition, int], int]:
        """Bytes of `held`'s partitions on those brokers; what a broker does not hold or tell is left out."""

    def hidden_topics(self, topics: Collection[str]) -> frozenset[str]:
        """Those of `topics` that we may not describe: of them, nobody can say whether they exist."""
