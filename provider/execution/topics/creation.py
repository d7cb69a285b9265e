"""Create topics, even while fewer brokers are live than replicas were requested, and add partitions (KIP-409).

Fewer live brokers than replicas suffice if they are min(min.insync.replicas, replication factor). On KRaft, Kafka then
places replicas on brokers that are registered and fenced, and fills them itself. Kafka is therefore requested to place
all replicas first: a client of Kafka before 4.0 cannot list the fenced brokers. If Kafka refuses, because the
registered brokers are too few, and always in ZooKeeper mode, a topic is created on the live brokers, and the other
replicas are pending.

`assign_to_live_brokers` decides, purely; `create_topic` executes: it records the pending replicas first, and then sends
one request to Kafka. A crash in between leaves a pending-replica record of a topic that does not exist. That record is
dropped; a second attempt finds the topic, or creates it. If Kafka does not answer, or answers that a topic exists that
did not exist before (a broker retries what it forwards to the controller), the existing topic is compared with the
request. No second request follows one that Kafka may have executed.

Kafka requires as many replicas for new partitions as the others have. If there are too few brokers, the call is
refused, or deferred as a request that is executed when a broker joins. No process but a watch of this journal detects
pending replicas.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kafka_steward.assignment import Assignment, TopicPartition, counted
from kafka_steward.cluster.state import Partition, Snapshot
from kafka_steward.errors import KafkaRefused, KafkaTimeout, RequestError
from kafka_steward.execution.cluster_queries import (
    MIN_ISR,
    cordoned_brokers,
    describe_topic,
    min_isr_by_topic,
    readable_topic_configs,
    with_hidden_topics,
)
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.execution.topics.pending import delete_pending, list_pending, reconcile_pending, record_pending
from kafka_steward.journal.audit import Action, Actor, AuditRecord, Outcome, event_number
from kafka_steward.journal.document import sanitize_text
from kafka_steward.journal.records import (
    DEFERRED_PARTITIONS,
    FAILED_BROKERS,
    RESTARTS,
    DeferredPartitions,
    PendingReplicas,
)
from kafka_steward.journal.store import Journal

#: The kind of poll that each watch runs, many times a minute.
_LOOK = "failures"

_LATELY_MS = 600_000


def unwatched_reason(journal: Journal) -> str:
    """Return a message for the user when no watch has polled within `_LATELY_MS`, else "". Raises JournalUnreachable.

    A running watch that uses another journal, on another host, cannot be distinguished from one that does not run.
    """
    if journal.hosts is None:
        return ""
    ages_ms = [row["age_ms"] for row in journal.hosts.polls() if row["kind"] == _LOOK]
    if ages_ms and min(ages_ms) < _LATELY_MS:
        return ""
    since = f"in the last {min(ages_ms) // 60_000} minutes" if ages_ms else "ever"
    return (
        f"No watch has polled this journal {since}, so no fill starts automatically: unpause the DAG fill, and check "
        "that the setting journal names the one database that all hosts of this Airflow share."
    )


#: Kafka's TOPIC_ALREADY_EXISTS.
_EXISTS = 36

#: Kafka's INVALID_REPLICATION_FACTOR: among other causes, there are too few brokers.
_TOO_FEW_BROKERS = 38


class TopicAdminPort(ClusterPort, Protocol):
    """A cluster in which topics can be created; KafkaCluster is one."""

    def create_topic(
        self,
        topic: str,
        partitions: int,
        replication_factor: int,
        *,
        assignments: Sequence[Assignment] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> KafkaRefused | None:
        """Create a topic."""

    def create_partitions(
        self, topic: str, count: int, assignments: Sequence[Assignment] | None = None
    ) -> KafkaRefused | None:
        """Create partitions until the topic has `count` in total."""


@dataclass(frozen=True)
class TopicSpec:
    """A requested topic. Raises RequestError for numbers below 1."""

    topic: str
    partitions: int
    replication_factor: int
    settings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for what, number in (("partitions", self.partitions), ("replication_factor", self.replication_factor)):
            if number < 1:
                raise RequestError(f"Topic {self.topic} was requested with {what} {number}; the minimum is 1.")


@dataclass(frozen=True)
class CreateTopicResult:
    """The result: whether the topic existed before, the number of `pending` replicas, and the message."""

    existed: bool
    pending: int
    sentence: str


def assign_to_live_brokers(wanted: TopicSpec, live: frozenset[int], known: frozenset[int]) -> tuple[Assignment, ...]:
    """Return each partition's assignment when Kafka cannot place all replicas.

    Every live broker gets a replica of every partition, and leads its share. Raises RequestError for more replicas than
    `known` brokers, which include the failed ones: the missing replicas would stay pending forever.
    """
    if wanted.replication_factor > len(known):
        raise RequestError(
            f"Topic {wanted.topic} was not created: {counted(wanted.replication_factor, 'replica', 'was', 'were')} "
            f"requested, and {_known_brokers(known)}; request at most {len(known)}, or start more brokers first."
        )
    brokers = sorted(live)
    return tuple(_rotate_brokers(brokers, number) for number in range(wanted.partitions))


def _known_brokers(known: frozenset[int]) -> str:
    return (
        f"{counted(len(known), 'broker', 'is', 'are')} known (live, registered, with replicas, or in the journal as "
        "failed or restarting)"
    )


def required_live_brokers(min_isr: int, factor: int) -> int:
    """Return how many live brokers new partitions need (KIP-409): with fewer, acks=all would fail. Pure."""
    return min(min_isr, factor)


def find_known_brokers(journal: Journal, snapshot: Snapshot) -> frozenset[int]:
    """Return the brokers of the cluster, those that are down included: how large it can be in normal operation.

    They are live or registered, or host a replica, or the journal names them as failed or as being restarted.
    """
    named = (
        entry.key[0] for collection in (FAILED_BROKERS, RESTARTS) for entry in collection.list_valid(journal.mailbox)
    )
    hosting = (broker for broker in snapshot.hosting_brokers if broker >= 0)  # ZooKeeper mode accepts placeholders
    return frozenset((*snapshot.brokers, *hosting, *named))


def _rotate_brokers(brokers: Sequence[int], number: int) -> Assignment:
    """Return the brokers rotated by the partition number; the followers are rotated further in each round."""
    first, turn = number % len(brokers), number // len(brokers)
    rest = [*brokers[first + 1 :], *brokers[:first]]
    turn %= len(rest) or 1
    return (brokers[first], *rest[turn:], *rest[:turn])


def create_topic(
    cluster: TopicAdminPort, journal: Journal, wanted: TopicSpec, *, allowed: bool, who: Actor
) -> CreateTopicResult:
    """Create a topic; with `allowed`, also on fewer brokers than replicas: the rest is pending (KIP-409).

    On KRaft, Kafka places replicas on fenced brokers, whether `allowed` or not. Raises RequestError when the topic
    exists with other numbers, when too few brokers are live, and for more replicas than known brokers; KafkaRefused.
    """
    snapshot = cluster.snapshot()
    there = {name: partition for name, partition in snapshot.partitions.items() if name.topic == wanted.topic}
    if there:
        reconcile_pending(cluster, journal, snapshot, who)
        return _check_existing_topic(journal, wanted, there, snapshot)
    min_isr = _effective_min_isr(cluster, wanted, snapshot)
    # A cordoned broker takes no new replica (KIP-1066).
    able = snapshot.live - cordoned_brokers(cluster, snapshot.live)
    needed = required_live_brokers(min_isr, wanted.replication_factor)
    # In ZooKeeper mode, Kafka itself refuses what is not allowed.
    if len(able) < needed and (allowed or not cluster.zookeeper_mode):
        raise RequestError(
            f"Topic {wanted.topic} was not created: it needs {counted(needed, 'broker')}, by its min.insync.replicas "
            f"and replication factor, and {len(able)} {'is' if len(able) == 1 else 'are'} live; restore brokers, or "
            "lower min.insync.replicas."
        )
    too_few = len(able) < wanted.replication_factor
    known = find_known_brokers(journal, snapshot)
    if not (too_few and allowed and cluster.zookeeper_mode):
        refused = _submit_topic(cluster, journal, wanted, None, who)
        if refused is None:
            return _created_topic(wanted, {})
        if not too_few or refused.code != _TOO_FEW_BROKERS:
            raise refused
        if not allowed:
            raise _add_hint_to_refusal(refused, wanted, able, known, enough=len(able) >= needed)
    return _create_with_pending(cluster, journal, wanted, assign_to_live_brokers(wanted, able, known), who)


def _create_with_pending(
    cluster: TopicAdminPort, journal: Journal, wanted: TopicSpec, assignments: Sequence[Assignment], who: Actor
) -> CreateTopicResult:
    pending = _build_pending_replicas(wanted, assignments)
    brokers = counted(len(assignments[0]), "broker", "is", "are")
    reason = f"{brokers} live, and {counted(wanted.replication_factor, 'replica', 'was', 'were')} requested"
    # Before the topic: after a crash in between, nothing else would say that replicas are to be added.
    new = record_pending(journal, pending, reason, who)
    refused = _submit_topic(cluster, journal, wanted, assignments, who)
    if refused is not None:
        delete_pending(journal, new)
        raise refused
    return _created_topic(wanted, pending)


def _created_topic(wanted: TopicSpec, pending: Mapping[TopicPartition, PendingReplicas]) -> CreateTopicResult:
    message = _creation_message(wanted, pending, f"was created with {counted(wanted.partitions, 'partition')}")
    return CreateTopicResult(False, _count_missing_replicas(pending), message)


def _submit_topic(
    cluster: TopicAdminPort,
    journal: Journal,
    wanted: TopicSpec,
    assignments: Sequence[Assignment] | None,
    who: Actor,
) -> KafkaRefused | None:
    """Send one request; return None if the topic exists as requested afterwards, else Kafka's refusal."""
    after = {"partitions": wanted.partitions, "replication_factor": wanted.replication_factor}
    placed = {} if assignments is None else {"assignments": [list(assignment) for assignment in assignments]}
    entry = AuditRecord(
        Action.CREATE,
        "a user requested the topic",
        topic=wanted.topic,
        attempt=event_number(),
        after=after | placed,
        who=who,
    )
    journal.audit.record_intent([entry])
    try:
        refused = cluster.create_topic(
            wanted.topic,
            wanted.partitions,
            wanted.replication_factor,
            assignments=assignments,
            settings=wanted.settings,
        )
    except KafkaTimeout as error:
        journal.audit.record_outcome([entry], Outcome.UNKNOWN, str(error))
        if not _is_as_requested(cluster, wanted, assignments):
            raise
        return None
    journal.audit.record_outcome([entry], Outcome.REFUSED if refused else Outcome.DONE, str(refused or ""))
    # A broker repeats what it forwards to the controller: the topic that exists may be the one that was just created.
    exists = refused is not None and refused.code == _EXISTS and _is_as_requested(cluster, wanted, assignments)
    return None if exists else refused


def _is_as_requested(cluster: TopicAdminPort, wanted: TopicSpec, assignments: Sequence[Assignment] | None) -> bool:
    """Return whether the topic exists with the requested partitions, replicas and settings. Raises KafkaRefused."""
    partitions = describe_topic(cluster, wanted.topic).partitions
    there = {name.partition: partition.replicas for name, partition in partitions.items() if name.topic == wanted.topic}
    if sorted(there) != list(range(wanted.partitions)):
        return False
    placed = [there[number] for number in range(wanted.partitions)]
    if assignments is not None and placed != list(assignments):
        return False
    if any(len(replicas) != wanted.replication_factor for replicas in placed if assignments is None):
        return False
    own = cluster.topic_configs([wanted.topic], list(wanted.settings), own_only=True) if wanted.settings else {}
    return own.get(wanted.topic, {}) == {name: str(value) for name, value in wanted.settings.items()}


def _check_existing_topic(
    journal: Journal, wanted: TopicSpec, there: Mapping[TopicPartition, Partition], snapshot: Snapshot
) -> CreateTopicResult:
    still = {
        pending.partition: pending.document for pending in list_pending(journal, snapshot) if not pending.is_obsolete
    }
    factors = {
        still[name].target_rf if name in still else len(set(partition.replicas) - set(partition.adding))
        for name, partition in there.items()
    }
    if factors != {wanted.replication_factor}:
        existing = ", ".join(map(str, sorted(factors)))
        raise RequestError(
            f"Topic {wanted.topic} exists with replication factor {existing}, and {wanted.replication_factor} was "
            "requested; to change it, make a plan with the operation set-replication-factor."
        )
    if len(there) != wanted.partitions:
        raise RequestError(
            f"Topic {wanted.topic} exists with {counted(len(there), 'partition')}, and {wanted.partitions} "
            f"{'was' if wanted.partitions == 1 else 'were'} requested; to add partitions, use CreatePartitionsOperator."
        )
    pending = {name: still[name] for name in there if name in still}
    return CreateTopicResult(
        True, _count_missing_replicas(pending), _creation_message(wanted, pending, "already exists")
    )


def _build_pending_replicas(
    wanted: TopicSpec, assignments: Sequence[Assignment]
) -> dict[TopicPartition, PendingReplicas]:
    return {
        TopicPartition(wanted.topic, number): PendingReplicas.from_brokers(brokers, wanted.replication_factor)
        for number, brokers in enumerate(assignments)
    }


def _count_missing_replicas(pending: Mapping[TopicPartition, PendingReplicas]) -> int:
    return sum(document.target_rf - len(document.brokers) for document in pending.values())


def _creation_message(wanted: TopicSpec, pending: Mapping[TopicPartition, PendingReplicas], what: str) -> str:
    message = f"Topic {wanted.topic} {what}"
    if not pending:
        return f"{message}, each with {counted(wanted.replication_factor, 'replica')}."
    missing = _count_missing_replicas(pending)
    replicas, verb = counted(missing, "replica"), "is" if missing == 1 else "are"
    return (
        f"{message}; {replicas} of {counted(len(pending), 'partition')} {verb} pending, and {verb} added when brokers "
        "join."
    )


def _effective_min_isr(cluster: ClusterPort, wanted: TopicSpec, snapshot: Snapshot) -> int:
    given = str(wanted.settings.get(MIN_ISR, ""))
    if given.isdecimal():  # Kafka rejects any other text with its own error message
        return int(given)
    configs = cluster.broker_configs(sorted(snapshot.live), [MIN_ISR])
    return max((int(of[MIN_ISR]) for of in configs.values() if MIN_ISR in of), default=1)


def _add_hint_to_refusal(
    refused: KafkaRefused, wanted: TopicSpec, able: frozenset[int], known: frozenset[int], *, enough: bool
) -> KafkaRefused:
    """Return the refusal of a topic for which too few brokers are live, with the remedy.

    If `enough` brokers are live for its min.insync.replicas, the remedy may be our setting.
    """
    hint = f"Only {counted(len(able), 'broker', 'is', 'are')} live: wait for more"
    if wanted.replication_factor > len(known):
        hint = f"Only {_known_brokers(known)}: request at most {counted(len(known), 'replica')}, or start more brokers"
    elif enough:
        hint = (
            f"{hint}, or set enable_under_replicated_topic_creation, which creates it with fewer replicas and adds the "
            "rest later"
        )
    return KafkaRefused(refused.code, refused.message, f"{refused} {hint}.")


#: Kafka's INVALID_PARTITIONS: among other causes, the topic has that many partitions already.
_AS_MANY = 37


@dataclass(frozen=True)
class AddPartitionsResult:
    """The result: partitions created now (`done`), request deferred (`waits`), or neither; and the message."""

    done: bool
    waits: bool
    sentence: str


def add_partitions(
    cluster: TopicAdminPort, journal: Journal, topic: str, count: int, *, later: bool, who: Actor
) -> AddPartitionsResult:
    """Create partitions until `topic` has `count` in total.

    With `later` and too few brokers, a deferred request is written, and executed when a broker joins. As for topics,
    min(min.insync.replicas, replication factor) brokers have to be live (KIP-409).

    Raises RequestError for a topic that does not exist or has more partitions, for too few brokers without `later`, and
    when another process writes a deferred request for the topic concurrently; KafkaRefused.
    """
    snapshot = cluster.snapshot()
    there = _partitions_of_topic(snapshot, topic) or _partitions_of_topic(describe_topic(cluster, topic), topic)
    if not there:
        raise RequestError(f"Topic {topic} does not exist; create it first.")
    if len(there) > count:
        raise RequestError(
            f"Topic {topic} already has {counted(len(there), 'partition')}, more than {count}; Kafka cannot remove "
            "partitions."
        )
    if len(there) == count:
        return AddPartitionsResult(False, False, f"Topic {topic} already has {counted(count, 'partition')}.")
    min_isr = min_isr_by_topic(cluster, [topic]).get(topic, 1)
    cordoned = cordoned_brokers(cluster, snapshot.live)
    lacking = live_broker_shortage(topic, there, snapshot.live - cordoned, min_isr, zookeeper=cluster.zookeeper_mode)
    if not lacking:
        try:
            return _create_partitions(cluster, journal, topic, count, snapshot, who=who)
        except KafkaRefused as refused:
            if refused.code != _TOO_FEW_BROKERS:
                raise
        lacking = _broker_shortage(topic, there, snapshot.brokers.keys() - cordoned)
    if not later:
        raise RequestError(f"{lacking}: wait for more, or pass later=True to add them when a broker joins.")
    _store_deferred_request(
        journal, DeferredPartitions(count, there[0].topic_id, sanitize_text(who.person or who.dag_id or "")), topic
    )
    return AddPartitionsResult(False, True, f"{lacking}: they are added when a broker joins.")


def live_broker_shortage(
    topic: str, there: list[Partition], able: frozenset[int], min_isr: int, *, zookeeper: bool
) -> str:
    """Return why too few brokers are live for new partitions, else "" (KIP-409). Pure.

    `able` are the live brokers that are not cordoned. In ZooKeeper mode, Kafka places replicas on those alone. On
    KRaft, it also counts fenced brokers; they may be unknown to us, so only Kafka can refuse.
    """
    if zookeeper and len(able) < _replication_factor(there):
        return _broker_shortage(topic, there, able)
    needed = required_live_brokers(min_isr, _replication_factor(there))
    if len(able) >= needed:
        return ""
    return (
        f"Topic {topic} needs {needed} live brokers for new partitions, by its min.insync.replicas and replication "
        f"factor, and {len(able)} are live"
    )


def _broker_shortage(topic: str, there: list[Partition], brokers: Collection[int]) -> str:
    return (
        f"Topic {topic} has {counted(_replication_factor(there), 'replica')} of each partition, Kafka requires as many "
        f"for new ones, and the cluster has {counted(len(brokers), 'broker', 'that accepts', 'that accept')} replicas"
    )


def find_due_deferred_partitions(
    cluster: ClusterPort, journal: Journal, snapshot: Snapshot
) -> dict[str, DeferredPartitions]:
    """Return, by topic, the deferred requests that can be executed now or are obsolete. Raises ClusterError.

    A request for a topic that we may not describe, or whose settings we may not read, is neither.
    """
    requests = {row.key: row.value for row in journal.rows(DEFERRED_PARTITIONS).all()}
    hidden = with_hidden_topics(cluster, snapshot, requests).hidden
    there = {topic: _partitions_of_topic(snapshot, topic) for topic in requests if topic not in hidden}
    obsolete = {topic for topic, partitions in there.items() if _obsolete_reason(requests[topic], partitions)}
    configs, _ = readable_topic_configs(cluster, sorted(there.keys() - obsolete), [MIN_ISR])
    cordoned = cordoned_brokers(cluster, snapshot.live) if configs else frozenset[int]()
    placeable = {
        topic
        for topic, of in configs.items()
        if can_place_partitions(there[topic], snapshot, int(of.get(MIN_ISR, 1)), cordoned)
    }
    return {topic: requests[topic] for topic in requests if topic in obsolete | placeable}


def can_place_partitions(
    there: list[Partition], snapshot: Snapshot, min_isr: int, cordoned: frozenset[int] = frozenset()
) -> bool:
    """Return whether Kafka can place new partitions: it counts fenced brokers. Pure.

    As many brokers have to be live as a producer with acks=all needs (KIP-409).
    """
    factor = _replication_factor(there)
    enough_live = len(snapshot.live - cordoned) >= required_live_brokers(min_isr, factor)
    return enough_live and len(snapshot.brokers.keys() - cordoned) >= factor


def add_deferred_partitions(cluster: TopicAdminPort, journal: Journal, who: Actor) -> list[str]:
    """Execute deferred requests for which there are enough brokers now; returns a message for each finished request.

    Raises Kafka's refusal of a topic when all other requests are done: that request stays.
    """
    snapshot = cluster.snapshot()
    messages = []
    refusals: list[KafkaRefused] = []
    for topic, asked in find_due_deferred_partitions(cluster, journal, snapshot).items():
        why = _obsolete_reason(asked, _partitions_of_topic(snapshot, topic))
        if why:
            journal.audit.record(AuditRecord(Action.DROP, why, topic=topic, after=asked.count, who=who))
            messages.append(why)
        else:
            try:
                messages.append(_create_partitions(cluster, journal, topic, asked.count, snapshot, who=who).sentence)
            except KafkaRefused as refused:
                refusals.append(refused)
                continue
        rows = journal.rows(DEFERRED_PARTITIONS)
        row = rows.get(topic)
        if row is not None:
            rows.delete(row)
    if refusals:
        raise refusals[0]
    return messages


def _obsolete_reason(asked: DeferredPartitions, there: list[Partition]) -> str:
    """Return why a request is obsolete; empty while it is not."""
    if not there:
        return "the topic was deleted, so no partitions are added to it"
    if None not in (asked.topic_id, there[0].topic_id) and asked.topic_id != there[0].topic_id:
        return "the topic was deleted and re-created, so no partitions are added to it"
    return "the partitions were added externally" if len(there) >= asked.count else ""


def _create_partitions(
    cluster: TopicAdminPort, journal: Journal, topic: str, count: int, snapshot: Snapshot, *, who: Actor
) -> AddPartitionsResult:
    there = _partitions_of_topic(snapshot, topic)
    new = record_pending(
        journal,
        _pending_of_new_partitions(journal, topic, count, there, snapshot),
        "replicas of the topic are pending",
        who,
    )
    entry = AuditRecord(
        Action.CREATE,
        "a user requested more partitions",
        topic=topic,
        attempt=event_number(),
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
        if not _has_partition_count(cluster, topic, count):
            raise
    journal.audit.record_outcome([entry], Outcome.REFUSED if refused else Outcome.DONE, str(refused or ""))
    # A broker retries what it forwards to the controller: the retry may be refused because the first attempt succeeded.
    if refused is not None and not (refused.code == _AS_MANY and _has_partition_count(cluster, topic, count)):
        delete_pending(journal, new)
        raise refused
    pending_part = (
        f" {len(new)} of the new partitions {'has' if len(new) == 1 else 'have'} pending replicas." if new else ""
    )
    return AddPartitionsResult(
        True, False, f"Topic {topic} has {counted(count, 'partition')}, {count - len(there)} of them new.{pending_part}"
    )


def _has_partition_count(cluster: TopicAdminPort, topic: str, count: int) -> bool:
    """Return whether the topic has exactly the requested number of partitions now. Raises KafkaRefused."""
    return len(_partitions_of_topic(describe_topic(cluster, topic), topic)) == count


def _pending_of_new_partitions(
    journal: Journal, topic: str, count: int, there: list[Partition], snapshot: Snapshot
) -> Mapping[TopicPartition, PendingReplicas]:
    """Return the pending replicas of the new partitions, for a topic that has pending replicas.

    New partitions get as few replicas as the existing ones, so they have as many pending replicas. The brokers that
    Kafka will assign are not known yet, but their number is; the next poll records the brokers.
    """
    targets = {
        pending.document.target_rf for pending in list_pending(journal, snapshot) if pending.partition.topic == topic
    }
    if not targets or max(targets) <= _replication_factor(there):
        return {}
    pending = PendingReplicas.from_brokers(
        there[0].replicas[: _replication_factor(there)], max(targets), there[0].topic_id
    )
    return {TopicPartition(topic, number): pending for number in range(len(there), count)}


def _store_deferred_request(journal: Journal, asked: DeferredPartitions, topic: str) -> None:
    rows = journal.rows(DEFERRED_PARTITIONS)
    row = rows.get(topic)
    if row is not None and row.value.count >= asked.count:
        return
    if rows.put(topic, asked, row) is None:
        raise RequestError(f"Another process is requesting partitions of topic {topic}; try again.")


def _partitions_of_topic(snapshot: Snapshot, topic: str) -> list[Partition]:
    return [partition for name, partition in sorted(snapshot.partitions.items()) if name.topic == topic]


def _replication_factor(there: list[Partition]) -> int:
    """Return the replication factor that Kafka requires for new partitions: that of the first partition."""
    return len(set(there[0].replicas) - set(there[0].adding))
