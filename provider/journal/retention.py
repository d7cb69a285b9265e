"""Retention: old rows of the audit trail are moved to a file; data that nobody reads any more is deleted.

That data is quarantined documents, the requests of tasks, and throttles that were released.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from itertools import chain
from pathlib import Path
from typing import Any

from kafka_steward.errors import JournalError, RequestError
from kafka_steward.journal.audit import Action, Actor, AuditRecord, StoredAuditRecord
from kafka_steward.journal.listing import QUARANTINE
from kafka_steward.journal.records import RELEASED_THROTTLES, TASK_REQUESTS
from kafka_steward.journal.store import Journal


def archive_audit(
    journal: Journal,
    before_ms: int,
    file: Path,
    *,
    as_values: Callable[[StoredAuditRecord], Mapping[str, Any]],
    who: Actor,
) -> int:
    """Write the rows older than `before_ms` to a new file, one JSON object per line, then delete them.

    Returns the number of rows. Rows of plans that the journal knows are kept. If the process is killed between writing
    and deleting, the rows are in both places, and the next archive contains them again.
    Raises RequestError when the file exists or cannot be written: then nothing was deleted.
    """
    known = frozenset(journal.plans.digests())
    try:
        old = chain.from_iterable(journal.audit.pages(before_ms))
        ids = _write_archive(file, (row for row in old if row.entry.plan not in known), as_values)
    except JournalError:
        raise  # JournalUnreachable is also an OSError
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise RequestError(f"{file} cannot be written ({why}); nothing was deleted: name another.") from error
    journal.audit.remove(ids)
    message = f"{len(ids)} rows of the audit trail were archived in {file}"
    journal.audit.record(
        AuditRecord(Action.REQUEST, message, after={"rows": len(ids), "before_ms": before_ms}, who=who)
    )
    return len(ids)


def _write_archive(
    file: Path, rows: Iterator[StoredAuditRecord], as_values: Callable[[StoredAuditRecord], Mapping[str, Any]]
) -> list[int]:
    """Write the rows, compressed if the name of the file ends so, and return their ids; they are on disk then."""
    ids = []
    with file.open("xb") as raw:
        try:
            with gzip.GzipFile(fileobj=raw, mode="wb") if file.suffix == ".gz" else nullcontext(raw) as out:
                for row in rows:
                    out.write(json.dumps({"id": row.id, **as_values(row)}).encode() + b"\n")
                    ids.append(row.id)
            raw.flush()
            os.fsync(raw.fileno())
        except BaseException:
            file.unlink()  # a partial file is useless, and would make the next attempt fail
            raise
    return ids


def delete_old_rows(journal: Journal, before_ms: int) -> None:
    """Delete what was quarantined, requested by tasks, or released before `before_ms` of the journal's clock."""
    for noun in (QUARANTINE.name, TASK_REQUESTS.name, RELEASED_THROTTLES.name):
        journal.state.purge(noun, before_ms)
