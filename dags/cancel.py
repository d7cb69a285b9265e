"""The cancel workflow: stops a plan and restores the original assignment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk import DAG, XComArg

from kafka_steward.dags.builder import DEFAULT_CONN_ID, Workflow
from kafka_steward.dags.params import cancel_params
from kafka_steward.operators.base import Notifiers, refuse_unknown_keys
from kafka_steward.operators.leaders import ElectLeadersOperator
from kafka_steward.operators.plan_control import CancelReassignmentOperator

__all__ = ["cancel"]

_DOC = """
Stops a plan of Kafka Steward, whatever started it, and reverts its moves.

With `scope` *pending*, reassignments in flight are cancelled: their partitions return to the original replicas in the
original order, and completed moves stay (KIP-236). With `scope` *plan*, completed moves are reverted too, in throttled
chunks; while reassignments are disabled, the task waits with that until they are enabled, unless `even_if_disabled` is
set. Without a `plan`, the plan that holds the plan slot is cancelled. The log of `cancel` ends with the state that
was verified in Kafka afterwards, and names each partition that is not in its original state, with the reason.
"""

_CANCEL_DOC = """
Stops the plan and returns its partitions to their original replicas. The log ends with what was verified in Kafka, and
names each partition that was left as it is; the button *Plan* shows each move.
"""
_ELECT_DOC = """
Elects the preferred leaders of the plan's partitions. The log names each that keeps its leader, and why.
"""


def cancel(
    conn_id: str = DEFAULT_CONN_ID,
    *,
    settings: Mapping[str, Any] | None = None,
    deferrable: bool = True,
    on_cancelled: Notifiers = None,
    notify: Notifiers = None,
    **options: Any,
) -> DAG:
    """Return a manually triggered DAG that cancels or rolls back a plan of the cluster behind `conn_id`.

    The DAG is created unpaused: it does nothing by itself, and in an emergency it must be usable at once. All else is
    as in every workflow: see kafka_steward.dags.
    """
    workflow = Workflow(conn_id, settings, deferrable=deferrable, notify=notify)
    with workflow.create_dag("cancel", _DOC, cancel_params(workflow.settings), **options) as dag:
        cancelled = CancelReassignmentOperator(
            task_id="cancel",
            doc_md=_CANCEL_DOC,
            plan=dag.param("plan"),
            scope=dag.param("scope"),
            reason=dag.param("reason"),
            even_if_disabled=dag.param("even_if_disabled"),
            deferrable=deferrable,
            on_cancelled=workflow.notifiers(on_cancelled),
            on_problem=workflow.notifiers(),
            pre_execute=refuse_unknown_keys,
            **workflow.shared,
        )
        elect = ElectLeadersOperator(
            task_id="elect_leaders", doc_md=_ELECT_DOC, plan=XComArg(cancelled, "plan"), **workflow.shared
        )
        cancelled >> elect
    return dag
