"""Change of a running plan's throttle, from a DAG or its form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException

from kafka_steward.escaping import printable
from kafka_steward.hooks.context import actor_of
from kafka_steward.operators.base import StewardOperator, fail_without_retry
from kafka_steward.operators.links import LinkedToPlan
from kafka_steward.value_parsing import parse_whole_number, shorten_value

__all__ = ["ChangeThrottleOperator"]

#: The largest rate that Kafka's settings hold.
_MOST = 2**63 - 1


class ChangeThrottleOperator(LinkedToPlan, StewardOperator):
    """Limits the moves of a plan that has not ended to `rate` bytes per second into one broker; 0: no throttle.

    `plan` is a plan's digest or a prefix of it; without one, the plan that holds the plan slot is meant. The request is
    written into the journal, which is all that is needed: Kafka is not called. The plan's next step sets the rate on
    all brokers that its moves copy to. The rate applies to this plan until it ends, and overrides the settings. Fails
    without a retry for a plan that is unknown or has ended. Returns `{"plan", "throttle", "sentence"}`.

    >>> ChangeThrottleOperator(task_id="throttle", plan="3f2a91c0", rate=200_000_000, reason="the night is quiet")
    <Task(ChangeThrottleOperator): throttle>
    """

    template_fields: Sequence[str] = (*StewardOperator.template_fields, "plan", "rate", "reason")

    def __init__(
        self,
        *,
        rate: int | str | Any,
        plan: str | Any | None = None,
        reason: str | Any = "",
        **kwargs: Any,
    ) -> None:
        super().__init__(**{"multiple_outputs": True, **kwargs})
        self.rate = rate
        self.plan = plan
        self.reason = reason

    def execute(self, context: Context) -> dict[str, Any]:
        """Write the request into the journal."""
        from kafka_steward.execution.plans.lifecycle import change_plan_throttle, throttle_message
        from kafka_steward.execution.plans.resolution import resolve_plan

        rate, who = self._parse_rate(), actor_of(context)
        reason = str(self.reason or "").strip() or "no reason was given"
        with fail_without_retry(), self.open_journal(context) as journal:
            digest = resolve_plan(journal, self.plan or None, "throttle", who=who).digest
            self.linked_plan = digest
            changed = change_plan_throttle(journal, digest, rate, who, reason)
            sentence = throttle_message(journal, changed)
        self.log.info("%s", printable(sentence))
        return {"plan": digest, "throttle": rate, "sentence": sentence}

    def _parse_rate(self) -> int:
        try:
            rate = parse_whole_number(self.rate)
        except ValueError:
            rate = -1
        if not 0 <= rate <= _MOST:
            sentence = (
                f"The rate is {shorten_value(self.rate)}; it takes bytes per second into one broker, such as 50000000, "
                "or 0 for no throttle."
            )
            raise AirflowFailException(printable(sentence))
        return rate
