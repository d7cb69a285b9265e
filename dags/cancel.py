"""The cancel workflow: stops a plan and restores the original assignment."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, XComArg

from kafka_steward.dags.options import DEFAULT_CONN_ID, dag_id_of, options_of, refuse_wrong_settings
from kafka_steward.dags.params import cancel_params
from kafka_steward.operators.cancel import CancelReassignmentOperator
from kafka_steward.operators.conf import refuse_unknown_keys
from kafka_steward.operators.leaders import ElectLeadersOperator
from kafka_steward.operators.notify import Notifiers, as_notifiers

__all__ = ["cancel"]

_DOC = """
Stops a plan that Kafka Steward carries out, whatever started it, and takes back what it has done.

With `scope` *pending*, what is in flight is cancelled and goes back to its original replicas in their original order;
what is complete stays (KIP-236). With `scope` *plan*, what is complete goes back too, in throttled chunks. Without a
`plan`, the one that has the cluster is meant. The last lines of the log of `cancel` say what was found in Kafka
afterwards, partition by partition where something is not as it was, and why.
"""


def cancel(
    conn_id: str = DEFAULT_CONN_ID,
    *,
    dag_id: str | None = None,
    settings: Mapping[str, Any] | None = None,
    deferrable: bool = True,
    retries: int = 5,
    retry_delay: timedelta = timedelta(seconds=30),
    on_cancelled: Notifiers = None,
    on_failed: Notifiers = None,
    **dag_options: Any,
) -> DAG:
    """Return a manually triggered DAG that cancels or rolls back a plan of the cluster behind `conn_id`.

    The DAG is created unpaused: it does nothing by itself, and in an emergency it must be usable at once.
    `settings` override the connection's, and a run's own parameters override both. Notifiers are called with the task's
    context, to which `kafka_steward` is added. `dag_options` are those of airflow.sdk.DAG. Raises SettingError, when
    the DAG file is parsed, for a wrong setting.
    """
    given = dict(settings or {})
    refuse_wrong_settings(given)
    shared: dict[str, Any] = {"conn_id": conn_id, "settings": given}
    options = options_of(dag_options, retries, retry_delay, is_paused_upon_creation=False, doc_md=_DOC, schedule=None)
    with DAG(
        dag_id or dag_id_of("cancel", conn_id),
        params=cancel_params(given),
        on_failure_callback=as_notifiers(on_failed) or None,
        **options,
    ) as dag:
        asked: dict[str, Any] = {name: dag.param(name) for name in ("plan", "scope", "reason", "even_if_disabled")}
        asked |= {"deferrable": deferrable, "on_cancelled": on_cancelled, "pre_execute": refuse_unknown_keys}
        undone = CancelReassignmentOperator(task_id="cancel", **asked, **shared)
        elect = ElectLeadersOperator(task_id="elect_leaders", plan=XComArg(undone, "plan"), **shared)
        undone >> elect
    return dag
