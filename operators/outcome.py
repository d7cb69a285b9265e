"""Former names of the operators that review and report a plan."""

from __future__ import annotations

from kafka_steward.operators.deprecated import former_names

__all__ = ["ReportPlanOperator", "ShowPlanOperator"]  # noqa: F822 - by __getattr__

__getattr__ = former_names(__name__)
