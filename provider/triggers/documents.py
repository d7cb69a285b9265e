"""The part of the watch that executes the requests in documents, in a thread of its own.

Executed documents are read from the journal, whichever process executed them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

from kafka_steward.document_api.controller import DocumentController
from kafka_steward.document_api.document_plans import PollResult
from kafka_steward.document_api.document_reports import DocumentReporter
from kafka_steward.hooks.session import ClusterSession
from kafka_steward.journal.audit import Actor
from kafka_steward.journal.records import ACCEPTED_DOCUMENTS
from kafka_steward.journal.state import StoredRow
from kafka_steward.journal.store import Journal
from kafka_steward.journal.zookeeper.watcher import CONTROLLER, ZooKeeperWatcher
from kafka_steward.triggers.checks import Check
from kafka_steward.triggers.reporting import event_payload

#: The events that documents cause.
EVENTS = frozenset({"request", "cancel"})

#: How far back a new reader starts, in milliseconds.
_BACK_MS = 60_000


class AcceptedDocumentReader:
    """Detects newly executed documents of one kind, "cancel" or "request", between two calls."""

    def __init__(self, journal: Journal, kind: str) -> None:
        self._rows, self._kind = journal.rows(ACCEPTED_DOCUMENTS), kind
        self._since_ms = journal.now_ms() - _BACK_MS
        self._seen: StoredRow | None = None

    def has_new_event(self) -> bool:
        """Return whether a document was executed since the last call. Raises JournalUnreachable."""
        row = self._rows.get(self._kind)
        if row is None or not row.value.executed or row.stored.is_same(self._seen):
            return False
        self._seen = row.stored
        return row.at_ms >= self._since_ms


#: Seconds between two polls of a journal without change notifications, and of one with them.
POLL_S = 5.0

_NOTIFIED_POLL_S = 30.0


class DocumentCheck(Check[PollResult]):
    """Polls the documents periodically, and at once when ZooKeeper notifies a change.

    `on_change` is called then, in a thread of its client. After a controller change everything is re-read: KIP-236 and
    KIP-46 assign that to the failover of the controller.
    """

    KIND = "documents"
    WHAT = "execute the documents"

    def __init__(
        self,
        conn_id: str,
        log: Callable[..., None],
        on_change: Callable[[], None],
        *,
        log_error: Callable[..., None] | None = None,
        log_warning: Callable[..., None] | None = None,
    ) -> None:
        super().__init__(conn_id, log, log_error=log_error, log_warning=log_warning)
        self._kinds: frozenset[str] = frozenset()
        self._readers: dict[str, AcceptedDocumentReader] = {}
        self._log = log
        self._on_change = on_change
        self._opened: ClusterSession | None = None
        self._controllers = 0

    def listen_for(self, events: Collection[str]) -> None:
        """Emit those of these events that documents cause: "request" and "cancel"."""
        self._kinds = frozenset(events) & EVENTS

    def poll(self, opened: ClusterSession) -> tuple[dict[str, Any] | None, PollResult, float]:
        """Execute the documents. The event maps each kind of document that was accepted to its payload."""
        self._use_connections(opened)
        result = self._controller.poll()
        self._reporter.report()
        pause_s = self._poll_s if result.pause_s is None else min(self._poll_s, result.pause_s)
        return self._read_events(opened), result, pause_s

    def events_of(self, event: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """Return the payload of each kind of document."""
        return event

    def report(self, result: PollResult) -> None:
        """Log each new message; a refusal as a warning (KIP-236)."""
        self.reporter.log_new(result.sentences, result.refusals)

    def _read_events(self, opened: ClusterSession) -> dict[str, Any] | None:
        self._readers = {
            kind: self._readers.get(kind) or AcceptedDocumentReader(opened.journal, kind)
            for kind in sorted(self._kinds)
        }
        new = [kind for kind, reader in self._readers.items() if reader.has_new_event()]
        return {kind: event_payload(opened, opened.journal.now_ms()) for kind in new} or None

    def _use_connections(self, opened: ClusterSession) -> None:
        """Take connections into use that were opened for the first time, or again after an error."""
        if self._opened is opened:
            return
        options = opened.access.zookeeper
        who = Actor(task_id="watch")
        self._controller = DocumentController(
            opened.cluster, opened.journal, opened.settings, who, zookeeper=options is not None
        )
        self._reporter = DocumentReporter(opened.journal)
        self._controllers = 0
        if options is not None:
            opened.add_close_callback(ZooKeeperWatcher(options, self._on_znode_change).close)
        self._readers = {}
        self._poll_s = POLL_S if options is None else _NOTIFIED_POLL_S
        self._opened = opened

    def _on_znode_change(self, path: str) -> None:
        # Called on a thread of the ZooKeeper client.
        if path == CONTROLLER:
            self._controllers += 1
            if self._controllers > 1:  # the first notification is the initial state
                self._log("The controller of the cluster changed; all documents are read again.")
        with suppress(RuntimeError):  # the event loop is closed
            self._on_change()
