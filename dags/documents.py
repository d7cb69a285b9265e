"""Assets of the KIPs' documents, for DAGs that react to an accepted document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from airflow.sdk import Asset, AssetWatcher

from kafka_steward.triggers.watch import WatchTrigger

__all__ = ["cancel_asked", "work_asked"]

_DEFAULT = "kafka_steward_default"


def cancel_asked(conn_id: str = _DEFAULT, settings: Mapping[str, Any] | None = None) -> Asset:
    """Return the asset whose events report that KIP-236's cancel signal was consumed.

    The watch cancels by itself, even if no DAG runs. Any DAG may be scheduled on the asset:
    `cancel(schedule=[cancel_asked()])`, or one that sends notifications.
    """
    return _asset(conn_id, "cancel", settings)


def work_asked(conn_id: str = _DEFAULT, settings: Mapping[str, Any] | None = None) -> Asset:
    """Return the asset whose events report an accepted request or queue (KIP-236); the watch executes it by itself."""
    return _asset(conn_id, "request", settings)


def _asset(conn_id: str, rings: str, settings: Mapping[str, Any] | None) -> Asset:
    watcher = AssetWatcher(name=f"watch-{conn_id}-{rings}", trigger=WatchTrigger(conn_id, settings, rings))
    uri = f"kafka-steward://{quote(conn_id, safe='')}/{rings}"
    return Asset(name=f"kafka-steward:{conn_id}:{rings}", uri=uri, watchers=[watcher])
