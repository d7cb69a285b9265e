"""The command lines that messages suggest to a reader, who may have several clusters. Pure."""

from __future__ import annotations

import shlex


def command_line(words: str, conn_id: str | None) -> str:
    """Return our command for the cluster behind `conn_id`; without one, for that of the default connection."""
    cluster = f" --cluster {shlex.quote(conn_id)}" if conn_id else ""
    return f"airflow kafka-steward {words}{cluster}"
