"""Waiting for a broker to fail, or to join."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from kafka_steward.hooks.context import who_fields
from kafka_steward.sensors.base import StewardSensor

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["BrokerFailureSensor", "BrokerJoinSensor"]


class BrokerFailureSensor(StewardSensor):
    """Waits until a broker is gone for longer than `heal_failure_interval`, and no plan heals it (KIP-46).

    The same detector as the watch's, with the same entries in the journal. `brokers` narrows it to some ids. Returns
    the failed brokers' ids.

    >>> BrokerFailureSensor(task_id="failure", brokers=[3, 4], poke_interval=30)
    <Task(BrokerFailureSensor): failure>
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


class BrokerJoinSensor(StewardSensor):
    """Waits until a broker has joined: one that can take replicas that are owed (KIP-409), or that holds nothing yet.

    With `brokers`, until all of these are live. Returns the ids of the brokers that it waited for.

    >>> BrokerJoinSensor(task_id="joined", brokers=[4])
    <Task(BrokerJoinSensor): joined>
    """

    question = "broker_joined"
    template_fields: Sequence[str] = (*StewardSensor.template_fields, "brokers")

    def __init__(self, *, brokers: Collection[int] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.brokers = brokers

    def arguments(self, context: Context) -> dict[str, Any]:
        """Which brokers, and who looks."""
        brokers = None if self.brokers is None else [int(broker) for broker in self.brokers]
        return {"brokers": brokers, "who": who_fields(context)}
