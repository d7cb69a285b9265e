"""Read what the KIPs' documents request, what it waits for, and which cancels are in progress, without a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from kafka_steward.document_api.document_plans import DocumentPlans, blocked_reason, partitions_of_others
from kafka_steward.document_api.manual_chunks import ManualChunks
from kafka_steward.document_api.partition_rules import RequestedAssignment
from kafka_steward.document_api.request_documents import RequestDocument, read_queue, read_requests, split_waiting
from kafka_steward.errors import DocumentError
from kafka_steward.execution.announcements import DisabledReassignments, read_disabled
from kafka_steward.execution.plans.rollback import find_unfinished_cancels
from kafka_steward.execution.plans.slot import current_plans
from kafka_steward.journal import paths
from kafka_steward.journal.kip_documents import CancelRequest
from kafka_steward.journal.mailbox import read_one
from kafka_steward.journal.records import PlanRecord
from kafka_steward.journal.store import Journal

_NEXT_POLL = "for the next poll of a watch"
_UNREADABLE = "to be refused, because it cannot be read"


@dataclass(frozen=True)
class WaitingDocument:
    """A request, the queue or a manual chunk that is still in the mailbox; `why` is a clause after `waits`.

    `plan` is the digest of the plan that executes it already, None before; `created_ms` is the time of its creation.
    """

    path: str
    created_ms: int
    requested: Sequence[RequestedAssignment]
    why: str
    plan: str | None = None
    parse_error: str = ""

    @property
    def name(self) -> str:
        """The name of the node."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True)
class CancelSignal:
    """The cancel signal, while nobody has executed it; an unreadable one cancels everything, as an empty one does."""

    created_ms: int
    request: CancelRequest


@dataclass(frozen=True)
class WaitingPlan:
    """A plan that does not start moves now, and what it waits for, as a clause."""

    record: PlanRecord
    why: str


@dataclass(frozen=True)
class DocumentStatus:
    """The state of the documents. `more_requests` is True if there are more than one read returns."""

    disabled: DisabledReassignments | None
    signal: CancelSignal | None
    queue: WaitingDocument | None
    requests: Sequence[WaitingDocument]
    more_requests: bool
    chunks: Sequence[WaitingDocument]
    cancels: Sequence[PlanRecord]
    waiting_plans: Sequence[WaitingPlan]

    @property
    def unreadable(self) -> list[WaitingDocument]:
        """Those of the documents of others that cannot be read."""
        given = (*([self.queue] if self.queue else ()), *self.requests, *self.chunks)
        return [document for document in given if document.parse_error]


def read_document_status(journal: Journal) -> DocumentStatus:
    """Return the state of the documents. Raises JournalError."""
    disabled = read_disabled(journal.mailbox)
    plans = DocumentPlans(journal)
    plans.read_unfinished()
    off = "" if disabled is None else "until reassignments are enabled"
    blocked = blocked_reason(journal, plans)
    why = off or (f"because {blocked}" if blocked else _NEXT_POLL)
    executed = {source: digests[-1] for source, digests in journal.plans.by_source().items()}
    documents, more = read_requests(journal.mailbox)
    queue = read_queue(journal.mailbox)
    unfinished = (*plans.requested, *plans.others)
    chunks = ManualChunks(journal.mailbox).read_waiting({name for plan in unfinished for name in plan.chunks})
    unread = [
        document for document in (*documents, *([queue] if queue else [])) if document.document_id not in executed
    ]
    # What starts beside the running plans does not wait for them.
    owned = {} if off or blocked else partitions_of_others(journal, plans)
    waits = {withheld.document.node.path: f"because {withheld.why}" for withheld in split_waiting(unread, owned)[1]}
    first = [chunk for chunk in chunks[:1] if chunk.document_id not in executed]
    waits |= {withheld.document.node.path: f"because {withheld.why}" for withheld in split_waiting(first, owned)[1]}
    waits |= _waits_for_earlier_chunk(chunks, plans, executed)
    return DocumentStatus(
        disabled=disabled,
        signal=_read_signal(journal),
        queue=None if queue is None else _describe_document(queue, executed, waits.get(queue.node.path, why)),
        requests=[_describe_document(document, executed, waits.get(document.node.path, why)) for document in documents],
        more_requests=more,
        chunks=[_describe_document(chunk, executed, waits.get(chunk.node.path, why)) for chunk in chunks],
        cancels=find_unfinished_cancels(journal),
        waiting_plans=_find_waiting_plans(journal, off),
    )


def _waits_for_earlier_chunk(
    chunks: Sequence[RequestDocument], plans: DocumentPlans, executed: Mapping[str, str]
) -> dict[str, str]:
    """Return by path what a manual chunk waits for that is not the next: they are executed one after another."""
    waits = {chunk.node.path: f"for {before.node.path}, the chunk before it" for before, chunk in pairwise(chunks)}
    running = plans.executing_from(paths.REASSIGN_CHUNKS)
    if chunks and running is not None and chunks[0].document_id not in executed:
        waits[chunks[0].node.path] = f"for plan {running.digest[:12]}, which executes the chunk before it"
    return waits


def _describe_document(document: RequestDocument, executed: Mapping[str, str], why: str) -> WaitingDocument:
    plan = executed.get(document.document_id)
    if plan is not None:
        why = f"for plan {plan[:12]}, which executes it"
    return WaitingDocument(
        document.node.path,
        document.node.created_ms,
        document.requested,
        _UNREADABLE if document.parse_error else why,
        plan,
        document.parse_error,
    )


def _read_signal(journal: Journal) -> CancelSignal | None:
    node = read_one(journal.mailbox, paths.CANCEL_IN_PROGRESS)
    if node is None:
        return None
    try:
        return CancelSignal(node.created_ms, CancelRequest.from_node(node))
    except DocumentError:
        return CancelSignal(node.created_ms, CancelRequest())


def _find_waiting_plans(journal: Journal, off: str) -> list[WaitingPlan]:
    """Return the unfinished plans that start no moves: while reassignments are disabled, and without the plan slot."""
    holders = [plan.digest for plan in current_plans(journal)]
    waiting = []
    for record in journal.plans.unfinished():
        if record.cancel is None and off and not record.even_if_disabled:
            waiting.append(WaitingPlan(record, off))
        elif holders and record.digest not in holders:
            waiting.append(WaitingPlan(record, f"until plan {holders[0][:12]}, which holds the plan slot, ends"))
    return waiting
