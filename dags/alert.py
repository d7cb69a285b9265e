"""The alert workflow: notifies people of what the watch has found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk import DAG, Asset

from kafka_steward.dags.builder import DEFAULT_CONN_ID, Workflow, watch_asset
from kafka_steward.operators.alerts import SendAlertsOperator
from kafka_steward.operators.base import Notifiers, refuse_unknown_keys

__all__ = ["alert", "alert_due"]

_DOC = """
Notifies people of what the watch has found: a plan that is stalled, stuck, paused, or that no process steps; an outage,
in which nothing is healed; a heal that is overdue; a check of the watch that fails. Once more an hour later while it
lasts, and when it is over.

It starts automatically. It needs the journal only, so it works while Kafka does not answer.
"""

_TELL_DOC = """
Sends each alert of the watch that people do not know of yet. The log has them; without one, the task is skipped.
"""


def alert_due(conn_id: str = DEFAULT_CONN_ID) -> Asset:
    """Return the asset whose events report that people are to be told of something; any DAG may be scheduled on it.

    Its watch emits the event again every minute until a SendAlertsOperator has told them.
    """
    return watch_asset(conn_id, "alert")


def alert(
    conn_id: str = DEFAULT_CONN_ID,
    *,
    settings: Mapping[str, Any] | None = None,
    notify: Notifiers = None,
    **options: Any,
) -> DAG:
    """Return a DAG that calls `notify` for what the watch of the cluster behind `conn_id` has found.

    The DAG is created paused. While it is unpaused, its watch runs in the triggerer. The events are those of
    SendAlertsOperator. All else is as in every workflow: see kafka_steward.dags.
    """
    workflow = Workflow(conn_id, settings, notify=notify)
    with workflow.create_dag("alert", _DOC, {}, [alert_due(conn_id)], **{"max_active_runs": 1, **options}) as dag:
        SendAlertsOperator(
            task_id="send_alerts",
            doc_md=_TELL_DOC,
            on_alert=workflow.notifiers(),
            pre_execute=refuse_unknown_keys,
            **workflow.shared,
        )
    return dag
