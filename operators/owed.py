"""Former names of the operators of a fill."""

from __future__ import annotations

from kafka_steward.operators.deprecated import former_names

__all__ = ["FindOwedOperator", "ReportFillOperator", "SnapshotOwedOperator"]  # noqa: F822 - by __getattr__

__getattr__ = former_names(__name__)
