"""Add partitions to a topic. Kafka requires as many replicas for new partitions as the others have (KIP-409).

On KRaft, Kafka may place replicas on brokers that are registered and fenced, and fills them itself. If even these are
too few, the call is refused, or deferred as a request that is executed when a broker joins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.state import Partition, Snapshot
from kafka_steward.errors import KafkaTimeout, RequestError
from kafka_steward.execution.filling.pending_replicas import delete_pending, list_pending, record_pending
from kafka_steward.execution.filling.topics import TopicAdmin
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Actor, AuditRecord, Outcome
from kafka_steward.journal.changes import put, remove
from kafka_steward.journal.listing import DEFERRED_PARTITIONS
from kafka_steward.journal.open import Journal
from kafka_steward.journal.pending import DeferredPartitions, PendingReplicas

__all__ = ["Added", "add_partitions", "deferred_partitions", "add_deferred_partitions", "can_place"]


#: Kafka's INVALID_PARTITIONS: among other causes, the topic has that many partitions already.
_AS_MANY = 37


@dataclass(frozen=True)
class Added:
    """The result: partitions created now (`done`), request deferred (`waits`), or neither; and the message."""

    done: bool
    waits: bool
    sentence: str


def add_partitions(cluster: TopicAdmin, journal: Journal, topic: str, count: int, *, later: bool, who: Actor) -> Added:
    """Create partitions until `topic` has `count` in total.

    With `later` and too few brokers, a deferred request is written, and executed when a broker joins.

    Raises RequestError for a topic that does not exist or has more partitions, for too few brokers without `later`, and
    when another process writes a deferred request for the topic concurrently; KafkaRefused.
    """
    snapshot = cluster.snapshot()
    there = _partitions(snapshot, topic)
    if not there:
        raise RequestError(f"Topic {topic} does not exist; create it first.")
    if len(there) > count:
        raise RequestError(f"Topic {topic} has {len(there)} partitions already, more than {count}; Kafka removes none.")
    if len(there) == count:
        return Added(False, False, f"Topic {topic} has {count} partitions already.")
    if can_place(there, snapshot):
        return _added(cluster, journal, topic, count, snapshot, who=who)
    lacking = (
        f"Topic {topic} has {_factor(there)} replicas of each partition, Kafka wants as many for new ones, and the "
        f"cluster has {len(snapshot.brokers)} brokers for them"
    )
    if not later:
        raise RequestError(f"{lacking}: wait for more, or ask with later=True to have it done when a broker joins.")
    _defer(journal, DeferredPartitions(count, there[0].topic_id, who.person or who.dag_id or ""), topic)
    return Added(False, True, f"{lacking}: it is done when a broker joins.")


def can_place(there: list[Partition], snapshot: Snapshot) -> bool:
    """Return whether Kafka can place new partitions: it counts fenced brokers, and requires one live broker."""
    return bool(snapshot.live) and len(snapshot.brokers) >= _factor(there)


def deferred_partitions(journal: Journal, snapshot: Snapshot) -> dict[str, DeferredPartitions]:
    """Return, by topic, the deferred requests that can be executed now or are obsolete."""
    found = {}
    for topic, asked in ((*each.key, each.document) for each in DEFERRED_PARTITIONS.found(journal.tree)):
        there = _partitions(snapshot, topic)
        if _why_not(asked, there) or can_place(there, snapshot):
            found[topic] = asked
    return found


def add_deferred_partitions(cluster: TopicAdmin, journal: Journal, who: Actor) -> list[str]:
    """Execute deferred requests for which there are enough brokers now; returns a message for each finished request."""
    snapshot = cluster.snapshot()
    told = []
    for topic, asked in deferred_partitions(journal, snapshot).items():
        why = _why_not(asked, _partitions(snapshot, topic))
        if why:
            journal.audit.record(AuditRecord(Action.DROP, why, topic=topic, after=asked.count, who=who))
            told.append(why)
        else:
            told.append(_added(cluster, journal, topic, asked.count, snapshot, who=who).sentence)
        node = journal.tree.get(paths.deferred_partitions(topic))
        if node is not None:
            remove(journal.tree, node)
    return told


def _why_not(asked: DeferredPartitions, there: list[Partition]) -> str:
    """Return why a request is obsolete; empty while it is not."""
    if not there:
        return "the topic was deleted, so no partitions are added to it"
    if None not in (asked.topic_id, there[0].topic_id) and asked.topic_id != there[0].topic_id:
        return "the topic was created anew, so no partitions are added to it"
    return "someone else has added the partitions" if len(there) >= asked.count else ""


def _added(cluster: TopicAdmin, journal: Journal, topic: str, count: int, snapshot: Snapshot, *, who: Actor) -> Added:
    there = _partitions(snapshot, topic)
    new = record_pending(journal, _owed(journal, topic, count, there, snapshot), "the topic is owed replicas", who)
    entry = AuditRecord(
        Action.CREATE,
        "someone asked for more partitions",
        topic=topic,
        attempt=journal.now_ms() // 1000,
        before=len(there),
        after=count,
        who=who,
    )
    journal.audit.record_intent([entry])
    refused = None
    try:
        refused = cluster.create_partitions(topic, count)
    except KafkaTimeout as error:
        journal.audit.record_outcome([entry], Outcome.UNKNOWN, str(error))
        if not _has(cluster, topic, count):
            raise
    journal.audit.record_outcome([entry], Outcome.REFUSED if refused else Outcome.DONE, str(refused or ""))
    # A broker retries what it forwards to the controller: the retry may be refused because the first attempt succeeded.
    if refused is not None and not (refused.code == _AS_MANY and _has(cluster, topic, count)):
        delete_pending(journal, new)
        raise refused
    owed = f" To each of the new ones, too, replicas are owed: {len(new)} partitions." if new else ""
    return Added(True, False, f"Topic {topic} has {count} partitions, {count - len(there)} of them new.{owed}")


def _has(cluster: TopicAdmin, topic: str, count: int) -> bool:
    """Return whether the topic has exactly the requested number of partitions now."""
    return len(_partitions(cluster.snapshot([topic]), topic)) == count


def _owed(
    journal: Journal, topic: str, count: int, there: list[Partition], snapshot: Snapshot
) -> Mapping[TopicPartition, PendingReplicas]:
    """Return the pending replicas of the new partitions, for a topic that has pending replicas.

    New partitions get as few replicas as the existing ones, so they have as many pending replicas. The brokers that
    Kafka will assign are not known yet, but their number is; the next poll records the brokers.
    """
    targets = {debt.document.target_rf for debt in list_pending(journal, snapshot) if debt.partition.topic == topic}
    if not targets or max(targets) <= _factor(there):
        return {}
    owed = PendingReplicas.of(there[0].replicas[: _factor(there)], max(targets), there[0].topic_id)
    return {TopicPartition(topic, number): owed for number in range(len(there), count)}


def _defer(journal: Journal, asked: DeferredPartitions, topic: str) -> None:
    path = paths.deferred_partitions(topic)
    node = journal.tree.get(path)
    if node is not None and DeferredPartitions.from_node(node).count >= asked.count:
        return
    if put(journal.tree, path, node, asked.to_json()) is None:
        raise RequestError(f"Someone else asks for partitions of topic {topic} just now; ask again.")


def _partitions(snapshot: Snapshot, topic: str) -> list[Partition]:
    return [each for name, each in sorted(snapshot.partitions.items()) if name.topic == topic]


def _factor(there: list[Partition]) -> int:
    """Return the replication factor that Kafka requires for new partitions: that of the first partition."""
    return len(set(there[0].replicas) - set(there[0].adding))
