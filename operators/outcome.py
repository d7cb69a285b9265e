"""Review of a requested plan before its execution, and the report after it."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import TriggerRule
from airflow.sdk.exceptions import AirflowException, DownstreamTasksSkipped

from kafka_steward.escaping import printable, printable_lines
from kafka_steward.operators.base import StewardOperator
from kafka_steward.operators.folders import page_at, plan_at, snapshot_at
from kafka_steward.operators.notify import Notifiers, as_notifiers, notify

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_steward.execution.replication_status import DrainStatus
    from kafka_steward.hooks.steward import ClusterSession

__all__ = ["ReportPlanOperator", "ShowPlanOperator"]

#: The most partitions not moved that a report lists; the rest is only counted.
_LISTED = 50
#: Kafka deletes removed replicas asynchronously: seconds to wait for that, and seconds between two polls.
_DELETED_WITHIN_S, _LOOK_S = 120.0, 2.0


class ShowPlanOperator(StewardOperator):
    """Logs a plan; stops the workflow when there is nothing to do, or with `only_show`.

    `plan` and `snapshot` are the results of the tasks that made them. Stopping is a success: downstream tasks with the
    trigger rule `all_success` are skipped; those with another trigger rule, such as the report, still run. Returns
    `{"sentence", "stop"}`, where `stop` is `nothing`, `dry_run`, or empty.

    >>> ShowPlanOperator(task_id="show_plan", plan={"uri": "/plan"}, snapshot={"uri": "/snapshot"}, only_show=True)
    <Task(ShowPlanOperator): show_plan>
    """

    template_fields: Sequence[str] = (*StewardOperator.template_fields, "plan", "snapshot", "only_show")

    def __init__(
        self,
        *,
        plan: Mapping[str, Any] | Any,
        snapshot: Mapping[str, Any] | Any,
        only_show: bool | Any = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.plan = plan
        self.snapshot = snapshot
        self.only_show = only_show

    def execute(self, context: Context) -> dict[str, str]:
        """Log the plan, then return or skip the downstream tasks."""
        sentence = self._sentence()
        stop = "" if self.plan["partitions"] else "nothing"
        stop = stop or ("dry_run" if self.only_show else "")
        facts = {"sentence": sentence, "stop": stop}
        self.log.info("%s", printable(sentence))
        if self.plan["partitions"]:
            self._show()
        if not stop:
            return facts
        context["ti"].xcom_push("return_value", facts)
        needing = [task for task in self.downstream_list if task.trigger_rule == TriggerRule.ALL_SUCCESS]
        raise DownstreamTasksSkipped(tasks=[task.task_id for task in needing])

    def _sentence(self) -> str:
        plan = self.plan
        unplaced = f" {plan['unplaced']} partitions cannot be placed; proof.json says why." if plan["unplaced"] else ""
        if not plan["partitions"]:
            return f"Nothing to do. {plan.get('nothing') or 'The cluster is as it was asked to be.'}{unplaced}"
        message = f"The plan {plan['digest'][:12]} moves {plan['replicas_moved']} replicas of {plan['partitions']} "
        message += f"partitions; no plan can move fewer than {plan['lower_bound']}.{unplaced}"
        return f"Dry run, nothing is submitted. {message} It is at {plan['uri']}." if self.only_show else message

    def _show(self) -> None:
        from kafka_steward.execution.plan_report import plan_summary

        page = page_at(self.plan) or plan_summary(plan_at(self.plan), snapshot_at(self.snapshot))
        self.log.info("%s", printable_lines(page))


class ReportPlanOperator(StewardOperator):
    """Reports the outcome of a plan: the moves made, the moves held and the reasons, and the work that remains.

    `plan`, `shown`, `answer` and `submitted` are the results of the tasks that plan, show, request approval and submit;
    those of skipped tasks may be missing. `draining_brokers` are checked in Kafka: they must be empty, on disk too,
    unless the plan left replicas on them, which the report then states. Returns `{"sentence", "status", "partitions",
    "replicas_moved", "lower_bound", "not_done", "not_done_count", "empty", "audit"}`.

    >>> ReportPlanOperator(task_id="report", plan={"partitions": 0}, shown={"sentence": "Nothing to do.", "stop": "nothing"})
    <Task(ReportPlanOperator): report>
    """  # noqa: E501 - the example is one line

    template_fields: Sequence[str] = (
        *StewardOperator.template_fields,
        "plan",
        "shown",
        "answer",
        "submitted",
        "draining_brokers",
    )

    def __init__(
        self,
        *,
        plan: Mapping[str, Any] | Any,
        shown: Mapping[str, Any] | Any,
        answer: Mapping[str, Any] | Any | None = None,
        submitted: Mapping[str, Any] | Any | None = None,
        draining_brokers: Collection[int] | Any | None = (),
        on_done: Notifiers = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.plan = plan
        self.shown = shown
        self.answer = answer
        self.submitted = submitted
        self.draining_brokers = draining_brokers
        self.on_done = as_notifiers(on_done)

    def execute(self, context: Context) -> dict[str, Any]:
        """Collect the outcome, log it, and notify."""
        with self.open(context) as opened:
            facts = self._facts(opened)
        self.log.info("%s", printable(facts["sentence"]))
        for name, why in facts["not_done"]:
            self.log.warning("%s was not moved: %s", printable(name), printable(why))
        notify(self.on_done, context, "done", facts)
        return facts

    def _facts(self, opened: ClusterSession) -> dict[str, Any]:
        from kafka_steward.execution.plan_report import outcome_of
        from kafka_steward.execution.rollback import cancel_outcome

        numbers = {name: self.plan.get(name, 0) for name in ("partitions", "replicas_moved", "lower_bound")}
        if not self.submitted:
            status, sentence = self._not_submitted()
            left, audit = [], 0
        else:
            digest = self.submitted["digest"]
            outcome = outcome_of(opened.journal.plans.rows(digest))
            status, left = self.submitted["status"], list(outcome.not_done)
            record = opened.journal.plans.get(digest)
            became = "" if record is None else cancel_outcome(opened.journal, record)
            sentence = became or f"Plan {digest[:12]}, {status}: {outcome.sentence}"
            if record is not None and record.status.value != "rolled_back" and became:
                sentence = f"{became} {outcome.sentence}"
            audit = len(opened.journal.audit.rows(plan=digest))
        emptiness = self._emptiness(opened, complete=status == "completed" and not left)
        message = " ".join(
            part for part in (sentence, self._unplaced(), emptiness.sentence if emptiness else "") if part
        )
        found = {"not_done": [list(one) for one in left[:_LISTED]], "not_done_count": len(left)}
        empty = None if emptiness is None else emptiness.empty
        return {"sentence": message, "status": status, **numbers, **found, "empty": empty, "audit": audit}

    def _not_submitted(self) -> tuple[str, str]:
        if self.shown["stop"]:
            return str(self.shown["stop"]), str(self.shown["sentence"])
        answer = self.answer or {}
        by = f"by {answer['person']}" if answer.get("person") else "as nobody answered"
        why = f" ({answer['reason']})" if answer.get("person") and answer.get("reason") else ""
        return "rejected", f"The plan {self.plan['digest'][:12]} was rejected {by}{why}; nothing was submitted."

    def _unplaced(self) -> str:
        if not self.submitted or not self.plan.get("unplaced"):
            return ""
        return f"{self.plan['unplaced']} partitions could not be placed; proof.json at {self.plan['uri']} says why."

    def _emptiness(self, opened: ClusterSession, *, complete: bool) -> DrainStatus | None:
        """Return the drain status of the drained brokers; wait while Kafka still has logs to delete.

        Raises AirflowException when logs remain after `_DELETED_WITHIN_S` seconds.
        """
        from kafka_steward.execution.replication_status import drain_status

        brokers = sorted(int(broker) for broker in self.draining_brokers or ())
        if not brokers:
            return None
        until_s = time.monotonic() + _DELETED_WITHIN_S
        while True:
            found = drain_status(opened.cluster.snapshot(), opened.cluster.log_dirs(brokers), brokers)
            if found.empty or found.assigned or not complete:
                return found
            if time.monotonic() > until_s:
                raise AirflowException(printable(found.sentence))
            time.sleep(_LOOK_S)
