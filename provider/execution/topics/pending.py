"""The pending replicas of partitions that were created with fewer replicas than their target (KIP-409).

KIP-409 puts placeholders, -1, -2, …, into Kafka's own assignment. Kafka rejects them, so the journal stores them. Every
reader compares them with the cluster: other clients may have deleted the topic since, re-created it, or changed its
replication factor. Then no replica is pending any more, and the message gives the reason.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from kafka_steward.assignment import Assignment, Operation, TopicPartition, counted, name_brokers
from kafka_steward.cluster.state import Partition, Snapshot
from kafka_steward.execution.cluster_queries import with_hidden_topics
from kafka_steward.execution.moves.staging import intermediate_assignments
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.journal.audit import Action, Actor, AuditRecord
from kafka_steward.journal.records import PENDING_REPLICAS, MoveState, PendingReplicas
from kafka_steward.journal.state import Row
from kafka_steward.journal.store import Journal

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


def target_replication_factors(
    all_pending: Iterable[PendingReplica], snapshot: Snapshot, cordoned: Collection[int]
) -> dict[TopicPartition, int]:
    """Return the replication factor that each fillable partition can have now: one replica per broker that may host."""
    return {
        pending.partition: min(
            len(pending.document.brokers) + len(_able_brokers(pending, snapshot, cordoned)), pending.document.target_rf
        )
        for pending in find_fillable(all_pending, snapshot, cordoned)
    }


def eligible_brokers(
    all_pending: Iterable[PendingReplica], snapshot: Snapshot, cordoned: Collection[int]
) -> frozenset[int]:
    """Return the live brokers that are eligible for a pending replica: they have none of its partition (KIP-409)."""
    fillable = find_fillable(all_pending, snapshot, cordoned)
    return frozenset(broker for pending in fillable for broker in _able_brokers(pending, snapshot, cordoned))


def _able_brokers(pending: PendingReplica, snapshot: Snapshot, cordoned: Collection[int]) -> frozenset[int]:
    return snapshot.live.difference(pending.document.brokers, cordoned)


def count_missing(all_pending: Iterable[PendingReplica]) -> int:
    """Return the number of pending replicas, without those of obsolete records."""
    return sum(pending.missing for pending in all_pending if not pending.is_obsolete)


def find_fillable(
    all_pending: Iterable[PendingReplica], snapshot: Snapshot, cordoned: Collection[int]
) -> list[PendingReplica]:
    """Return the partitions that can be filled now, at least in part."""
    return [pending for pending in all_pending if not unfillable_reason(pending, snapshot, cordoned)]


def unfillable_reason(pending: PendingReplica, snapshot: Snapshot, cordoned: Collection[int]) -> str:
    """Return why no pending replica of a partition can be added now, as a clause; empty if one can.

    Kafka completes a reassignment only when all its replicas are in sync: a replica that is there already and out of
    sync would keep the plan waiting.
    """
    if pending.state is PendingState.MOVING:
        return "a reassignment of it is in flight"
    if pending.state is not PendingState.OPEN:
        return pending.sentence.removesuffix(".")
    held, partition = frozenset(pending.document.brokers), snapshot.partitions[pending.partition]
    if dead := held - snapshot.live:
        return f"{name_brokers(sorted(dead))} of its replicas {'is' if len(dead) == 1 else 'are'} not live; heal first"
    if failed := held & partition.offline:
        return f"its replica on {name_brokers(sorted(failed))} is in a failed log directory; heal first"
    if behind := held - partition.isr:
        return f"its replica on {name_brokers(sorted(behind))} is out of sync"
    return "" if _able_brokers(pending, snapshot, cordoned) else "no other live broker may host one"


#: The number of latest plans in which fills of a partition are searched.
_PLANS = 50


def list_pending(journal: Journal, snapshot: Snapshot) -> list[PendingReplica]:
    """Return all pending replicas, evaluated against `snapshot`."""
    return [pending for _, pending in _evaluate_records(journal, snapshot)]


def with_hidden_pending_topics(cluster: ClusterPort, journal: Journal, snapshot: Snapshot) -> Snapshot:
    """Return `snapshot` with the hidden topics among those with pending replicas. Raises ClusterError."""
    return with_hidden_topics(cluster, snapshot, {row.key.topic for row in journal.rows(PENDING_REPLICAS).all()})


def reconcile_pending(cluster: ClusterPort, journal: Journal, snapshot: Snapshot, who: Actor) -> list[PendingReplica]:
    """Delete settled or dropped records, with a row in the audit trail for each, and update the changed ones.

    Returns all records, as evaluated. A record that another process changed concurrently is left to that process.
    Raises ClusterError.
    """
    judged = _evaluate_records(journal, with_hidden_pending_topics(cluster, journal, snapshot))
    rows = journal.rows(PENDING_REPLICAS)
    for row, pending in judged:
        # Whoever deletes the row audits it: of two processes, one.
        if pending.is_obsolete and rows.delete(row):
            action = Action.SETTLE if pending.state is PendingState.SETTLED else Action.DROP
            journal.audit.record(
                _build_audit_record(action, pending.partition, pending.sentence, who, pending.document)
            )
        elif pending.document != row.value:
            rows.put(row.key, pending.document, row)
    return [pending for _, pending in judged]


def record_pending(
    journal: Journal, pending: Mapping[TopicPartition, PendingReplicas], reason: str, who: Actor
) -> list[TopicPartition]:
    """Record pending replicas before the topic or partitions are created; returns the newly recorded partitions."""
    new, rows = [], journal.rows(PENDING_REPLICAS)
    for name, document in pending.items():
        if rows.put(name, replace(document, recorded_ms=journal.now_ms()), None) is None:
            continue  # recorded by an earlier attempt, which may have got further
        journal.audit.record(_build_audit_record(Action.PENDING, name, reason, who, document))
        new.append(name)
    return new


def delete_pending(journal: Journal, names: Sequence[TopicPartition]) -> None:
    """Delete the records that were written for a request that Kafka then refused."""
    rows = journal.rows(PENDING_REPLICAS)
    for row in filter(None, map(rows.get, names)):
        rows.delete(row)


def _evaluate_records(
    journal: Journal, snapshot: Snapshot
) -> list[tuple[Row[TopicPartition, PendingReplicas], PendingReplica]]:
    rows = journal.rows(PENDING_REPLICAS).all()
    now_ms, filled = journal.now_ms(), _read_fill_assignments(journal) if rows else {}
    return [
        (
            row,
            evaluate_pending(
                row.key,
                row.value,
                snapshot.partitions.get(row.key),
                age_ms=now_ms - row.value.recorded_ms,
                filled=filled.get(row.key, ()),
                hidden=row.key.topic in snapshot.hidden,
            ),
        )
        for row in rows
    ]


def _read_fill_assignments(journal: Journal) -> dict[TopicPartition, list[Assignment]]:
    """Return the assignments that fill plans gave each partition, intermediate ones included.

    Only a fill may leave a partition with a part of its pending replicas.
    """
    assignments: dict[TopicPartition, list[Assignment]] = {}
    for record in journal.plans.latest(_PLANS):
        if record.operation == Operation.FILL.value:
            for row in journal.plans.existing_rows(record.digest):
                if row.state in {MoveState.COMPLETED, MoveState.SUBMITTED}:
                    assignments.setdefault(row.topic_partition, []).append(row.move.after)
                if row.attempt:
                    assignments.setdefault(row.topic_partition, []).extend(intermediate_assignments(row.move))
    return assignments


def _build_audit_record(
    action: Action, name: TopicPartition, reason: str, who: Actor, pending: PendingReplicas
) -> AuditRecord:
    return AuditRecord(
        action, reason, topic=name.topic, partition=name.partition, after=list(pending.replicas), who=who
    )
