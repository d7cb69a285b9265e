"""The documents of KIP-236 as `status` prints them: the switch, the signal, queue, requests, cancels, waiting plans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafka_steward.assignment import Assignment, TopicPartition, counted, name_some
from kafka_steward.document_api.document_status import DocumentStatus, WaitingDocument
from kafka_steward.escaping import iso_time, utc_text
from kafka_steward.journal.kip_documents import CancelRequest

#: Partitions of a document, and requests, that a text names; the rest is only counted.
_NAMED = 3


def partition_facts(partition: TopicPartition, replicas: Assignment) -> dict[str, Any]:
    """Return a partition and its requested replicas, as `kafka-reassign-partitions` names them."""
    return {**partition._asdict(), "replicas": list(replicas)}


def requests_text(document: WaitingDocument) -> str:
    """Return the first partitions of a document with their requested replicas, and how many there are."""
    named = [f"{partition.partition} to {list(partition.replicas)}" for partition in document.requested[:_NAMED]]
    return name_some(named, _NAMED, len(document.requested))


def document_facts(status: DocumentStatus) -> dict[str, Any]:
    """Return the state of the documents as plain values, whole."""
    disabled, signal = status.disabled, status.signal
    return {
        "reassignments_disabled": None
        if disabled is None
        else {"since": iso_time(disabled.since_ms), "person": disabled.person, "reason": disabled.reason},
        "cancel_signal": None
        if signal is None
        else {"since": iso_time(signal.created_ms), "plan": signal.request.plan, **_cancel_facts(signal.request)},
        "queue": None if status.queue is None else _document_facts(status.queue),
        "requests": [{"request": request.name, **_document_facts(request)} for request in status.requests],
        "more_requests": status.more_requests,
        "chunks": [{"chunk": chunk.name, **_document_facts(chunk)} for chunk in status.chunks],
        "cancels": [
            {"plan": plan.digest, "status": plan.status.value, **_cancel_facts(plan.cancel)} for plan in status.cancels
        ],
        "waiting_plans": [{"plan": plan.record.digest, "waits": plan.why} for plan in status.waiting_plans],
    }


def _document_facts(document: WaitingDocument) -> dict[str, Any]:
    return {
        "created": iso_time(document.created_ms),
        "partitions": len(document.requested),
        "first": [
            partition_facts(partition.partition, partition.replicas) for partition in document.requested[:_NAMED]
        ],
        "waits": document.why,
        "plan": document.plan,
        "error": document.parse_error,
    }


def _cancel_facts(request: CancelRequest | None) -> Mapping[str, Any]:
    if request is None:
        return {}
    return {"scope": request.scope, "person": request.person, "reason": request.reason}


def document_lines(status: DocumentStatus) -> Iterable[str]:
    """Yield the state of the documents as text."""
    disabled, signal = status.disabled, status.signal
    yield "reassignments: enabled" if disabled is None else f"reassignments: disabled {disabled.clause}"
    if signal is not None:
        what = f"plan {signal.request.plan[:12]}" if signal.request.plan else "everything that is pending"
        since = f"since {utc_text(signal.created_ms)} UTC"
        yield f"cancel signal: {what}, {_requester_text(signal.request)} {since}; nobody has executed it yet"
    yield "queue: empty" if status.queue is None else f"queue: {_document_text(status.queue)}"
    yield from _waiting_lines("request", status.requests, more=status.more_requests)
    yield from _waiting_lines("chunk", status.chunks, more=False)
    for record in status.cancels:
        asked = _requester_text(record.cancel or CancelRequest())
        scope = "rolled back" if record.cancel is not None and record.cancel.scope == "plan" else "cancelled"
        yield f"cancel: plan {record.digest[:12]} ({record.status.value}) is being {scope}, {asked}"
    for waiting in status.waiting_plans:
        yield f"waits: plan {waiting.record.digest[:12]} ({waiting.record.operation}) waits {waiting.why}"


def _waiting_lines(kind: str, documents: Sequence[WaitingDocument], *, more: bool) -> Iterable[str]:
    for document in documents[:_NAMED]:
        yield f"{kind}: {document.name}, {_document_text(document)}"
    if len(documents) > _NAMED:
        yield f"{kind}s: {len(documents)}{' or more' if more else ''} in all"


def _document_text(document: WaitingDocument) -> str:
    waiting = counted(len(document.requested), "partition", "waits", "wait")
    return f"{waiting} {document.why}: {requests_text(document)}".rstrip(": ")


def _requester_text(request: CancelRequest) -> str:
    why = f" ({request.reason})" if request.reason else ""
    return f"requested by {request.person or 'an unnamed user'}{why}"
