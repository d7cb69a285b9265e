"""The apply workflow: validates, plans, approves and executes a manually written reassignment."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG

from kafka_steward.dags.builder import DEFAULT_CONN_ID, SNAPSHOT_DOC, Workflow
from kafka_steward.dags.earlier import EarlierResult
from kafka_steward.dags.params import apply_params
from kafka_steward.operators.approve import Approvers
from kafka_steward.operators.base import Notifiers, refuse_unknown_keys
from kafka_steward.operators.checks import CheckReassignmentOperator
from kafka_steward.operators.snapshot import SnapshotClusterOperator

__all__ = ["apply"]

_CHECK_DOC = """
Validates the reassignment against the cluster; changes nothing. If it fails, its log names every fault.
"""

_DOC = """
Executes a reassignment in the format of `kafka-reassign-partitions`: paste it into the form. It is validated against
the cluster and planned (its cost, and the constraints that it makes worse: racks, replicas). A user approves exactly
that plan, which is then executed in throttled chunks; the DAG `cancel` reverts it.
"""


def apply(
    conn_id: str = DEFAULT_CONN_ID,
    *,
    settings: Mapping[str, Any] | None = None,
    spark_conn_id: str | None = None,
    deferrable: bool = True,
    approval_timeout: timedelta = timedelta(days=1),
    approvers: Approvers = None,
    self_approval: bool = True,
    on_kill: str = "nothing",
    on_approval_asked: Notifiers = None,
    on_done: Notifiers = None,
    notify: Notifiers = None,
    **options: Any,
) -> DAG:
    """Return a manually triggered DAG that executes a manually written reassignment on the cluster behind `conn_id`.

    A plan that is not approved within `approval_timeout` is rejected; `approvers` and `self_approval` determine who may
    approve it, as in ApprovePlanOperator. All else is as in every workflow: see kafka_steward.dags.
    """
    workflow = Workflow(
        conn_id, settings, spark_conn_id=spark_conn_id, deferrable=deferrable, on_kill=on_kill, notify=notify
    )
    with workflow.create_dag("apply", _DOC, apply_params(workflow.settings), **options) as dag:
        check = CheckReassignmentOperator(
            task_id="check",
            doc_md=_CHECK_DOC,
            reassignment=dag.param("reassignment"),
            pre_execute=refuse_unknown_keys,
            **workflow.shared,
        )
        snapshot = SnapshotClusterOperator(task_id="snapshot", doc_md=SNAPSHOT_DOC, **workflow.shared)
        plan = workflow.add_plan_task(
            snapshot, operation="apply", options={"reassignment": EarlierResult(check, "reassignment")}
        )
        check >> snapshot >> plan
        workflow.add_approved_execution(
            snapshot,
            plan,
            approvers=approvers,
            self_approval=self_approval,
            response_timeout=approval_timeout,
            on_approval_asked=on_approval_asked,
            on_done=on_done,
        )
    return dag
