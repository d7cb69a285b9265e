"""Kafka Steward: an Apache Airflow provider that keeps Kafka partitions fully replicated and balanced."""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
