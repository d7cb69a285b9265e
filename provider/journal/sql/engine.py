"""Opening of a database by its URL: the tables, the host that the database belongs to, and the first counter."""

from __future__ import annotations

import sqlalchemy as sa

from kafka_steward.errors import JournalError
from kafka_steward.journal.schema import tables
from kafka_steward.journal.schema.upgrade import upgrade
from kafka_steward.journal.sql.database import IDS, Database, as_journal_error
from kafka_steward.journal.sql.dialect import Dialect, dialect_of, driver_missing, parsed_url

#: PostgreSQL's errors for a missing right, and for a user to whom no schema is visible.
_FORBIDDEN = ("42501", "3F000")


def open_database(url: str, cluster_id: str, host: str) -> Database:
    """Open the database of a cluster, and upgrade its tables to this version. Raises the errors of `open_journal`."""
    parsed, dialect = parsed_url(url)
    engine = _engine(parsed, dialect)
    try:
        _upgrade(engine)
        if dialect.local:
            _bind_to_host(engine, dialect, host)
        _begin_ids(engine, dialect, cluster_id)
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
    parsed, dialect = parsed_url(url)
    engine = dialect.reading_engine(parsed)
    try:
        return frozenset(sa.inspect(engine).get_table_names())
    except sa.exc.DBAPIError as error:
        raise _opening_error(engine, error) from error
    finally:
        engine.dispose()


def _engine(url: sa.URL, dialect: Dialect) -> sa.Engine:
    try:
        return dialect.engine(url)
    except ImportError as error:
        raise driver_missing(error) from None


def _bind_to_host(engine: sa.Engine, dialect: Dialect, host: str) -> None:
    """Bind the database to the first host that opens it, because its locks work on one host only."""
    with engine.connect() as connection:
        owner = connection.execute(sa.select(tables.host.c.name)).scalar_one_or_none()
    if owner is None:
        with engine.connect().execution_options(steward_writes=True) as connection, connection.begin():
            connection.execute(dialect.insert_once(tables.host), {"only": 1, "name": host})
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


def _begin_ids(engine: sa.Engine, dialect: Dialect, cluster_id: str) -> None:
    """Create the counter row of this cluster, which writers lock, if it does not exist yet."""
    key = (tables.counter.c.cluster_id == cluster_id) & (tables.counter.c.name == IDS)
    with engine.connect() as connection:
        if connection.execute(sa.select(tables.counter.c.value).where(key)).first() is not None:
            return
    row = {"cluster_id": cluster_id, "name": IDS, "value": 0}
    with engine.connect().execution_options(steward_writes=True) as connection, connection.begin():
        connection.execute(dialect.insert_once(tables.counter), row)


def _opening_error(engine: sa.Engine, error: sa.exc.DBAPIError) -> JournalError:
    return dialect_of(engine.dialect).opening_error(engine.url, error) or as_journal_error(engine, error)
