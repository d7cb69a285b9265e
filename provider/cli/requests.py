"""Verbs for the documents of KIP-236: the queue of reassignments, requests, and the cancel signal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kafka_steward.assignment import Move, counted
from kafka_steward.cli import Exit
from kafka_steward.cli.document_facts import partition_facts, requests_text
from kafka_steward.cli.verb import NO_JOURNAL, CommandContext, print_error
from kafka_steward.document_api.document_status import WaitingDocument, read_document_status
from kafka_steward.document_api.request_documents import (
    named_directories,
    parse_reassignment_text,
    parse_topics_text,
    queue_add,
    queue_list,
    queue_remove,
    request_add,
    request_remove,
)
from kafka_steward.document_api.request_status import (
    RequestState,
    RequestStatus,
    queued_partitions,
    read_request_statuses,
)
from kafka_steward.errors import RequestError
from kafka_steward.escaping import iso_time
from kafka_steward.execution.demotions import read_demotions
from kafka_steward.execution.load.look import known_rates
from kafka_steward.execution.moves.directories import check_directories
from kafka_steward.execution.plans.cancel import send_cancel_signal
from kafka_steward.execution.plans.lifecycle import find_plan_by_prefix
from kafka_steward.execution.plans.snapshot import started_moves, take_snapshot
from kafka_steward.execution.plans.summary import bytes_to_copy_text, not_moved_lines
from kafka_steward.hooks.session import ClusterSession
from kafka_steward.journal.kip_documents import CancelRequest, Request
from kafka_steward.journal.render import Table
from kafka_steward.planning.files.formats import read_snapshot
from kafka_steward.planning.files.reassignment import reassignment_json
from kafka_steward.planning.local import plan_topics_locally


def add_to_queue(call: CommandContext) -> None:
    """Queue the reassignment of a file."""
    text = _read_submission(call)
    with call.journal() as journal:
        count = queue_add(journal, text, who=call.who)
    sentence = f"{counted(count, 'partition', 'is', 'are')} queued; each leaves the queue when it starts."
    call.out.print_facts({"partitions": count, "sentence": sentence}, [sentence])


def list_queue(call: CommandContext) -> None:
    """Print the queue; in JSON as the document that `queue add` takes."""
    with call.journal() as journal:
        queued = queue_list(journal)
    cells: list[tuple[str, ...]] = [
        (str(entry.topic_partition), ",".join(map(str, entry.replicas))) for entry in queued
    ]
    rows = [partition_facts(entry.topic_partition, entry.replicas) for entry in queued]
    call.out.print_document(
        json.loads(Request(queued).to_json()), rows, Table(("partition", "replicas"), cells).lines()
    )


def remove_queue(call: CommandContext) -> None:
    """Remove the queue."""
    with call.journal() as journal:
        removed = queue_remove(journal, who=call.who)
    sentence = "The queue was removed; reassignments that have started continue." if removed else "Nothing is queued."
    call.out.print_facts({"removed": removed, "sentence": sentence}, [sentence])


def verify_queue(call: CommandContext) -> Exit:
    """Print the status of each partition of a file, or of the queue."""
    file = call.arguments.file
    given = None if file is None else parse_reassignment_text(_read_file(file))
    with call.open() as opened:
        asked = queued_partitions(opened.journal) if given is None else given
        statuses = read_request_statuses(opened.cluster, opened.journal, asked)
    rows = [_status_facts(status) for status in statuses]
    call.out.print_document(rows, rows, [status.sentence for status in statuses])
    if not statuses:
        print_error("Nothing is queued.")
    astray = sum(status.state is not RequestState.COMPLETE for status in statuses)
    if astray:
        verb = "does not have its" if astray == 1 else "do not have their"
        print_error(f"{astray} of {counted(len(statuses), 'partition')} {verb} requested replicas.")
    return _overall_exit([status.state for status in statuses])


def _overall_exit(states: Sequence[RequestState]) -> Exit:
    """Return UNFINISHED if any partition may still complete; else FAILED if any is not complete; else DONE."""
    if any(state.may_complete for state in states):
        return Exit.UNFINISHED
    return Exit.FAILED if any(state is not RequestState.COMPLETE for state in states) else Exit.DONE


def _status_facts(status: RequestStatus) -> dict[str, Any]:
    return {
        **partition_facts(status.partition, status.target),
        "state": status.state.value,
        "plan": status.plan,
        "sentence": status.sentence,
    }


def generate_reassignment(call: CommandContext) -> Exit | None:
    """Print the current and a proposed assignment of topics over brokers; in JSON, the proposal for `queue add`."""
    given = call.arguments
    if bool(given.topics) == bool(given.topics_file):
        print_error("Name the topics either with --topic or with --topics-to-move-json-file.")
        return Exit.USAGE
    chosen = given.topics or parse_topics_text(_read_file(given.topics_file))
    with call.open() as opened:
        moves, proof, left, cost = _propose_moves(opened, chosen, given.brokers)
    print_error(*(f"Left as it is: {line}." for line in left))
    current, proposed = reassignment_json(moves, rollback=True).strip(), reassignment_json(moves).strip()
    lines = ["Current assignment:", current, "", "Proposed assignment:", proposed] if moves else []
    rows = [
        {"topic": move.topic, "partition": move.partition, "current": list(move.before), "proposed": list(move.after)}
        for move in moves
    ]
    if lines or call.out.form != "table":
        call.out.print_document(json.loads(proposed), rows, lines)
    topics, brokers = ", ".join(sorted(chosen)), ", ".join(map(str, given.brokers))
    if not moves:
        subject = f"other partition of {topics}" if left else f"partition of {topics}"
        print_error(f"No {subject} has to move: all are even over the brokers {brokers} already.")
        return None
    print_error(
        f"{len(moves)} of {proof['partitions']} partitions of {topics} change; {proof['replicas_moved']} replicas, "
        f"{cost}. Nothing was changed."
    )
    print_error(*([] if call.direct is None else [NO_JOURNAL]))
    return None


def _propose_moves(
    opened: ClusterSession, topics: Sequence[str], brokers: Sequence[int]
) -> tuple[list[Move], dict[str, Any], list[str], str]:
    """Return the moves, the proof, a clause for each partition that stays although it should not, and the bytes."""
    with TemporaryDirectory(prefix="kafka-steward-") as folder:
        begun = started_moves(opened.journal)
        take_snapshot(
            opened.cluster,
            folder,
            failed=(),
            now_ms=opened.journal.now_ms(),
            begun=begun,
            rates=known_rates(opened.journal),
            demotions=read_demotions(opened.journal),
            min_free=opened.settings.min_free,
        )
        snapshot = read_snapshot(folder)
    moves, proof = plan_topics_locally(snapshot, topics, brokers, {})
    cost = bytes_to_copy_text(moves, snapshot)
    return sorted(moves, key=lambda move: move.topic_partition), proof, not_moved_lines(proof, snapshot), cost


def add_request(call: CommandContext) -> None:
    """Create a request with the reassignment of a file."""
    text = _read_submission(call)
    with call.journal() as journal:
        name, count = request_add(journal, text, who=call.who)
    sentence = f"{counted(count, 'partition', 'is', 'are')} requested by {name}; a watch executes it."
    call.out.print_facts({"request": name, "partitions": count, "sentence": sentence}, [sentence])


def list_requests(call: CommandContext) -> None:
    """Print the requests that wait, in the order in which they are executed, and the chunks that people wrote."""
    with call.journal() as journal:
        status = read_document_status(journal)
    kinds = {"request": status.requests, "chunk": status.chunks}
    waiting = [(kind, document) for kind, documents in kinds.items() for document in documents]
    cells: list[tuple[str, ...]] = [
        (
            document.name,
            kind,
            iso_time(document.created_ms) or "",
            requests_text(document),
            document.parse_error or f"waits {document.why}",
        )
        for kind, document in waiting
    ]
    table = Table(("request", "kind", "created", "partitions", "state"), cells)
    call.out.print_rows([_request_facts(kind, document) for kind, document in waiting], table)
    if status.more_requests:
        print_error(f"More requests wait than these {len(status.requests)}; they are listed once these are executed.")


def _request_facts(kind: str, request: WaitingDocument) -> dict[str, Any]:
    return {
        "request": request.name,
        "kind": kind,
        "path": request.path,
        "created": iso_time(request.created_ms),
        "partitions": [partition_facts(entry.partition, entry.replicas) for entry in request.requested],
        "waits": request.why,
        "plan": request.plan,
        "error": request.parse_error,
    }


def remove_request(call: CommandContext) -> None:
    """Withdraw a request that has not been accepted; one that has been is refused."""
    name = call.arguments.request
    with call.journal() as journal:
        request_remove(journal, name, who=call.who)
    sentence = f"The request {name} was removed before it was executed."
    call.out.print_facts({"request": name, "sentence": sentence}, [sentence])


def signal_cancel(call: CommandContext) -> None:
    """Create the cancel signal."""
    given = call.arguments
    with call.journal() as journal:
        plan = None if given.plan is None else find_plan_by_prefix(journal, given.plan).digest
        request = CancelRequest(plan, given.scope, call.who.person, call.reason, given.even_if_disabled)
        sentence = send_cancel_signal(journal, request, call.who)
    call.out.print_facts({"plan": plan, "scope": given.scope, "sentence": sentence}, [sentence])
    print_error(
        "A watch, or the next step of a running plan, executes it; to follow it:", f"  {call.command_line('status')}"
    )


def _read_submission(call: CommandContext) -> str:
    """Return the reassignment of the file, and print which log directories the brokers choose.

    The cluster is asked only if directories are named. Raises PlanError for a move within a broker.
    """
    text = _read_file(call.arguments.file)
    named = named_directories(parse_reassignment_text(text))
    if named:
        with call.open() as opened:
            snapshot = opened.cluster.snapshot(sorted({name.topic for name, _ in named}))
            note = check_directories(opened.cluster, snapshot, named)
        if note:
            print_error(note)
    return text


def _read_file(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise RequestError(f"The reassignment file {path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise RequestError(f"The reassignment file {path} cannot be read: it is no text in UTF-8.") from error
