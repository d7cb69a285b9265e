"""The throttle workflow: changes how fast a running plan may copy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk import DAG

from kafka_steward.dags.builder import DEFAULT_CONN_ID, Workflow
from kafka_steward.dags.params import throttle_params
from kafka_steward.operators.base import Notifiers, refuse_unknown_keys
from kafka_steward.operators.plan_control import ChangeThrottleOperator

__all__ = ["throttle"]

_DOC = """
Changes the throttle of a running plan: `rate` is bytes per second into one broker, 0 is no throttle.

Without a `plan`, the plan that holds the plan slot is changed. Its next step sets the rate on every broker that its
moves copy to, within seconds while a run or a terminal steps it. The rate applies to this plan until it ends, and
overrides the connection and the plan's own run. A stricter rate that was set externally on a broker stays.
"""

_THROTTLE_DOC = """
Writes the rate into the journal, from which the plan's next step takes it; the button *Plan* leads to that plan.
"""


def throttle(
    conn_id: str = DEFAULT_CONN_ID,
    *,
    settings: Mapping[str, Any] | None = None,
    notify: Notifiers = None,
    **options: Any,
) -> DAG:
    """Return a manually triggered DAG that changes the rate of a running plan of the cluster behind `conn_id`.

    The DAG is created unpaused: it does nothing by itself, and in an emergency it must be usable at once. It needs only
    the journal, so it works while Kafka does not answer. All else is as in every workflow: see kafka_steward.dags.
    """
    workflow = Workflow(conn_id, settings, notify=notify)
    with workflow.create_dag("throttle", _DOC, throttle_params(), **options) as dag:
        ChangeThrottleOperator(
            task_id="throttle",
            doc_md=_THROTTLE_DOC,
            plan=dag.param("plan"),
            rate=dag.param("rate"),
            reason=dag.param("reason"),
            pre_execute=refuse_unknown_keys,
            **workflow.shared,
        )
    return dag
