"""Opening of a database by its URL: the engine, its settings, the tables, and the host that the database belongs to."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from kafka_steward.errors import JournalError, SettingError
from kafka_steward.journal.schema import tables
from kafka_steward.journal.schema.upgrade import upgrade
from kafka_steward.journal.sql.database import IDS, Database, as_journal_error, insert_once

#: Seconds to wait for another writer.
_LOCK_TIMEOUT_S = 30

_PAUSE_S = 0.02

#: PostgreSQL's errors for a missing right, and for a user to whom no schema is visible.
_FORBIDDEN = ("42501", "3F000")


def open_database(url: str, cluster_id: str, host: str) -> Database:
    """Open the database of a cluster, and upgrade its tables to this version. Raises the errors of `open_journal`."""
    engine = _engine(_parsed(url))
    try:
        _upgrade(engine)
        if engine.dialect.name == "sqlite":
            _bind_to_host(engine, host)
        _begin_ids(engine, cluster_id)
    except sa.exc.DBAPIError as error:
        engine.dispose()
        raise _opening_error(engine, error) from error
    except JournalError:
        engine.dispose()
        raise
    return Database(engine, cluster_id, host)


def table_names(url: str) -> frozenset[str]:
    """Return the names of the tables in the database at `url`, without changing it. An SQLite file must exist.

    Raises SettingError, JournalUnreachable and JournalError as `open_database` does.
    """
    parsed = _parsed(url)
    # The file may belong to another program: a plain engine does not change its journal mode.
    engine = sa.create_engine(parsed) if parsed.get_backend_name() == "sqlite" else _engine(parsed)
    try:
        return frozenset(sa.inspect(engine).get_table_names())
    except sa.exc.DBAPIError as error:
        raise _opening_error(engine, error) from error
    finally:
        engine.dispose()


def _parsed(url: str) -> sa.URL:
    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        # The text may contain a password: the message repeats no part of it.
        raise SettingError(
            "The setting journal is no database URL; use sqlite:////path/to/journal.db or "
            "postgresql+psycopg://user:password@host/database."
        ) from None
    if parsed.drivername in {"postgresql", "postgres", "postgresql+psycopg2"}:
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() == "postgresql" and parsed.get_driver_name() != "psycopg":
        raise SettingError(
            f"The setting journal names the driver {parsed.get_driver_name()}, and the journal is kept with psycopg; "
            "write postgresql+psycopg://user:password@host/database."
        )
    if parsed.get_backend_name() not in {"sqlite", "postgresql"}:
        raise SettingError(
            f"The setting journal names the database {parsed.get_backend_name()}; the journal is kept in SQLite or "
            "PostgreSQL."
        )
    return parsed


def _engine(url: sa.URL) -> sa.Engine:
    try:
        if url.get_backend_name() == "sqlite":
            return _sqlite_engine(url)
        from kafka_steward.journal.sql.postgres import postgres_engine  # noqa: PLC0415 - psycopg may not be installed

        return postgres_engine(url)
    except ImportError as error:
        raise SettingError(
            f"The journal's database driver is missing ({error.name}); install "
            "airflow-provider-kafka-steward[postgres]."
        ) from None


def _sqlite_engine(url: sa.URL) -> sa.Engine:
    if url.database in {None, "", ":memory:"}:
        raise SettingError("The setting journal names no file; use sqlite:////path/to/journal.db, with four slashes.")
    path = Path(str(url.database))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise JournalError(_unwritable(path, str(error.strerror))) from error
    engine = sa.create_engine(url, connect_args={"timeout": _LOCK_TIMEOUT_S}, hide_parameters=True)
    sa.event.listen(engine, "connect", _prepare_sqlite)
    sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _record: object) -> None:
    # `_begin_sqlite` begins transactions, not the driver; and every commit is on disk before it returns.
    connection.isolation_level = None
    _log_ahead(connection)
    connection.execute("PRAGMA synchronous = FULL")


def _log_ahead(connection: Any) -> None:
    # SQLite's own time-out does not apply here: if several processes open a new file, all but one fail immediately.
    deadline = time.monotonic() + _LOCK_TIMEOUT_S
    while not _in_wal(connection, last=time.monotonic() > deadline):
        time.sleep(_PAUSE_S)


def _in_wal(connection: Any, *, last: bool) -> bool:
    try:
        connection.execute("PRAGMA journal_mode = WAL")
    except sqlite3.OperationalError as error:
        if last or "locked" not in str(error):
            raise
        return False
    return True


def _begin_sqlite(connection: sa.Connection) -> None:
    writes = connection.get_execution_options().get("steward_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _bind_to_host(engine: sa.Engine, host: str) -> None:
    """Bind the file to the first host that opens it, because SQLite's locks work on one host only."""
    with engine.connect() as connection:
        owner = connection.execute(sa.select(tables.host.c.name)).scalar_one_or_none()
    if owner is None:
        with engine.connect().execution_options(steward_writes=True) as connection, connection.begin():
            connection.execute(insert_once(tables.host, "sqlite"), {"only": 1, "name": host})
            owner = connection.execute(sa.select(tables.host.c.name)).scalar_one()
    if owner != host:
        raise JournalError(
            f"The journal {engine.url.database} belongs to the host {owner}, and this is {host}; use it there only, "
            "or give the setting journal a PostgreSQL URL that all hosts share. If the host was merely renamed, put "
            f"{host} into the one row of its table steward_host."
        )


def _upgrade(engine: sa.Engine) -> None:
    """Upgrade the tables. Raises JournalError, with the remedy, if this user may not create or change them."""
    try:
        upgrade(engine)
    except sa.exc.ProgrammingError as error:
        if getattr(error.orig, "sqlstate", None) not in _FORBIDDEN:
            raise
        refused = as_journal_error(engine, error)
        raise JournalError(
            f"{str(refused).rstrip('.')}; its tables must be made or upgraded, or are hidden from this user: open it "
            "once as their owner, and grant this user its rights, as docs/permissions.md says."
        ) from error


def _begin_ids(engine: sa.Engine, cluster_id: str) -> None:
    """Create the counter row of this cluster, which writers lock, if it does not exist yet."""
    key = (tables.counter.c.cluster_id == cluster_id) & (tables.counter.c.name == IDS)
    with engine.connect() as connection:
        if connection.execute(sa.select(tables.counter.c.value).where(key)).first() is not None:
            return
    row = {"cluster_id": cluster_id, "name": IDS, "value": 0}
    with engine.connect().execution_options(steward_writes=True) as connection, connection.begin():
        connection.execute(insert_once(tables.counter, engine.dialect.name), row)


def _opening_error(engine: sa.Engine, error: sa.exc.DBAPIError) -> JournalError:
    if engine.dialect.name == "sqlite" and "locked" not in str(error.orig):
        return JournalError(_unwritable(Path(str(engine.url.database)), str(error.orig)))
    return as_journal_error(engine, error)


def _unwritable(path: Path, why: str) -> str:
    user = os.environ.get("USER") or str(os.getuid())
    return f"The journal {path} cannot be written by the user {user} ({why}); mend its permissions, or set journal."
