"""The rebalance workflow: balances brokers, fills new ones, drains others, or changes replication factors."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import quote

from airflow.sdk import DAG, Asset, AssetWatcher, XComArg

from kafka_steward.dags.carrying_out import LONGEST_PLANNING, Approval, How, carry_out
from kafka_steward.dags.options import DEFAULT_CONN_ID, dag_id_of, options_of, refuse_wrong_settings
from kafka_steward.dags.params import rebalance_params
from kafka_steward.errors import SettingError
from kafka_steward.operators.gate import GateOperator
from kafka_steward.operators.joined import FindJoinedOperator
from kafka_steward.operators.notify import Notifiers, as_notifiers
from kafka_steward.operators.people import Approvers
from kafka_steward.operators.rebalance import WISHES, PlanRebalanceOperator, refuse_wrong_form
from kafka_steward.operators.snapshot import SnapshotClusterOperator
from kafka_steward.triggers.watch import WatchTrigger

__all__ = ["broker_new", "rebalance"]

#: Initial values of the form of a DAG that starts when a broker joins.
_JOINING = {"operation": "expand", "when_busy": "wait"}
_DOC = """
Makes the brokers of a Kafka cluster even (*rebalance*), fills new ones (*expand*), empties others (*drain*), or gives
topics another number of replicas (*set-replication-factor*), with the fewest moves that do it.

It begins only on a whole, quiet cluster, shows its plan with a proof, waits for a person who approves exactly that
plan, and carries it out in throttled chunks, within `maintenance_window` if there is one. With `dry_run` it stops after
the plan. The last task, `report`, says what was moved, what was held back and why, and what is left to do.
"""


def broker_new(conn_id: str = DEFAULT_CONN_ID, settings: Mapping[str, Any] | None = None) -> Asset:
    """Return the asset whose events report that an empty broker has joined; any DAG may be scheduled on it.

    Its watch emits the event again every `heal_retry_interval` until a FindJoinedOperator has claimed the broker.
    """
    watcher = AssetWatcher(name=f"watch-{conn_id}-broker-new", trigger=WatchTrigger(conn_id, settings, "broker-new"))
    uri = f"kafka-steward://{quote(conn_id, safe='')}/broker-new"
    return Asset(name=f"kafka-steward:{conn_id}:broker-new", uri=uri, group="kafka-steward", watchers=[watcher])


def rebalance(
    conn_id: str = DEFAULT_CONN_ID,
    *,
    dag_id: str | None = None,
    schedule: Any = None,
    on_join: bool = False,
    fields: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    spark_conn_id: str | None = None,
    deferrable: bool = True,
    retries: int = 5,
    retry_delay: timedelta = timedelta(seconds=30),
    approval_timeout: timedelta = timedelta(days=1),
    approve_above: int | None = None,
    approvers: Approvers = None,
    self_approval: bool = True,
    on_kill: str = "nothing",
    on_approval_asked: Any = None,
    on_failed: Notifiers = None,
    on_done: Notifiers = None,
    **dag_options: Any,
) -> DAG:
    """Return a DAG that rebalances, expands, drains, or sets the replication factor of the cluster behind `conn_id`.

    Without a `schedule` it is triggered manually. A scheduled run moves at most a tenth of the cluster's bytes unless
    its `fields`, values of the form's fields, set another budget. With `on_join` it is `expand`, and starts when empty
    brokers join.

    `settings` override the connection's, and a run's own parameters override both. Neither can override the approval:
    `approve_above`, `approvers`, `self_approval` and `approval_timeout`, as in ApprovePlanOperator. `on_approval_asked`
    takes Airflow's notifiers, the others are called with the task's context and `kafka_steward`. Raises SettingError.
    """
    given, form = dict(settings or {}), {**(_JOINING if on_join else {}), **(fields or {})}
    refuse_wrong_settings(given)
    approval = Approval(approval_timeout, on_approval_asked, approvers, self_approval, approve_above)
    how = How(spark_conn_id, deferrable, on_kill, approval, on_done)
    ours = _starting(conn_id, given, schedule, on_join=on_join) | {"params": rebalance_params(form, given)}
    options = options_of(dag_options, retries, retry_delay, on_failure_callback=as_notifiers(on_failed) or None, **ours)
    with DAG(dag_id or dag_id_of("expand" if on_join else "rebalance", conn_id), **options) as dag:
        _tasks(dag, {"conn_id": conn_id, "settings": given}, how, on_join=on_join)
    return dag


def _starting(conn_id: str, settings: Mapping[str, Any], schedule: Any, *, on_join: bool) -> dict[str, Any]:
    if on_join and schedule is not None:
        raise SettingError("A rebalance has on_join or a schedule, not both; call rebalance() once for each.")
    starts = [broker_new(conn_id, settings)] if on_join else schedule
    paused = {"is_paused_upon_creation": starts is not None}
    return {"schedule": starts, **paused, "max_active_runs": 1, "doc_md": _DOC}


def _tasks(dag: DAG, shared: dict[str, Any], how: How, *, on_join: bool) -> None:
    wishes: dict[str, Any] = {name: dag.param(name) for name in WISHES}
    gate = GateOperator(
        task_id="gate",
        when_busy=dag.param("when_busy"),
        deferrable=how.deferrable,
        pre_execute=None if on_join else refuse_wrong_form,
        **shared,
    )
    joined = _find_joined(wishes, shared) if on_join else None
    if joined is not None:
        wishes["operation"] = XComArg(joined, "operation")
    snapshot = SnapshotClusterOperator(task_id="snapshot", draining_brokers=dag.param("brokers"), **shared)
    plan = PlanRebalanceOperator(
        task_id="plan",
        snapshot=snapshot.output,
        wishes=wishes,
        spark_conn_id=how.spark_conn_id,
        execution_timeout=LONGEST_PLANNING,
        **shared,
    )
    gate >> snapshot >> plan
    if joined is not None:
        joined >> gate
    carry_out(snapshot, plan, shared, how, draining_brokers=dag.param("brokers"))


def _find_joined(wishes: Mapping[str, Any], shared: dict[str, Any]) -> FindJoinedOperator:
    return FindJoinedOperator(
        task_id="find_joined", operation=wishes["operation"], pre_execute=refuse_wrong_form, **shared
    )
