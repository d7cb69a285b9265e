"""The pending-replica store (KIP-409): read from the journal, compared with a cluster snapshot, and kept up to date."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_steward.assignment import Assignment, Operation, TopicPartition
from kafka_steward.cluster.state import Snapshot
from kafka_steward.execution.cluster_queries import with_hidden_topics
from kafka_steward.execution.moves.staging import intermediate_assignments
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.execution.topics.pending_state import PendingReplica, PendingState, evaluate_pending
from kafka_steward.journal.audit import Action, Actor, AuditRecord
from kafka_steward.journal.records import PENDING_REPLICAS, MoveState, PendingReplicas
from kafka_steward.journal.store import Journal
from kafka_steward.journal.tree import Node, put_new, remove, replace_text

#: The number of latest plans in which fills of a partition are searched.
_PLANS = 50


def list_pending(journal: Journal, snapshot: Snapshot) -> list[PendingReplica]:
    """Return all pending replicas, evaluated against `snapshot`; unreadable records are left out."""
    return [pending for _, pending in _evaluate_records(journal, snapshot)]


def with_hidden_pending_topics(cluster: ClusterPort, journal: Journal, snapshot: Snapshot) -> Snapshot:
    """Return `snapshot` with the hidden topics among those with pending replicas. Raises ClusterError."""
    return with_hidden_topics(cluster, snapshot, {each.key[0] for each in PENDING_REPLICAS.list_valid(journal.tree)})


def reconcile_pending(cluster: ClusterPort, journal: Journal, snapshot: Snapshot, who: Actor) -> list[PendingReplica]:
    """Delete settled or dropped records, with a row in the audit trail for each, and update the changed ones.

    Returns all records, as evaluated. A record that another process changed concurrently is left to that process.
    Raises ClusterError.
    """
    judged = _evaluate_records(journal, with_hidden_pending_topics(cluster, journal, snapshot))
    for node, pending in judged:
        if pending.is_obsolete and remove(journal.tree, node):
            action = Action.SETTLE if pending.state is PendingState.SETTLED else Action.DROP
            journal.audit.record(
                _build_audit_record(action, pending.partition, pending.sentence, who, pending.document)
            )
        elif pending.document.to_json() != node.data:
            replace_text(journal.tree, node, pending.document.to_json())
    return [pending for _, pending in judged]


def record_pending(
    journal: Journal, pending: Mapping[TopicPartition, PendingReplicas], reason: str, who: Actor
) -> list[TopicPartition]:
    """Record pending replicas before the topic or partitions are created; returns the newly recorded partitions."""
    new = []
    for name, document in pending.items():
        if put_new(journal.tree, PENDING_REPLICAS.path(*name), document.to_json()) is None:
            continue  # recorded by an earlier attempt, which may have got further
        journal.audit.record(_build_audit_record(Action.PENDING, name, reason, who, document))
        new.append(name)
    return new


def delete_pending(journal: Journal, names: Sequence[TopicPartition]) -> None:
    """Delete the records that were written for a request that Kafka then refused."""
    for name in names:
        node = journal.tree.get(PENDING_REPLICAS.path(*name))
        if node is not None:
            remove(journal.tree, node)


def _evaluate_records(journal: Journal, snapshot: Snapshot) -> list[tuple[Node, PendingReplica]]:
    written = PENDING_REPLICAS.list_valid(journal.tree)
    now_ms, filled = journal.now_ms(), _read_fill_assignments(journal) if written else {}
    found = []
    for each in written:
        name, node, pending = TopicPartition(*each.key), each.node, each.document
        partition = snapshot.partitions.get(name)
        age_ms = now_ms - node.created_ms
        hidden = name.topic in snapshot.hidden
        judged = evaluate_pending(name, pending, partition, age_ms=age_ms, filled=filled.get(name, ()), hidden=hidden)
        found.append((node, judged))
    return found


def _read_fill_assignments(journal: Journal) -> dict[TopicPartition, list[Assignment]]:
    """Return the assignments that fill plans gave each partition, intermediate ones included.

    Only a fill may leave a partition with a part of its pending replicas.
    """
    found: dict[TopicPartition, list[Assignment]] = {}
    for record in journal.plans.latest(_PLANS):
        if record.operation == Operation.FILL.value:
            for row in journal.plans.existing_rows(record.digest):
                if row.state in {MoveState.COMPLETED, MoveState.SUBMITTED}:
                    found.setdefault(row.topic_partition, []).append(row.move.after)
                if row.attempt:
                    found.setdefault(row.topic_partition, []).extend(intermediate_assignments(row.move))
    return found


def _build_audit_record(
    action: Action, name: TopicPartition, reason: str, who: Actor, pending: PendingReplicas
) -> AuditRecord:
    return AuditRecord(
        action, reason, topic=name.topic, partition=name.partition, after=list(pending.replicas), who=who
    )
