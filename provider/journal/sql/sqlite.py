"""SQLite as the database of a journal: one file, used by the processes of one host."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from kafka_steward.errors import JournalError, SettingError
from kafka_steward.journal.sql.dialect import DATABASES, Dialect

#: Seconds to wait for another writer.
_LOCK_TIMEOUT_S = 30

_PAUSE_S = 0.02


class Sqlite(Dialect):
    """The `Dialect` of SQLite. A transaction that writes begins with BEGIN IMMEDIATE, which excludes other writers."""

    clock = "CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"
    select_names = (
        "SELECT named.key, number.value FROM json_each(:names) named CROSS JOIN json_each(named.value) number"
    )

    def connection_url(self, conn_id: str, fields: sa.URL, extra: Mapping[str, Any]) -> sa.URL:
        """Return the URL of the file that the host of a connection names; the schema is ignored, as in Airflow."""
        given = {"login": fields.username, "password": fields.password, "port": fields.port, "extra": extra}
        useless = [name for name, value in given.items() if value]
        if useless:
            raise SettingError(
                f"The journal is set to the sqlite connection {conn_id}, whose {useless[0]} nothing uses; "
                "leave everything but its host empty, which is the path of a file."
            )
        return sa.make_url(f"sqlite:///{fields.host or ''}")

    def create_engine(self, url: sa.URL) -> sa.Engine:
        """Return an engine whose commits are on disk before they return, and create the file's folder."""
        if url.database in {None, "", ":memory:"}:
            raise SettingError(
                f"The setting journal names no file; use {DATABASES['sqlite'].example}, with four slashes."
            )
        path = Path(str(url.database))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise JournalError(_unwritable_message(path, str(error.strerror))) from error
        engine = sa.create_engine(url, connect_args={"timeout": _LOCK_TIMEOUT_S}, hide_parameters=True)
        sa.event.listen(engine, "connect", _prepare_connection)
        sa.event.listen(engine, "begin", _begin_transaction)
        return engine

    def create_reading_engine(self, url: sa.URL) -> sa.Engine:
        """Return an engine that does not change the file's journal mode."""
        return sa.create_engine(url)

    def replace_clock(self, engine: sa.Engine, clock: Callable[[], int]) -> None:
        """Let a clock in milliseconds be the database's, which then is not to outlive this process."""

        def prepare(connection: Any, _record: object) -> None:
            # An application's function hides SQLite's own one of that name.
            connection.create_function("julianday", 1, lambda _: clock() / 86_400_000 + 2_440_587.5)
            connection.execute("PRAGMA synchronous = OFF")

        sa.event.listen(engine, "connect", prepare)

    def is_missing(self, url: sa.URL) -> bool:
        """Return whether the file does not exist. Raises SettingError for a database in memory."""
        if not url.database or url.database == ":memory:":
            raise SettingError(
                "The journal must outlive the process: name a file, such as sqlite:////var/lib/steward.db."
            )
        return not Path(url.database).exists()

    def exclude_writers(self, connection: sa.Connection, counter: sa.Select[Any]) -> None:
        """Do nothing: BEGIN IMMEDIATE has excluded them."""

    def exclude_upgrades(self, connection: sa.Connection) -> None:
        """Do nothing: an upgrade is a writer."""

    def insert_or_ignore(self, table: sa.Table) -> sa.Insert:
        """Return an insert statement that leaves existing rows unchanged."""
        return sqlite.insert(table).on_conflict_do_nothing()

    def untrusted_text_sql(self, expression: str) -> str:
        """Return the text as bytes: SQLite stores any bytes, and its driver fails to return invalid text."""
        return f"CAST({expression} AS BLOB)"

    def opening_error(self, url: sa.URL, error: sa.exc.DBAPIError) -> JournalError | None:
        """Return the error for a file that cannot be used; None if another process holds it for too long."""
        return (
            None
            if "locked" in str(error.orig)
            else JournalError(_unwritable_message(Path(str(url.database)), str(error.orig)))
        )


DIALECT = Sqlite()


def _prepare_connection(connection: Any, _record: object) -> None:
    # `_begin_transaction` begins transactions, not the driver; and every commit is on disk before it returns.
    connection.isolation_level = None
    _enable_wal(connection)
    connection.execute("PRAGMA synchronous = FULL")


def _enable_wal(connection: Any) -> None:
    # SQLite's own time-out does not apply here: if several processes open a new file, all but one fail immediately.
    deadline = time.monotonic() + _LOCK_TIMEOUT_S
    while not _try_enable_wal(connection, last=time.monotonic() > deadline):
        time.sleep(_PAUSE_S)


def _try_enable_wal(connection: Any, *, last: bool) -> bool:
    try:
        connection.execute("PRAGMA journal_mode = WAL")
    except sqlite3.OperationalError as error:
        if last or "locked" not in str(error):
            raise
        return False
    return True


def _begin_transaction(connection: sa.Connection) -> None:
    # One that begins as a reader cannot write any more once another process has written: SQLite refuses it.
    writes = connection.get_execution_options().get("steward_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _unwritable_message(path: Path, why: str) -> str:
    user = os.environ.get("USER") or str(os.getuid())
    return f"The journal {path} cannot be written by the user {user} ({why}); correct its permissions, or set journal."
