"""Common parts of the workflows' DAGs: their ids and their options."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from kafka_steward.errors import SettingError
from kafka_steward.provider_info import SETTINGS
from kafka_steward.settings import Settings

__all__ = ["DEFAULT_CONN_ID", "dag_id_of", "options_of", "refuse_wrong_settings"]

DEFAULT_CONN_ID = "kafka_steward_default"
#: All run types of Airflow except backfills: a plan is made for the current state of the cluster.
_RUN_TYPES = ("manual", "scheduled", "asset_triggered", "asset_materialization", "operator_triggered")


def dag_id_of(workflow: str, conn_id: str) -> str:
    """Return the DAG id: the workflow's name, plus the connection's unless that is the default one."""
    return workflow if conn_id == DEFAULT_CONN_ID else f"{workflow}_{re.sub(r'[^A-Za-z0-9._-]', '_', conn_id)}"


def options_of(given: Mapping[str, Any], retries: int, retry_delay: timedelta, **ours: Any) -> dict[str, Any]:
    """Return the options of a DAG: `ours`, overridden by its author's `given`, with exponential retry backoff."""
    patience = {
        "retries": retries,
        "retry_delay": retry_delay,
        "retry_exponential_backoff": 2,
        "max_retry_delay": timedelta(minutes=10),
    }
    shared = {"catchup": False, "tags": ["kafka-steward"], "allowed_run_types": _RUN_TYPES, **ours}
    return {**shared, **given, "default_args": {**patience, **given.get("default_args", {})}}


def refuse_wrong_settings(settings: Mapping[str, Any]) -> None:
    """Raise SettingError for a setting that does not exist, or a value that it does not take.

    Values from the connection and the configuration are not known while a DAG is parsed.
    """
    for name in settings:
        if name not in SETTINGS:
            raise SettingError(f"There is no setting {name!r}; there are {', '.join(SETTINGS)}.")
    Settings.refuse_wrong(settings)
