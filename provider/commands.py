"""The command lines that messages suggest to a reader, who may have several clusters. Pure."""

from __future__ import annotations

import shlex


def command_line(words: str, conn_id: str | None) -> str:
    """Return our command for the cluster behind `conn_id`; without one, for that of the default connection."""
    cluster = f" --cluster {shlex.quote(conn_id)}" if conn_id else ""
    return f"airflow kafka-steward {words}{cluster}"


def connection_options(servers: str, *, secured: bool) -> str:
    """Return the options by which Kafka's own tools connect; of a `secured` cluster, they take a file of settings."""
    return f"--bootstrap-server {shlex.quote(servers)}{' --command-config admin.properties' if secured else ''}"
