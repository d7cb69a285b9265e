"""The workflows of `kafka_steward.dags`, which are the same objects under both names."""

from __future__ import annotations

from kafka_steward.dags import (
    apply,
    broker_failed,
    broker_joined,
    cancel,
    empty_broker_joined,
    fill,
    heal,
    health,
    rebalance,
    throttle,
)

__all__ = [
    "apply",
    "broker_failed",
    "broker_joined",
    "cancel",
    "empty_broker_joined",
    "fill",
    "heal",
    "health",
    "rebalance",
    "throttle",
]
