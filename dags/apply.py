"""The apply workflow: validates, plans, approves and executes a manually written reassignment."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, XComArg

from kafka_steward.dags.carrying_out import LONGEST_PLANNING, Approval, How, carry_out
from kafka_steward.dags.options import DEFAULT_CONN_ID, dag_id_of, options_of, refuse_wrong_settings
from kafka_steward.dags.params import apply_params
from kafka_steward.operators.conf import refuse_unknown_keys
from kafka_steward.operators.given import CheckReassignmentOperator
from kafka_steward.operators.notify import Notifiers, as_notifiers
from kafka_steward.operators.people import Approvers
from kafka_steward.operators.plan import PlanReassignmentOperator
from kafka_steward.operators.snapshot import SnapshotClusterOperator

__all__ = ["apply"]

_DOC = """
Carries out a reassignment in the format of `kafka-reassign-partitions`: paste it into the form. It is checked against
the cluster, planned (what it costs, what it breaks: racks, replicas, `min.insync.replicas`), shown to a person who
approves exactly that plan, and carried out in throttled chunks like any other; the DAG `cancel` takes it back.
"""


def apply(
    conn_id: str = DEFAULT_CONN_ID,
    *,
    dag_id: str | None = None,
    settings: Mapping[str, Any] | None = None,
    spark_conn_id: str | None = None,
    deferrable: bool = True,
    retries: int = 5,
    retry_delay: timedelta = timedelta(seconds=30),
    approval_timeout: timedelta = timedelta(days=1),
    approvers: Approvers = None,
    self_approval: bool = True,
    on_kill: str = "nothing",
    on_approval_asked: Any = None,
    on_failed: Notifiers = None,
    on_done: Notifiers = None,
    **dag_options: Any,
) -> DAG:
    """Return a manually triggered DAG that executes a manually written reassignment on the cluster behind `conn_id`.

    `settings` override the connection's, and a run's own parameters override both. A plan that is not approved within
    `approval_timeout` is rejected; `approvers` and `self_approval` determine who may approve it, as in
    ApprovePlanOperator. `on_approval_asked` takes Airflow's notifiers; the others are called with the task's context,
    to which `kafka_steward` is added. `dag_options` are those of airflow.sdk.DAG. Raises SettingError, when the DAG
    file is parsed, for a wrong setting.
    """
    given = dict(settings or {})
    refuse_wrong_settings(given)
    approval = Approval(approval_timeout, on_approval_asked, approvers, self_approval)
    how = How(spark_conn_id, deferrable, on_kill, approval, on_done)
    ours = {"schedule": None, "is_paused_upon_creation": False, "doc_md": _DOC}
    options = options_of(dag_options, retries, retry_delay, on_failure_callback=as_notifiers(on_failed) or None, **ours)
    with DAG(dag_id or dag_id_of("apply", conn_id), params=apply_params(given), **options) as dag:
        _tasks(dag, {"conn_id": conn_id, "settings": given}, how)
    return dag


def _tasks(dag: DAG, shared: dict[str, Any], how: How) -> None:
    check = CheckReassignmentOperator(
        task_id="check", reassignment=dag.param("reassignment"), pre_execute=refuse_unknown_keys, **shared
    )
    snapshot = SnapshotClusterOperator(task_id="snapshot", **shared)
    plan = PlanReassignmentOperator(
        task_id="plan",
        snapshot=snapshot.output,
        operation="apply",
        options={"reassignment": XComArg(check, "reassignment")},
        spark_conn_id=how.spark_conn_id,
        execution_timeout=LONGEST_PLANNING,
        **shared,
    )
    check >> snapshot >> plan
    carry_out(snapshot, plan, shared, how)
