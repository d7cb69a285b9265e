"""The fill workflow: adds the pending replicas of under-replicated topics when brokers join (KIP-409)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk import DAG, Asset

from kafka_steward.dags.builder import DEFAULT_CONN_ID, Workflow, watch_asset
from kafka_steward.dags.earlier import EarlierResult
from kafka_steward.dags.params import fill_params
from kafka_steward.operators.base import Notifiers, refuse_unknown_keys
from kafka_steward.operators.report import ReportPlanOperator
from kafka_steward.operators.topics import FindPendingReplicasOperator

__all__ = ["broker_joined", "fill"]

_DOC = """
Adds the pending replicas of topics that were created while brokers were down (KIP-409): each on a broker that does not
host one yet, spread over the racks, in throttled chunks. It also executes deferred requests for new partitions.

It starts automatically when a broker can take a pending replica. Triggered manually, it fills what can be filled now.
"""

_FIND_DOC = """
Finds replicas that are still to be added, adds partitions that waited for a broker, and writes the state of the cluster
into the workspace, for the plan. If no live broker can take a replica, the task is skipped, and its log and its XCom
`sentence` say why.
"""
_REPORT_DOC = """
Says which topics have all their replicas now, and how many replicas wait for a broker to join. It fails if the plan
added none, unless somebody cancelled it.
"""


def broker_joined(conn_id: str = DEFAULT_CONN_ID) -> Asset:
    """Return the asset whose events report that a live broker can take pending replicas (KIP-409).

    Any DAG may be scheduled on it.
    """
    return watch_asset(conn_id, "broker-joined")


def fill(
    conn_id: str = DEFAULT_CONN_ID,
    *,
    settings: Mapping[str, Any] | None = None,
    spark_conn_id: str | None = None,
    deferrable: bool = True,
    on_filled: Notifiers = None,
    notify: Notifiers = None,
    **options: Any,
) -> DAG:
    """Return a DAG that adds the pending replicas of the cluster behind `conn_id`. It is created paused.

    While it is unpaused, its watch runs in the triggerer. `options` may hold a `schedule` of your own. All else is as
    in every workflow: see kafka_steward.dags.
    """
    workflow = Workflow(conn_id, settings, spark_conn_id=spark_conn_id, deferrable=deferrable, notify=notify)
    shared = workflow.shared
    with workflow.create_dag(
        "fill",
        _DOC,
        fill_params(workflow.settings),
        [broker_joined(conn_id)],
        **{"max_active_runs": 1, **options},
    ) as dag:
        find = FindPendingReplicasOperator(
            task_id="find_pending", doc_md=_FIND_DOC, snapshot=True, pre_execute=refuse_unknown_keys, **shared
        )
        plan = workflow.add_plan_task(find, operation="fill")
        submit = workflow.add_submit_task(find, plan)
        report = ReportPlanOperator(
            task_id="report",
            doc_md=_REPORT_DOC,
            verify="fill",
            plan=EarlierResult(plan),
            submitted=EarlierResult(submit),
            on_done=workflow.notifiers(on_filled),
            **shared,
        )
        plan >> submit >> report
    return dag
