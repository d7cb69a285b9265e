"""One SQL database as the journal of one cluster: opening, transactions of a single writer, and one-line errors.

A transaction excludes every other writer of the same cluster, in the way of the database's `Dialect`. Therefore a check
made in a transaction, such as the fence check, is still valid when the transaction ends.

A process may have the database open while a newer release upgrades its tables. Each of its transactions would write as
the former tables were, so each one compares the version first, and changes nothing if it is another one.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import sqlalchemy as sa

from kafka_steward.commands import command_line
from kafka_steward.errors import JournalError, JournalUnreachable
from kafka_steward.escaping import printable
from kafka_steward.journal.schema import tables
from kafka_steward.journal.schema.upgrade import has_current_schema, require_current_schema, upgrade
from kafka_steward.journal.sql.dialect import (
    DATABASES,
    DatabaseKind,
    Dialect,
    driver_missing_error,
    join_alternatives,
    journal_dialect,
    mask_secrets,
    mask_url,
    parse_url,
)

_log = logging.getLogger(__name__)

#: Rows or parameters per statement: SQLite accepts at most 32766 parameters in one statement.
_BATCH = 500

T = TypeVar("T")

#: The counter that provides created and modified ids; writers also lock its row.
IDS = "ids"


def split_into_batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield the items in parts that are small enough for one statement."""
    for start in range(0, len(items), _BATCH):
        yield items[start : start + _BATCH]


class Database:
    """The tables of one cluster. Thread-safe, and usable in a child process after a fork."""

    def __init__(
        self, engine: sa.Engine, cluster_id: str, host: str, clock_s: Callable[[], float] | None = None
    ) -> None:
        self.engine = engine
        self._clock_s = clock_s
        self.dialect = journal_dialect(engine.dialect)
        self.cluster_id = cluster_id
        self.host = host
        self._here = threading.local()
        self._pid = os.getpid()

    def __repr__(self) -> str:
        return f"Database({mask_url(self.engine.url)!r}, {self.cluster_id!r})"

    def clock_s(self) -> float:
        """Return the time of a clock of this process, in seconds, which advances as the database's does."""
        return time.monotonic() if self._clock_s is None else self._clock_s()

    @property
    def is_local(self) -> bool:
        """True if only one host may use the database."""
        return _database_kind(self.engine.url).local

    @property
    def place(self) -> str:
        """The database's location for messages, without a password; for one of a single host, with that host."""
        url = self.engine.url.render_as_string(hide_password=True)
        return f"{url} on the host {self.host}" if self.is_local else url

    def cluster_condition(self, table: sa.Table) -> sa.ColumnElement[bool]:
        """Return the condition that a row of `table` is of this cluster."""
        return table.c.cluster_id == self.cluster_id

    @contextmanager
    def write_transaction(self) -> Iterator[sa.Connection]:
        """Open a transaction that excludes all other writers of this cluster; a nested one joins the outer one.

        Raises JournalUnreachable; it is then unknown whether the change was made. Raises JournalError, and changes
        nothing, if the tables were upgraded since they were opened.
        """
        self._reset_after_fork()
        joined: sa.Connection | None = getattr(self._here, "connection", None)
        if joined is not None:
            yield joined
            return
        with (
            self._translate_errors(),
            self.engine.connect() as opened,
            opened.execution_options(steward_writes=True).begin(),
        ):
            # First: nobody changes what is read from here on before the commit.
            self._exclude_writers(opened)
            # A newer release may have upgraded the tables since this process opened them.
            require_current_schema(opened)
            self._here.connection, self._here.changes = opened, self.changes_here() + 1
            afterwards: list[Callable[[], None]] = []
            self._here.afterwards = afterwards
            try:
                yield opened
            finally:
                # Also after an error: the next transaction of this thread must not join one that is over.
                self._here.connection = None
        # Not before the commit: documents must not tell of rows that were rolled back.
        for action in afterwards:
            action()

    def after_commit(self, action: Callable[[], None]) -> None:
        """Call `action` once this thread's transaction is committed, at once if it has none.

        If the transaction is rolled back, it is not called. If the process ends in between, or an earlier action
        raises, it is not called either: what it does must be done again by the process that finds the rows without it.
        """
        self._reset_after_fork()
        if getattr(self._here, "connection", None) is None:
            action()
        else:
            self._here.afterwards.append(action)

    def changes_here(self) -> int:
        """Return the number of transactions of this thread that may have changed something."""
        self._reset_after_fork()
        return int(getattr(self._here, "changes", 0))

    @contextmanager
    def read_connection(self) -> Iterator[sa.Connection]:
        """Open a connection for reading; if this thread has a transaction, it is that transaction's connection."""
        self._reset_after_fork()
        joined: sa.Connection | None = getattr(self._here, "connection", None)
        if joined is not None:
            yield joined
            return
        with self._translate_errors(), self.engine.connect() as opened, opened.begin():
            yield opened

    def put_row(self, connection: sa.Connection, table: sa.Table, values: Mapping[str, Any]) -> None:
        """Insert a row of this cluster, or change those columns of it that `values` has, beside those of its key."""
        key = {column.name: values[column.name] for column in table.primary_key if column.name != "cluster_id"}
        mine = sa.and_(self.cluster_condition(table), *(table.c[name] == value for name, value in key.items()))
        changes = {name: value for name, value in values.items() if name not in key}
        if connection.execute(sa.update(table).where(mine).values(changes)).rowcount == 0:
            row = {"cluster_id": self.cluster_id, **values}
            connection.execute(self.dialect.insert_or_ignore(table).values(row))

    @contextmanager
    def report_transaction(self, what: str) -> Iterator[sa.Connection]:
        """Open a transaction for what is only shown: if it fails, that is logged, and not raised.

        The database may refuse it, or its driver may not take a value. Within another transaction, a failure leaves
        what that one has done before. Raises JournalUnreachable.
        """
        try:
            with self.write_transaction() as connection, connection.begin_nested():
                yield connection
        except sa.exc.DBAPIError as error:
            refusal = as_journal_error(self.engine, error)
            if isinstance(refusal, JournalUnreachable):
                raise
            _log.warning("%s could not be recorded: %s", printable(what), printable(str(refusal)))
        except JournalUnreachable:
            raise
        except Exception as error:  # noqa: BLE001 - what is only shown never ends a step
            _log.warning("%s could not be recorded: %s", printable(what), printable(str(error)))

    def next_counter_value(self, connection: sa.Connection, name: str) -> int:
        """Return the next number of a counter, starting at 1; a number is never reused once the transaction commits."""
        return self.raise_counter(connection, name, by=1)

    def raise_counter(self, connection: sa.Connection, name: str, *, by: int) -> int:
        """Return the last of the next `by` numbers of a counter."""
        counter, this = tables.counter, self._counter_condition(name)
        raised = sa.update(counter).values(value=counter.c.value + by).where(this)
        row = self.dialect.change_and_return(connection, raised, [counter.c.value], this)
        if row is not None:
            return int(row[0])
        # All writers of the cluster wait for this transaction: none of them can insert the row meanwhile.
        connection.execute(sa.insert(counter).values(cluster_id=self.cluster_id, name=name, value=by))
        return by

    def close(self) -> None:
        """Close every connection. The database remains usable: connections are opened again on demand."""
        self._reset_after_fork()
        self.engine.dispose()

    def _exclude_writers(self, connection: sa.Connection) -> None:
        self.dialect.exclude_writers(connection, sa.select(tables.counter.c.value).where(self._counter_condition(IDS)))

    def _counter_condition(self, name: str) -> sa.ColumnElement[bool]:
        return self.cluster_condition(tables.counter) & (tables.counter.c.name == name)

    def _reset_after_fork(self) -> None:
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


def open_database(url: str, cluster_id: str, host: str, clock: Callable[[], int] | None = None) -> Database:
    """Open the database of a cluster, and upgrade its tables to this version. Raises the errors of `open_journal`.

    `clock`, in milliseconds since 1970, replaces the database's clock, for simulated time; only SQLite can do so.
    """
    parsed, dialect = parse_url(url)
    engine = _create_engine(parsed, dialect)
    try:
        if clock is not None:
            dialect.replace_clock(engine, clock)
        _upgrade_tables(engine, dialect)
        if _database_kind(parsed).local:
            _bind_to_host(engine, dialect, host)
        _create_counter(engine, dialect, cluster_id)
    except sa.exc.DBAPIError as error:
        engine.dispose()
        raise _opening_error(engine, error) from error
    except JournalError:
        engine.dispose()
        raise
    if clock is not None:
        return Database(engine, cluster_id, host, lambda: clock() / 1000)
    return Database(engine, cluster_id, host)


def open_reading_engine(url: str, host: str) -> sa.Engine:
    """Open the database of a journal for reading: nothing is created, upgraded or changed in it.

    Raises the errors of `open_journal`, and JournalError if there is no journal of this version yet.
    """
    parsed, dialect = parse_url(url)
    if dialect.is_missing(parsed):
        raise JournalError(_missing_message(parsed))
    engine = _create_engine(parsed, dialect).execution_options(**dialect.reading_options)
    try:
        current = has_current_schema(engine)
        if current and _database_kind(parsed).local:
            with engine.connect() as connection:
                owner = connection.execute(sa.select(tables.host.c.name)).scalar_one_or_none()
            _refuse_other_host(engine, owner or host, host)
    except sa.exc.DBAPIError as error:
        engine.dispose()
        raise _opening_error(engine, error) from error
    except JournalError:
        engine.dispose()
        raise
    if not current:
        engine.dispose()
        raise JournalError(_missing_message(parsed))
    return engine


def _missing_message(url: sa.URL) -> str:
    return (
        f"The journal at {mask_url(url)} does not exist yet, or an earlier Kafka Steward wrote it; it is made, or "
        f"upgraded, as soon as a watch, a DAG run or {command_line('status', 'NAME')} of this version opens it."
    )


def table_names(url: str) -> frozenset[str]:
    """Return the names of the tables in the database at `url`, without changing it. An SQLite file must exist.

    Raises SettingError, JournalUnreachable and JournalError as `open_database` does.
    """
    parsed, dialect = parse_url(url)
    engine = dialect.create_reading_engine(parsed)
    try:
        return frozenset(sa.inspect(engine).get_table_names())
    except sa.exc.DBAPIError as error:
        raise _opening_error(engine, error) from error
    finally:
        engine.dispose()


def _create_engine(url: sa.URL, dialect: Dialect) -> sa.Engine:
    try:
        return dialect.create_engine(url)
    except ImportError as error:
        raise driver_missing_error(_database_kind(url), error) from None


def _bind_to_host(engine: sa.Engine, dialect: Dialect, host: str) -> None:
    """Bind the database to the first host that opens it, because its locks work on one host only."""
    with engine.connect() as connection:
        owner = connection.execute(sa.select(tables.host.c.name)).scalar_one_or_none()
    if owner is None:
        with engine.connect().execution_options(steward_writes=True) as connection, connection.begin():
            # Of two hosts that open a new database at once, both read below the one that was first.
            connection.execute(dialect.insert_or_ignore(tables.host), {"only": 1, "name": host})
            owner = connection.execute(sa.select(tables.host.c.name)).scalar_one()
    _refuse_other_host(engine, owner, host)


def _refuse_other_host(engine: sa.Engine, owner: str, host: str) -> None:
    if owner != host:
        shared = join_alternatives(lambda _, kind: kind.title, shared=True)
        raise JournalError(
            f"The journal {engine.url.database} belongs to the host {owner}, and this is {host}; use it there only, "
            f"or give the setting journal a {shared} URL that all hosts share. If the host was merely renamed, put "
            f"{host} into the one row of its table steward_host."
        )


def _upgrade_tables(engine: sa.Engine, dialect: Dialect) -> None:
    """Upgrade the tables. Raises JournalError, with the remedy, if this user may not create or change them."""
    try:
        upgrade(engine)
    except sa.exc.DBAPIError as error:
        if not dialect.is_permission_error(error):
            raise
        refused = as_journal_error(engine, error)
        raise JournalError(
            f"{str(refused).rstrip('.')}; its tables must be created or upgraded, or are not visible to this user: "
            "open it once as their owner, and grant this user its rights, as docs/permissions.md says."
        ) from error


def _create_counter(engine: sa.Engine, dialect: Dialect, cluster_id: str) -> None:
    """Create the counter row of this cluster, which writers lock, if it does not exist yet."""
    key = (tables.counter.c.cluster_id == cluster_id) & (tables.counter.c.name == IDS)
    with engine.connect() as connection:
        # Looked for first: where the row exists, as it nearly always does, an opening waits for no writer.
        if connection.execute(sa.select(tables.counter.c.value).where(key)).first() is not None:
            return
    row = {"cluster_id": cluster_id, "name": IDS, "value": 0}
    with engine.connect().execution_options(steward_writes=True) as connection, connection.begin():
        connection.execute(dialect.insert_or_ignore(tables.counter), row)


def _database_kind(url: sa.URL) -> DatabaseKind:
    return DATABASES[url.get_backend_name()]


def _opening_error(engine: sa.Engine, error: sa.exc.DBAPIError) -> JournalError:
    return journal_dialect(engine.dialect).opening_error(engine.url, error) or as_journal_error(engine, error)


def as_journal_error(engine: sa.Engine, error: sa.exc.SQLAlchemyError) -> JournalError:
    """Return the journal error for a database error; its message never contains a password."""
    where = mask_url(engine.url)
    # The driver's own words: SQLAlchemy's repeat the statement.
    lines = str(getattr(error, "orig", None) or error).strip().splitlines() or ["no further details"]
    words = mask_secrets(lines[0].rstrip("."), engine.url)
    forbidden = isinstance(error, sa.exc.DBAPIError) and journal_dialect(engine.dialect).is_permission_error(error)
    # With these errors the database does not answer; with all others it refuses.
    silent = isinstance(error, sa.exc.OperationalError | sa.exc.InterfaceError | sa.exc.TimeoutError)
    if silent and not forbidden:
        return JournalUnreachable(f"The journal at {where} does not answer ({words}); retry when it does.")
    return JournalError(f"The journal at {where} refused a statement: {words}.")
