"""Sensors for the failure and for the join of a broker."""

from __future__ import annotations

from kafka_steward.sensors.base import BrokersSensor

__all__ = ["BrokerFailureSensor", "BrokerJoinSensor"]


class BrokerFailureSensor(BrokersSensor):
    """Waits until a broker has been down for longer than `heal_failure_interval` and no plan heals it (KIP-46).

    It uses the same detector as the watch, with the same entries in the journal. `brokers` restricts it to some ids.
    Returns the failed brokers' ids.

    >>> BrokerFailureSensor(task_id="failure", brokers=[3, 4], poke_interval=30)
    <Task(BrokerFailureSensor): failure>
    """

    question = "brokers_failed"


class BrokerJoinSensor(BrokersSensor):
    """Waits until a broker has joined: one that can take pending replicas (KIP-409), or one that is still empty.

    With `brokers`, waits until all of these are live. Returns the ids of the brokers that met the condition.

    >>> BrokerJoinSensor(task_id="joined", brokers=[4])
    <Task(BrokerJoinSensor): joined>
    """

    question = "broker_joined"
