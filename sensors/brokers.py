"""Waiting for a broker to fail."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from kafka_steward.hooks.context import who_fields
from kafka_steward.sensors.base import StewardSensor

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["BrokerFailureSensor"]


class BrokerFailureSensor(StewardSensor):
    """Waits until a broker is gone for longer than `heal_failure_interval`, and no plan heals it (KIP-46).

    The same detector as the watch's, with the same entries in the journal. `brokers` narrows it to some ids. Returns
    the failed brokers' ids.
    """

    question = "brokers_failed"
    template_fields: Sequence[str] = (*StewardSensor.template_fields, "brokers")

    def __init__(self, *, brokers: Collection[int] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.brokers = brokers

    def arguments(self, context: Context) -> dict[str, Any]:
        """Which brokers, and who looks."""
        brokers = None if self.brokers is None else [int(broker) for broker in self.brokers]
        return {"brokers": brokers, "who": who_fields(context)}
