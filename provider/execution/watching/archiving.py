"""Plans that have ended leave what each look reads, as soon as nothing may still be made of them there."""

from __future__ import annotations

from kafka_steward.execution.undoing.undo import is_open
from kafka_steward.journal import paths
from kafka_steward.journal.open import Journal
from kafka_steward.journal.records import PlanRecord

__all__ = ["archive_ended"]

#: Milliseconds for which whoever followed a plan finds it where it was.
_LATELY_MS = 3_600_000
#: Plans per look: a journal of an earlier version has all of them still to be moved.
_AT_ONCE = 100


def archive_ended(journal: Journal) -> list[str]:
    """Move plans that ended an hour ago or more out of the documents that are polled; returns their digests.

    What is still to be undone stays, and so does a plan of which a document is left: it must not be carried out again.
    """

    def is_needed(record: PlanRecord) -> bool:
        return is_open(journal, record) or any(_is_there(journal, source) for source in record.sources)

    return journal.plans.archive(journal.now_ms() - _LATELY_MS, is_needed=is_needed, most=_AT_ONCE)


def _is_there(journal: Journal, source: str) -> bool:
    path, _, created_id = source.rpartition("@")
    node = journal.tree.get(path) if paths.is_path(path) else None
    return node is not None and str(node.created_id) == created_id
