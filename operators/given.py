"""Former place of CheckReassignmentOperator."""

from __future__ import annotations

from kafka_steward.operators.deprecated import former_names

__all__ = ["CheckReassignmentOperator"]  # noqa: F822 - by __getattr__

__getattr__ = former_names(__name__)
