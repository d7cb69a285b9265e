"""The throttle workflow: changes how fast a running plan may copy."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG

from kafka_steward.dags.builder import DEFAULT_CONN_ID, Workflow
from kafka_steward.dags.params import throttle_params
from kafka_steward.operators.conf import refuse_unknown_keys
from kafka_steward.operators.notify import Notifiers
from kafka_steward.operators.throttle import ChangeThrottleOperator

__all__ = ["throttle"]

_DOC = """
Changes how fast a plan may copy, while it runs: `rate` is bytes per second into one broker, 0 is no throttle.

Without a `plan`, the one that has the cluster is meant. The next step of the plan carries the rate to every broker that
its moves copy to, so within seconds while a run or a terminal steps it. The rate holds for this plan until it ends,
whatever the connection or the plan's own run says; a stricter rate that someone else has set on a broker is left alone.
"""


def throttle(
    conn_id: str = DEFAULT_CONN_ID,
    *,
    dag_id: str | None = None,
    settings: Mapping[str, Any] | None = None,
    retries: int = 5,
    retry_delay: timedelta = timedelta(seconds=30),
    on_failed: Notifiers = None,
    **dag_options: Any,
) -> DAG:
    """Return a manually triggered DAG that changes the rate of a running plan of the cluster behind `conn_id`.

    The DAG is created unpaused: it does nothing by itself, and in an emergency it must be usable at once. It asks the
    journal only, so it works while Kafka does not answer. `settings` override the connection's. Notifiers are called
    with the task's context, to which `kafka_steward` is added. `dag_options` are those of airflow.sdk.DAG. Raises
    SettingError, when the DAG file is parsed, for a wrong setting.
    """
    workflow = Workflow(conn_id, settings)
    with workflow.dag(
        "throttle",
        dag_id,
        dag_options,
        retries=retries,
        retry_delay=retry_delay,
        on_failed=on_failed,
        schedule=None,
        params=throttle_params(),
        is_paused_upon_creation=False,
        doc_md=_DOC,
    ) as dag:
        ChangeThrottleOperator(
            task_id="throttle",
            plan=dag.param("plan"),
            rate=dag.param("rate"),
            reason=dag.param("reason"),
            pre_execute=refuse_unknown_keys,
            **workflow.shared,
        )
    return dag
