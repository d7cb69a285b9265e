"""Kafka Steward: keeps Kafka clusters whole and even, as an Apache Airflow provider."""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
