"""The documents of the KIPs, and what else waits in the tree, as the watch read them last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import sqlalchemy as sa

from kafka_steward.journal.observed import DocumentReport
from kafka_steward.journal.schema import tables
from kafka_steward.journal.sql.watch_reports import documents_from_row
from kafka_steward.page_data.reader import JournalReader

#: The kinds of documents, and the fields of each:
#:
#: - disabled: since_ms, person, reason (at most one: reassignments are disabled);
#: - signal: created_ms, plan, scope, person, reason (at most one: nobody has executed it yet);
#: - queue, requests, chunks: name, created_ms, partitions, first, waits, plan, error;
#: - cancels: plan, status, scope, person, reason;
#: - waiting_plans: plan, operation, waits;
#: - restarts: broker, announced_ms, until_ms;
#: - pending_replicas: topic, partition, brokers, missing (KIP-409);
#: - deferred_partitions: topic, count, asked_by.
KINDS = (
    "disabled",
    "signal",
    "queue",
    "requests",
    "chunks",
    "cancels",
    "waiting_plans",
    "restarts",
    "pending_replicas",
    "deferred_partitions",
)


@dataclass(frozen=True, slots=True)
class Documents:
    """The documents by kind, each of `KINDS`. `read_ms` is the time of the watch's last poll of them; None before."""

    read_ms: int | None
    by_kind: Mapping[str, DocumentReport] = field(default_factory=dict)


def documents(reader: JournalReader, cluster_id: str) -> Documents:
    """Return the documents of a cluster."""
    document, poll = tables.document, tables.poll
    polled = (poll.c.cluster_id == cluster_id) & (poll.c.kind == "documents")
    with reader.connection() as opened:
        rows = opened.execute(sa.select(document).where(document.c.cluster_id == cluster_id)).mappings().all()
        read_ms = opened.execute(sa.select(sa.func.max(poll.c.at_ms)).where(polled)).scalar_one()
    found = {row["kind"]: documents_from_row(row) for row in rows}
    return Documents(read_ms, {kind: found.get(kind, DocumentReport(kind)) for kind in KINDS})
