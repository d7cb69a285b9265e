"""A health check of a cluster, for the task log and for metrics (KIP-352)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from kafka_steward.escaping import printable
from kafka_steward.operators.base import Notifiers, StewardOperator, fail_without_retry, notify, to_notifier_list
from kafka_steward.triggers.reporting import emit_health
from kafka_steward.value_parsing import require_choice

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_steward.cluster.health import Health
    from kafka_steward.hooks.steward import ClusterSession

__all__ = ["ReportHealthOperator"]


class ReportHealthOperator(StewardOperator):
    """Checks the health of the cluster, logs it, and emits it as metrics; changes nothing.

    Under-replicated partitions are counted as in KIP-352: replicas that a reassignment is adding do not count. `limits`
    are the highest healthy values, by measure; the default is `DEFAULT_LIMITS` of `execution.watch.health`. When a
    measure exceeds its limit, `on_unhealthy` is notified, and with `when_unhealthy="fail"` the task fails without a
    retry. During a reassignment, bytes per second are measured over `sample_s` seconds. Returns `{"healthy", "above",
    "sentence", "measures", "partitions"}`: `above` names the measures that exceed their limits, `partitions` the first
    100 partitions that are `under_replicated`, `under_min_isr`, `offline` and `reassigning`. The log names all of them.

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
        self.on_unhealthy = to_notifier_list(on_unhealthy)

    def execute(self, context: Context) -> dict[str, Any]:
        """Check, log, emit and notify; fail if that was requested."""
        from kafka_steward.execution.watch.health import (
            health_message,
            partition_lines,
            partition_names,
            validate_limits,
            violated_limits,
        )

        with fail_without_retry():
            require_choice("when_unhealthy", self.when_unhealthy, "report", "fail")
            limits = validate_limits(self.limits)
        with self.open(context) as opened:
            health = self._measure_health(opened)
        emit_health(self.conn_id, health.measures)
        above, sentence = violated_limits(health, limits), health_message(health)
        facts = {
            "healthy": not above,
            "above": above,
            "sentence": sentence,
            "measures": health.measures,
            "partitions": partition_names(health),
        }
        for line in (sentence, *partition_lines(health)):
            self.log.info("%s", printable(line))
        if above:
            notify(self.on_unhealthy, context, "unhealthy", facts)
            if self.when_unhealthy == "fail":
                raise AirflowFailException(printable(f"{', '.join(above)}: above the limit. {sentence}"))
        return facts

    def _measure_health(self, opened: ClusterSession) -> Health:
        from kafka_steward.execution.watch.health import check_health

        service_topics = opened.settings.service_topic_patterns
        health, copies = check_health(opened.cluster, opened.journal, thorough=True, service_topics=service_topics)
        if not health.reassigning or self.sample_s <= 0:
            return health
        time.sleep(self.sample_s)
        later, _ = check_health(opened.cluster, opened.journal, copies, service_topics=service_topics)
        return replace(later, hidden_topics=health.hidden_topics)
