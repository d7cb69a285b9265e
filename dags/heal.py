"""The heal workflow: restores full replication when a broker failure is due (KIP-46)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import quote

from airflow.sdk import DAG, Asset, AssetWatcher, XComArg

from kafka_steward.dags.options import DEFAULT_CONN_ID, dag_id_of, options_of, refuse_wrong_settings
from kafka_steward.dags.params import heal_params
from kafka_steward.errors import SettingError
from kafka_steward.operators.conf import refuse_unknown_keys
from kafka_steward.operators.failures import FindFailuresOperator
from kafka_steward.operators.leaders import ElectLeadersOperator
from kafka_steward.operators.notify import Notifiers, as_notifiers
from kafka_steward.operators.plan import PlanReassignmentOperator
from kafka_steward.operators.report import ReportHealOperator, TellPlanOperator
from kafka_steward.operators.snapshot import SnapshotClusterOperator
from kafka_steward.operators.submit import SubmitReassignmentOperator
from kafka_steward.sensors.replication import IsrCatchUpSensor
from kafka_steward.triggers.watch import WatchTrigger

__all__ = ["broker_failed", "heal"]

#: A Spark job that stalls must not block a heal indefinitely; the largest plans take minutes.
_LONGEST_PLANNING = timedelta(hours=2)
_LONGEST_CATCH_UP = timedelta(days=1)
_DOC = """
Makes a Kafka cluster whole after a broker has failed: finds out what failed, takes a snapshot, plans the fewest moves
with Spark, carries the plan out in throttled chunks, waits until every replica is in sync, and restores the leaders.

It starts by itself when a broker has been gone for longer than `heal_failure_interval`. Started by hand, it heals what
is due; with `ignore_grace`, what is dead now. With `mode` *report* it plans, tells, and submits nothing.
"""


def broker_failed(conn_id: str = DEFAULT_CONN_ID, settings: Mapping[str, Any] | None = None) -> Asset:
    """Return the asset whose events report that a broker failure of this cluster is due to be healed.

    Any DAG may be scheduled on it.
    """
    watcher = AssetWatcher(name=f"watch-{conn_id}", trigger=WatchTrigger(conn_id, settings))
    uri = f"kafka-steward://{quote(conn_id, safe='')}/broker-failed"
    return Asset(name=f"kafka-steward:{conn_id}:broker-failed", uri=uri, group="kafka-steward", watchers=[watcher])


def heal(
    conn_id: str = DEFAULT_CONN_ID,
    *,
    dag_id: str | None = None,
    mode: str = "heal",
    settings: Mapping[str, Any] | None = None,
    spark_conn_id: str | None = None,
    deferrable: bool = True,
    retries: int = 5,
    retry_delay: timedelta = timedelta(seconds=30),
    on_kill: str = "nothing",
    on_failure_detected: Notifiers = None,
    on_not_healable: Notifiers = None,
    on_failed: Notifiers = None,
    on_healed: Notifiers = None,
    **dag_options: Any,
) -> DAG:
    """Return a DAG that restores full replication of the cluster behind `conn_id` after a broker failure.

    The DAG is created paused. While it is unpaused, its watch runs in the triggerer. `mode="report"` plans and reports,
    and submits nothing. `settings` override the connection's, and a run's own parameters override both. The defaults of
    `retries` cover an outage of Airflow's API server. With `on_kill="cancel"` the plan is cancelled when a user marks
    the task `submit`. Notifiers are called with the task's context, to which `kafka_steward` is added. `dag_options`
    are those of airflow.sdk.DAG. Raises SettingError, when the DAG file is parsed, for a wrong setting.
    """
    given = dict(settings or {})
    _refuse_wrong(mode, given)
    shared = {"conn_id": conn_id, "settings": given}
    told = _Told(on_failure_detected, on_not_healable, on_healed)
    defaults = {"max_active_runs": 1, "on_failure_callback": as_notifiers(on_failed) or None, "doc_md": _DOC}
    options = options_of(dag_options, retries, retry_delay, is_paused_upon_creation=True, **defaults)
    schedule, params = [broker_failed(conn_id, given)], heal_params(mode, given)
    with DAG(dag_id or dag_id_of("heal", conn_id), schedule=schedule, params=params, **options) as dag:
        found, made = _plan(dag, shared, spark_conn_id, told)
        _carry_out(found, made, shared, told, deferrable=deferrable, on_kill=on_kill)
    return dag


@dataclass(frozen=True)
class _Told:
    failure_detected: Notifiers
    not_healable: Notifiers
    healed: Notifiers


def _plan(
    dag: DAG, shared: dict[str, Any], spark_conn_id: str | None, told: _Told
) -> tuple[FindFailuresOperator, dict[str, Any]]:
    found = FindFailuresOperator(
        task_id="find_failures",
        brokers=dag.param("brokers"),
        ignore_grace=dag.param("ignore_grace"),
        on_failure_detected=told.failure_detected,
        on_not_healable=told.not_healable,
        pre_execute=refuse_unknown_keys,
        **shared,
    )
    snapshot = SnapshotClusterOperator(task_id="snapshot", failed_brokers=XComArg(found, "brokers"), **shared)
    plan = PlanReassignmentOperator(
        task_id="plan",
        snapshot=snapshot.output,
        spark_conn_id=spark_conn_id,
        execution_timeout=_LONGEST_PLANNING,
        **shared,
    )
    found >> snapshot >> plan
    return found, {"plan": plan.output, "snapshot": snapshot.output}


def _carry_out(
    found: FindFailuresOperator,
    made: Mapping[str, Any],
    shared: dict[str, Any],
    told: _Told,
    *,
    deferrable: bool,
    on_kill: str,
) -> None:
    mode = found.dag.param("mode")
    tell = TellPlanOperator(
        task_id="tell_plan", plan=made["plan"], mode=mode, on_not_healable=told.not_healable, **shared
    )
    submit = SubmitReassignmentOperator(task_id="submit", deferrable=deferrable, on_kill=on_kill, **made, **shared)
    digest = XComArg(submit, "digest")
    catch_up = IsrCatchUpSensor(
        task_id="catch_up", plan=digest, deferrable=deferrable, timeout=_LONGEST_CATCH_UP, **shared
    )
    elect = ElectLeadersOperator(task_id="elect_leaders", plan=digest, **shared)
    report = ReportHealOperator(
        task_id="report",
        brokers=XComArg(found, "brokers"),
        plan=made["plan"],
        submitted=submit.output,
        on_healed=told.healed,
        on_not_healable=told.not_healable,
        **shared,
    )
    tell >> submit >> catch_up >> elect >> report


def _refuse_wrong(mode: str, settings: Mapping[str, Any]) -> None:
    if mode not in ("heal", "report"):
        raise SettingError(f"The mode of a heal is {mode!r}; it takes heal or report.")
    refuse_wrong_settings(settings)
