"""Workflows: one function each, which returns a DAG."""

from __future__ import annotations

from kafka_steward.dags.apply import apply
from kafka_steward.dags.cancel import cancel
from kafka_steward.dags.fill import broker_joined, fill
from kafka_steward.dags.heal import broker_failed, heal
from kafka_steward.dags.health import health
from kafka_steward.dags.rebalance import empty_broker_joined, rebalance
from kafka_steward.dags.throttle import throttle
from kafka_steward.deprecated import keep_former_names

__all__ = [
    "apply",
    "broker_failed",
    "broker_joined",
    "empty_broker_joined",
    "cancel",
    "fill",
    "heal",
    "health",
    "rebalance",
    "throttle",
]

keep_former_names(__name__)
