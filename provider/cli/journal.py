"""Verbs for the journal as a whole: `journal copy`, `journal pair`, `journal archive`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from airflow.cli.cli_config import Arg, GroupCommand

from kafka_steward.cli.show import audit_facts
from kafka_steward.cli.verb import CommandContext, Exit, moment_ms, time_ago, verb
from kafka_steward.errors import RequestError

_PAIR = """The documents (in ZooKeeper, with the setting zookeeper) and the rows (in the database that the setting
journal names) carry one id, and a journal whose halves differ is refused. Only when one half is lost for good: stop
Airflow, set both settings as they are to stay, and call this once."""


_COPY = """Stop Airflow, or pause the DAGs, before: a process that has the old journal open goes on with it. Afterwards
the old journal is not opened any more, and says where the copy is. `journal pair`, for the connection of the old one,
goes back to it, without what the copy has recorded since."""
_BEFORE = Arg(
    ("--before",), help="What is older: 90d, or 2026-01-01 (UTC)", type=time_ago, required=True, metavar="TIME"
)
_ARCHIVE = """Rows of plans that the journal still knows stay, whatever their age: a rollback reads them. Each line
of the file is a row as `audit --output json` prints it, with its number. The file is whole before a row is deleted, and
the audit trail names it."""


def verbs() -> tuple[GroupCommand, ...]:
    """Return the verbs of this module."""
    to = Arg(
        ("--to",), help="Another connection of the same cluster, with the new journal", required=True, metavar="CONN_ID"
    )
    example = "journal copy --cluster kafka_production --to kafka_production_new"
    copy = verb(
        "copy",
        "Copy plans, documents and the audit trail into another journal, which replaces this one",
        _copy,
        (to,),
        examples=[example],
        details=_COPY,
    )
    pair = verb(
        "pair",
        "Tie the journal's rows and documents together again, after one half was lost or replaced",
        _pair,
        examples=["journal pair --cluster kafka_production"],
        details=_PAIR,
    )
    archive = verb(
        "archive",
        "Write old rows of the audit trail to a file, and delete them from the journal",
        _archive,
        (Arg(("file",), help="A new file of JSON lines; with .gz at its end, compressed", type=Path), _BEFORE),
        examples=["journal archive audit-2025.jsonl.gz --before 2026-01-01 --cluster kafka_production"],
        details=_ARCHIVE,
    )
    about = "Move the journal to another database or out of ZooKeeper, tie its halves together, or archive its past"
    return (GroupCommand("journal", about, (copy, pair, archive)),)


def _archive(call: CommandContext) -> Exit:
    from kafka_steward.journal.retention import archive_audit

    file: Path = call.arguments.file
    with call.hook.journal(call.hook.cluster_id()) as journal:
        before_ms = moment_ms(call.arguments.before, journal.now_ms())
        rows = archive_audit(journal, before_ms, file, as_values=audit_facts, who=call.who)
    call.out.facts({"rows": rows, "file": str(file)}, [f"{rows} rows of the audit trail are in {file} from now on."])
    return Exit.DONE


def _pair(call: CommandContext) -> Exit:
    from kafka_steward.journal.audit import Action, AuditRecord

    with call.hook.journal(call.hook.cluster_id(), compare=False) as journal:
        identity = journal.pair()
        place = "nowhere" if identity is None else identity.place
        message = f"The rows and the documents of the journal at {place} were tied together."
        journal.audit.record(
            AuditRecord(Action.REPAIR, message, after={} if identity is None else identity.to_json(), who=call.who)
        )
        missing = [
            record.digest
            for record in journal.plans.unfinished()
            if len(journal.plans.rows_found(record.digest)) != record.partitions
        ]
    lines = [message, *(f"Rows of plan {digest[:12]} are missing: it is not gone on with." for digest in missing)]
    call.out.facts({**({} if identity is None else identity.to_json()), "plans_without_rows": missing}, lines)
    return Exit.UNFINISHED if missing else Exit.DONE


def _copy(call: CommandContext) -> Exit:
    from kafka_steward.hooks.steward import StewardHook
    from kafka_steward.journal.copy import copy_journal

    source, target = call.hook, StewardHook(call.arguments.to)
    if source.conn_id == target.conn_id:
        raise RequestError(f"The journal of {source.conn_id} cannot be copied onto itself; name another connection.")
    with source.journal(source.cluster_id()) as old, target.journal(target.cluster_id(), compare=False) as new:
        copied = copy_journal(old, new)
    message = f"{copied.plans} plans, {copied.documents} documents and {copied.audit_rows} rows of the audit trail"
    call.out.facts(asdict(copied), [
        f"Copied {message} that the journal of {target.conn_id} did not have.",
        f"From now on only the copy is opened: give {source.conn_id} the journal of {target.conn_id}.",
    ])  # fmt: skip
    return Exit.DONE
