"""Verbs for the journal: announcements, failure reports and the watch; pending replicas; its copy, pairing and archive.

The verbs for queue, requests and cancel signal are in `requests.py`.
"""

from __future__ import annotations

import asyncio
import signal
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

from kafka_steward.assignment import counted, name_brokers
from kafka_steward.cli import Exit
from kafka_steward.cli.show import time_argument_ms
from kafka_steward.cli.verb import CommandContext, print_error
from kafka_steward.errors import RequestError, StewardError
from kafka_steward.escaping import printable
from kafka_steward.execution.announcements import (
    announce_restart,
    disable_reassignment,
    enable_reassignment,
    withdraw_restart,
)
from kafka_steward.execution.cluster_queries import cordoned_brokers
from kafka_steward.execution.topics.pending import PendingReplica, count_missing, eligible_brokers, list_pending
from kafka_steward.execution.watch.failure_detector import (
    report_broker,
    report_log_dirs,
    withdraw_log_dirs,
    withdraw_report,
)
from kafka_steward.hooks import steward
from kafka_steward.journal.audit import Action, AuditRecord
from kafka_steward.journal.columns import audit_facts
from kafka_steward.journal.copy import copy_journal
from kafka_steward.journal.render import Table
from kafka_steward.journal.retention import archive_audit
from kafka_steward.triggers.cluster_watch import ClusterWatch
from kafka_steward.triggers.reporting import Outage

#: The signals that end the watch.
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def list_pending_replicas(call: CommandContext) -> None:
    """Print the pending replicas of under-replicated topics (KIP-409)."""
    with call.hook.open() as opened:
        snapshot = opened.cluster.snapshot()
        listed = list_pending(opened.journal, snapshot)
        cordoned = cordoned_brokers(opened.cluster, snapshot.live if listed else ())
        able = sorted(eligible_brokers(listed, snapshot, cordoned))
    chosen = [pending for pending in listed if call.arguments.topic in (None, pending.partition.topic)]
    cells: list[tuple[str, ...]] = [
        (
            str(pending.partition),
            ", ".join(map(str, pending.document.brokers)),
            str(0 if pending.is_obsolete else pending.missing),
            pending.state.value,
            pending.sentence,
        )
        for pending in chosen
    ]
    table = Table(("partition", "has", "pending", "state", "why"), cells)
    call.out.print_rows([_pending_facts(pending) for pending in chosen], table)
    missing = count_missing(chosen)
    replicas = counted(missing, "replica", "is", "are")
    if not missing:
        print_error("No replica is pending.")
    elif able:
        print_error(f"{replicas} pending; {name_brokers(able)} can host some: run the DAG fill.")
    else:
        print_error(
            f"{replicas} pending, and no live broker can host one; {'it is' if missing == 1 else 'they are'} added "
            "when brokers join."
        )


def _pending_facts(pending: PendingReplica) -> dict[str, Any]:
    missing = 0 if pending.is_obsolete else pending.missing
    return {
        **pending.partition._asdict(),
        "placeholders": list(pending.document.replicas),
        "replication_factor": pending.document.target_rf,
        "pending": missing,
        "state": pending.state.value,
        "sentence": pending.sentence,
    }


def block_reassignments(call: CommandContext) -> None:
    """Let no reassignment start."""
    with call.journal() as journal:
        sentence = disable_reassignment(journal, who=call.who, reason=call.arguments.reason)
    call.out.print_facts({"enabled": False, "sentence": sentence}, [sentence])


def unblock_reassignments(call: CommandContext) -> None:
    """Let reassignments start again."""
    with call.journal() as journal:
        sentence = enable_reassignment(journal, who=call.who, reason=call.arguments.reason)
    call.out.print_facts({"enabled": True, "sentence": sentence}, [sentence])


def announce_broker_restart(call: CommandContext) -> None:
    """Announce the restart of a broker, or withdraw the announcement."""
    given = call.arguments
    with call.journal() as journal:
        if given.withdraw:
            sentence = withdraw_restart(journal, given.broker, who=call.who)
        else:
            sentence = announce_restart(journal, given.broker, who=call.who, lasts_ms=given.ms)
    call.out.print_facts({"broker": given.broker, "sentence": sentence}, [sentence])


def report_failure(call: CommandContext) -> None:
    """Report the failure of a broker or of its disks, or withdraw the report."""
    arguments, reason = call.arguments, call.arguments.reason.strip()
    if arguments.withdraw:
        withdraw = withdraw_log_dirs if arguments.disks else withdraw_report
        with call.journal() as journal:
            sentence = withdraw(journal, arguments.broker, who=call.who, reason=reason)
    else:
        with call.hook.open() as opened:
            context = opened.context(call.who)
            if arguments.disks:
                sentence = report_log_dirs(context, arguments.broker, arguments.disks, reason=reason)
            else:
                sentence = report_broker(context, arguments.broker, reason=reason)
    call.out.print_facts({"broker": arguments.broker, "sentence": sentence}, [sentence])


def watch_documents(call: CommandContext) -> NoReturn:
    """Watch the cluster and execute what documents request, as the trigger does, until a signal.

    An outage of Kafka or the journal is reported, and never ends the watch.
    """
    hook = call.hook
    try:
        with hook.open() as opened:
            print_error(f"Watching cluster {opened.cluster.cluster_id}.")
    except StewardError as error:
        if not error.retriable:
            raise
    asyncio.run(_watch_until_signal(hook.conn_id))
    raise KeyboardInterrupt


async def _watch_until_signal(conn_id: str) -> None:
    watch = ClusterWatch(conn_id, log=_print_line, log_error=_print_error_line, outage=Outage())
    checks = asyncio.create_task(watch.run())
    loop = asyncio.get_running_loop()

    def stop() -> None:
        print_error("Stopping after this poll; press Ctrl-C again to stop at once.")
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
        checks.cancel()

    for number in _SIGNALS:
        loop.add_signal_handler(number, stop)
    try:
        await checks
    except asyncio.CancelledError:
        watch.close()


def _print_line(line: str, *values: object) -> None:
    print(printable(line % values), flush=True)


def _print_error_line(line: str, *values: object) -> None:
    print_error(line % values)


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
        identity = journal.bind_rows_to_mailbox()
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
