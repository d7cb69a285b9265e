"""The journal as a whole: `journal copy` takes it along to another backend, `journal pair` ties its halves together."""

from __future__ import annotations

from dataclasses import asdict

from airflow.cli.cli_config import Arg, GroupCommand

from kafka_steward.cli.exits import Exit
from kafka_steward.cli.verb import Call, verb
from kafka_steward.errors import RequestError

__all__ = ["verbs"]

_PAIR = """The documents (in ZooKeeper, with the setting zookeeper) and the rows (in the database that the setting
journal names) carry one id, and a journal whose halves differ is refused. Only when one half is lost for good: stop
Airflow, set both settings as they are to stay, and call this once."""


def verbs() -> tuple[GroupCommand, ...]:
    """The verbs of this module."""
    to = Arg(
        ("--to",), help="Another connection of the same cluster, with the new journal", required=True, metavar="CONN_ID"
    )
    example = "journal copy --cluster kafka_production --to kafka_production_new"
    copy = verb(
        "copy", "Copy plans, documents and the audit trail into another journal", _copy, (to,), examples=[example]
    )
    pair = verb(
        "pair",
        "Tie the journal's rows and documents together again, after one half was lost or replaced",
        _pair,
        examples=["journal pair --cluster kafka_production"],
        details=_PAIR,
    )
    about = "Move the journal to another database or out of ZooKeeper, or tie its halves together"
    return (GroupCommand("journal", about, (copy, pair)),)


def _pair(call: Call) -> Exit:
    from kafka_steward.journal.audit import Action, Entry

    with call.hook.journal(call.hook.cluster_id(), compare=False) as journal:
        identity = journal.reunite()
        place = "nowhere" if identity is None else identity.place
        told = f"The rows and the documents of the journal at {place} were tied together."
        journal.audit.note(Entry(Action.MEND, told, after={} if identity is None else identity.to_json(), who=call.who))
        missing = [
            record.digest
            for record in journal.plans.unfinished()
            if len(journal.plans.rows_found(record.digest)) != record.partitions
        ]
    lines = [told, *(f"Rows of plan {digest[:12]} are missing: it is not gone on with." for digest in missing)]
    call.out.facts({**({} if identity is None else identity.to_json()), "plans_without_rows": missing}, lines)
    return Exit.UNFINISHED if missing else Exit.DONE


def _copy(call: Call) -> Exit:
    from kafka_steward.hooks.steward import StewardHook
    from kafka_steward.journal.copy import copy_journal
    from kafka_steward.journal.process import process_name

    source, target = call.hook, StewardHook(call.arguments.to)
    if source.conn_id == target.conn_id:
        raise RequestError(f"The journal of {source.conn_id} cannot be copied onto itself; name another connection.")
    with source.journal(source.cluster_id()) as old, target.journal(target.cluster_id(), compare=False) as new:
        copied = copy_journal(old, new, owner=process_name())
    told = f"{copied.plans} plans, {copied.documents} documents and {copied.audit_rows} rows of the audit trail"
    call.out.facts(asdict(copied), [
        f"Copied {told} that the journal of {target.conn_id} did not have.",
        f"From now on use the copy only: give {source.conn_id} the journal of {target.conn_id}.",
    ])  # fmt: skip
    return Exit.DONE
