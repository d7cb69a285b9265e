"""Parse the extra of an Airflow connection."""

from __future__ import annotations

import json
from typing import Any

from kafka_steward.errors import SettingError


def parse_extra(conn_id: str, text: str | None) -> dict[str, Any]:
    """Return the extra of a connection. Raises SettingError if it is no JSON object.

    `Connection.extra_dejson` returns {} for unreadable JSON: security settings would be dropped silently.
    """
    try:
        extra = json.loads(text or "{}")
    except ValueError as error:
        raise SettingError(f"The extra of the connection {conn_id} is not JSON; correct or empty it.") from error
    if not isinstance(extra, dict):
        raise SettingError(f"The extra of the connection {conn_id} is not a JSON object; correct or empty it.")
    return extra
