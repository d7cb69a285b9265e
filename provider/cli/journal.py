"""Verbs for the journal as a whole: `journal copy`, `journal pair`, `journal archive`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from kafka_steward.cli import Exit
from kafka_steward.cli.show import audit_facts, time_argument_ms
from kafka_steward.cli.verb import CommandContext
from kafka_steward.errors import RequestError
from kafka_steward.hooks import steward
from kafka_steward.journal.audit import Action, AuditRecord
from kafka_steward.journal.copy import copy_journal
from kafka_steward.journal.retention import archive_audit


def archive_rows(call: CommandContext) -> None:
    """Write old rows of the audit trail to a file, and delete them."""
    file: Path = call.arguments.file
    with call.journal() as journal:
        before_ms = time_argument_ms(call.arguments.before, journal.now_ms())
        rows = archive_audit(journal, before_ms, file, as_values=audit_facts, who=call.who)
    call.out.print_facts({"rows": rows, "file": str(file)}, [f"{rows} rows of the audit trail were moved to {file}."])


def pair_journal_halves(call: CommandContext) -> Exit:
    """Give the rows and the documents of the journal one id."""
    with call.journal(compare=False) as journal:
        identity = journal.bind_rows_to_tree()
        place = "nowhere" if identity is None else identity.place
        message = f"The rows and the documents of the journal at {place} were paired."
        journal.audit.record(
            AuditRecord(Action.REPAIR, message, after={} if identity is None else identity.to_json(), who=call.who)
        )
        missing = [
            record.digest
            for record in journal.plans.unfinished()
            if len(journal.plans.existing_rows(record.digest)) != record.partitions
        ]
    lines = [message, *(f"Rows of plan {digest[:12]} are missing: it is not continued." for digest in missing)]
    call.out.print_facts({**({} if identity is None else identity.to_json()), "plans_without_rows": missing}, lines)
    return Exit.UNFINISHED if missing else Exit.DONE


def copy_to_connection(call: CommandContext) -> None:
    """Copy the journal into that of another connection."""
    source, target = call.hook, steward.StewardHook(call.arguments.to)
    if source.conn_id == target.conn_id:
        raise RequestError(f"The journal of {source.conn_id} cannot be copied onto itself; name another connection.")
    with source.journal(source.cluster_id()) as old, target.journal(target.cluster_id(), compare=False) as new:
        copied = copy_journal(old, new)
    message = f"{copied.plans} plans, {copied.documents} documents and {copied.audit_rows} rows of the audit trail"
    call.out.print_facts(asdict(copied), [
        f"Copied {message} that were missing in the journal of {target.conn_id}.",
        f"From now on only the copy can be opened: set the journal of {source.conn_id} to that of {target.conn_id}.",
    ])  # fmt: skip
