"""Archive ended plans: move their records out of the polled documents once no request can refer to them."""

from __future__ import annotations

from kafka_steward.execution.cancellation.cancel_runner import is_open
from kafka_steward.journal import paths
from kafka_steward.journal.open import Journal
from kafka_steward.journal.records import PlanRecord

__all__ = ["archive_ended"]

#: Milliseconds for which an ended plan stays in the polled documents, for clients that follow it.
_LATELY_MS = 3_600_000
#: Plans per poll: in a journal of an earlier release no plan has been archived yet.
_AT_ONCE = 100


def archive_ended(journal: Journal) -> list[str]:
    """Move plans that ended an hour ago or more out of the documents that are polled; returns their digests.

    A plan with an open cancel or rollback stays. So does a plan whose request document still exists, because otherwise
    the document would be executed again.
    """

    def is_needed(record: PlanRecord) -> bool:
        return is_open(journal, record) or any(_is_there(journal, source) for source in record.sources)

    return journal.plans.archive(journal.now_ms() - _LATELY_MS, is_needed=is_needed, most=_AT_ONCE)


def _is_there(journal: Journal, source: str) -> bool:
    path, _, created_id = source.rpartition("@")
    node = journal.tree.get(path) if paths.is_path(path) else None
    return node is not None and str(node.created_id) == created_id
