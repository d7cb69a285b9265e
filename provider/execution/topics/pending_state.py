"""The pending replicas of partitions that were created with fewer replicas than their target (KIP-409). Pure.

KIP-409 puts placeholders, -1, -2, …, into Kafka's own assignment. Kafka rejects them, so the journal stores them. Every
reader compares them with the cluster: other clients may have deleted the topic since, re-created it, or changed its
replication factor. Then no replica is pending any more, and the message gives the reason.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import Enum

from kafka_steward.assignment import Assignment, TopicPartition, counted
from kafka_steward.cluster.state import Partition, Snapshot
from kafka_steward.journal.records import PendingReplicas

#: A broker may learn of a new topic late. For this time, in milliseconds, a missing topic does not count as deleted.
PROPAGATION_MS = 60_000


class PendingState(Enum):
    """The state of the pending replicas of one partition."""

    #: The topic was created a moment ago, or is about to be.
    COMING = "coming"
    #: Replicas are pending.
    OPEN = "open"
    #: A reassignment of the partition is in flight: the decision waits until it ends.
    MOVING = "moving"
    #: Kafka does not let us describe its topic.
    HIDDEN = "hidden"
    #: It has all its replicas: none is pending.
    SETTLED = "settled"
    #: No replica is pending any more, for the reason in the message.
    DROPPED = "dropped"


@dataclass(frozen=True)
class PendingReplica:
    """The pending replicas of one partition. `document` is the one to store now; `sentence` gives the reason."""

    partition: TopicPartition
    document: PendingReplicas
    state: PendingState
    sentence: str

    @property
    def missing(self) -> int:
        """Return the number of pending replicas."""
        return self.document.target_rf - len(self.document.brokers)

    @property
    def is_obsolete(self) -> bool:
        """Return True if the document is not needed any more."""
        return self.state in {PendingState.SETTLED, PendingState.DROPPED}


def evaluate_pending(
    name: TopicPartition,
    pending: PendingReplicas,
    partition: Partition | None,
    *,
    age_ms: int,
    filled: Collection[Assignment] = (),
    hidden: bool = False,
) -> PendingReplica:
    """Return the state of the pending replicas that were recorded `age_ms` milliseconds ago.

    `filled` are the assignments that fill plans gave the partition: only they account for a partial fill. With
    `hidden`, `partition` is None because we are not authorized to describe its topic.
    """
    if partition is None:
        return _evaluate_unseen_partition(name, pending, age_ms, hidden=hidden)
    if None not in (pending.topic_id, partition.topic_id) and pending.topic_id != partition.topic_id:
        return PendingReplica(name, pending, PendingState.DROPPED, f"{name}: its topic was deleted and re-created.")
    if partition.reassigning:
        return PendingReplica(name, pending, PendingState.MOVING, f"{name} is being moved.")
    known = PendingReplicas.from_brokers(partition.replicas, pending.target_rf, pending.topic_id or partition.topic_id)
    before, now, target = len(pending.brokers), len(partition.replicas), pending.target_rf
    if before <= now < target and (now == before or partition.replicas in filled):
        # A heal may have moved a replica since, so only the number of replicas is compared.
        kept = replace(pending, replicas=known.replicas, topic_id=known.topic_id)
        return PendingReplica(name, kept, PendingState.OPEN, f"{name} has {now} of {counted(target, 'replica')}.")
    if now == target:
        return PendingReplica(name, known, PendingState.SETTLED, f"{name} has all its {counted(target, 'replica')}.")
    return PendingReplica(
        name,
        pending,
        PendingState.DROPPED,
        f"{name}: its replication factor was changed externally from {before} to {now}.",
    )


def _evaluate_unseen_partition(
    name: TopicPartition, pending: PendingReplicas, age_ms: int, *, hidden: bool
) -> PendingReplica:
    if hidden:
        why = "Kafka does not let us describe its topic; grant our principal DESCRIBE on it"
        return PendingReplica(name, pending, PendingState.HIDDEN, f"{name}: {why}.")
    if age_ms < PROPAGATION_MS:
        return PendingReplica(name, pending, PendingState.COMING, f"{name} is not visible yet.")
    return PendingReplica(name, pending, PendingState.DROPPED, f"{name}: its topic was deleted, or never created.")


def target_replication_factors(all_pending: Iterable[PendingReplica], snapshot: Snapshot) -> dict[TopicPartition, int]:
    """Return the replication factor that each fillable partition can have now: at most one replica per live broker."""
    most = len(snapshot.live)
    return {
        pending.partition: min(most, pending.document.target_rf) for pending in find_fillable(all_pending, snapshot)
    }


def eligible_brokers(all_pending: Iterable[PendingReplica], snapshot: Snapshot) -> frozenset[int]:
    """Return the live brokers that are eligible for a pending replica: they have none of its partition (KIP-409)."""
    able = (snapshot.live - frozenset(pending.document.brokers) for pending in find_fillable(all_pending, snapshot))
    return frozenset(broker for several in able for broker in several)


def count_missing(all_pending: Iterable[PendingReplica]) -> int:
    """Return the number of pending replicas, without those of obsolete records."""
    return sum(pending.missing for pending in all_pending if not pending.is_obsolete)


def find_fillable(all_pending: Iterable[PendingReplica], snapshot: Snapshot) -> list[PendingReplica]:
    """Return the partitions that can be filled now, at least in part.

    All their brokers are live, and at least one other live broker has no replica.
    """
    # A move would stall on a dead broker: heal replaces that broker first.
    return [
        pending
        for pending in all_pending
        if pending.state is PendingState.OPEN and frozenset(pending.document.brokers) < snapshot.live
    ]
