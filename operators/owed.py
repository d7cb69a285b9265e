"""Pending replicas of under-replicated topics (KIP-409): their detection, and the report after a fill."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kafka_steward.escaping import printable
from kafka_steward.hooks.context import actor_of
from kafka_steward.operators.base import StewardOperator, skip_rest
from kafka_steward.operators.notify import Notifiers, as_notifiers, notify
from kafka_steward.operators.snapshot import SnapshotClusterOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_steward.execution.pending import PendingReplica
    from kafka_steward.hooks.steward import ClusterSession

__all__ = ["FindOwedOperator", "ReportFillOperator", "SnapshotOwedOperator"]

#: The most pending partitions that the log names; the rest is only counted.
_NAMED = 5


class FindOwedOperator(StewardOperator):
    """Finds pending replicas, drops obsolete entries, and executes deferred requests for new partitions.

    The event that started the run is not read: Airflow may duplicate or drop trigger events. If no live broker can take
    a pending replica, the task and its downstream tasks are skipped, with the reason in the log. Returns `{"owed",
    "partitions", "sentence"}`: the number of pending replicas, and of partitions that can be filled now.

    >>> FindOwedOperator(task_id="find_owed")
    <Task(FindOwedOperator): find_owed>
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Find pending replicas; skip the downstream tasks when nothing can be filled."""
        from kafka_steward.execution.pending import fillable
        from kafka_steward.execution.topics import add_deferred_partitions

        with self.open(context) as opened:
            for sentence in add_deferred_partitions(opened.cluster, opened.journal, actor_of(context)):
                self.log.info("%s", printable(sentence))
            snapshot, judged = _settled(opened, context)
        _say(self, judged)
        able, missing = fillable(judged, snapshot), _missing(judged)
        if not able:
            why = f"{missing} replicas are owed, and no live broker can take one." if missing else "No replica is owed."
            skip_rest(self, context, f"Nothing is to be filled now. {why}")
        sentence = f"{missing} replicas are owed; {len(able)} partitions can be given some of them now."
        self.log.info("%s", printable(sentence))
        return {"owed": missing, "partitions": len(able), "sentence": sentence}


class SnapshotOwedOperator(SnapshotClusterOperator):
    """SnapshotClusterOperator with `pending_replicas=True`, by its former name.

    >>> SnapshotOwedOperator(task_id="snapshot").pending_replicas
    True
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "pending_replicas": True})


class ReportFillOperator(StewardOperator):
    """Reconciles the pending replicas after the fill, and reports how many are still pending.

    `plan` and `submitted` are the results of those tasks. Returns `{"sentence", "settled", "dropped", "owed",
    "partitions", "replicas_moved", "lower_bound"}`; `owed` counts replicas, `settled` and `dropped` count partitions.

    >>> ReportFillOperator(task_id="report", plan={"replicas_moved": 2}, submitted={"partitions": 2})
    <Task(ReportFillOperator): report>
    """

    template_fields: Sequence[str] = (*StewardOperator.template_fields, "plan", "submitted")

    def __init__(
        self,
        *,
        plan: Mapping[str, Any] | Any,
        submitted: Mapping[str, Any] | Any,
        on_filled: Notifiers = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.plan = plan
        self.submitted = submitted
        self.on_filled = as_notifiers(on_filled)

    def execute(self, context: Context) -> dict[str, Any]:
        """Reconcile the pending replicas, report, and notify."""
        from kafka_steward.execution.rollback import cancel_outcome

        with self.open(context) as opened:
            _, judged = _settled(opened, context)
            record = opened.journal.plans.get(str(self.plan.get("digest")))
            became = "" if record is None else cancel_outcome(opened.journal, record)
        _say(self, judged)
        settled, dropped = (sum(pending.state.value == what for pending in judged) for what in ("settled", "dropped"))
        owed = _missing(judged)
        left = f"{owed} replicas are still owed, and are added when brokers join." if owed else "No replica is owed."
        moved, partitions = self.plan.get("replicas_moved"), self.submitted.get("partitions")
        facts = {
            "sentence": f"{became or f'Filled {moved} replicas of {partitions} partitions.'} {left}",
            "settled": settled,
            "dropped": dropped,
            "owed": owed,
            "partitions": partitions,
            "replicas_moved": moved,
            "lower_bound": self.plan.get("lower_bound"),
        }
        self.log.info("%s", printable(str(facts["sentence"])))
        notify(self.on_filled, context, "filled", facts)
        return facts


def _settled(opened: ClusterSession, context: Context) -> tuple[Any, list[PendingReplica]]:
    from kafka_steward.execution.pending_replicas import reconcile_pending

    snapshot = opened.cluster.snapshot()
    return snapshot, reconcile_pending(opened.cluster, opened.journal, snapshot, actor_of(context))


def _say(operator: StewardOperator, judged: Sequence[PendingReplica]) -> None:
    for pending in judged[:_NAMED]:
        operator.log.info("%s: %s", pending.state.value, printable(pending.sentence))
    if len(judged) > _NAMED:
        operator.log.info("And %d more partitions.", len(judged) - _NAMED)


def _missing(judged: Sequence[PendingReplica]) -> int:
    return sum(pending.missing for pending in judged if not pending.over)
