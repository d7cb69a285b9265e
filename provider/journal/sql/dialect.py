"""The differences between the databases that can hold a journal: one `Dialect` for each, in a module of its own.

Another database needs such a module, and its name and column types here. All other SQL is the same for every database.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler

from kafka_steward.errors import JournalError, SettingError

# The migrations use these too: what they have made does not change with a later release.

#: The type of paths and names, which compare byte by byte on every database.
NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
#: The type of row ids: on SQLite, only INTEGER makes an auto-increment key.
ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def only_where(condition: sa.ColumnElement[bool] | sa.TextClause) -> dict[str, Any]:
    """Return the options of an index that contains only the rows for which `condition` is true."""
    return {"sqlite_where": condition, "postgresql_where": condition}


class Dialect(ABC):
    """One kind of database. The methods are called with an engine or a connection of that kind only."""

    #: The database's clock as an SQL expression, in milliseconds since 1970; it advances within a transaction.
    clock: ClassVar[str]
    #: True if locks work on one host only, so that a journal belongs to the first host that opens it.
    local: ClassVar[bool] = False

    def url(self, given: sa.URL) -> sa.URL:
        """Return a database URL with the journal's driver. Raises SettingError for a URL with another driver."""
        return given

    @abstractmethod
    def url_of(self, conn_id: str, fields: sa.URL, extra: Mapping[str, Any]) -> sa.URL:
        """Return the URL of an Airflow connection, from its `fields` and its `extra`, the parameters of the driver.

        Raises SettingError for a field that would be ignored, and for an unknown parameter.
        """

    @abstractmethod
    def engine(self, url: sa.URL) -> sa.Engine:
        """Return an engine. Raises SettingError for an unusable URL, JournalError if the database cannot be made."""

    def reading_engine(self, url: sa.URL) -> sa.Engine:
        """Return an engine that changes nothing in a database, which may belong to another application."""
        return self.engine(url)

    def is_missing(self, url: sa.URL) -> bool:  # noqa: ARG002 - for those that can tell
        """Return whether the database does not exist yet and is created on demand. Raises SettingError."""
        return False

    @abstractmethod
    def exclude_writers(self, connection: sa.Connection, counter: sa.Select[Any]) -> None:
        """Exclude all other writers from the begun transaction; `counter` selects the row that only writers lock."""

    @abstractmethod
    def exclude_upgrades(self, connection: sa.Connection) -> None:
        """Exclude all other upgrades from the begun transaction, which may take long."""

    @abstractmethod
    def insert_once(self, table: sa.Table) -> sa.Insert:
        """Return an insert statement that leaves existing rows unchanged."""

    def untrusted_text(self, expression: str) -> str:
        """Return the SQL by which a text is read without an error, although the database may not have validated it."""
        return expression

    def opening_error(self, url: sa.URL, error: sa.exc.DBAPIError) -> JournalError | None:  # noqa: ARG002 - the same
        """Return the journal error for an error of this kind of database at its opening; None for all others."""
        return None


def dialect_named(name: str) -> Dialect | None:
    """Return the dialect by a name that URLs or Airflow's connection types use; None for any other database.

    Raises SettingError if the driver is not installed.
    """
    try:
        if name == "sqlite":
            from kafka_steward.journal.sql.sqlite import Sqlite  # noqa: PLC0415 - not needed by other databases

            return Sqlite()
        if name in {"postgresql", "postgres"}:
            from kafka_steward.journal.sql.postgres import Postgres  # noqa: PLC0415 - psycopg may not be installed

            return Postgres()
    except ImportError as error:
        raise driver_missing(error) from None
    return None


def dialect_of(dialect: sa.Dialect) -> Dialect:
    """Return the dialect of an engine or connection of the journal, from SQLAlchemy's."""
    found = dialect_named(dialect.name)
    if found is None:
        raise SettingError(_not_supported(dialect.name))
    return found


def parsed_url(text: str) -> tuple[sa.URL, Dialect]:
    """Return the URL of a journal's database, and its dialect. Raises SettingError for an unusable one."""
    try:
        parsed = sa.make_url(text)
    except (sa.exc.ArgumentError, ValueError):
        # The text may contain a password: the message repeats no part of it.
        raise SettingError(
            "The setting journal is no database URL; use sqlite:////path/to/journal.db or "
            "postgresql+psycopg://user:password@host/database."
        ) from None
    dialect = dialect_named(parsed.get_backend_name())
    if dialect is None:
        raise SettingError(_not_supported(parsed.get_backend_name()))
    return dialect.url(parsed), dialect


def driver_missing(error: ImportError) -> SettingError:
    """Return the error for a driver that is not installed."""
    return SettingError(
        f"The journal's database driver is missing ({error.name}); install airflow-provider-kafka-steward[postgres]."
    )


def _not_supported(name: str) -> str:
    return f"The setting journal names the database {name}; the journal is kept in SQLite or PostgreSQL."


class now_ms(sa.sql.expression.ColumnElement[int]):  # noqa: N801 - reads as the SQL function that it is
    """The database's clock, in milliseconds since 1970; it advances within a transaction."""

    type = sa.BigInteger()
    inherit_cache = True


@compiles(now_ms)
def _now_in_sql(_element: now_ms, compiler: SQLCompiler, **_options: object) -> str:
    return dialect_of(compiler.dialect).clock


class untrusted_text(sa.sql.functions.FunctionElement[Any]):  # noqa: N801 - reads as the SQL function that it is
    """A text column with untrusted content."""

    inherit_cache = True


@compiles(untrusted_text)
def _text_in_sql(element: untrusted_text, compiler: SQLCompiler, **options: Any) -> str:
    return dialect_of(compiler.dialect).untrusted_text(str(compiler.process(element.clauses, **options)))
