"""Workflows: one function each, which returns a DAG."""

from __future__ import annotations

from kafka_steward.dags.apply import apply
from kafka_steward.dags.cancel import cancel
from kafka_steward.dags.fill import broker_joined, fill
from kafka_steward.dags.heal import broker_failed, heal
from kafka_steward.dags.health import health
from kafka_steward.dags.rebalance import broker_new, rebalance
from kafka_steward.dags.throttle import throttle

__all__ = [
    "apply",
    "broker_failed",
    "broker_joined",
    "broker_new",
    "cancel",
    "fill",
    "heal",
    "health",
    "rebalance",
    "throttle",
]
