"""The command lines that messages suggest to a reader, who may have several clusters. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

#: Brokers that the options of Kafka's tools name, where there are more: if one is down, the other answers.
_SERVERS = 2


#: The verbs that need no connection, and so no Airflow: they change nothing, and show little of a journal.
_LOOKING = ("doctor", "health", "partitions", "plan", "status")


def looks_without_connection(words: str) -> bool:
    """Return whether the command line `words`, without the program, needs no connection."""
    return words.split(maxsplit=1)[0] in _LOOKING


def command_line(words: str, conn_id: str | None, direct: str = "") -> str:
    """Return our command for the cluster behind `conn_id`; without one, for that of the default connection.

    A command that only looks names the cluster by the options `direct`, if there are any.
    """
    if direct and looks_without_connection(words):
        return f"kafka-steward {words} {direct}"
    cluster = f" --cluster {shlex.quote(conn_id)}" if conn_id else ""
    return f"airflow kafka-steward {words}{cluster}"


def connection_options(servers: Sequence[str], *, secured: bool) -> str:
    """Return the options by which Kafka's own tools connect; of a `secured` cluster, they take a file of settings.

    The first of `servers` are named: those of live brokers, where the cluster was asked.
    """
    named = shlex.quote(",".join(servers[:_SERVERS]))
    return f"--bootstrap-server {named}{' --command-config admin.properties' if secured else ''}"
