"""The journal as a whole: `journal copy` takes it along to another backend."""

from __future__ import annotations

from dataclasses import asdict

from airflow.cli.cli_config import Arg, GroupCommand

from kafka_steward.cli.exits import Exit
from kafka_steward.cli.verb import Call, verb
from kafka_steward.errors import RequestError

__all__ = ["verbs"]


def verbs() -> tuple[GroupCommand, ...]:
    """The verbs of this module."""
    to = Arg(
        ("--to",), help="Another connection of the same cluster, with the new journal", required=True, metavar="CONN_ID"
    )
    example = "journal copy --cluster kafka_production --to kafka_production_new"
    copy = verb(
        "copy", "Copy plans, documents and the audit trail into another journal", _copy, (to,), examples=[example]
    )
    return (GroupCommand("journal", "Move the journal to another database, or out of ZooKeeper", (copy,)),)


def _copy(call: Call) -> Exit:
    from kafka_steward.hooks.steward import StewardHook
    from kafka_steward.journal.copy import copy_journal
    from kafka_steward.journal.process import process_name

    source, target = call.hook, StewardHook(call.arguments.to)
    if source.conn_id == target.conn_id:
        raise RequestError(f"The journal of {source.conn_id} cannot be copied onto itself; name another connection.")
    with source.journal(source.cluster_id()) as old, target.journal(target.cluster_id()) as new:
        copied = copy_journal(old, new, owner=process_name())
    told = f"{copied.plans} plans, {copied.documents} documents and {copied.audit_rows} rows of the audit trail"
    call.out.facts(asdict(copied), [
        f"Copied {told} that the journal of {target.conn_id} did not have.",
        f"From now on use the copy only: give {source.conn_id} the journal of {target.conn_id}.",
    ])  # fmt: skip
    return Exit.DONE
