"""Taking old rows of the audit trail out of the journal, into a file."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from kafka_steward.errors import JournalError, RequestError
from kafka_steward.journal.audit import Action, AuditRow, Entry, Who
from kafka_steward.journal.open import Journal

__all__ = ["archive_audit"]


def archive_audit(
    journal: Journal, before_ms: int, file: Path, *, as_values: Callable[[AuditRow], Mapping[str, Any]], who: Who
) -> int:
    """Write the rows from before a moment to a new file, one JSON object per line, then delete them; returns how many.

    Rows of plans that the journal knows stay. Killed in between, rows are in both; the next archive has them again.
    Raises RequestError when the file exists or cannot be written: then nothing was deleted.
    """
    known = frozenset(journal.plans.digests())
    try:
        old = chain.from_iterable(journal.audit.pages(before_ms))
        ids = _write(file, (row for row in old if row.entry.plan not in known), as_values)
    except JournalError:
        raise  # one that is unreachable is an OSError, too
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise RequestError(f"{file} cannot be written ({why}); nothing was deleted: name another.") from error
    journal.audit.remove(ids)
    told = f"{len(ids)} rows of the audit trail went to {file}"
    journal.audit.note(Entry(Action.REQUEST, told, after={"rows": len(ids), "before_ms": before_ms}, who=who))
    return len(ids)


def _write(file: Path, rows: Iterator[AuditRow], as_values: Callable[[AuditRow], Mapping[str, Any]]) -> list[int]:
    with file.open("xb") as raw:
        try:
            return _write_rows(raw, rows, as_values, compressed=file.suffix == ".gz")
        except BaseException:
            file.unlink()  # half of it is of no use, and would be in the way of the next try
            raise


def _write_rows(
    raw: BinaryIO,
    rows: Iterator[AuditRow],
    as_values: Callable[[AuditRow], Mapping[str, Any]],
    *,
    compressed: bool,
) -> list[int]:
    ids = []
    with gzip.GzipFile(fileobj=raw, mode="wb") if compressed else nullcontext(raw) as out:
        for row in rows:
            out.write(json.dumps({"id": row.id, **as_values(row)}).encode() + b"\n")
            ids.append(row.id)
    raw.flush()
    os.fsync(raw.fileno())
    return ids
