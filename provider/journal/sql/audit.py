"""The audit trail's table: rows are added once, completed once, and deleted after a user has archived them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import sqlalchemy as sa

from kafka_steward.journal.audit import Action, Actor, AuditRecord, Outcome, StoredAuditRecord
from kafka_steward.journal.schema import tables
from kafka_steward.journal.sql.database import Database, split_into_batches
from kafka_steward.journal.sql.dialect import now_ms

_audit, _move = tables.audit, tables.plan_move

#: The fields of a row, which are its columns: those of the entry, of its actor, and of the row itself.
_ENTRY = [column.name for column in fields(AuditRecord) if column.name != "who"]
_WHO = [column.name for column in fields(Actor)]
_FACTS = [column.name for column in fields(StoredAuditRecord) if column.name != "entry"]


class AuditTable:
    """The audit rows of one cluster."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def insert(self, records: Sequence[tuple[AuditRecord, Outcome, str]]) -> None:
        """Insert a row for each entry that has none yet, with its outcome and detail."""
        if not records:
            return
        with self._database.write_transaction() as connection:
            when_ms = connection.execute(sa.select(now_ms())).scalar_one()
            rows = [
                {**_to_columns(entry), **_written(self._database, when_ms, outcome, detail)}
                for entry, outcome, detail in records
            ]
            for some in split_into_batches(rows):
                connection.execute(self._database.dialect.insert_or_ignore(_audit), some)

    def complete(self, outcomes: Sequence[tuple[AuditRecord, Outcome, str]]) -> None:
        """Set outcome and detail of those rows of these entries that are not complete yet."""
        if not outcomes:
            return
        mine = sa.and_(*(_audit.c[name] == sa.bindparam(f"key_{name}") for name in tables.AUDIT_KEY))
        still_open = self._database.cluster_condition(_audit) & (_audit.c.outcome == Outcome.INTENDED)
        written = {
            "outcome": sa.bindparam("to_outcome"),
            "detail": sa.bindparam("to_detail"),
            "completed_ms": now_ms(),
        }
        statement = sa.update(_audit).where(still_open & mine).values(written)
        # The unique index contains the rows of plans alone: no database uses it unless the statement says that, too.
        in_plan = statement.where(_audit.c.plan != sa.literal_column("''"))
        with self._database.write_transaction() as connection:
            for change, planned in ((in_plan, True), (statement, False)):
                completions = [_to_completion(*outcome) for outcome in outcomes if bool(outcome[0].plan) is planned]
                if completions:
                    connection.execute(change, completions)

    def import_rows(self, pages: Iterable[Sequence[StoredAuditRecord]]) -> int:
        """Import the rows that are older than the oldest row here, unchanged; return their number.

        The rows are passed in pages, so that not all of them are in memory at the same time.
        """
        mine = self._database.cluster_condition(_audit)
        with self._database.write_transaction() as connection:
            oldest_ms = connection.execute(sa.select(sa.func.min(_audit.c.when_ms)).where(mine)).scalar_one()
            imported = 0
            for page in pages:
                older = [_to_imported_columns(self._database.cluster_id, row) for row in page]
                older = [values for values in older if oldest_ms is None or values["when_ms"] < oldest_ms]
                for some in split_into_batches(older):
                    connection.execute(sa.insert(_audit), some)
                imported += len(older)
        return imported

    def rows_before(self, before_ms: int | None, after_id: int, limit: int) -> list[StoredAuditRecord]:
        """Return at most `limit` rows with ids above `after_id`, in the order of their ids.

        Only rows older than `before_ms` are returned; None means all rows.
        """
        mine = self._database.cluster_condition(_audit) & (_audit.c.id > after_id)
        mine &= sa.true() if before_ms is None else _audit.c.when_ms < before_ms
        query = sa.select(_audit).where(mine).order_by(_audit.c.id).limit(limit)
        with self._database.read_connection() as connection:
            return [to_stored_record(values) for values in connection.execute(query).mappings()]

    def remove(self, ids: Sequence[int]) -> None:
        """Delete the rows with these ids."""
        mine = self._database.cluster_condition(_audit)
        # A transaction for each part: other writers wait only briefly.
        for some in split_into_batches(ids):
            with self._database.write_transaction() as connection:
                connection.execute(sa.delete(_audit).where(mine & _audit.c.id.in_(some)))

    def select(
        self, *, plan: str | None, action: Action | None, topic: str | None, since_ms: int | None, limit: int | None
    ) -> list[StoredAuditRecord]:
        """Return the matching rows, oldest first; with `limit`, only the newest `limit` of them."""
        query = sa.select(_audit).where(self._database.cluster_condition(_audit))
        if plan is not None:
            query = query.where(_audit.c.plan == plan)
        if action is not None:
            query = query.where(_audit.c.action == action)
        if topic is not None:
            query = query.where(_audit.c.topic == topic)
        if since_ms is not None:
            query = query.where(_audit.c.when_ms >= since_ms)
        with self._database.read_connection() as connection:
            rows = connection.execute(query.order_by(_audit.c.id.desc()).limit(limit)).mappings().all()
        return [to_stored_record(values) for values in reversed(rows)]


def insert_of_moves(
    database: Database, which: sa.ColumnElement[bool], parameters: Mapping[str, Any], action: Action, who: Actor
) -> None:
    """Insert a row for each of the moves `which` that has none yet, in plan order; its detail is the reason.

    `parameters` are those of `which`.
    """
    with database.write_transaction() as connection:
        when_ms = connection.execute(sa.select(now_ms())).scalar_one()
        facts = _written(database, when_ms, Outcome.DONE, "") | {"action": action, "broker": None}
        facts |= {name: value for name in _WHO if (value := getattr(who, name)) is not None}
        columns: dict[str, sa.ColumnElement[Any]] = {
            name: sa.literal(value, _audit.c[name].type) for name, value in facts.items()
        }
        columns |= {name: _move.c[name] for name in ("plan", "chunk", "topic", "partition", "attempt", "before")}
        columns["reason"] = sa.func.substr(_move.c.detail, 1, tables.LONGEST)
        moves = sa.select(*columns.values()).where(which).order_by(_move.c.chunk, _move.c.position)
        connection.execute(database.dialect.insert_or_ignore(_audit).from_select(list(columns), moves), parameters)


def _written(database: Database, when_ms: int, outcome: Outcome, detail: str) -> dict[str, Any]:
    return {
        "cluster_id": database.cluster_id,
        "when_ms": when_ms,
        "completed_ms": None if outcome is Outcome.INTENDED else when_ms,
        "outcome": outcome,
        "detail": detail,
    }


def _to_completion(entry: AuditRecord, outcome: Outcome, detail: str) -> dict[str, Any]:
    keys = {f"key_{name}": getattr(entry, name) for name in tables.AUDIT_KEY}
    return {**keys, "to_outcome": outcome, "to_detail": detail}


def _to_columns(entry: AuditRecord) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in _ENTRY} | {name: getattr(entry.who, name) for name in _WHO}


def _to_imported_columns(cluster_id: str, row: StoredAuditRecord) -> dict[str, Any]:
    facts = {name: getattr(row, name) for name in _FACTS if name != "id"}
    return {**_to_columns(row.entry), **facts, "cluster_id": cluster_id}


def to_stored_record(values: sa.RowMapping) -> StoredAuditRecord:
    """Return the record in a row of the table."""
    who = Actor(**{name: values[name] for name in _WHO})
    entry = AuditRecord(**{name: values[name] for name in _ENTRY}, who=who)
    return StoredAuditRecord(entry=entry, **{name: values[name] for name in _FACTS})
