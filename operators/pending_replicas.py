"""Pending replicas of under-replicated topics (KIP-409)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka_steward.assignment import counted
from kafka_steward.escaping import printable
from kafka_steward.hooks.context import actor_of
from kafka_steward.operators.base import StewardOperator, skip_downstream
from kafka_steward.operators.snapshot import take_pending_snapshot

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_steward.cluster.state import Snapshot
    from kafka_steward.execution.topics.pending_state import PendingReplica
    from kafka_steward.hooks.steward import ClusterSession

__all__ = ["FindPendingReplicasOperator", "NOTHING_PENDING", "reconcile_and_log"]

NOTHING_PENDING = "No replica is pending."
#: The most pending partitions that the log names; the rest is only counted.
_NAMED = 5


class FindPendingReplicasOperator(StewardOperator):
    """Finds pending replicas, drops obsolete entries, and executes deferred requests for new partitions.

    The event that started the run is not read: Airflow may duplicate or drop trigger events. If no live broker can take
    a pending replica, the task and its downstream tasks are skipped, with the reason in the log. With `snapshot`, it
    also takes the snapshot for the plan, as SnapshotClusterOperator does with `pending_replicas`, which saves a task
    and a connection. Returns `{"pending", "partitions", "sentence"}`: the number of pending replicas, and of partitions
    that can be filled now; with `snapshot` also its `"uri"` and `"digest"`, as PlanReassignmentOperator takes them.

    >>> FindPendingReplicasOperator(task_id="find_pending")
    <Task(FindPendingReplicasOperator): find_pending>
    """

    def __init__(self, *, snapshot: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.takes_snapshot = snapshot

    def execute(self, context: Context) -> dict[str, Any]:
        """Find pending replicas; skip the downstream tasks when nothing can be filled."""
        from kafka_steward.execution.topics.creation import add_deferred_partitions
        from kafka_steward.execution.topics.pending_state import find_fillable

        with self.open(context) as opened:
            for sentence in add_deferred_partitions(opened.cluster, opened.journal, actor_of(context)):
                self.log.info("%s", printable(sentence))
            snapshot, found, missing = reconcile_and_log(self, opened, context)
            able, replicas = find_fillable(found, snapshot), counted(missing, "replica", "is", "are")
            if not able:
                why = f"{replicas} pending, and no live broker can host one." if missing else NOTHING_PENDING
                skip_downstream(self, context, f"Nothing can be filled now. {why}")
            taken = take_pending_snapshot(opened, context) if self.takes_snapshot else {}
        sentence = f"{replicas} pending; {counted(len(able), 'partition')} can be filled now, in part or fully."
        self.log.info("%s", printable(sentence))
        return {"pending": missing, "partitions": len(able), "sentence": sentence, **taken}


def reconcile_and_log(
    task: StewardOperator, opened: ClusterSession, context: Context
) -> tuple[Snapshot, list[PendingReplica], int]:
    """Reconcile and log the pending replicas; return the snapshot, them, and how many replicas are still missing."""
    from kafka_steward.execution.topics.pending_replicas import reconcile_pending
    from kafka_steward.execution.topics.pending_state import count_missing

    snapshot = opened.cluster.snapshot()
    found = reconcile_pending(opened.cluster, opened.journal, snapshot, actor_of(context))
    for pending in found[:_NAMED]:
        task.log.info("%s: %s", pending.state.value, printable(pending.sentence))
    if len(found) > _NAMED:
        task.log.info("And %d more partitions.", len(found) - _NAMED)
    return snapshot, found, count_missing(found)
