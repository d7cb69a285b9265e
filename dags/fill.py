"""The fill workflow: adds the pending replicas of under-replicated topics when brokers join (KIP-409)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import quote

from airflow.sdk import DAG, Asset, AssetWatcher, XComArg

from kafka_steward.dags.options import DEFAULT_CONN_ID, dag_id_of, options_of, refuse_wrong_settings
from kafka_steward.dags.params import fill_params
from kafka_steward.operators.conf import refuse_unknown_keys
from kafka_steward.operators.leaders import ElectLeadersOperator
from kafka_steward.operators.notify import Notifiers, as_notifiers
from kafka_steward.operators.owed import FindOwedOperator, ReportFillOperator, SnapshotOwedOperator
from kafka_steward.operators.plan import PlanReassignmentOperator
from kafka_steward.operators.submit import SubmitReassignmentOperator
from kafka_steward.sensors.replication import IsrCatchUpSensor
from kafka_steward.triggers.watch import WatchTrigger

__all__ = ["broker_joined", "fill"]

#: A Spark job that stalls must not block a fill indefinitely; the largest plans take minutes.
_LONGEST_PLANNING = timedelta(hours=2)
_LONGEST_CATCH_UP = timedelta(days=1)
_DOC = """
Adds the replicas that are owed to topics which were created while brokers were away (KIP-409): each to a broker that
does not hold one yet, spread over the racks, in throttled chunks. It also adds partitions that wait for brokers.

It starts by itself when a broker can take what is owed. Started by hand, it fills what can be filled now.
"""


def broker_joined(conn_id: str = DEFAULT_CONN_ID, settings: Mapping[str, Any] | None = None) -> Asset:
    """Return the asset whose events report that a live broker can take pending replicas (KIP-409).

    Any DAG may be scheduled on it.
    """
    watcher = AssetWatcher(
        name=f"watch-{conn_id}-broker-joined", trigger=WatchTrigger(conn_id, settings, "broker-joined")
    )
    uri = f"kafka-steward://{quote(conn_id, safe='')}/broker-joined"
    return Asset(name=f"kafka-steward:{conn_id}:broker-joined", uri=uri, group="kafka-steward", watchers=[watcher])


def fill(
    conn_id: str = DEFAULT_CONN_ID,
    *,
    dag_id: str | None = None,
    settings: Mapping[str, Any] | None = None,
    spark_conn_id: str | None = None,
    deferrable: bool = True,
    retries: int = 5,
    retry_delay: timedelta = timedelta(seconds=30),
    on_failed: Notifiers = None,
    on_filled: Notifiers = None,
    **dag_options: Any,
) -> DAG:
    """Return a DAG that adds the pending replicas of the cluster behind `conn_id`. It is created paused.

    While it is unpaused, its watch runs in the triggerer. `settings` override the connection's, and a run's own
    parameters override both. Notifiers are called with the task's context, to which `kafka_steward` is added.
    `dag_options` are those of airflow.sdk.DAG, such as a `schedule` of your own. Raises SettingError, when the DAG file
    is parsed, for a wrong setting.
    """
    given = dict(settings or {})
    refuse_wrong_settings(given)
    shared: dict[str, Any] = {"conn_id": conn_id, "settings": given}
    defaults = {"max_active_runs": 1, "on_failure_callback": as_notifiers(on_failed) or None, "doc_md": _DOC}
    ours = {"schedule": [broker_joined(conn_id, given)], "is_paused_upon_creation": True, **defaults}
    options = options_of(dag_options, retries, retry_delay, **ours)
    with DAG(dag_id or dag_id_of("fill", conn_id), params=fill_params(given), **options) as dag:
        found = FindOwedOperator(task_id="find_owed", pre_execute=refuse_unknown_keys, **shared)
        snapshot = SnapshotOwedOperator(task_id="snapshot", **shared)
        plan = PlanReassignmentOperator(
            task_id="plan",
            snapshot=snapshot.output,
            operation="fill",
            spark_conn_id=spark_conn_id,
            execution_timeout=_LONGEST_PLANNING,
            **shared,
        )
        found >> snapshot >> plan
        _carry_out({"plan": plan.output, "snapshot": snapshot.output}, shared, on_filled, deferrable=deferrable)
    return dag


def _carry_out(made: Mapping[str, Any], shared: dict[str, Any], on_filled: Notifiers, *, deferrable: bool) -> None:
    submit = SubmitReassignmentOperator(task_id="submit", deferrable=deferrable, **made, **shared)
    digest = XComArg(submit, "digest")
    catch_up = IsrCatchUpSensor(
        task_id="catch_up", plan=digest, deferrable=deferrable, timeout=_LONGEST_CATCH_UP, **shared
    )
    elect = ElectLeadersOperator(task_id="elect_leaders", plan=digest, **shared)
    report = ReportFillOperator(
        task_id="report", plan=made["plan"], submitted=submit.output, on_filled=on_filled, **shared
    )
    submit >> catch_up >> elect >> report
