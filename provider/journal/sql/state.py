"""The table of our own state: a transaction compares the rows that the caller has seen before it changes any."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from typing import Any

import sqlalchemy as sa

from kafka_steward.journal.schema import tables
from kafka_steward.journal.sql.database import IDS, split_into_batches
from kafka_steward.journal.sql.dialect import now_ms
from kafka_steward.journal.sql.view import Views
from kafka_steward.journal.state import StoredRow

_state = tables.state
_COLUMNS = (_state.c.noun, _state.c.key, _state.c.value, _state.c.created_id, _state.c.revision, _state.c.at_ms)

#: A table of one row.
_ONE = sa.select(sa.literal(1)).subquery("one")


class StateTable:
    """A `State` in a SQL database. In `one_read` it reads by one statement, with the documents: see `view`."""

    def __init__(self, views: Views) -> None:
        self._views = views
        self._database = views.database

    def now_ms(self) -> int:
        """Return the time of the database's clock."""
        return self._views.now_ms()

    def one_read(self, *, again: bool = False) -> AbstractContextManager[None]:
        """Answer the reads of a block from a view, as specified by `State.one_read`."""
        return self._views.one_read(again=again)

    def select(self, wanted: Collection[tuple[str, str | None]]) -> list[StoredRow]:
        """Return rows, as specified by `State.select`."""
        view = self._views.current
        if view is not None and all(noun not in view.LEFT_OUT for noun, _ in wanted):
            rows = view.select(wanted)
            if all(view.is_complete(row.text) for row in rows):
                return rows
        conditions = [(_state.c.noun == noun) & (True if key is None else _state.c.key == key) for noun, key in wanted]
        query = sa.select(*_COLUMNS).where(self._mine() & sa.or_(*conditions)).order_by(_state.c.noun, _state.c.key)
        with self._database.read_connection() as connection:
            return [StoredRow(*row) for row in connection.execute(query)]

    def everything(self) -> list[StoredRow]:
        """Return the rows of all nouns, as specified by `State.everything`."""
        with self._database.read_connection() as connection:
            return [StoredRow(*row) for row in connection.execute(sa.select(*_COLUMNS).where(self._mine()))]

    def write(self, noun: str, texts: Mapping[str, str], seen: Mapping[str, StoredRow]) -> list[StoredRow] | None:
        """Insert or change rows, as specified by `State.write`; a single one that exists, by one statement."""
        # The usual change, of a lock or a lease: one statement, without a read before it.
        if len(texts) == len(seen) == 1:
            (known,), (text,) = seen.values(), texts.values()
            changed = self._update(known, text, _state.c.revision == known.revision)
            return None if changed is None else [changed]
        with self._database.write_transaction() as connection:
            # The transaction excludes other writers: nothing changes between the comparison and the writes.
            at_ms = self._compare(connection, noun, {key: seen.get(key) for key in texts})
            if at_ms is None:
                return None
            new = [key for key in texts if key not in seen]
            last = self._database.raise_counter(connection, IDS, by=len(new)) if new else 0
            inserted = [StoredRow(noun, key, texts[key], last - at, 0, at_ms) for at, key in enumerate(new)]
            updated = [
                replace(row, text=texts[key], revision=row.revision + 1, at_ms=at_ms) for key, row in seen.items()
            ]
            cluster = {"cluster_id": self._database.cluster_id}
            for rows in split_into_batches([{**cluster, **_values(row)} for row in inserted]):
                connection.execute(sa.insert(_state), rows)
            this = self._mine() & (_state.c.noun == noun) & (_state.c.key == sa.bindparam("of_key"))
            for rows in split_into_batches([{"of_key": row.key, **_values(row)} for row in updated]):
                connection.execute(sa.update(_state).where(this), rows)
            return [*inserted, *updated]

    def renew(self, row: StoredRow, text: str) -> StoredRow | None:
        """Write a row again, as specified by `State.renew`."""
        # Not by the revision: a renewal without an answer may have raised it, and the claim is still the same.
        return self._update(row, text, _state.c.value == row.text)

    def delete(self, noun: str, rows: Sequence[StoredRow]) -> bool:
        """Delete rows, as specified by `State.delete`."""
        with self._database.write_transaction() as connection:
            if self._compare(connection, noun, {row.key: row for row in rows}) is None:
                return False
            for some in split_into_batches(rows):
                these = self._mine() & (_state.c.noun == noun) & _state.c.key.in_([row.key for row in some])
                connection.execute(sa.delete(_state).where(these))
            return True

    def _update(self, row: StoredRow, text: str, same: sa.ColumnElement[bool]) -> StoredRow | None:
        this = self._mine() & (_state.c.noun == row.noun) & (_state.c.key == row.key)
        values = {"value": text, "revision": _state.c.revision + 1, "at_ms": now_ms()}
        # With the id: a row that was deleted and written again may have reached the same revision.
        update = sa.update(_state).where(this & (_state.c.created_id == row.created_id) & same).values(values)
        with self._database.write_transaction() as connection:
            changed: Any = self._database.dialect.change_and_return(connection, update, _COLUMNS, this)
        return None if changed is None else StoredRow(*changed)

    def purge(self, noun: str, before_ms: int) -> None:
        """Delete old rows, as specified by `State.purge`."""
        old = self._mine() & (_state.c.noun == noun) & (_state.c.at_ms < before_ms)
        with self._database.write_transaction() as connection:
            connection.execute(sa.delete(_state).where(old))

    def _compare(self, connection: sa.Connection, noun: str, seen: Mapping[str, StoredRow | None]) -> int | None:
        """Return the time if the rows with these keys are as they were seen; otherwise None."""
        at_ms, stored = 0, dict[str, StoredRow]()
        for some in split_into_batches(list(seen)):
            these = self._mine() & (_state.c.noun == noun) & _state.c.key.in_(some)
            # The clock comes with the rows, and alone if there are none.
            query = sa.select(now_ms(), *_COLUMNS).select_from(_ONE.outerjoin(_state, these))
            rows: Sequence[Any] = connection.execute(query).all()
            at_ms = rows[0][0]
            stored |= {row[2]: StoredRow(*row[1:]) for row in rows if row[1] is not None}
        are_same = all(row.is_same(stored.get(key)) if row else key not in stored for key, row in seen.items())
        return at_ms if are_same else None

    def _mine(self) -> sa.ColumnElement[bool]:
        return self._database.cluster_condition(_state)


def _values(row: StoredRow) -> dict[str, Any]:
    values = asdict(row)
    return {"value": values.pop("text"), **values}
