"""The health workflow: reports the health of a cluster, on demand or on a schedule (KIP-352)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk import DAG, Param

from kafka_steward.dags.builder import DEFAULT_CONN_ID, Workflow
from kafka_steward.operators.base import Notifiers, refuse_unknown_keys
from kafka_steward.operators.checks import ReportHealthOperator
from kafka_steward.value_parsing import require_choice

__all__ = ["health"]

_DOC = """
Reports the health of a Kafka cluster: partitions that are under-replicated (replicas that a reassignment is adding do
not count, KIP-352), under min ISR or offline; failed log directories; topics that Kafka does not let us describe; the
reassignments in flight, their lag and their rate; the balance of the brokers; the number of pending replicas. It
changes nothing. With `when_unhealthy` *fail*, the run fails when a measure exceeds its limit; those without `limits`
are `kafka_steward.execution.watch.health.DEFAULT_LIMITS`.
"""

_HEALTH_DOC = """
Measures the cluster; changes nothing. The log names the partitions that are not well, the result has all measures.
"""


def health(
    conn_id: str = DEFAULT_CONN_ID,
    *,
    when_unhealthy: str = "report",
    limits: Mapping[str, float] | None = None,
    settings: Mapping[str, Any] | None = None,
    on_unhealthy: Notifiers = None,
    notify: Notifiers = None,
    **options: Any,
) -> DAG:
    """Return a DAG that reports the health of the cluster behind `conn_id`.

    It runs on demand, or with `schedule="@hourly"` on a schedule. `limits` and `when_unhealthy` ("report" or "fail")
    are those of ReportHealthOperator. `on_unhealthy` is called with the task's context, to which `kafka_steward` is
    added, with the message and the measures. All else is as in every workflow: see kafka_steward.dags.
    """
    workflow = Workflow(conn_id, settings, notify=notify)
    with workflow.create_dag(
        "health",
        _DOC,
        _health_params(when_unhealthy),
        **{"max_active_runs": 1, "is_paused_upon_creation": None, **options},
    ) as dag:
        ReportHealthOperator(
            task_id="health",
            doc_md=_HEALTH_DOC,
            limits=limits,
            when_unhealthy=dag.param("when_unhealthy"),
            on_unhealthy=workflow.notifiers(on_unhealthy),
            pre_execute=refuse_unknown_keys,
            **workflow.shared,
        )
    return dag


def _health_params(when_unhealthy: str) -> dict[str, Param]:
    return {
        "when_unhealthy": Param(
            require_choice("when_unhealthy", when_unhealthy, "report", "fail"),
            "report: report only. fail: fail the run when a measure exceeds its limit.",
            type="string",
            enum=["report", "fail"],
        )
    }
