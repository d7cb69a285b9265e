"""Review of a plan before its execution."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from airflow.sdk import BaseOperator, Context, TriggerRule
from airflow.sdk.exceptions import DownstreamTasksSkipped

from kafka_steward.assignment import counted
from kafka_steward.escaping import printable, printable_lines
from kafka_steward.operators.base import Notifiers, StewardOperator, notify, to_notifier_list
from kafka_steward.operators.links import LinkedToPlan
from kafka_steward.operators.plan_folders import read_plan_page, read_task_plan, read_task_snapshot

__all__ = ["ReviewPlanOperator", "review_plan", "stop_or_go_on"]


class ReviewPlanOperator(LinkedToPlan, StewardOperator):
    """Logs a plan; stops the workflow with `plan_only`, or when there is nothing to do.

    `plan` and `snapshot` are the results of the tasks that made them; with `snapshot`, the plan's summary is logged
    too. `mode` is that of a heal's form: with `report` it stops too, and `on_not_healable` is notified of partitions
    that the plan cannot place. A heal goes on with an empty plan, since its report verifies the cluster.

    Stopping is a success: downstream tasks with the trigger rule `all_success` are skipped; those with another trigger
    rule, such as the report of a rebalance, still run. Returns the plan's facts, `sentence`, and `stop`: `nothing`,
    `dry_run`, or empty.

    >>> ReviewPlanOperator(task_id="review", plan={"uri": "/plan"}, snapshot={"uri": "/snapshot"}, plan_only=True)
    <Task(ReviewPlanOperator): review>
    """

    template_fields: Sequence[str] = (*StewardOperator.template_fields, "plan", "snapshot", "plan_only", "mode")

    def __init__(
        self,
        *,
        plan: Mapping[str, Any] | Any,
        snapshot: Mapping[str, Any] | Any | None = None,
        plan_only: bool | Any = False,
        mode: str | Any | None = None,
        on_not_healable: Notifiers = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.plan = plan
        self.snapshot = snapshot
        self.plan_only = plan_only
        self.mode = mode
        self.on_not_healable = to_notifier_list(on_not_healable)

    def execute(self, context: Context) -> dict[str, Any]:
        """Log the plan, then return or skip the downstream tasks."""
        facts = review_plan(self, self.plan, plan_only=bool(self.plan_only), mode=self.mode)
        if self.snapshot and (self.plan["partitions"] or self.plan["unplaced"]):
            from kafka_steward.execution.plans.summary import plan_summary

            page = read_plan_page(self.plan) or plan_summary(
                read_task_plan(self.plan), read_task_snapshot(self.snapshot)
            )
            self.log.info("%s", printable_lines(page))
        return stop_or_go_on(self, facts, context, mode=self.mode, on_not_healable=self.on_not_healable)


def review_plan(
    task: BaseOperator, plan: Mapping[str, Any], *, plan_only: bool = False, mode: str | None = None
) -> dict[str, Any]:
    """Log what a plan moves; return its facts with `sentence` and `stop`, the reason to stop after it, if any."""
    stop = _stop_reason(plan, plan_only=plan_only, mode=mode)
    facts = {**plan, "sentence": _review_sentence(plan, stop), "stop": stop}
    task.log.info("%s", printable(facts["sentence"]))
    return facts


def stop_or_go_on(
    task: BaseOperator,
    facts: Mapping[str, Any],
    context: Context,
    *,
    mode: str | None,
    on_not_healable: Sequence[Callable[[Any], Any]],
) -> dict[str, Any]:
    """Return the facts, or end the task as a success and skip the downstream tasks, if `review_plan` says so."""
    if not facts["stop"]:
        return dict(facts)
    # A heal that goes on reports it at its end: one notification for each run.
    if mode and facts["unplaced"]:
        notify(on_not_healable, context, "not_healable", facts)
    context["ti"].xcom_push("return_value", dict(facts))
    skipped = [
        downstream.task_id for downstream in task.downstream_list if downstream.trigger_rule == TriggerRule.ALL_SUCCESS
    ]
    raise DownstreamTasksSkipped(tasks=skipped)


def _stop_reason(plan: Mapping[str, Any], *, plan_only: bool, mode: str | None) -> str:
    # A demotion is one even if the brokers lead nothing yet.
    if not plan["partitions"] and not mode and not plan.get("of_brokers"):
        return "nothing"
    return "dry_run" if plan_only or mode == "report" else ""


def _review_sentence(plan: Mapping[str, Any], stop: str) -> str:
    left = plan["unplaced"]
    unplaced = f" {counted(left, 'partition')} cannot be placed; review.md says why, and what to do." if left else ""
    if stop == "nothing" and left:
        return f"Nothing can be moved.{unplaced}"
    if stop == "nothing":
        return f"Nothing to do. {plan.get('nothing') or 'The cluster is already in the requested state.'}{unplaced}"
    message = f"The plan {plan['digest'][:12]} "
    if plan["partitions"]:
        message += f"moves {counted(plan['replicas_moved'], 'replica')} of {counted(plan['partitions'], 'partition')}; "
        message += f"no plan can move fewer than {plan['lower_bound']}.{unplaced}"
    else:
        message += f"has nothing to move.{unplaced}"
    return f"Dry run, nothing is submitted. {message} It is at {plan['uri']}." if stop == "dry_run" else message
