"""What is owed to partitions that were made with fewer replicas than they shall have (KIP-409). Pure.

KIP-409 puts placeholders, -1, -2, …, into Kafka's own assignment. Kafka does not take them, so they stand in our
journal. Whoever reads them there compares them with the cluster: others may have deleted the topic since, created it
anew, or given it another replication factor. Then nothing is owed any more, and it is said why.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import Enum

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.cluster.state import Partition, Snapshot
from kafka_steward.journal.owed import OwedReplicas

__all__ = ["Debt", "NEWS_MS", "Standing", "judge", "payable", "takers", "targets"]

#: A broker may hear of a new topic later than we; until then a topic that is not there is not held for deleted.
NEWS_MS = 60_000


class Standing(Enum):
    """Where a debt stands."""

    #: The topic was created a moment ago, or is about to be.
    COMING = "coming"
    #: Replicas are owed.
    OPEN = "open"
    #: The partition is being moved: judged when that has ended.
    MOVING = "moving"
    #: Kafka does not let us describe its topic.
    HIDDEN = "hidden"
    #: It has all its replicas.
    SETTLED = "settled"
    #: Nothing is owed any more, for a reason.
    DROPPED = "dropped"


@dataclass(frozen=True)
class Debt:
    """What is owed to one partition, judged. `owed` is as it should be written down now; `sentence` says why."""

    partition: TopicPartition
    owed: OwedReplicas
    standing: Standing
    sentence: str

    @property
    def missing(self) -> int:
        """How many replicas are owed."""
        return self.owed.target_rf - len(self.owed.brokers)

    @property
    def over(self) -> bool:
        """Whether it need not be written down any more."""
        return self.standing in {Standing.SETTLED, Standing.DROPPED}


def judge(
    name: TopicPartition,
    owed: OwedReplicas,
    partition: Partition | None,
    *,
    age_ms: int,
    filled: Collection[Assignment] = (),
    hidden: bool = False,
) -> Debt:
    """Where the debt stands that was written down `age_ms` ago.

    `filled` are assignments that fill gave the partition: only by them may it have come part of the way. With `hidden`,
    there is no `partition` because we may not describe its topic.
    """
    if partition is None:
        return _without_partition(name, owed, age_ms, hidden=hidden)
    if None not in (owed.topic_id, partition.topic_id) and owed.topic_id != partition.topic_id:
        return Debt(name, owed, Standing.DROPPED, f"{name}: its topic was deleted and created anew.")
    if partition.reassigning:
        return Debt(name, owed, Standing.MOVING, f"{name} is being moved.")
    known = OwedReplicas.of(partition.replicas, owed.target_rf, owed.topic_id or partition.topic_id)
    before, now, target = len(owed.brokers), len(partition.replicas), owed.target_rf
    if before <= now < target and (now == before or partition.replicas in filled):
        # A heal may have moved a replica since: what counts is how many there are.
        kept = replace(owed, replicas=known.replicas, topic_id=known.topic_id)
        return Debt(name, kept, Standing.OPEN, f"{name} has {now} of {target} replicas.")
    if now == target:
        return Debt(name, known, Standing.SETTLED, f"{name} has all its {target} replicas.")
    return Debt(name, owed, Standing.DROPPED, f"{name}: someone changed its replication factor from {before} to {now}.")


def _without_partition(name: TopicPartition, owed: OwedReplicas, age_ms: int, *, hidden: bool) -> Debt:
    if hidden:
        why = "Kafka does not let us describe its topic; grant our principal DESCRIBE on it"
        return Debt(name, owed, Standing.HIDDEN, f"{name}: {why}.")
    if age_ms < NEWS_MS:
        return Debt(name, owed, Standing.COMING, f"{name} is not to be seen yet.")
    return Debt(name, owed, Standing.DROPPED, f"{name}: its topic was deleted, or never created.")


def targets(debts: Iterable[Debt], snapshot: Snapshot) -> dict[TopicPartition, int]:
    """The replicas that each partition can have now of those that it shall have: one on each live broker at most."""
    most = len(snapshot.live)
    return {debt.partition: min(most, debt.owed.target_rf) for debt in payable(debts, snapshot)}


def takers(debts: Iterable[Debt], snapshot: Snapshot) -> frozenset[int]:
    """Live brokers that can be given an owed replica: they hold none of its partition yet (KIP-409)."""
    able = (snapshot.live - frozenset(debt.owed.brokers) for debt in payable(debts, snapshot))
    return frozenset(broker for several in able for broker in several)


def payable(debts: Iterable[Debt], snapshot: Snapshot) -> list[Debt]:
    """The debts that can be paid now, in part at least: a live broker holds no replica, and all that do are live."""
    # A move would hang on a dead one: that is heal's to replace first.
    return [debt for debt in debts if debt.standing is Standing.OPEN and frozenset(debt.owed.brokers) < snapshot.live]
