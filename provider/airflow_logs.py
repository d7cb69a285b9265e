"""Drop a warning about our connection type from the logs of Airflow's servers.

Airflow's servers build the URI of each connection that a task or trigger looks up, and warn each time that a type with
an underscore makes no scheme of RFC 3986. Many of Airflow's own types have one, and nothing follows from the warning.
The triggerer, in which it is not dropped, writes one for each connection of a hook.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import structlog

#: As models/connection.py of Airflow 3.3 formats it.
_WARNING = "Connection schemes (type: kafka_steward) shall not contain '_' according to RFC3986."


def quiet_connection_type() -> None:
    """Drop that warning from the logs of this process. Harmless when called twice."""
    processors = structlog.get_config()["processors"]
    if _drop_scheme_warning not in processors:
        structlog.configure(processors=[_drop_scheme_warning, *processors])


def _drop_scheme_warning(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    if event.get("event") == _WARNING:
        raise structlog.DropEvent
    return event
