"""Sensors for the failure and for the join of a broker."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from kafka_steward.hooks.context import actor_fields
from kafka_steward.sensors.base import StewardSensor

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["BrokerFailureSensor", "BrokerJoinSensor"]


class BrokerFailureSensor(StewardSensor):
    """Waits until a broker has been down for longer than `heal_failure_interval` and no plan heals it (KIP-46).

    It uses the same detector as the watch, with the same entries in the journal. `brokers` restricts it to some ids.
    Returns the failed brokers' ids.

    >>> BrokerFailureSensor(task_id="failure", brokers=[3, 4], poke_interval=30)
    <Task(BrokerFailureSensor): failure>
    """

    question = "brokers_failed"
    template_fields: Sequence[str] = (*StewardSensor.template_fields, "brokers")

    def __init__(self, *, brokers: Collection[int] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.brokers = brokers

    def arguments(self, context: Context) -> dict[str, Any]:
        """Return the broker ids and the actor for the audit trail."""
        brokers = None if self.brokers is None else [int(broker) for broker in self.brokers]
        return {"brokers": brokers, "who": actor_fields(context)}


class BrokerJoinSensor(StewardSensor):
    """Waits until a broker has joined: one that can take pending replicas (KIP-409), or one that is still empty.

    With `brokers`, waits until all of these are live. Returns the ids of the brokers that met the condition.

    >>> BrokerJoinSensor(task_id="joined", brokers=[4])
    <Task(BrokerJoinSensor): joined>
    """

    question = "broker_joined"
    template_fields: Sequence[str] = (*StewardSensor.template_fields, "brokers")

    def __init__(self, *, brokers: Collection[int] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.brokers = brokers

    def arguments(self, context: Context) -> dict[str, Any]:
        """Return the broker ids and the actor for the audit trail."""
        brokers = None if self.brokers is None else [int(broker) for broker in self.brokers]
        return {"brokers": brokers, "who": actor_fields(context)}
