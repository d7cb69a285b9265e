"""Creation of topics and of partitions, also while brokers are down, and their pending replicas (KIP-409)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kafka_steward.assignment import counted
from kafka_steward.escaping import printable
from kafka_steward.hooks.context import actor_of
from kafka_steward.operators.base import StewardOperator, fail_without_retry, skip_downstream
from kafka_steward.operators.snapshot import take_pending_snapshot

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_steward.cluster.state import Snapshot
    from kafka_steward.execution.topics.pending import PendingReplica
    from kafka_steward.hooks.session import ClusterSession

__all__ = [
    "CreatePartitionsOperator",
    "CreateTopicOperator",
    "FindPendingReplicasOperator",
    "NOTHING_PENDING",
    "reconcile_and_log",
]


class CreateTopicOperator(StewardOperator):
    """Creates a topic; with `enable_under_replicated_topic_creation`, also with fewer brokers than replicas.

    KIP-409: at least min(`min.insync.replicas`, `replication_factor`) brokers have to be live. On KRaft, whatever the
    setting, Kafka then places replicas on registered brokers that are down, and fills them when they are back. What it
    cannot place, and with ZooKeeper, the topic is created on the live brokers, and the missing replicas are recorded as
    pending: the `fill` DAG adds them when brokers join. With more replicas than brokers are known, those that are down
    included, the task fails. `config` are the topic's own settings. An existing topic with the same partition count and
    replication factor is left unchanged; if they differ, the task fails. None of these failures is retried. Returns
    `{"topic", "existed", "pending", "sentence"}`; `pending` counts pending replicas.

    >>> CreateTopicOperator(
    ...     task_id="orders", topic="orders", partitions=12, config={"min.insync.replicas": "2"},
    ...     settings={"enable_under_replicated_topic_creation": True},
    ... )
    <Task(CreateTopicOperator): orders>
    """

    template_fields: Sequence[str] = (*StewardOperator.template_fields, "topic", "config")

    def __init__(
        self,
        *,
        topic: str,
        partitions: int = 1,
        replication_factor: int = 3,
        config: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.topic = topic
        self.partitions = partitions
        self.replication_factor = replication_factor
        self.config = dict(config or {})

    def execute(self, context: Context) -> dict[str, Any]:
        """Create the topic, or find the existing one."""
        from kafka_steward.execution.topics.creation import TopicSpec, create_topic, unwatched_reason

        config = {name: str(value) for name, value in self.config.items()}
        with fail_without_retry(), self.open(context) as opened:
            wanted = TopicSpec(self.topic, int(self.partitions), int(self.replication_factor), config)
            allowed = opened.settings.enable_under_replicated_topic_creation
            made = create_topic(opened.cluster, opened.journal, wanted, allowed=allowed, who=actor_of(context))
            notice = unwatched_reason(opened.journal) if made.pending else ""
        sentence = _log_result(self, made.sentence, notice)
        return {
            "topic": self.topic,
            "existed": made.existed,
            "pending": made.pending,
            "sentence": sentence,
        }


class CreatePartitionsOperator(StewardOperator):
    """Increases the number of a topic's partitions to `count`.

    Kafka requires as many replicas for new partitions as the existing ones have. On KRaft, registered brokers that are
    down may be assigned, and Kafka fills their replicas when they are back. At least min(`min.insync.replicas`,
    replication factor) brokers have to be live, as for a new topic (KIP-409). If there are too few brokers, the task
    fails without a retry. With `later=True` it instead leaves a deferred request in the journal, which the `fill`
    DAG executes when a broker joins. A request for a topic that was deleted or re-created since is dropped, with a
    reason in the audit trail. Returns `{"topic", "done", "waits", "sentence"}`.

    >>> CreatePartitionsOperator(task_id="grow", topic="orders", count=24, later=True)
    <Task(CreatePartitionsOperator): grow>
    """

    template_fields: Sequence[str] = (*StewardOperator.template_fields, "topic", "count")

    def __init__(self, *, topic: str, count: int, later: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.topic = topic
        self.count = count
        self.later = later

    def execute(self, context: Context) -> dict[str, Any]:
        """Add the partitions, or leave the deferred request."""
        from kafka_steward.execution.topics.creation import add_partitions, unwatched_reason

        with fail_without_retry(), self.open(context) as opened:
            added = add_partitions(
                opened.cluster, opened.journal, self.topic, int(self.count), later=self.later, who=actor_of(context)
            )
            notice = unwatched_reason(opened.journal) if added.waits else ""
        sentence = _log_result(self, added.sentence, notice)
        return {"topic": self.topic, "done": added.done, "waits": added.waits, "sentence": sentence}


def _log_result(operator: StewardOperator, sentence: str, notice: str) -> str:
    """Log the result and, if the remaining work has no consumer, the notice about that; return both as one text."""
    operator.log.info("%s", printable(sentence))
    if notice:
        operator.log.warning("%s", printable(notice))
    return f"{sentence} {notice}".rstrip()


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
        from kafka_steward.execution.cluster_queries import cordoned_brokers
        from kafka_steward.execution.topics.creation import add_deferred_partitions
        from kafka_steward.execution.topics.pending import unfillable_reason

        with self.open(context) as opened:
            for sentence in add_deferred_partitions(opened.cluster, opened.journal, actor_of(context)):
                self.log.info("%s", printable(sentence))
            snapshot, pending_replicas, missing = reconcile_and_log(self, opened, context)
            cordoned = cordoned_brokers(opened.cluster, snapshot.live if missing else ())
            whys = {
                pending.partition: unfillable_reason(pending, snapshot, cordoned)
                for pending in pending_replicas
                if not pending.is_obsolete
            }
            able, left = ([name for name, why in whys.items() if bool(why) is of] for of in (False, True))
            for name in left[:_NAMED]:
                self.log.info("%s is left as it is: %s.", printable(str(name)), printable(whys[name]))
            replicas = counted(missing, "replica", "is", "are")
            if not able:
                why = f"{replicas} pending, and none can be added." if missing else NOTHING_PENDING
                skip_downstream(self, context, f"Nothing can be filled now. {why}")
            taken = take_pending_snapshot(opened, context) if self.takes_snapshot else {}
        sentence = f"{replicas} pending; {counted(len(able), 'partition')} can be filled now, in part or fully."
        self.log.info("%s", printable(sentence))
        return {"pending": missing, "partitions": len(able), "sentence": sentence, **taken}


def reconcile_and_log(
    task: StewardOperator, opened: ClusterSession, context: Context
) -> tuple[Snapshot, list[PendingReplica], int]:
    """Reconcile and log the pending replicas; return the snapshot, them, and how many replicas are still missing."""
    from kafka_steward.execution.topics.pending import count_missing, reconcile_pending

    snapshot = opened.cluster.snapshot()
    pending_replicas = reconcile_pending(opened.cluster, opened.journal, snapshot, actor_of(context))
    for pending in pending_replicas[:_NAMED]:
        task.log.info("%s: %s", pending.state.value, printable(pending.sentence))
    if len(pending_replicas) > _NAMED:
        task.log.info("And %d more partitions.", len(pending_replicas) - _NAMED)
    return snapshot, pending_replicas, count_missing(pending_replicas)
