"""One SQL database as the journal of one cluster: transactions, a single writer at a time, and one-line errors.

A transaction excludes every other writer of the same cluster: on SQLite because it begins with BEGIN IMMEDIATE, on
PostgreSQL because it begins by locking the cluster's counter row. Therefore a check made in a transaction, such as the
fence check, is still valid when the transaction ends, on either database.

A step lock that is kept in ZooKeeper has its fencing token here too. A process could be suspended between reading the
lock and writing a row. Therefore each process that acquires the lock writes its token to the database, and each fenced
write compares the token there, in its own transaction. The token is set and not only increased: a lock node that was
deleted manually counts from 1 again.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import sqlalchemy as sa

from kafka_steward.errors import JournalError, JournalUnreachable, LockLost
from kafka_steward.journal.schema import tables
from kafka_steward.journal.sql.dialect import dialect_of
from kafka_steward.journal.sql.urls import shown_url, without_secrets

#: Rows or parameters per statement: SQLite accepts at most 32766 parameters in one statement.
_BATCH = 500

T = TypeVar("T")

#: The counter that provides created and modified ids; writers also lock its row.
IDS = "ids"


def batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield the items in parts that are small enough for one statement."""
    for start in range(0, len(items), _BATCH):
        yield items[start : start + _BATCH]


class Database:
    """The tables of one cluster. Thread-safe, and usable in a child process after a fork."""

    def __init__(self, engine: sa.Engine, cluster_id: str, host: str) -> None:
        self.engine = engine
        self.dialect = dialect_of(engine.dialect)
        self.cluster_id = cluster_id
        self.host = host
        self._here = threading.local()
        self._pid = os.getpid()

    def __repr__(self) -> str:
        return f"Database({shown_url(self.engine.url)!r}, {self.cluster_id!r})"

    @property
    def place(self) -> str:
        """The database's location for messages, without a password; for one of a single host, with that host."""
        url = self.engine.url.render_as_string(hide_password=True)
        return f"{url} on the host {self.host}" if self.dialect.local else url

    def mine(self, table: sa.Table) -> sa.ColumnElement[bool]:
        """Return the condition that a row of `table` is of this cluster."""
        return table.c.cluster_id == self.cluster_id

    @contextmanager
    def write_transaction(self) -> Iterator[sa.Connection]:
        """Open a transaction that excludes all other writers of this cluster; a nested one joins the outer one.

        Raises JournalUnreachable; it is then unknown whether the change was made.
        """
        self._notice_fork()
        joined: sa.Connection | None = getattr(self._here, "connection", None)
        if joined is not None:
            yield joined
            return
        with (
            self._translate_errors(),
            self.engine.connect() as opened,
            opened.execution_options(steward_writes=True).begin(),
        ):
            self._exclude_writers(opened)
            self._here.connection = opened
            try:
                yield opened
            finally:
                self._here.connection = None

    @contextmanager
    def read_connection(self) -> Iterator[sa.Connection]:
        """Open a connection for reading; if this thread has a transaction, it is that transaction's connection."""
        self._notice_fork()
        joined: sa.Connection | None = getattr(self._here, "connection", None)
        if joined is not None:
            yield joined
            return
        with self._translate_errors(), self.engine.connect() as opened, opened.begin():
            yield opened

    def next_number(self, connection: sa.Connection, name: str) -> int:
        """Return the next number of a counter, starting at 1; a number is never reused once the transaction commits."""
        counter = tables.counter
        raised = sa.update(counter).values(value=counter.c.value + 1).returning(counter.c.value)
        found = connection.execute(raised.where(self._counter(name))).scalar_one_or_none()
        if found is not None:
            return int(found)
        connection.execute(sa.insert(counter).values(cluster_id=self.cluster_id, name=name, value=1))
        return 1

    def close(self) -> None:
        """Close every connection. The database remains usable: connections are opened again on demand."""
        self._notice_fork()
        self.engine.dispose()

    def _exclude_writers(self, connection: sa.Connection) -> None:
        self.dialect.exclude_writers(connection, sa.select(tables.counter.c.value).where(self._counter(IDS)))

    def _counter(self, name: str) -> sa.ColumnElement[bool]:
        return self.mine(tables.counter) & (tables.counter.c.name == name)

    def _notice_fork(self) -> None:
        if self._pid != os.getpid():
            # The connections belong to the parent process: drop the references without closing them.
            self.engine.dispose(close=False)
            self._here, self._pid = threading.local(), os.getpid()

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except (sa.exc.DBAPIError, sa.exc.TimeoutError) as error:
            raise as_journal_error(self.engine, error) from error


def as_journal_error(engine: sa.Engine, error: sa.exc.SQLAlchemyError) -> JournalError:
    """Return the journal error for a database error; its message never contains a password."""
    where = shown_url(engine.url)
    said = str(getattr(error, "orig", None) or error).strip().splitlines() or ["nothing more is known"]
    words = without_secrets(said[0].rstrip("."), engine.url)
    if isinstance(error, sa.exc.OperationalError | sa.exc.InterfaceError | sa.exc.TimeoutError):
        return JournalUnreachable(f"The journal at {where} does not answer ({words}); try again when it does.")
    return JournalError(f"The journal at {where} refused a statement: {words}.")


_NAME = "step token"


class SqlFencingStore:
    """The token of one cluster's step lock."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._mine = database.mine(tables.counter) & (tables.counter.c.name == _NAME)

    def set_token(self, token: int) -> None:
        """Set the token: from now on only writes with this token are accepted."""
        row = {"cluster_id": self._database.cluster_id, "name": _NAME, "value": token}
        with self._database.write_transaction() as connection:
            connection.execute(self._database.dialect.insert_once(tables.counter), row)
            connection.execute(sa.update(tables.counter).where(self._mine).values(value=token))

    def check(self, token: int) -> None:
        """Raise LockLost unless `token` is the accepted one; the result is valid until the transaction ends."""
        with self._database.write_transaction() as connection:
            current = connection.execute(sa.select(tables.counter.c.value).where(self._mine)).scalar_one_or_none()
        if current != token:
            raise LockLost("Another process steps the plan since: this one must change nothing more.")
