"""More partitions for a topic. Kafka wants each of them to have as many replicas as the others have (KIP-409).

On KRaft, brokers that are registered and fenced may take their place, and Kafka itself fills them. Where even they are
too few, it is refused, or left as a request that is carried out when a broker joins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.state import Partition, Snapshot
from kafka_steward.errors import KafkaTimeout, RequestError
from kafka_steward.execution.filling.creating import TopicMaker
from kafka_steward.execution.filling.debtbook import debts, forget, write_down
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Entry, Outcome, Who
from kafka_steward.journal.changes import put, remove
from kafka_steward.journal.listing import ASKED_PARTITIONS
from kafka_steward.journal.open import Journal
from kafka_steward.journal.owed import AskedPartitions, OwedReplicas

__all__ = ["Added", "add_partitions", "asked_partitions", "carry_out_asked", "possible"]


#: Kafka's INVALID_PARTITIONS: it has as many already, among other things.
_AS_MANY = 37


@dataclass(frozen=True)
class Added:
    """What came of it: whether it was done now, left for later or needed nothing; and the sentence."""

    done: bool
    waits: bool
    sentence: str


def add_partitions(cluster: TopicMaker, journal: Journal, topic: str, count: int, *, later: bool, who: Who) -> Added:
    """Let `topic` have `count` partitions in all; with `later`, too few brokers leave a request for when one joins.

    Raises RequestError for a topic that does not exist or has more, and where there are too few brokers; KafkaRefused.
    """
    snapshot = cluster.snapshot()
    there = _partitions(snapshot, topic)
    if not there:
        raise RequestError(f"Topic {topic} does not exist; create it first.")
    if len(there) > count:
        raise RequestError(f"Topic {topic} has {len(there)} partitions already, more than {count}; Kafka removes none.")
    if len(there) == count:
        return Added(False, False, f"Topic {topic} has {count} partitions already.")
    if possible(there, snapshot):
        return _added(cluster, journal, topic, count, snapshot, who=who)
    lacking = (
        f"Topic {topic} has {_factor(there)} replicas of each partition, Kafka wants as many for new ones, and the "
        f"cluster has {len(snapshot.brokers)} brokers for them"
    )
    if not later:
        raise RequestError(f"{lacking}: wait for more, or ask with later=True to have it done when a broker joins.")
    _leave(journal, AskedPartitions(count, there[0].topic_id, who.person or who.dag_id or ""), topic)
    return Added(False, True, f"{lacking}: it is done when a broker joins.")


def possible(there: list[Partition], snapshot: Snapshot) -> bool:
    """Whether Kafka can place new partitions; it counts fenced brokers, and wants one that is live."""
    return bool(snapshot.live) and len(snapshot.brokers) >= _factor(there)


def asked_partitions(journal: Journal, snapshot: Snapshot) -> dict[str, AskedPartitions]:
    """By topic, the requests that can be carried out now, or are of no use any more."""
    found = {}
    for topic, asked in ((*each.key, each.document) for each in ASKED_PARTITIONS.found(journal.tree)):
        there = _partitions(snapshot, topic)
        if _why_not(asked, there) or possible(there, snapshot):
            found[topic] = asked
    return found


def carry_out_asked(cluster: TopicMaker, journal: Journal, who: Who) -> list[str]:
    """Carry out the requests that were left, as far as there are brokers by now; a sentence for each that is over."""
    snapshot = cluster.snapshot()
    told = []
    for topic, asked in asked_partitions(journal, snapshot).items():
        why = _why_not(asked, _partitions(snapshot, topic))
        if why:
            journal.audit.note(Entry(Action.DROP, why, topic=topic, after=asked.count, who=who))
            told.append(why)
        else:
            told.append(_added(cluster, journal, topic, asked.count, snapshot, who=who).sentence)
        node = journal.tree.get(paths.partitions_asked(topic))
        if node is not None:
            remove(journal.tree, node)
    return told


def _why_not(asked: AskedPartitions, there: list[Partition]) -> str:
    """Why a request is of no use any more; empty while it is."""
    if not there:
        return "the topic was deleted, so no partitions are added to it"
    if None not in (asked.topic_id, there[0].topic_id) and asked.topic_id != there[0].topic_id:
        return "the topic was created anew, so no partitions are added to it"
    return "someone else has added the partitions" if len(there) >= asked.count else ""


def _added(cluster: TopicMaker, journal: Journal, topic: str, count: int, snapshot: Snapshot, *, who: Who) -> Added:
    there = _partitions(snapshot, topic)
    new = write_down(journal, _owed(journal, topic, count, there, snapshot), "the topic is owed replicas", who)
    entry = Entry(
        Action.CREATE,
        "someone asked for more partitions",
        topic=topic,
        attempt=journal.now_ms() // 1000,
        before=len(there),
        after=count,
        who=who,
    )
    journal.audit.intend([entry])
    refused = None
    try:
        refused = cluster.create_partitions(topic, count)
    except KafkaTimeout as error:
        journal.audit.complete([entry], Outcome.UNKNOWN, str(error))
        if not _has(cluster, topic, count):
            raise
    journal.audit.complete([entry], Outcome.REFUSED if refused else Outcome.DONE, str(refused or ""))
    # A broker repeats what it hands on to the controller: it may be refused for what it has done.
    if refused is not None and not (refused.code == _AS_MANY and _has(cluster, topic, count)):
        forget(journal, new)
        raise refused
    owed = f" To each of the new ones, too, replicas are owed: {len(new)} partitions." if new else ""
    return Added(True, False, f"Topic {topic} has {count} partitions, {count - len(there)} of them new.{owed}")


def _has(cluster: TopicMaker, topic: str, count: int) -> bool:
    """Whether a topic that had fewer partitions has as many as were asked for."""
    return len(_partitions(cluster.snapshot([topic]), topic)) == count


def _owed(
    journal: Journal, topic: str, count: int, there: list[Partition], snapshot: Snapshot
) -> Mapping[TopicPartition, OwedReplicas]:
    """A topic to which replicas are owed gets new partitions with as few: as much is owed to them.

    Which brokers Kafka gives them is not known yet; how many is, and the next look writes down which.
    """
    targets = {debt.owed.target_rf for debt in debts(journal, snapshot) if debt.partition.topic == topic}
    if not targets or max(targets) <= _factor(there):
        return {}
    owed = OwedReplicas.of(there[0].replicas[: _factor(there)], max(targets), there[0].topic_id)
    return {TopicPartition(topic, number): owed for number in range(len(there), count)}


def _leave(journal: Journal, asked: AskedPartitions, topic: str) -> None:
    path = paths.partitions_asked(topic)
    node = journal.tree.get(path)
    if node is not None and AskedPartitions.from_node(node).count >= asked.count:
        return
    if put(journal.tree, path, node, asked.to_json()) is None:
        raise RequestError(f"Someone else asks for partitions of topic {topic} just now; ask again.")


def _partitions(snapshot: Snapshot, topic: str) -> list[Partition]:
    return [each for name, each in sorted(snapshot.partitions.items()) if name.topic == topic]


def _factor(there: list[Partition]) -> int:
    """The replication factor that Kafka wants new partitions to have: the first one's."""
    return len(set(there[0].replicas) - set(there[0].adding))
