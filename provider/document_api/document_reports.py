"""The documents as the page shows them: read after each poll of the watch, and written when they change.

The page reads these rows, and not the documents, which may be in ZooKeeper.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from kafka_steward.document_api.document_status import DocumentStatus, WaitingDocument, read_document_status
from kafka_steward.errors import JournalUnreachable, StewardError
from kafka_steward.escaping import printable
from kafka_steward.execution.announcements import announced_restarts
from kafka_steward.journal.kip_documents import CancelRequest
from kafka_steward.journal.records import DEFERRED_PARTITIONS, PENDING_REPLICAS
from kafka_steward.journal.store import Journal

_log = logging.getLogger(__name__)

#: Partitions of a document that are named; the others are only counted.
_NAMED = 3


class DocumentReporter:
    """Reports the documents of one journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def report(self) -> None:
        """Read, and write what has changed. Raises JournalUnreachable; any other error is logged."""
        journal = self._journal
        if journal.watch_reports is None:
            return
        try:
            journal.watch_reports.put_documents(document_values(journal))
        except JournalUnreachable:
            raise
        except StewardError as error:
            _log.warning("The documents could not be recorded for the page: %s", printable(str(error)))


def document_values(journal: Journal) -> dict[str, list[dict[str, Any]]]:
    """Return the documents of each kind as JSON objects. Raises JournalError."""
    status = read_document_status(journal)
    disabled, signal = status.disabled, status.signal
    return {
        "disabled": []
        if disabled is None
        else [{"since_ms": disabled.since_ms, "person": disabled.person, "reason": disabled.reason}],
        "signal": []
        if signal is None
        else [{"created_ms": signal.created_ms, "plan": signal.request.plan, **_cancel_values(signal.request)}],
        **_waiting_values(status),
        "cancels": [
            {"plan": record.digest, "status": record.status.value, **_cancel_values(record.cancel)}
            for record in status.cancels
        ],
        "waiting_plans": [
            {"plan": plan.record.digest, "operation": plan.record.operation, "waits": plan.why}
            for plan in status.waiting_plans
        ],
        "restarts": [
            {"broker": broker, "announced_ms": restart.announced_ms, "until_ms": restart.until_ms}
            for broker, restart in sorted(announced_restarts(journal.mailbox).items())
        ],
        **_pending_values(journal),
    }


def _waiting_values(status: DocumentStatus) -> dict[str, list[dict[str, Any]]]:
    waiting: Mapping[str, Sequence[WaitingDocument]] = {
        "queue": [] if status.queue is None else [status.queue],
        "requests": status.requests,
        "chunks": status.chunks,
    }
    return {kind: list(map(_document_value, documents)) for kind, documents in waiting.items()}


def _document_value(document: WaitingDocument) -> dict[str, Any]:
    first = [
        {"topic": entry.partition.topic, "partition": entry.partition.partition, "replicas": list(entry.replicas)}
        for entry in document.requested[:_NAMED]
    ]
    return {
        "name": document.name,
        "created_ms": document.created_ms,
        "partitions": len(document.requested),
        "first": first,
        "waits": document.why,
        "plan": document.plan,
        "error": document.parse_error,
    }


def _cancel_values(request: CancelRequest | None) -> dict[str, Any]:
    request = request or CancelRequest()
    return {"scope": request.scope, "person": request.person, "reason": request.reason}


def _pending_values(journal: Journal) -> dict[str, list[dict[str, Any]]]:
    return {
        "pending_replicas": [
            {
                "topic": row.key.topic,
                "partition": row.key.partition,
                "brokers": list(row.value.brokers),
                "missing": row.value.target_rf - len(row.value.brokers),
            }
            for row in journal.rows(PENDING_REPLICAS).all()
        ],
        "deferred_partitions": [
            {"topic": row.key, "count": row.value.count, "asked_by": row.value.asked_by}
            for row in journal.rows(DEFERRED_PARTITIONS).all()
        ],
    }
