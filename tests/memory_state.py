"""Rows in a dict, under the same contract tests as the real ones. The clock is the caller's."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from kafka_steward.journal.state import StoredRow


class MemoryState:
    """A `State` that lives as long as its process."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.now_ms = clock
        self.rows: dict[tuple[str, str], StoredRow] = {}
        self._ids = itertools.count(1)
        self._lock = threading.RLock()

    def select(self, wanted: Collection[tuple[str, str | None]]) -> list[StoredRow]:
        with self._lock:
            return [row for (noun, key), row in sorted(self.rows.items()) if {(noun, key), (noun, None)} & {*wanted}]

    def everything(self) -> list[StoredRow]:
        return list(self.rows.values())

    def write(self, noun: str, texts: Mapping[str, str], seen: Mapping[str, StoredRow]) -> list[StoredRow] | None:
        with self._lock:
            if any(not self._is_as(noun, key, seen.get(key)) for key in texts):
                return None
            written = [
                replace(known, text=text, revision=known.revision + 1, at_ms=self.now_ms())
                if (known := seen.get(key))
                else StoredRow(noun, key, text, next(self._ids), 0, self.now_ms())
                for key, text in texts.items()
            ]
            self.rows |= {(noun, row.key): row for row in written}
            return written

    def renew(self, row: StoredRow, text: str) -> StoredRow | None:
        with self._lock:
            known = self.rows.get((row.noun, row.key))
            if known is None or (known.created_id, known.text) != (row.created_id, row.text):
                return None
            renewed = replace(known, text=text, revision=known.revision + 1, at_ms=self.now_ms())
            self.rows[row.noun, row.key] = renewed
            return renewed

    def delete(self, noun: str, rows: Sequence[StoredRow]) -> bool:
        with self._lock:
            if any(not self._is_as(noun, row.key, row) for row in rows):
                return False
            for row in rows:
                del self.rows[noun, row.key]
            return True

    def purge(self, noun: str, before_ms: int) -> None:
        with self._lock:
            self.rows = {name: row for name, row in self.rows.items() if row.noun != noun or row.at_ms >= before_ms}

    def one_read(self, *, again: bool = False) -> AbstractContextManager[None]:
        del again  # nothing is kept
        return nullcontext()

    def _is_as(self, noun: str, key: str, seen: StoredRow | None) -> bool:
        known = self.rows.get((noun, key))
        return known is None if seen is None else seen.is_same(known)
