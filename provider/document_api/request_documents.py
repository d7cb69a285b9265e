"""Read request documents, by which anyone requests reassignments: requests, in order, and the queue (KIP-236).

`/admin/reassign_partitions_queue` has further reassignments while some are in flight, in Kafka's own format.

There is one queue at a time: a second writer gets an error. Each partition is removed from the queue when its
reassignment starts, and the node is deleted with the last one. A partition that is removed from the queue before that
does not start.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from kafka_steward.assignment import TopicPartition, counted
from kafka_steward.document_api.document_plans import document_id_of
from kafka_steward.document_api.partition_rules import RequestedAssignment
from kafka_steward.errors import DocumentError, JournalError, JournalUnreachable, RequestError
from kafka_steward.execution.moves.states import OPEN
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Actor, AuditRecord
from kafka_steward.journal.document import json_excerpt
from kafka_steward.journal.kip_documents import ChunkPartition, Request, TopicsToMove
from kafka_steward.journal.listing import read_bounded
from kafka_steward.journal.mailbox import MAX_BYTES, Mailbox, Node, delete_one, put_one, read_one
from kafka_steward.journal.paths import REQUEST, request_number
from kafka_steward.journal.records import MoveRow
from kafka_steward.journal.store import Journal
from kafka_steward.planning.files.reassignment import (
    ANY,
    Replica,
    directories_by_replica,
    find_assignment,
    parse_reassignment,
)

#: Maximum number of requests per read: thousands are read in batches. A batch ends earlier at MAX_BYTES.
BATCH = 1000
#: What messages call a document that a user submits.
_SUBMITTED = "The reassignment"
#: The keys of KIP-236's partitions that request nothing.
_NOTES = ("original_replicas", "topic_id")
#: Maximum number of attempts to remove a request that changes at the same time.
_TRIES = 5


@dataclass(frozen=True)
class RequestDocument:
    """One request document: its node, and the requested assignments or the parse error.

    `is_accepted` is set once a poll has started to execute it.
    """

    node: Node
    requested: Sequence[RequestedAssignment]
    parse_error: str = ""
    is_accepted: bool = False

    @property
    def document_id(self) -> str:
        """The permanent id of the document."""
        return document_id_of(self.node)


@dataclass(frozen=True)
class WithheldDocument:
    """A document that cannot start yet, and the reason as a clause."""

    document: RequestDocument
    why: str


def split_waiting(
    documents: Sequence[RequestDocument], owned: Mapping[TopicPartition, str]
) -> tuple[list[RequestDocument], list[WithheldDocument]]:
    """Return the documents that may start, and those that wait. Pure.

    A document waits for a partition that `owned` names, with the reason; and for one that an earlier document waits
    with: else that one would start after it, and win.
    """
    ready: list[RequestDocument] = []
    waiting: list[WithheldDocument] = []
    taken = dict(owned)
    for document in documents:
        names = [asked.partition for asked in document.requested]
        why = next((taken[name] for name in names if name in taken), "")
        if why:
            waiting.append(WithheldDocument(document, why))
            taken |= {name: f"{name} is requested by {document.node.path}, which waits" for name in names} | taken
        else:
            ready.append(document)
    return ready, waiting


def read_requests(mailbox: Mailbox) -> tuple[list[RequestDocument], bool]:
    """Return the oldest requests, in the order in which they were created, and whether more requests wait.

    At most BATCH are read at once, and no further one once they have MAX_BYTES.

    Sequence numbers give the order. A writer without a sequence, such as one SQL insert, may choose any name: such
    requests come after the numbered ones, ordered by created id. Nodes with an invalid name are left to the sweep.
    """
    names = [name for name in mailbox.children(paths.REASSIGNMENT_REQUESTS) if REQUEST.parse(name) is not None]
    numbers = {name: number for name in names if (number := request_number(name)) is not None}
    numbered = sorted(numbers, key=lambda name: numbers[name])
    unnumbered = [name for name in names if name not in numbers]
    nodes: list[Node] = []
    size = 0
    # One at a time: together, BATCH requests may have many times MAX_BYTES.
    in_order = filter(None, (read_one(mailbox, _request_path(name)) for name in numbered))
    for node in chain(in_order, _read_by_age(mailbox, unnumbered)):
        nodes.append(node)
        size += len(node.data)
        if len(nodes) == BATCH or size >= MAX_BYTES:
            break
    return [parse_document(node) for node in nodes], bool(nodes) and len(nodes) < len(names)


def _request_path(name: str) -> str:
    return f"{paths.REASSIGNMENT_REQUESTS}/{name}"


def _read_by_age(mailbox: Mailbox, names: Sequence[str]) -> Iterator[Node]:
    nodes = filter(None, read_bounded(mailbox, [_request_path(name) for name in names]))
    # Two ids may be equal: of rows that one SQL statement or two concurrent ones inserted.
    yield from sorted(nodes, key=lambda node: (node.created_id, node.path))


def read_queue(mailbox: Mailbox) -> RequestDocument | None:
    """Return the queue; None if there is none."""
    node = read_one(mailbox, paths.REASSIGN_QUEUE)
    return None if node is None else parse_document(node)


def parse_document(node: Node, read: Callable[[Node], Request] = Request.from_node) -> RequestDocument:
    """Return the document in `node`.

    Parse errors are what `read` cannot read, a partition that is named twice, and log directories that are not one for
    each replica.
    """
    try:
        request = read(node)
    except DocumentError as error:
        return RequestDocument(node, (), str(error))
    legacy = request.legacy
    asked = [
        RequestedAssignment(entry.topic_partition, entry.replicas, node.path, legacy, entry.log_dirs)
        for entry in request.partitions
    ]
    twice = next((name for name, count in Counter(entry.partition for entry in asked).items() if count > 1), None)
    if twice is not None:
        return RequestDocument(node, (), f"{node.path} names {twice} twice; correct it.")
    fault = _log_dirs_fault(request.partitions)
    if fault:
        return RequestDocument(node, (), f"{node.path} {fault}.")
    return RequestDocument(node, asked, is_accepted=request.accepted)


def parse_reassignment_text(text: str) -> tuple[ChunkPartition, ...]:
    """Return the partitions of a reassignment that a user submits, in either format of KIP-236.

    `text` may also be the output of kafka-reassign-partitions: it is read as `apply` reads a file. Raises DocumentError
    or PlanError, which names the faults of all partitions.
    """
    assignment = find_assignment(text, _SUBMITTED)
    try:
        document = json.loads(assignment)
    except (ValueError, RecursionError):
        document = None
    if document is None or (isinstance(document, Mapping) and "assignments" in document):
        document = json.loads(Request(Request.from_json(assignment, _SUBMITTED).partitions).to_json())
    parse_reassignment(_edit_entries(document, lambda entry: _without(entry, *_NOTES)))
    # Without "any", which says nothing, more partitions have room.
    short = _edit_entries(document, lambda entry: entry if _names_directory(entry) else _without(entry, "log_dirs"))
    return Request.from_json(json.dumps(short, separators=(",", ":")), _SUBMITTED).partitions


def _edit_entries(document: Any, edit: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> Any:
    entries = document.get("partitions") if isinstance(document, Mapping) else None
    if not isinstance(entries, list):
        return document
    return {**document, "partitions": [edit(entry) if isinstance(entry, Mapping) else entry for entry in entries]}


def _without(entry: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key not in keys}


def _names_directory(entry: Mapping[str, Any]) -> bool:
    return any(path != ANY for path in entry.get("log_dirs") or ())


def named_directories(asked: Iterable[ChunkPartition]) -> dict[Replica, str]:
    """Return the log directories that a parsed reassignment names (KIP-113)."""
    return {
        replica: path
        for entry in asked
        for replica, path in directories_by_replica(entry.topic_partition, entry.replicas, entry.log_dirs).items()
    }


def parse_topics_text(text: str) -> list[str]:
    """Return the topics of the file that `kafka-reassign-partitions --topics-to-move-json-file` takes.

    Raises DocumentError for any other text; RequestError if it names no topic, or one twice.
    """
    topics = [entry.topic for entry in TopicsToMove.from_json(text, "The topics file").topics]
    if not topics:
        raise RequestError('The topics file names no topic; it should be {"version": 1, "topics": [{"topic": ...}]}.')
    twice = next((name for name, count in Counter(topics).items() if count > 1), None)
    if twice is not None:
        raise RequestError(f"The topics file names {twice} twice; keep one of the two.")
    return topics


def _log_dirs_fault(asked: Iterable[ChunkPartition]) -> str:
    """Return which log directories are not one for each replica (KIP-113), as a clause; empty if there are none."""
    for entry in asked:
        if entry.log_dirs is not None and len(entry.log_dirs) != len(entry.replicas):
            return (
                f"has log_dirs {json_excerpt(entry.log_dirs)} for {entry.topic_partition}, which are not one for each "
                f"of its {len(entry.replicas)} replicas; correct it"
            )
    return ""


def queue_add(journal: Journal, text: str, *, who: Actor) -> int:
    """Queue a reassignment in the format of `kafka-reassign-partitions`; returns its number of partitions.

    Raises DocumentError or RequestError for an invalid text, RequestError when a queue exists already.
    """
    asked = parse_reassignment_text(text)
    if put_one(journal.mailbox, paths.REASSIGN_QUEUE, Request(asked).to_json()) is None:
        raise RequestError(
            f"{paths.REASSIGN_QUEUE} exists: not all partitions that were queued before have started; wait until it "
            "is deleted, or remove it."
        )
    reason = f"queued {counted(len(asked), 'partition')}"
    journal.audit.record(AuditRecord(Action.REQUEST, reason, who=who))
    return len(asked)


def request_add(journal: Journal, text: str, *, who: Actor) -> tuple[str, int]:
    """Create a request with the reassignment in `text`; returns the request's name and its number of partitions.

    Raises DocumentError or RequestError for an invalid text.
    """
    asked = parse_reassignment_text(text)
    node = journal.mailbox.append(paths.REQUEST_PREFIX, Request(asked).to_json())
    reason = f"requested {counted(len(asked), 'partition')}"
    journal.audit.record(AuditRecord(Action.REQUEST, reason, after=node.path, who=who))
    return node.path.rpartition("/")[2], len(asked)


def mark_accepted(mailbox: Mailbox, document: RequestDocument) -> Node | None:
    """Mark a request as accepted, and return its node; return None if it was removed or changed since it was read.

    A request that cannot hold the mark, because it is too long or its access list does not let us change it, is
    returned as it is.
    """
    if document.is_accepted:
        return document.node
    text = json.dumps({**json.loads(document.node.data), "accepted": True}, separators=(",", ":"), ensure_ascii=False)
    try:
        return put_one(mailbox, document.node.path, text, document.node)
    except JournalUnreachable:
        raise
    except (DocumentError, JournalError):
        return document.node


def request_remove(journal: Journal, name: str, *, who: Actor) -> None:
    """Delete a request that no process has accepted yet: it is never executed then (KIP-236).

    Raises RequestError for an invalid name, if there is no such request, and if it has been accepted.
    """
    node = _remove_unaccepted(journal, name)
    # A request that cannot hold the mark is accepted by the publication of its plan.
    accepted = _executing_plan(journal, node)
    if accepted is not None:
        raise _accepted_error(name, accepted)
    reason = f"removed the request {node.path}"
    journal.audit.record(AuditRecord(Action.REQUEST, reason, before=node.data[:2000], who=who))


def _remove_unaccepted(journal: Journal, name: str) -> Node:
    path = _request_path(paths.REQUEST.validate(name))
    for _ in range(_TRIES):
        node = read_one(journal.mailbox, path)
        if node is None:
            break
        if parse_document(node).is_accepted:
            raise _accepted_error(name, _executing_plan(journal, node))
        # Otherwise it was accepted or changed in between: it is read again.
        if delete_one(journal.mailbox, node):
            return node
    raise RequestError(
        f"There is no request {name}: it was executed, refused or removed before, or was never written; to see "
        "those that wait, list the requests."
    )


def _executing_plan(journal: Journal, node: Node) -> str | None:
    return next(iter(journal.plans.by_source().get(document_id_of(node), [])), None)


def _accepted_error(name: str, plan: str | None) -> RequestError:
    if plan is None:
        return RequestError(
            f"Request {name} has been accepted, and its plan is about to be published; to stop it, cancel that plan."
        )
    return RequestError(f"Request {name} is executed by plan {plan[:12]}; to stop that, cancel the plan.")


def queue_list(journal: Journal) -> tuple[ChunkPartition, ...]:
    """Return the queued partitions that have not started. Raises DocumentError when the queue is unreadable."""
    node = read_one(journal.mailbox, paths.REASSIGN_QUEUE)
    return () if node is None else Request.from_node(node).partitions


def queue_remove(journal: Journal, *, who: Actor) -> bool:
    """Delete the queue; started reassignments continue. Returns False when there is no queue."""
    node = read_one(journal.mailbox, paths.REASSIGN_QUEUE)
    if node is None:
        return False
    delete_one(journal.mailbox, node)
    journal.audit.record(AuditRecord(Action.REQUEST, "removed the queue", before=node.data[:2000], who=who))
    return True


def find_dequeued_partitions(rows: Iterable[MoveRow], queue: Node | None) -> set[TopicPartition]:
    """Return the waiting partitions that the queue no longer names, or names with another target. Pure.

    Returns nothing for an unreadable queue.
    """
    try:
        asked = () if queue is None else Request.from_node(queue).partitions
    except DocumentError:
        return set()  # its writer may repair it
    named = {(entry.topic_partition, entry.replicas) for entry in asked}
    return {
        row.topic_partition for row in rows if row.state in OPEN and (row.topic_partition, row.move.after) not in named
    }


def remove_started_from_queue(mailbox: Mailbox, queue: Node, keep: set[TopicPartition]) -> None:
    """Remove all partitions but `keep` from the queue, and delete an empty queue.

    Left to the next poll when another client changes the queue concurrently.
    """
    asked = Request.from_node(queue)
    left = tuple(entry for entry in asked.partitions if entry.topic_partition in keep)
    if not left:
        delete_one(mailbox, queue)
    elif len(left) < len(asked.partitions):
        put_one(mailbox, queue.path, replace(asked, partitions=left).to_json(), queue)
