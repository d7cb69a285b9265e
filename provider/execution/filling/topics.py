"""Create topics, even while fewer brokers are live than replicas were requested (KIP-409).

`creation_of` decides, purely; `create_topic` executes: it records the pending replicas first, and then sends one
request to Kafka. A crash in between leaves a pending-replica record of a topic that does not exist. That record is
dropped; a second attempt finds the topic, or creates it. If Kafka does not answer, or answers that a topic exists that
did not exist before (a broker retries what it forwards to the controller), the existing topic is compared with the
request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.cluster.state import Partition, Snapshot
from kafka_steward.errors import KafkaRefused, KafkaTimeout, RequestError
from kafka_steward.execution.cordons import cordoned_brokers
from kafka_steward.execution.filling.pending_replicas import (
    delete_pending,
    list_pending,
    reconcile_pending,
    record_pending,
)
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.journal.audit import Action, Actor, AuditRecord, Outcome
from kafka_steward.journal.open import Journal
from kafka_steward.journal.pending import PendingReplicas

__all__ = ["Created", "TopicAdmin", "TopicSpec", "create_topic", "creation_of"]

_MIN_ISR = "min.insync.replicas"
#: Kafka's TOPIC_ALREADY_EXISTS.
_EXISTS = 36


class TopicAdmin(ClusterPort, Protocol):
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
                raise RequestError(f"Topic {self.topic} was asked for with {what} {number}; give at least 1.")


@dataclass(frozen=True)
class Created:
    """The result: whether the topic existed before, the number of pending replicas (`owed`), and the message."""

    existed: bool
    owed: int
    sentence: str


def creation_of(
    wanted: TopicSpec, live: frozenset[int], *, allowed: bool, min_isr: int
) -> tuple[Assignment, ...] | None:
    """Return each partition's assignment when there are too few brokers; None when Kafka places the replicas itself.

    Every live broker gets a replica of every partition, and leads its share. Raises RequestError with fewer live
    brokers than min(min.insync.replicas, replication factor): a producer with acks=all could not use the topic.
    """
    factor, name = wanted.replication_factor, wanted.topic
    if len(live) >= factor or not allowed:
        return None
    needed = min(min_isr, factor)
    if len(live) < needed:
        raise RequestError(
            f"Topic {name} was not created: it needs {needed} brokers, by its min.insync.replicas and replication "
            f"factor, and {len(live)} are live; bring back brokers, or lower min.insync.replicas."
        )
    brokers = sorted(live)
    return tuple(_rotated(brokers, number) for number in range(wanted.partitions))


def _rotated(brokers: Sequence[int], number: int) -> Assignment:
    """Return the brokers rotated by the partition number; the followers are rotated further in each round."""
    first, turn = number % len(brokers), number // len(brokers)
    others = [*brokers[first + 1 :], *brokers[:first]]
    turn %= len(others) or 1
    return (brokers[first], *others[turn:], *others[:turn])


def create_topic(cluster: TopicAdmin, journal: Journal, wanted: TopicSpec, *, allowed: bool, who: Actor) -> Created:
    """Create a topic; with `allowed`, also with fewer live brokers than replicas: the rest is pending (KIP-409).

    Raises RequestError when the topic exists with other numbers, or there are too few brokers; KafkaRefused.
    """
    snapshot = cluster.snapshot()
    there = {name: each for name, each in snapshot.partitions.items() if name.topic == wanted.topic}
    if there:
        reconcile_pending(cluster, journal, snapshot, who)
        return _there_already(journal, wanted, there, snapshot)
    min_isr = _min_isr(cluster, wanted, snapshot)
    able = snapshot.live - cordoned_brokers(cluster, snapshot.live)
    assignments = creation_of(wanted, able, allowed=allowed, min_isr=min_isr)
    owed = _owed(wanted, assignments or ())
    reason = f"{len(snapshot.live)} brokers are live, and {wanted.replication_factor} replicas were asked for"
    new = record_pending(journal, owed, reason, who)
    refused = _asked(cluster, journal, wanted, assignments, who)
    if refused is not None and refused.code == _EXISTS and _is_as_asked(cluster, wanted, assignments):
        refused = None
    if refused is not None:
        delete_pending(journal, new)
        raise _with_hint(refused, wanted, snapshot, allowed=allowed)
    return Created(False, _missing(owed), _sentence(wanted, owed, f"was created with {wanted.partitions} partitions"))


def _asked(
    cluster: TopicAdmin,
    journal: Journal,
    wanted: TopicSpec,
    assignments: Sequence[Assignment] | None,
    who: Actor,
) -> KafkaRefused | None:
    after = {"partitions": wanted.partitions, "replication_factor": wanted.replication_factor}
    placed = {} if assignments is None else {"assignments": [list(each) for each in assignments]}
    entry = AuditRecord(
        Action.CREATE,
        "someone asked for the topic",
        topic=wanted.topic,
        attempt=journal.now_ms() // 1000,
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
        if not _is_as_asked(cluster, wanted, assignments):
            raise
        return None
    journal.audit.record_outcome([entry], Outcome.REFUSED if refused else Outcome.DONE, str(refused or ""))
    return refused


def _is_as_asked(cluster: TopicAdmin, wanted: TopicSpec, assignments: Sequence[Assignment] | None) -> bool:
    """Return whether the topic exists with the requested partitions, replicas and settings."""
    found = cluster.snapshot([wanted.topic]).partitions
    there = {name.partition: each.replicas for name, each in found.items() if name.topic == wanted.topic}
    if sorted(there) != list(range(wanted.partitions)):
        return False
    placed = [there[number] for number in range(wanted.partitions)]
    if assignments is not None and placed != list(assignments):
        return False
    if any(len(replicas) != wanted.replication_factor for replicas in placed if assignments is None):
        return False
    own = cluster.topic_configs([wanted.topic], list(wanted.settings), own_only=True) if wanted.settings else {}
    return own.get(wanted.topic, {}) == {name: str(value) for name, value in wanted.settings.items()}


def _there_already(
    journal: Journal, wanted: TopicSpec, there: Mapping[TopicPartition, Partition], snapshot: Snapshot
) -> Created:
    still = {debt.partition: debt.document for debt in list_pending(journal, snapshot) if not debt.over}
    factors = {
        still[name].target_rf if name in still else len(set(each.replicas) - set(each.adding))
        for name, each in there.items()
    }
    if factors != {wanted.replication_factor}:
        found = ", ".join(map(str, sorted(factors)))
        raise RequestError(
            f"Topic {wanted.topic} exists with replication factor {found}, and {wanted.replication_factor} was asked "
            "for; to change it, make a plan with the operation set-replication-factor."
        )
    if len(there) != wanted.partitions:
        raise RequestError(
            f"Topic {wanted.topic} exists with {len(there)} partitions, and {wanted.partitions} were asked for; to add "
            "some, use CreatePartitionsOperator."
        )
    owed = {name: still[name] for name in there if name in still}
    return Created(True, _missing(owed), _sentence(wanted, owed, "is there already"))


def _owed(wanted: TopicSpec, assignments: Sequence[Assignment]) -> dict[TopicPartition, PendingReplicas]:
    return {
        TopicPartition(wanted.topic, number): PendingReplicas.of(brokers, wanted.replication_factor)
        for number, brokers in enumerate(assignments)
    }


def _missing(owed: Mapping[TopicPartition, PendingReplicas]) -> int:
    return sum(each.target_rf - len(each.brokers) for each in owed.values())


def _sentence(wanted: TopicSpec, owed: Mapping[TopicPartition, PendingReplicas], what: str) -> str:
    told = f"Topic {wanted.topic} {what}"
    if not owed:
        return f"{told}, each with {wanted.replication_factor} replicas."
    missing = _missing(owed)
    return f"{told}; {missing} replicas of {len(owed)} partitions are owed, and are added when brokers join."


def _min_isr(cluster: ClusterPort, wanted: TopicSpec, snapshot: Snapshot) -> int:
    given = str(wanted.settings.get(_MIN_ISR, ""))
    if given.isdecimal():  # Kafka rejects any other text with its own error message
        return int(given)
    told = cluster.broker_configs(sorted(snapshot.live), [_MIN_ISR])
    return max((int(of[_MIN_ISR]) for of in told.values() if _MIN_ISR in of), default=1)


def _with_hint(refused: KafkaRefused, wanted: TopicSpec, snapshot: Snapshot, *, allowed: bool) -> KafkaRefused:
    if allowed or len(snapshot.live) >= wanted.replication_factor:
        return refused
    return KafkaRefused(
        refused.code,
        refused.message,
        f"{refused} Only {len(snapshot.live)} brokers are live: wait for more, or set "
        "enable_under_replicated_topic_creation, which creates it with fewer replicas and adds the rest later.",
    )
