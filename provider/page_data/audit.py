"""The audit trail: searched by the fields of its rows and by time, in pages, and as rows of a CSV file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from kafka_steward.escaping import escape_csv_cell
from kafka_steward.journal.audit import Action, StoredAuditRecord
from kafka_steward.journal.columns import AUDIT, Column
from kafka_steward.journal.schema import tables
from kafka_steward.journal.sql.audit import to_stored_record
from kafka_steward.page_data.reader import MOST_ROWS, JournalReader, Page, from_cursor

_audit = tables.audit


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """A filter of rows: those that meet all conditions that are not None. Times in milliseconds since 1970.

    `plan` is a digest or its beginning. `person` is who caused the action, written exactly so. A row is about `broker`
    if it names it, or if it is in the assignment before or after. `from_ms` is included, `until_ms` is not.
    """

    topic: str | None = None
    partition: int | None = None
    broker: int | None = None
    plan: str | None = None
    action: Action | None = None
    person: str | None = None
    from_ms: int | None = None
    until_ms: int | None = None


def audit(
    reader: JournalReader,
    cluster_id: str,
    chosen: AuditFilter | None = None,
    *,
    after: str | None = None,
    limit: int = 50,
) -> Page[StoredAuditRecord]:
    """Return rows of the audit trail, the newest first: a page of `limit` after the cursor `after`.

    Raises RequestError for another cursor.
    """
    last = None if after is None else from_cursor(after, (int, int))
    query = _query(cluster_id, chosen or AuditFilter(), last)
    return reader.page(query, limit, to_stored_record, lambda row: (row.when_ms, row.id))


def audit_csv(reader: JournalReader, cluster_id: str, chosen: AuditFilter | None = None) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a CSV file, the newest first after the names of the columns, each cell escaped for it.

    They are read in parts, so that all of them are never in memory.
    """
    yield tuple(column.name for column in AUDIT)
    last: tuple[Any, ...] | None = None
    while rows := reader.rows(_query(cluster_id, chosen or AuditFilter(), last).limit(MOST_ROWS)):
        records = list(map(to_stored_record, rows))
        yield from (tuple(_csv_cell(column, record) for column in AUDIT) for record in records)
        last = (records[-1].when_ms, records[-1].id)


def _query(cluster_id: str, chosen: AuditFilter, last: tuple[Any, ...] | None) -> sa.Select[Any]:
    query = sa.select(_audit).where(_audit.c.cluster_id == cluster_id, *_conditions(chosen))
    if last is not None:
        query = query.where(sa.tuple_(_audit.c.when_ms, _audit.c.id) < sa.tuple_(*last))
    return query.order_by(_audit.c.when_ms.desc(), _audit.c.id.desc())


def _conditions(chosen: AuditFilter) -> Iterator[sa.ColumnElement[bool]]:
    equal = ("topic", "partition", "action", "person")
    yield from (_audit.c[name] == value for name in equal if (value := getattr(chosen, name)) is not None)
    if chosen.plan is not None:
        yield _audit.c.plan >= chosen.plan
        yield _audit.c.plan < f"{chosen.plan}g"  # the digits of a digest are below it
    if chosen.broker is not None:
        yield _is_about(chosen.broker)
    if chosen.from_ms is not None:
        yield _audit.c.when_ms >= chosen.from_ms
    if chosen.until_ms is not None:
        yield _audit.c.when_ms < chosen.until_ms


def _is_about(broker: int) -> sa.ColumnElement[bool]:
    """Return the condition that a row names a broker, or that an assignment before or after has it."""
    # An assignment is stored as `[1, 2, 3]`: compared as texts, because databases differ in their JSON functions.
    columns = [sa.type_coerce(_audit.c[name], sa.Text) for name in ("before", "after")]
    forms = (f"[{broker}]", f"[{broker}, %", f"[%, {broker}, %", f"[%, {broker}]")
    return sa.or_(_audit.c.broker == broker, *(column.like(form) for column in columns for form in forms))


def _csv_cell(column: Column, row: StoredAuditRecord) -> str:
    value = column.value(row)
    if value is None:
        return ""
    return escape_csv_cell(json.dumps(value, sort_keys=True) if column.any_json else str(value))
