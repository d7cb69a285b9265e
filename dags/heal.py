"""The heal workflow: restores full replication when a broker failure is due (KIP-46)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk import DAG, Asset

from kafka_steward.dags.builder import DEFAULT_CONN_ID, Workflow, watch_asset
from kafka_steward.dags.earlier import EarlierResult
from kafka_steward.dags.params import heal_params
from kafka_steward.operators.base import Notifiers, refuse_unknown_keys
from kafka_steward.operators.failures import FindFailuresOperator
from kafka_steward.operators.report import ReportPlanOperator
from kafka_steward.value_parsing import require_choice

__all__ = ["broker_failed", "heal"]

_DOC = """
Restores full replication after a broker failure: detects the failed brokers, takes a snapshot, plans the fewest moves
with Spark, executes the plan in throttled chunks, waits until every replica is in sync, and restores the leaders.

It starts automatically when a broker has been down for longer than `heal_failure_interval`. Triggered manually, it
heals the failures that are due; with `ignore_grace`, all brokers that are down. With `mode` *report* it submits
nothing.
"""

_FIND_DOC = """
Finds the failed brokers whose grace period has expired, and writes the state of the cluster into the workspace, for the
plan; changes nothing. If none is to be healed now, the task is skipped, and its log and its XCom `sentence` say why;
during an outage, in which nothing is healed, it fails.
"""
_REPORT_DOC = """
Verifies in Kafka that every partition is fully replicated again; if one is not, it says which brokers are missing. It
fails if the plan left some of its own partitions undone, unless somebody cancelled it.
"""


def broker_failed(conn_id: str = DEFAULT_CONN_ID) -> Asset:
    """Return the asset whose events report that a broker failure of this cluster is due to be healed.

    Any DAG may be scheduled on it.
    """
    return watch_asset(conn_id, "broker-failed")


def heal(
    conn_id: str = DEFAULT_CONN_ID,
    *,
    mode: str = "heal",
    settings: Mapping[str, Any] | None = None,
    spark_conn_id: str | None = None,
    deferrable: bool = True,
    on_kill: str = "nothing",
    on_failure_detected: Notifiers = None,
    on_not_healable: Notifiers = None,
    on_healed: Notifiers = None,
    notify: Notifiers = None,
    **options: Any,
) -> DAG:
    """Return a DAG that restores full replication of the cluster behind `conn_id` after a broker failure.

    The DAG is created paused. While it is unpaused, its watch runs in the triggerer. `mode="report"` plans and reports,
    and submits nothing. With `on_kill="cancel"` the plan is cancelled when a user marks the task `submit`. All else is
    as in every workflow: see kafka_steward.dags.
    """
    require_choice("The mode of a heal", mode, "heal", "report")
    workflow = Workflow(
        conn_id, settings, spark_conn_id=spark_conn_id, deferrable=deferrable, on_kill=on_kill, notify=notify
    )
    shared = workflow.shared
    with workflow.create_dag(
        "heal",
        _DOC,
        heal_params(mode, workflow.settings),
        [broker_failed(conn_id)],
        **{"max_active_runs": 1, **options},
    ) as dag:
        find = FindFailuresOperator(
            task_id="find_failures",
            doc_md=_FIND_DOC,
            brokers=dag.param("brokers"),
            ignore_grace=dag.param("ignore_grace"),
            on_failure_detected=workflow.notifiers(on_failure_detected),
            snapshot=True,
            on_not_healable=workflow.notifiers(on_not_healable),
            pre_execute=refuse_unknown_keys,
            **shared,
        )
        plan = workflow.add_plan_task(find, mode=dag.param("mode"), on_not_healable=workflow.notifiers(on_not_healable))
        submit = workflow.add_submit_task(find, plan, named_brokers=dag.param("brokers"))
        report = ReportPlanOperator(
            task_id="report",
            doc_md=_REPORT_DOC,
            verify="heal",
            brokers=EarlierResult(find, "brokers"),
            plan=EarlierResult(plan),
            submitted=EarlierResult(submit),
            on_done=workflow.notifiers(on_healed),
            on_not_healable=workflow.notifiers(on_not_healable),
            **shared,
        )
        plan >> submit >> report
    return dag
