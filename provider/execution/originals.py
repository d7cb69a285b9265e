"""Restores the original replicas, or their order, of partitions whose reassignment was cancelled or undone.

Kafka's cancel loses the order of the replicas, and with it the preferred leader. A KRaft controller accepts no
assignment with a broker that was unregistered, not even the one that the partition has. Such a partition keeps the
replicas that it has: whoever restores it ends with that, and names it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.cluster.state import Snapshot
from kafka_steward.execution.effects import AuditedCalls, alter_keeping_factor
from kafka_steward.execution.move_recovery import is_unregistered_refusal, unregistered_clause
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.journal.audit import AuditRecord

#: The reason of a submission that restores the order of the replicas, for the audit trail.
ORDER_LOST = "the cancel did not restore the replica order"


def restore_originals(
    cluster: ClusterPort,
    calls: AuditedCalls,
    entries: Mapping[TopicPartition, Sequence[AuditRecord]],
    originals: Mapping[TopicPartition, Assignment],
    snapshot: Snapshot,
    *,
    late: Callable[[Collection[TopicPartition]], None] | None = None,
) -> dict[TopicPartition, str]:
    """Submit `originals` for the partitions of `entries`; return why Kafka refuses them for good, as clauses.

    `snapshot` is the state in which they were found, `late` the retraction of a submission that was made after the lock
    was lost. Other refusals are in the audit trail: the next poll tries again. Raises ClusterError, LockLost.
    """
    found = {name: snapshot.partitions[name].replicas for name in entries}
    answers = calls.execute(
        entries,
        lambda batch: alter_keeping_factor(cluster, {name: originals[name] for name in batch}, found),
        late=late,
    )
    return {
        name: f"its replicas are {list(found[name])}, and Kafka refuses its original ones, "
        f"{list(originals[name])}{unregistered_clause(originals[name], snapshot)}: {error}"
        for name, error in answers.items()
        if is_unregistered_refusal(error, zookeeper_mode=cluster.zookeeper_mode)
    }
