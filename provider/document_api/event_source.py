"""Event source: recently accepted documents, read from the audit trail, whichever process executed them."""

from __future__ import annotations

from kafka_steward.execution.cancel_signal import CANCEL_SIGNAL
from kafka_steward.journal.audit import Action, StoredAuditRecord
from kafka_steward.journal.open import Journal

__all__ = ["AuditEventReader"]

#: How far back a new reader starts in the audit trail, in milliseconds.
_BACK_MS = 60_000


class AuditEventReader:
    """Detects newly accepted "cancel" or "request" documents between two calls. Use one reader for each kind."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._since_ms = journal.now_ms() - _BACK_MS
        self._last_id = 0

    def has_new(self, kind: str) -> bool:
        """Return whether a document of this kind was accepted since the last call. Raises JournalUnreachable."""
        action = Action.REQUEST if kind == "cancel" else Action.PUBLISH
        rows = self._journal.audit.rows(action=action, since_ms=self._since_ms)
        new = [row for row in rows if row.id > self._last_id]
        if rows:
            self._since_ms = max(row.when_ms for row in rows)
            self._last_id = max(self._last_id, *(row.id for row in rows))
        return any(_is(kind, row) for row in new)


def _is(kind: str, row: StoredAuditRecord) -> bool:
    after = row.entry.after
    return after == CANCEL_SIGNAL if kind == "cancel" else isinstance(after, dict) and "sources" in after
