"""Common tasks of rebalance and apply: show, approve, execute and report a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from airflow.sdk import BaseOperator, TriggerRule, XComArg

from kafka_steward.operators.approve import ApprovePlanOperator
from kafka_steward.operators.leaders import ElectLeadersOperator
from kafka_steward.operators.notify import Notifiers
from kafka_steward.operators.outcome import ReportPlanOperator, ShowPlanOperator
from kafka_steward.operators.people import Approvers
from kafka_steward.operators.submit import SubmitReassignmentOperator
from kafka_steward.sensors.replication import IsrCatchUpSensor

__all__ = ["LONGEST_PLANNING", "Approval", "How", "carry_out"]

#: A Spark job that stalls must not block a run indefinitely; the largest plans take minutes.
LONGEST_PLANNING = timedelta(hours=2)
_LONGEST_CATCH_UP = timedelta(days=1)


@dataclass(frozen=True)
class Approval:
    """The approvers of a plan and the exemption from approval, as in ApprovePlanOperator."""

    timeout: timedelta
    on_asked: Any = None
    approvers: Approvers = None
    self_approval: bool = True
    approve_above: int | None = None


@dataclass(frozen=True)
class How:
    """Options for planning, approval and execution."""

    spark_conn_id: str | None
    deferrable: bool
    on_kill: str
    approval: Approval
    on_done: Notifiers = None


def carry_out(
    snapshot: BaseOperator, plan: BaseOperator, shared: Mapping[str, Any], how: How, *, draining_brokers: Any = None
) -> None:
    """Add the tasks after `plan`. The report runs whenever the plan was shown: it also reports skipped tasks."""
    made = {"plan": plan.output, "snapshot": snapshot.output}
    show = ShowPlanOperator(task_id="show_plan", only_show=plan.dag.param("dry_run"), **made, **shared)
    approve = _approve(made, shared, how.approval)
    submit = SubmitReassignmentOperator(
        task_id="submit",
        require_approval=True,
        deferrable=how.deferrable,
        on_kill=how.on_kill,
        **made,
        **shared,
    )
    digest = XComArg(submit, "digest")
    catch_up = IsrCatchUpSensor(
        task_id="catch_up", plan=digest, deferrable=how.deferrable, timeout=_LONGEST_CATCH_UP, **shared
    )
    elect = ElectLeadersOperator(task_id="elect_leaders", plan=digest, **shared)
    told = {"plan": plan.output, "shown": show.output, "answer": approve.output, "submitted": submit.output}
    report = _report(told, shared, how, draining_brokers)
    plan >> show >> approve >> submit >> catch_up >> elect >> report
    show >> report


def _approve(made: Mapping[str, Any], shared: Mapping[str, Any], how: Approval) -> ApprovePlanOperator:
    return ApprovePlanOperator(
        task_id="approve",
        approve_above=how.approve_above,
        approvers=how.approvers,
        self_approval=how.self_approval,
        response_timeout=how.timeout,
        notifiers=how.on_asked,
        **made,
        **shared,
    )


def _report(told: Mapping[str, Any], shared: Mapping[str, Any], how: How, draining_brokers: Any) -> ReportPlanOperator:
    return ReportPlanOperator(
        task_id="report",
        draining_brokers=draining_brokers,
        on_done=how.on_done,
        trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS,
        **told,
        **shared,
    )
