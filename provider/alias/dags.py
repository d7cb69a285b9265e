"""The workflows of `kafka_steward.dags`, which are the same objects under both names."""

from __future__ import annotations

from kafka_steward.dags import *  # noqa: F403 - all that `__all__` there names
