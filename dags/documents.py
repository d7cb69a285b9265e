"""Assets of the KIPs' documents, for DAGs that react to an accepted document."""

from __future__ import annotations

from airflow.sdk import Asset

from kafka_steward.dags.builder import DEFAULT_CONN_ID, watch_asset

__all__ = ["cancel_requested", "reassignment_requested"]


def cancel_requested(conn_id: str = DEFAULT_CONN_ID) -> Asset:
    """Return the asset whose events report that KIP-236's cancel signal was consumed.

    The watch cancels by itself, even if no DAG runs. Any DAG may be scheduled on the asset:
    `cancel(schedule=[cancel_requested()])`, or one that sends notifications.
    """
    return watch_asset(conn_id, "cancel")


def reassignment_requested(conn_id: str = DEFAULT_CONN_ID) -> Asset:
    """Return the asset whose events report an accepted request or queue (KIP-236); the watch executes it by itself."""
    return watch_asset(conn_id, "request")
