"""The controls: three small changes to the journal, each a run's form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk import DAG

from kafka_steward.dags.builder import DEFAULT_CONN_ID, Workflow
from kafka_steward.dags.params import control_params
from kafka_steward.operators.base import refuse_unknown_keys
from kafka_steward.operators.documents import ControlClusterOperator

__all__ = ["controls"]

_DOC = """
Disables or enables reassignments of the cluster, or announces the restart of a broker, as `action` says.

While reassignments are disabled, no plan starts a move; moves in flight complete, and a cancel still works (KIP-236).
A broker whose restart is announced has its grace period, or the `minutes`, to come back, and receives no replica
meanwhile (KIP-46). Only the journal is written, so this works while Kafka is down. The page's buttons use this DAG.
"""

_CONTROL_DOC = """
Writes the request into the journal; the log says what applies from then on, also where it did already.
"""


def controls(
    conn_id: str = DEFAULT_CONN_ID,
    *,
    settings: Mapping[str, Any] | None = None,
    **options: Any,
) -> DAG:
    """Return a manually triggered DAG that disables, enables or announces for the cluster behind `conn_id`.

    The DAG is created unpaused: it does nothing by itself, and in an emergency it must be usable at once. All else is
    as in every workflow: see kafka_steward.dags.
    """
    workflow = Workflow(conn_id, settings)
    with workflow.create_dag("controls", _DOC, control_params(), **options) as dag:
        ControlClusterOperator(
            task_id="control",
            doc_md=_CONTROL_DOC,
            action=dag.param("action"),
            reason=dag.param("reason"),
            broker=dag.param("broker"),
            minutes=dag.param("minutes"),
            pre_execute=refuse_unknown_keys,
            **workflow.shared,
        )
    return dag
