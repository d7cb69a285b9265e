"""Workflows: one function each, which returns a DAG."""

from __future__ import annotations

from kafka_steward.dags.cancel import cancel
from kafka_steward.dags.fill import broker_joined, fill
from kafka_steward.dags.heal import broker_failed, heal

__all__ = ["broker_failed", "broker_joined", "cancel", "fill", "heal"]
