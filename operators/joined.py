"""Claim of empty new brokers, for a DAG that starts when brokers join."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk import Context

from kafka_steward.deprecated import keep_former_names
from kafka_steward.escaping import printable
from kafka_steward.hooks.context import is_scheduled
from kafka_steward.operators.base import StewardOperator, skip_downstream

__all__ = ["ClaimEmptyBrokersOperator"]

keep_former_names(__name__)


class ClaimEmptyBrokersOperator(StewardOperator):
    """Claims the brokers that joined empty, and returns the operation that moves replicas to them.

    The event that started the run is not read: Airflow may duplicate or drop trigger events. Without an empty broker,
    or while a fill has to place pending replicas first (KIP-409), the task and its downstream tasks are skipped; the
    watch emits the event again after the fill. A run that a user started claims no broker, and returns the `operation`
    of its form. Returns `{"operation", "brokers", "sentence"}`: `expand`, or `rebalance` once a fill has placed some
    replicas on each of the brokers.

    >>> ClaimEmptyBrokersOperator(task_id="claim", conn_id="kafka_production")
    <Task(ClaimEmptyBrokersOperator): claim>
    """

    template_fields: Sequence[str] = (*StewardOperator.template_fields, "operation")

    def __init__(self, *, operation: str | Any = "expand", **kwargs: Any) -> None:
        super().__init__(**{"multiple_outputs": True, **kwargs})
        self.operation = operation

    def execute(self, context: Context) -> dict[str, Any]:
        """Claim the empty brokers; skip the downstream tasks when there are none."""
        from kafka_steward.execution.broker_joins import claim_empty_brokers

        if not is_scheduled(context):
            return {"operation": self.operation, "brokers": [], "sentence": "A user started this run."}
        with self.open(context) as opened:
            found = claim_empty_brokers(
                opened.cluster, opened.journal, f"{context['ti'].dag_id}/{context['ti'].run_id}"
            )
        if not found.brokers:
            skip_downstream(self, context, found.sentence)
        self.log.info("%s", printable(found.sentence))
        operation = "expand" if found.empty else "rebalance"
        return {"operation": operation, "brokers": list(found.brokers), "sentence": found.sentence}
