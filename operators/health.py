"""How a cluster is, for a person and for a dashboard (KIP-352)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from kafka_steward.errors import RequestError
from kafka_steward.operators.base import StewardOperator, told_at_once
from kafka_steward.operators.notify import Notifiers, as_notifiers, notify
from kafka_steward.triggers.metrics import emit_health

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_steward.cluster.health import Health
    from kafka_steward.hooks.steward import Opened

__all__ = ["ReportHealthOperator"]


class ReportHealthOperator(StewardOperator):
    """Looks at the cluster, says how it is, and emits that as metrics; changes nothing.

    Under-replicated as KIP-352 has it: replicas that a reassignment is adding do not count. `limits` say what a healthy
    cluster has at most, by measure; by default no partition under-replicated, under min ISR or offline, no failed log
    directory, and no topic that brokers hold and Kafka does not let us describe. When a measure
    is above its limit, `on_unhealthy` is notified, and with `when_unhealthy="fail"` the task fails for good. While
    something is reassigning, bytes per second are measured for `sample_s` seconds. Returns
    `{"healthy", "above", "sentence", "measures"}`: `above` names the measures that are.

    >>> ReportHealthOperator(task_id="health", when_unhealthy="fail", limits={"offline_partitions": 0})
    <Task(ReportHealthOperator): health>
    """

    template_fields: Sequence[str] = (*StewardOperator.template_fields, "limits", "when_unhealthy")

    def __init__(
        self,
        *,
        limits: Mapping[str, float] | Any | None = None,
        when_unhealthy: str | Any = "report",
        sample_s: float = 5.0,
        on_unhealthy: Notifiers = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.limits = limits
        self.when_unhealthy = when_unhealthy
        self.sample_s = sample_s
        self.on_unhealthy = as_notifiers(on_unhealthy)

    def execute(self, context: Context) -> dict[str, Any]:
        """Look, tell, notify, and fail if that was asked for."""
        from kafka_steward.execution.watching.examining import (
            ailments,
            checked_limits,
            health_sentence,
        )

        with told_at_once():
            if self.when_unhealthy not in ("report", "fail"):
                raise RequestError(f"when_unhealthy is {self.when_unhealthy!r}; it takes report or fail.")
            limits = checked_limits(self.limits)
        with self.open(context) as opened:
            health = self._looked(opened)
        emit_health(self.conn_id, health.measures)
        above, sentence = ailments(health, limits), health_sentence(health)
        facts = {"healthy": not above, "above": above, "sentence": sentence, "measures": health.measures}
        self.log.info("%s", sentence)
        if above:
            notify(self.on_unhealthy, context, "unhealthy", facts)
            if self.when_unhealthy == "fail":
                raise AirflowFailException(f"{', '.join(above)}: more than healthy. {sentence}")
        return facts

    def _looked(self, opened: Opened) -> Health:
        from kafka_steward.execution.watching.examining import examine

        health, copies = examine(opened.cluster, opened.journal, thorough=True)
        if not health.reassigning or self.sample_s <= 0:
            return health
        time.sleep(self.sample_s)
        later, _ = examine(opened.cluster, opened.journal, copies)
        return replace(later, hidden_topics=health.hidden_topics)
