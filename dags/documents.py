"""Assets of the KIPs' documents, for DAGs that react to an accepted document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk import Asset

from kafka_steward.dags.builder import DEFAULT_CONN_ID, asset_of

__all__ = ["cancel_asked", "work_asked"]


def cancel_asked(conn_id: str = DEFAULT_CONN_ID, settings: Mapping[str, Any] | None = None) -> Asset:
    """Return the asset whose events report that KIP-236's cancel signal was consumed.

    The watch cancels by itself, even if no DAG runs. Any DAG may be scheduled on the asset:
    `cancel(schedule=[cancel_asked()])`, or one that sends notifications.
    """
    return asset_of(conn_id, "cancel", settings)


def work_asked(conn_id: str = DEFAULT_CONN_ID, settings: Mapping[str, Any] | None = None) -> Asset:
    """Return the asset whose events report an accepted request or queue (KIP-236); the watch executes it by itself."""
    return asset_of(conn_id, "request", settings)
