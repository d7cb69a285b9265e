"""Common base of the sensors: one check, evaluated by the worker or by the triggerer with the same code."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import BaseSensorOperator, Context, PokeReturnValue
from airflow.sdk.exceptions import AirflowFailException

from kafka_steward.errors import StewardError
from kafka_steward.escaping import printable
from kafka_steward.hooks.context import actor_fields, hook_of, merge_overrides
from kafka_steward.triggers.wait import CheckResult, WaitTrigger, evaluate_check

__all__ = ["BrokersSensor", "StewardSensor"]


class StewardSensor(BaseSensorOperator):
    """Waits until the check `question` is met, and returns its value.

    A cluster or journal that is temporarily unreachable is waited for too. An error that waiting cannot resolve fails
    the task at once and without a retry. With `deferrable` (the default) the triggerer waits, else the worker does.
    """

    question: str
    template_fields: Sequence[str] = ("conn_id", "settings")

    def __init__(
        self,
        *,
        conn_id: str = "kafka_steward_default",
        settings: Mapping[str, Any] | None = None,
        deferrable: bool = True,
        poke_interval: timedelta | float = 10.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(poke_interval=poke_interval, **kwargs)
        self.conn_id = conn_id
        self.settings = dict(settings or {})
        self.deferrable = deferrable

    def arguments(self, context: Context) -> dict[str, Any]:
        """Return the arguments of the check, as JSON values."""
        raise NotImplementedError

    def execute(self, context: Context) -> Any:
        """Evaluate the check once; if it is not met, defer to the trigger, or keep poking."""
        if not self.deferrable:
            return super().execute(context)
        answer, journal = self._evaluate_check(context)
        if not answer.met:
            overrides = merge_overrides(self.settings, context)
            arguments = self.arguments(context)
            trigger = WaitTrigger(
                self.conn_id, self.question, arguments, self.poke_interval, overrides, journal=journal
            )
            self.defer(trigger=trigger, method_name="execute_complete", timeout=timedelta(seconds=self.timeout))
        return answer.value

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> Any:  # noqa: ARG002 - Airflow's
        """Return the value of the trigger's event, or fail without a retry."""
        if not event["done"]:
            raise AirflowFailException(printable(event["sentence"]))  # waiting would not resolve it
        self.log.info("%s", printable(event["sentence"]))
        return event["value"]

    def poke(self, context: Context) -> PokeReturnValue:
        """Evaluate the check once."""
        answer, _ = self._evaluate_check(context)
        return PokeReturnValue(answer.met, answer.value)

    def _evaluate_check(self, context: Context) -> tuple[CheckResult, dict[str, str] | None]:
        journal = None
        try:
            with hook_of(self, context).open() as opened:
                journal = opened.origin
                answer = evaluate_check(self.question, opened, self.arguments(context))
        except StewardError as error:
            if not error.retriable:
                raise AirflowFailException(str(error)) from error
            answer = CheckResult(False, f"{error} Retrying.")
        self.log.info("%s", printable(answer.sentence))
        return answer, journal


class BrokersSensor(StewardSensor):
    """A sensor of all brokers, or of those in `brokers`."""

    template_fields: Sequence[str] = (*StewardSensor.template_fields, "brokers")

    def __init__(self, *, brokers: Collection[int] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.brokers = brokers

    def arguments(self, context: Context) -> dict[str, Any]:
        """Return the broker ids and the actor for the audit trail."""
        brokers = None if self.brokers is None else [int(broker) for broker in self.brokers]
        return {"brokers": brokers, "who": actor_fields(context)}
