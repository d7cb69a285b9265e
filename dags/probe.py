"""The probe: whether a worker and the triggerer can use the workspace. `doctor --probe` starts it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk import DAG, Param

from kafka_steward.dags.builder import DEFAULT_CONN_ID, Workflow
from kafka_steward.operators.base import refuse_unknown_keys
from kafka_steward.operators.checks import ProbeWorkspaceOperator

__all__ = ["probe"]

_DOC = """
Writes, reads and deletes a small file in the workspace, from a worker and then from the triggerer, and returns what
each of them found. `airflow kafka-steward doctor --probe` starts a run and prints the result. Neither the cluster nor
the journal is used.
"""


def probe(
    conn_id: str = DEFAULT_CONN_ID,
    *,
    settings: Mapping[str, Any] | None = None,
    **options: Any,
) -> DAG:
    """Return a manually triggered DAG that probes the workspace of the cluster behind `conn_id`.

    It is for `airflow kafka-steward doctor --probe`. A task that fails is not retried: somebody waits. All else is as
    in every workflow: see kafka_steward.dags.
    """
    workflow = Workflow(conn_id, settings)
    marker = Param(
        "", "A file to look for, as doctor names it.", type="string", pattern=r"^(doctor-[0-9a-f]{16}\.txt)?$"
    )
    with workflow.create_dag("probe", _DOC, {"marker": marker}, **{"retries": 0, **options}) as dag:
        ProbeWorkspaceOperator(
            task_id="probe", marker=dag.param("marker"), pre_execute=refuse_unknown_keys, **workflow.shared
        )
    return dag
