"""The pending-replica store (KIP-409): read from the journal, compared with a cluster snapshot, and kept up to date."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_steward.assignment import Assignment, Operation, TopicPartition
from kafka_steward.cluster.state import Snapshot
from kafka_steward.execution.decisions.owed import Debt, Standing, judge
from kafka_steward.execution.decisions.strides import stops
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.execution.visibility import with_hidden
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Entry, Who
from kafka_steward.journal.changes import put_new, remove, replace_text
from kafka_steward.journal.listing import OWED
from kafka_steward.journal.moves import MoveState
from kafka_steward.journal.open import Journal
from kafka_steward.journal.owed import OwedReplicas
from kafka_steward.journal.tree import Node, Tree

__all__ = ["debts", "forget", "owed_count", "settle_debts", "write_down"]

#: The number of latest plans in which fills of a partition are searched.
_PLANS = 50


def debts(journal: Journal, snapshot: Snapshot) -> list[Debt]:
    """Return all pending replicas, evaluated against `snapshot`; unreadable records are left out."""
    return [debt for _, debt in _judged(journal, snapshot)]


def owed_count(tree: Tree) -> int:
    """Return the number of recorded pending replicas."""
    return sum(each.document.target_rf - len(each.document.brokers) for each in OWED.found(tree))


def settle_debts(cluster: ClusterPort, journal: Journal, snapshot: Snapshot, who: Who) -> list[Debt]:
    """Delete settled or dropped records, with a row in the audit trail for each, and update the changed ones.

    Returns all records, as evaluated. A record that another process changed concurrently is left to that process.
    Raises ClusterError.
    """
    judged = _judged(journal, with_hidden(cluster, snapshot, journal.tree.children(paths.OWED)))
    for node, debt in judged:
        if debt.over and remove(journal.tree, node):
            action = Action.SETTLE if debt.standing is Standing.SETTLED else Action.DROP
            journal.audit.note(_entry(action, debt.partition, debt.sentence, who, debt.owed))
        elif debt.owed.to_json() != node.data:
            replace_text(journal.tree, node, debt.owed.to_json())
    return [debt for _, debt in judged]


def write_down(
    journal: Journal, owed: Mapping[TopicPartition, OwedReplicas], reason: str, who: Who
) -> list[TopicPartition]:
    """Record pending replicas before the topic or partitions are created; returns the newly recorded partitions."""
    new = []
    for name, document in owed.items():
        if put_new(journal.tree, paths.owed(name), document.to_json()) is None:
            continue  # recorded by an earlier attempt, which may have got further
        journal.audit.note(_entry(Action.OWE, name, reason, who, document))
        new.append(name)
    return new


def forget(journal: Journal, names: Sequence[TopicPartition]) -> None:
    """Delete the records that were written for a request that Kafka then refused."""
    for name in names:
        node = journal.tree.get(paths.owed(name))
        if node is not None:
            remove(journal.tree, node)


def _judged(journal: Journal, snapshot: Snapshot) -> list[tuple[Node, Debt]]:
    written = OWED.found(journal.tree)
    now_ms, filled = journal.now_ms(), _filled(journal) if written else {}
    found = []
    for each in written:
        name, node, owed = TopicPartition(*each.key), each.node, each.document
        partition = snapshot.partitions.get(name)
        age_ms = now_ms - node.created_ms
        hidden = name.topic in snapshot.hidden
        judged = judge(name, owed, partition, age_ms=age_ms, filled=filled.get(name, ()), hidden=hidden)
        found.append((node, judged))
    return found


def _filled(journal: Journal) -> dict[TopicPartition, list[Assignment]]:
    """Return the assignments that fill plans gave each partition, intermediate ones included.

    Only a fill may leave a partition with a part of its pending replicas.
    """
    found: dict[TopicPartition, list[Assignment]] = {}
    for record in journal.plans.latest(_PLANS):
        if record.operation == Operation.FILL.value:
            for row in journal.plans.rows_found(record.digest):
                if row.state in {MoveState.COMPLETED, MoveState.SUBMITTED}:
                    found.setdefault(row.topic_partition, []).append(row.move.after)
                if row.attempt:
                    found.setdefault(row.topic_partition, []).extend(stops(row.move))
    return found


def _entry(action: Action, name: TopicPartition, reason: str, who: Who, owed: OwedReplicas) -> Entry:
    return Entry(action, reason, topic=name.topic, partition=name.partition, after=list(owed.replicas), who=who)
