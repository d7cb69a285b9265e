"""The builder of the workflows' DAGs: ids, options, assets, and the tasks that plan and execute."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import quote

from airflow.sdk import DAG, Asset, AssetWatcher, BaseOperator, Param, TriggerRule, XComArg

from kafka_steward.airflow_versions import RUN_TYPES_BUT_BACKFILL
from kafka_steward.cluster_tag import STEWARD_TAG, cluster_tag, workflow_tag
from kafka_steward.dags.earlier import EarlierResult
from kafka_steward.errors import SettingError
from kafka_steward.operators.approve import ApprovePlanOperator
from kafka_steward.operators.base import Notifiers, to_notifier_list
from kafka_steward.operators.plan import PlanReassignmentOperator
from kafka_steward.operators.report import ReportPlanOperator
from kafka_steward.operators.review import ReviewPlanOperator
from kafka_steward.operators.submit import SubmitReassignmentOperator
from kafka_steward.settings import SETTINGS, Settings
from kafka_steward.triggers.watch import EVENTS, WatchTrigger

__all__ = ["DEFAULT_CONN_ID", "Workflow", "watch_asset"]

DEFAULT_CONN_ID = "kafka_steward_default"
#: What each task does, and where to look; Airflow shows it with the task.
SNAPSHOT_DOC = """
Writes the state of the cluster into the workspace, for the plan; changes nothing. The log says where it is.
"""
_PLAN_DOC = """
Plans the fewest moves with Spark, and checks the plan with code that shares nothing with the solver; changes nothing
on the cluster. The log ends with the number of moves; the button *Plan* leads to the plan once it has begun.
"""
_REVIEW_DOC = """
Shows the plan in the log: its cost, what it makes worse, and its moves. With `dry_run`, or when there is nothing to
do, the run goes on with `report`.
"""
_APPROVE_DOC = """
Waits for a person to approve exactly this plan, on the page of the run under *Required Actions*; the answer goes into
the audit trail with its author. Rejected, the run goes on with `report`.
"""
_SUBMIT_DOC = """
Moves the replicas in throttled chunks, waits until they are in sync, and elects the preferred leaders. The log shows
the progress, the button *Plan* each move. Clearing the task resumes the plan; the DAG `cancel` stops it.
"""
_REPORT_DOC = """
Verifies in Kafka what the plan did, and says what was moved, what was not and why, and what is left to do. It fails if
nothing was moved, unless somebody cancelled the plan.
"""
#: A Spark job that stalls must not block a run indefinitely; the largest plans take minutes.
_LONGEST_PLANNING = timedelta(hours=2)


class Workflow:
    """A workflow on the cluster behind `conn_id`: its DAG, and the tasks that several workflows have.

    `settings` override the connection's. Without `spark_conn_id` the setting of this name counts. `deferrable` and
    `on_kill` are those of SubmitReassignmentOperator. `notify` is called at every event. Raises SettingError for a
    setting that does not exist or that only the connection may have, and for a value that it does not take. Values from
    the connection and the configuration are not known while a DAG is parsed.
    """

    def __init__(
        self,
        conn_id: str,
        settings: Mapping[str, Any] | None,
        *,
        spark_conn_id: str | None = None,
        deferrable: bool = True,
        on_kill: str = "nothing",
        notify: Notifiers = None,
    ) -> None:
        self.conn_id = conn_id
        self.settings = dict(settings or {})
        self.spark_conn_id = spark_conn_id
        self.deferrable = deferrable
        self.on_kill = on_kill
        self._notify = to_notifier_list(notify)
        for name in self.settings:
            if name not in SETTINGS:
                raise SettingError(f"There is no setting {name!r}; there are {', '.join(SETTINGS)}.")
            if not SETTINGS[name].per_run:
                raise SettingError(
                    f"The setting {name} is one of the watch, which the cluster has once for all DAGs: remove it from "
                    f"the settings of this DAG, and set the key {name} in the extra of the connection {conn_id}."
                )
        Settings.refuse_wrong(self.settings)
        #: The arguments of every operator.
        self.shared: dict[str, Any] = {"conn_id": conn_id, "settings": self.settings}

    def notifiers(self, on_event: Notifiers = None) -> list[Callable[[Any], Any]]:
        """Return the notifiers of one event: those for it, and those for every event."""
        return [*to_notifier_list(on_event), *self._notify]

    def create_dag(
        self,
        name: str,
        doc: str,
        params: Mapping[str, Param],
        schedule: Any = None,
        /,
        *,
        dag_id: str | None = None,
        retries: int = 5,
        retry_delay: timedelta = timedelta(seconds=30),
        on_failed: Notifiers = None,
        **options: Any,
    ) -> DAG:
        """Return the DAG with the form `params`; `options` of its author override the builder's.

        Its id is the workflow's name, plus the connection's unless that is the default one. The defaults of `retries`
        and `retry_delay`, with exponential backoff, cover an outage of Airflow's API server. A DAG that starts by
        itself is created paused.
        """
        if dag_id is None:
            suffix = re.sub(r"[^A-Za-z0-9._-]", "_", self.conn_id)
            dag_id = name if self.conn_id == DEFAULT_CONN_ID else f"{name}_{suffix}"
        retrying = {
            "retries": retries,
            "retry_delay": retry_delay,
            "retry_exponential_backoff": 2,
            "max_retry_delay": timedelta(minutes=10),
        }
        ours = {
            "doc_md": doc,
            "params": params,
            "schedule": schedule,
            "is_paused_upon_creation": schedule is not None,
            "catchup": False,
            "tags": [STEWARD_TAG],
            # A plan is made for the current state of the cluster.
            "allowed_run_types": RUN_TYPES_BUT_BACKFILL,
            "on_failure_callback": self.notifiers(on_failed) or None,
        }
        default_args = {**retrying, **options.pop("default_args", {})}
        if isinstance(schedule, list):
            # A run that leaves something undone fails. Airflow must not pause the DAG for it: its watch would end, too.
            ours["max_consecutive_failed_dag_runs"] = 0
        chosen = {**ours, **options, "default_args": default_args}
        # The author's own tags replace the first one; the page finds the DAG by the other two.
        chosen["tags"] = [*(chosen["tags"] or ()), cluster_tag(self.conn_id), workflow_tag(name)]
        return DAG(dag_id, **chosen)

    def add_plan_task(
        self, snapshot: BaseOperator, kind: type[PlanReassignmentOperator] = PlanReassignmentOperator, **options: Any
    ) -> PlanReassignmentOperator:
        """Add the task `plan` for the snapshot of a task."""
        return kind(
            task_id="plan",
            doc_md=_PLAN_DOC,
            snapshot=XComArg(snapshot),
            spark_conn_id=self.spark_conn_id,
            execution_timeout=_LONGEST_PLANNING,
            **options,
            **self.shared,
        )

    def add_submit_task(
        self, snapshot: BaseOperator, plan: BaseOperator, *, require_approval: bool = False, named_brokers: Any = None
    ) -> SubmitReassignmentOperator:
        """Add the task `submit` for a plan, which executes it and elects the preferred leaders at its end.

        The caller connects it to the task before it, which is `plan` or comes after that.
        """
        return SubmitReassignmentOperator(
            task_id="submit",
            doc_md=_SUBMIT_DOC,
            plan=EarlierResult(plan),
            snapshot=EarlierResult(snapshot),
            require_approval=require_approval,
            named_brokers=named_brokers,
            deferrable=self.deferrable,
            on_kill=self.on_kill,
            elect_leaders=True,
            on_started=self.notifiers(),
            on_problem=self.notifiers(),
            **self.shared,
        )

    def add_approved_execution(
        self,
        snapshot: BaseOperator,
        plan: BaseOperator,
        *,
        on_done: Notifiers,
        on_approval_asked: Notifiers,
        draining_brokers: Any = None,
        **approval: Any,
    ) -> None:
        """Add the tasks after `plan` of a workflow that asks: review, approve, execute, report.

        `approval` are arguments of ApprovePlanOperator. The report runs whenever the plan was reviewed: it also reports
        skipped tasks.
        """
        made = {"plan": EarlierResult(plan), "snapshot": EarlierResult(snapshot), **self.shared}
        review = ReviewPlanOperator(
            task_id="show_plan", doc_md=_REVIEW_DOC, plan_only=plan.dag.param("dry_run"), **made
        )
        approve = ApprovePlanOperator(
            task_id="approve", doc_md=_APPROVE_DOC, notifiers=self.notifiers(on_approval_asked), **approval, **made
        )
        submit = self.add_submit_task(snapshot, plan, require_approval=True)
        report = ReportPlanOperator(
            task_id="report",
            doc_md=_REPORT_DOC,
            plan=EarlierResult(plan),
            submitted=EarlierResult(submit),
            review=EarlierResult(review),
            answer=EarlierResult(approve),
            brokers=draining_brokers,
            on_done=self.notifiers(on_done),
            trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS,
            **self.shared,
        )
        plan >> review >> approve >> submit >> report
        review >> report  # which runs when all between is skipped


def watch_asset(conn_id: str, event: str) -> Asset:
    """Return the asset of one of EVENTS. While a DAG that is scheduled on it is unpaused, its watch runs."""
    suffix = "" if event == EVENTS[0] else f"-{event}"
    watcher = AssetWatcher(name=f"watch-{conn_id}{suffix}", trigger=WatchTrigger(conn_id, event))
    uri = f"kafka-steward://{quote(conn_id, safe='')}/{event}"
    return Asset(name=f"kafka-steward:{conn_id}:{event}", uri=uri, group="kafka-steward", watchers=[watcher])
