"""The book of what is owed (KIP-409): read from the journal, judged by a look at the cluster, and kept up to date."""

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

#: Fills that are looked through for what became of a partition.
_PLANS = 50


def debts(journal: Journal, snapshot: Snapshot) -> list[Debt]:
    """All that is owed, judged by `snapshot`; what cannot be read is logged and left out."""
    return [debt for _, debt in _judged(journal, snapshot)]


def owed_count(tree: Tree) -> int:
    """How many replicas are owed by what is written down."""
    return sum(each.document.target_rf - len(each.document.brokers) for each in OWED.found(tree))


def settle_debts(cluster: ClusterPort, journal: Journal, snapshot: Snapshot, who: Who) -> list[Debt]:
    """Strike out what is settled or dropped, with a row in the audit trail, and write down what has changed.

    Returns all of it, as judged. What another process changed meanwhile is left to that one. Raises ClusterError.
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
    """Write down what is about to be owed; returns what was not written there before."""
    new = []
    for name, document in owed.items():
        if put_new(journal.tree, paths.owed(name), document.to_json()) is None:
            continue  # an earlier try, which may have got further than that
        journal.audit.note(_entry(Action.OWE, name, reason, who, document))
        new.append(name)
    return new


def forget(journal: Journal, names: Sequence[TopicPartition]) -> None:
    """Strike out what was written down for something that Kafka then refused."""
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
    """What fills gave each partition: only they may take one a part of the way."""
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
