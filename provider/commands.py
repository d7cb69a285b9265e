"""The command lines that messages suggest to a reader, who may have several clusters."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import PurePath

#: Brokers that the options of Kafka's tools name, where there are more: if one is down, the other answers.
_SERVERS = 2


class JournalUse(Enum):
    """What a verb has a journal for. The value is the clause by which it asks for a connection."""

    #: It is about this machine: it needs no cluster.
    NO_CLUSTER = "no cluster"
    #: It changes nothing, and shows little of a journal: it needs no connection, and so no Airflow.
    NONE = ""
    READ = "it reads what is kept there"
    OWN_THROTTLES = "without it, our own throttles cannot be told from those of others"
    CHANGE = "what Kafka Steward changes is kept there, to be shown, cancelled and rolled back"


#: The verbs, or the groups of verbs, that change nothing in a cluster.
_USES: Mapping[str, JournalUse] = {
    **dict.fromkeys(("doctor", "health", "partitions", "plan", "queue generate", "status"), JournalUse.NONE),
    **dict.fromkeys(
        ("audit", "pending", "plans", "queue list", "queue verify", "requests list", "show"), JournalUse.READ
    ),
    "throttles": JournalUse.OWN_THROTTLES,
    **dict.fromkeys(("make-archive", "prepare-spark"), JournalUse.NO_CLUSTER),
}


def journal_use(words: str) -> JournalUse:
    """Return what the command line `words`, without the program, has a journal for."""
    verb, *rest = words.split()
    return _USES.get(" ".join((verb, *rest[:1])), _USES.get(verb, JournalUse.CHANGE))


def is_console() -> bool:
    """Return whether the program that runs is our own, and not Airflow's."""
    return PurePath(sys.argv[0]).name == "kafka-steward"


def our_program() -> str:
    """Return the program that runs, if it is our own, and else Airflow's, as a reader of its messages types it."""
    return "kafka-steward" if is_console() else "airflow kafka-steward"


def command_line(words: str, conn_id: str | None, direct: str = "") -> str:
    """Return our command for the cluster behind `conn_id`; without one, for that of the default connection.

    A command that only looks names the cluster by the options `direct`, if there are any.
    """
    if direct and journal_use(words) is JournalUse.NONE:
        return f"kafka-steward {words} {direct}"
    cluster = f" --cluster {shlex.quote(conn_id)}" if conn_id else ""
    return f"{our_program()} {words}{cluster}"


def connection_options(servers: Sequence[str], *, secured: bool) -> str:
    """Return the options by which Kafka's own tools connect; of a `secured` cluster, they take a file of settings.

    The first of `servers` are named: those of live brokers, where the cluster was asked.
    """
    named = shlex.quote(",".join(servers[:_SERVERS]))
    return f"--bootstrap-server {named}{' --command-config admin.properties' if secured else ''}"
