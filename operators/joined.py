"""Which brokers have joined, for a DAG that their joining has started."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kafka_steward.hooks.context import is_scheduled
from kafka_steward.operators.base import StewardOperator, skip_rest

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["FindJoinedOperator"]


class FindJoinedOperator(StewardOperator):
    """Takes up the brokers that joined and hold nothing, and says which operation brings them in.

    The event that started the run is not read: Airflow doubles some and swallows others. With no such broker, or while
    replicas are owed that a fill is to add first (KIP-409), the task and all after it are skipped; the watch rings
    again after the fill. A run that a person started takes up nobody, and does what its form says, `operation`.
    Returns `{"operation", "brokers", "sentence"}`: `expand`, or `rebalance` once a fill has given each some replicas.

    >>> FindJoinedOperator(task_id="find_joined", conn_id="kafka_production")
    <Task(FindJoinedOperator): find_joined>
    """

    template_fields: Sequence[str] = (*StewardOperator.template_fields, "operation")

    def __init__(self, *, operation: str | Any = "expand", **kwargs: Any) -> None:
        super().__init__(**{"multiple_outputs": True, **kwargs})
        self.operation = operation

    def execute(self, context: Context) -> dict[str, Any]:
        """Look, and take up, or skip what follows."""
        from kafka_steward.execution.filling.newcomers import take_up

        if not is_scheduled(context):
            return {"operation": self.operation, "brokers": [], "sentence": "A person started this run."}
        with self.open(context) as opened:
            found = take_up(opened.cluster, opened.journal, f"{context['ti'].dag_id}/{context['ti'].run_id}")
        if not found.brokers:
            skip_rest(self, context, found.sentence)
        self.log.info("%s", found.sentence)
        operation = "expand" if found.empty else "rebalance"
        return {"operation": operation, "brokers": list(found.brokers), "sentence": found.sentence}
