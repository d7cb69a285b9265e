"""The workflows of `kafka_steward.dags`, which are the same objects under both names."""

from __future__ import annotations

from kafka_steward.dags import (
    alert,
    alert_due,
    apply,
    broker_failed,
    broker_joined,
    cancel,
    controls,
    empty_broker_joined,
    fill,
    heal,
    health,
    probe,
    rebalance,
    throttle,
)

__all__ = [
    "alert",
    "alert_due",
    "apply",
    "broker_failed",
    "broker_joined",
    "cancel",
    "controls",
    "empty_broker_joined",
    "fill",
    "heal",
    "health",
    "probe",
    "rebalance",
    "throttle",
]
