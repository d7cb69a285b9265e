"""The review of a heal's plan, and the report after the heal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import DownstreamTasksSkipped

from kafka_steward.escaping import printable
from kafka_steward.operators.base import StewardOperator
from kafka_steward.operators.notify import Notifiers, as_notifiers, notify

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_steward.cluster.state import Snapshot
    from kafka_steward.hooks.steward import ClusterSession

__all__ = ["ReportHealOperator", "TellPlanOperator"]


class TellPlanOperator(StewardOperator):
    """Logs a plan's moves and the partitions it cannot heal; with `mode="report"`, all downstream tasks are skipped.

    >>> TellPlanOperator(task_id="tell_plan", plan={"digest": "3f2a", "unplaced": 0}, mode="report")
    <Task(TellPlanOperator): tell_plan>
    """

    template_fields: Sequence[str] = (*StewardOperator.template_fields, "plan", "mode")

    def __init__(
        self,
        *,
        plan: Mapping[str, Any] | Any,
        mode: str | Any = "heal",
        on_not_healable: Notifiers = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.plan = plan
        self.mode = mode
        self.on_not_healable = as_notifiers(on_not_healable)

    def execute(self, context: Context) -> dict[str, Any]:
        """Log the plan; skip the downstream tasks if only a report was requested."""
        facts = {**self.plan, "sentence": _plan_sentence(self.plan)}
        self.log.info("%s", printable(facts["sentence"]))
        if self.mode == "report":
            # Otherwise the final report covers it: one notification for each run.
            if self.plan["unplaced"]:
                notify(self.on_not_healable, context, "not_healable", facts)
            self.log.info("mode is report: nothing is submitted. The plan is at %s.", printable(self.plan["uri"]))
            context["ti"].xcom_push("return_value", facts)
            raise DownstreamTasksSkipped(tasks=sorted(self.get_flat_relative_ids(upstream=False)))
        return facts


class ReportHealOperator(StewardOperator):
    """Checks the cluster after a heal and reports whether it is fully replicated, or what remains and why.

    `brokers` are the ids that were healed; `plan` and `submitted` are the results of those tasks. Returns `{"sentence",
    "brokers", "partitions", "replicas_moved", "lower_bound", "under_replicated", "left", "audit", "cancelled"}`; after
    a cancel, `sentence` states its effect on the plan.

    >>> ReportHealOperator(task_id="report", brokers=[3], plan={"digest": "3f2a"}, submitted={"left": 0})
    <Task(ReportHealOperator): report>
    """

    template_fields: Sequence[str] = (*StewardOperator.template_fields, "brokers", "plan", "submitted")

    def __init__(
        self,
        *,
        brokers: Collection[int] | Any,
        plan: Mapping[str, Any] | Any,
        submitted: Mapping[str, Any] | Any,
        on_healed: Notifiers = None,
        on_not_healable: Notifiers = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.brokers = brokers
        self.plan = plan
        self.submitted = submitted
        self.on_healed = as_notifiers(on_healed)
        self.on_not_healable = as_notifiers(on_not_healable)

    def execute(self, context: Context) -> dict[str, Any]:
        """Check the cluster, log the report, and notify."""
        with self.open(context) as opened:
            facts = self._facts(opened)
        self.log.info("%s", printable(facts["sentence"]))
        self.log.info("Audit trail of plan %s: %s", self.plan["digest"][:12], printable(str(facts["audit"])))
        healed = facts["under_replicated"] == 0 and facts["left"] == 0 and not facts["cancelled"]
        notifiers, event = (self.on_healed, "healed") if healed else (self.on_not_healable, "not_healable")
        notify(notifiers, context, event, facts)
        return facts

    def _facts(self, opened: ClusterSession) -> dict[str, Any]:
        from kafka_steward.execution.rollback import cancel_outcome

        snapshot = opened.cluster.snapshot()
        behind = sum(partition.under_replicated for partition in snapshot.partitions.values())
        rows = opened.journal.audit.rows(plan=self.plan["digest"])
        actions = Counter(row.entry.action.value for row in rows)
        facts = {
            "cluster_id": snapshot.cluster_id,
            "brokers": sorted(self.brokers),
            "partitions": self.submitted["partitions"],
            "replicas_moved": self.plan["replicas_moved"],
            "lower_bound": self.plan["lower_bound"],
            "under_replicated": behind,
            "left": self.submitted["left"],
            "audit": ", ".join(f"{count} {action}" for action, count in sorted(actions.items())),
        }
        record = opened.journal.plans.get(self.plan["digest"])
        became = "" if record is None else cancel_outcome(opened.journal, record)
        return {**facts, "sentence": _heal_sentence(facts, _dead(snapshot), became), "cancelled": bool(became)}


def _plan_sentence(plan: Mapping[str, Any]) -> str:
    message = (
        f"The plan {plan['digest'][:12]} moves {plan['replicas_moved']} replicas of {plan['partitions']} partitions"
    )
    message += f"; no plan can move fewer than {plan['lower_bound']}."
    if plan["unplaced"]:
        message += f" {plan['unplaced']} partitions cannot be healed whole; proof.json says why."
    return message


def _heal_sentence(facts: Mapping[str, Any], dead: Collection[int], became: str) -> str:
    brokers = ", ".join(str(broker) for broker in facts["brokers"])
    message = f"Healed broker {brokers}: {facts['replicas_moved']} replicas of {facts['partitions']} partitions moved."
    if became:
        message = f"Not all of broker {brokers} was healed. {became}"
    elif not facts["under_replicated"] and not facts["left"]:
        return f"{message} Every partition of the cluster is whole."
    message += (
        f" {facts['under_replicated']} partitions are still under-replicated, {facts['left']} that this plan left."
    )
    return f"{message} Dead brokers: {', '.join(str(broker) for broker in sorted(dead)) or 'none'}."


def _dead(snapshot: Snapshot) -> frozenset[int]:
    return snapshot.hosting - snapshot.live
