"""The databases that can hold a journal: one row of `DATABASES` for each, and one `Dialect` in a module of its own.

Another database needs such a module and such a row. All other SQL is the same for every database, and all messages
about the supported databases are made from the rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, ClassVar, cast
from urllib.parse import quote, quote_plus

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.types import TypeEngine

from kafka_steward.errors import JournalError, SettingError


@dataclass(frozen=True)
class DatabaseKind:
    """A kind of database that can hold a journal.

    `name` is the name of Airflow's connection type, of the module here whose `DIALECT` is the `Dialect`, and of the
    extra that installs the driver. `title` and `example`, a URL, are for messages. `local` is True if locks work on one
    host only, so that a journal belongs to the first host that opens it. `partial_indexes` is False if an index always
    contains all rows. `types` are the column types that differ from the usual ones, by the purposes that are named
    below; migrations use them too: the types of a database do not change with a later release.
    """

    name: str
    title: str
    example: str
    local: bool = False
    partial_indexes: bool = True
    types: Mapping[str, TypeEngine[Any]] = field(default_factory=dict)


_BYTEWISE = sa.Text(collation="C")

#: Every supported database by SQLAlchemy's name of it, which begins its URLs.
DATABASES = {
    "sqlite": DatabaseKind(
        "sqlite",
        "SQLite",
        "sqlite:////path/to/journal.db",
        local=True,
        # Only INTEGER makes an auto-increment key.
        types={"row_id": sa.Integer()},
    ),
    "postgresql": DatabaseKind(
        "postgres",
        "PostgreSQL",
        "postgresql+psycopg://user:password@host/database",
        types={"name": _BYTEWISE, "path": _BYTEWISE},
    ),
}


def _column_type(purpose: str, usual: TypeEngine[Any]) -> TypeEngine[Any]:
    for database, kind in DATABASES.items():
        if purpose in kind.types:
            usual = usual.with_variant(kind.types[purpose], database)
    return usual


#: The type of names, at most 249 characters each, which compare byte by byte on every database.
NAME = _column_type("name", sa.Text())
#: The type of paths, at most `paths.MAX_PATH` characters each, which compare byte by byte on every database.
PATH = _column_type("path", sa.Text())
#: The type of words of the code, such as the values of an enum, which may be in an index.
WORD = _column_type("word", sa.Text())
#: The type of texts of any length: documents have up to `mailbox.MAX_BYTES` bytes.
LONG_TEXT = _column_type("long_text", sa.Text())
#: The type of row ids, which the database counts.
ROW_ID = _column_type("row_id", sa.BigInteger())


def partial_index_options(condition: sa.ColumnElement[bool] | sa.TextClause) -> dict[str, Any]:
    """Return the options of an index that contains only the rows for which `condition` is true."""
    return {f"{database}_where": condition for database, kind in DATABASES.items() if kind.partial_indexes}


def join_alternatives(word: Callable[[str, DatabaseKind], str], *, shared: bool = False) -> str:
    """Return a word for each supported database as an alternative, for messages: "SQLite or PostgreSQL".

    `word` gets SQLAlchemy's name of the database and its kind. With `shared`, only databases that hosts can share.
    """
    return " or ".join(word(name, kind) for name, kind in DATABASES.items() if not (shared and kind.local))


class Dialect(ABC):
    """One kind of database. The methods are called with an engine or a connection of that kind only."""

    #: The database's clock as an SQL expression, in milliseconds since 1970; it advances within a transaction.
    clock: ClassVar[str]
    #: SQL that selects topic and number of each partition in `:names`, a JSON object of topics with their numbers.
    select_names: ClassVar[str]
    #: The execution options by which SQLAlchemy begins transactions that only read.
    reading_options: ClassVar[Mapping[str, Any]] = {}

    def replace_clock(self, engine: sa.Engine, clock: Callable[[], int]) -> None:  # noqa: ARG002
        """Let `clock` be the database's, in milliseconds since 1970. Raises SettingError if it has no other."""
        raise SettingError("The clock of this database cannot be replaced; use an SQLite file.")

    def with_driver(self, given: sa.URL) -> sa.URL:
        """Return a database URL with the journal's driver. Raises SettingError for a URL with another driver."""
        return given

    @abstractmethod
    def connection_url(self, conn_id: str, fields: sa.URL, extra: Mapping[str, Any]) -> sa.URL:
        """Return the URL of an Airflow connection, from its `fields` and its `extra`, the parameters of the driver.

        Raises SettingError for a field that would be ignored, and for an unknown parameter.
        """

    @abstractmethod
    def create_engine(self, url: sa.URL) -> sa.Engine:
        """Return an engine. Raises SettingError for an unusable URL, JournalError if the database cannot be made."""

    def create_reading_engine(self, url: sa.URL) -> sa.Engine:
        """Return an engine that changes nothing in a database, which may belong to another application."""
        return self.create_engine(url)

    def is_missing(self, url: sa.URL) -> bool:  # noqa: ARG002 - for those that can tell
        """Return whether the database does not exist yet and is created on demand. Raises SettingError."""
        return False

    @abstractmethod
    def exclude_writers(self, connection: sa.Connection, counter: sa.Select[Any]) -> None:
        """Exclude all other writers from the transaction; `counter` selects the row that only writers lock."""

    @abstractmethod
    def exclude_upgrades(self, connection: sa.Connection) -> None:
        """Exclude all other upgrades from the transaction, which may take long."""

    @abstractmethod
    def insert_or_ignore(self, table: sa.Table) -> sa.Insert:
        """Return an insert statement that leaves existing rows unchanged."""

    def change_and_return(
        self,
        connection: sa.Connection,
        change: sa.Update,
        columns: Sequence[sa.ColumnElement[Any]],
        row: sa.ColumnElement[bool],  # noqa: ARG002 - for those that cannot return what they change
    ) -> sa.Row[Any] | None:
        """Change at most one row, and return its new values; None if there was none to change.

        `row` is the condition that this row, and no other, fulfils before and after the change.
        """
        return connection.execute(change.returning(*columns)).one_or_none()

    def untrusted_text_sql(self, expression: str) -> str:
        """Return the SQL by which a text is read without an error, although the database may not have validated it."""
        return expression

    def is_permission_error(self, error: sa.exc.DBAPIError) -> bool:  # noqa: ARG002 - the same
        """Return whether the database refused a statement because the user lacks a right."""
        return False

    def opening_error(self, url: sa.URL, error: sa.exc.DBAPIError) -> JournalError | None:  # noqa: ARG002 - the same
        """Return the journal error for an error of this kind of database at its opening; None for all others."""
        return None


def dialect_by_name(name: str) -> Dialect | None:
    """Return the dialect by a name that URLs or Airflow's connection types use; None for any other database.

    Raises SettingError if the driver is not installed.
    """
    kind = next((kind for database, kind in DATABASES.items() if name in {database, kind.name}), None)
    if kind is None:
        return None
    try:
        # Imported only here, because the drivers of other databases may not be installed.
        return cast("Dialect", import_module(f"{__package__}.{kind.name}").DIALECT)
    except ImportError as error:
        raise driver_missing_error(kind, error) from None


def journal_dialect(dialect: sa.Dialect) -> Dialect:
    """Return the dialect of an engine or connection of the journal, from SQLAlchemy's."""
    known = dialect_by_name(dialect.name)
    if known is None:
        raise SettingError(_unsupported_message(dialect.name))
    return known


def parse_url(text: str) -> tuple[sa.URL, Dialect]:
    """Return the URL of a journal's database, and its dialect. Raises SettingError for an unusable one."""
    try:
        parsed = sa.make_url(text)
    except (sa.exc.ArgumentError, ValueError):
        # The text may contain a password: the message repeats no part of it.
        examples = join_alternatives(lambda _, kind: kind.example)
        raise SettingError(f"The setting journal is not a database URL; use {examples}.") from None
    dialect = dialect_by_name(parsed.get_backend_name())
    if dialect is None:
        raise SettingError(_unsupported_message(parsed.get_backend_name()))
    return dialect.with_driver(parsed), dialect


def driver_missing_error(kind: DatabaseKind, error: ImportError) -> SettingError:
    """Return the error for a driver that is not installed."""
    return SettingError(
        f"The journal's database driver is missing ({error.name}); install airflow-provider-kafka-steward[{kind.name}]."
    )


def _unsupported_message(name: str) -> str:
    titles = join_alternatives(lambda _, kind: kind.title)
    return f"The setting journal names the database {name}; the journal is kept in {titles}."


class now_ms(sa.sql.functions.FunctionElement[int]):  # noqa: N801 - reads as the SQL function that it is
    """The database's clock, in milliseconds since 1970; it advances within a transaction."""

    type = sa.BigInteger()
    # Without it, or with a parent class that SQLAlchemy cannot compare, each statement is compiled for every execution.
    inherit_cache = True


@compiles(now_ms)
def _compile_now_ms(_element: now_ms, compiler: SQLCompiler, **_options: object) -> str:
    return journal_dialect(compiler.dialect).clock


class untrusted_text(sa.sql.functions.FunctionElement[Any]):  # noqa: N801 - reads as the SQL function that it is
    """A text column with untrusted content."""

    inherit_cache = True


@compiles(untrusted_text)
def _compile_untrusted_text(element: untrusted_text, compiler: SQLCompiler, **options: Any) -> str:
    return journal_dialect(compiler.dialect).untrusted_text_sql(str(compiler.process(element.clauses, **options)))


#: Parts of the names of libpq parameters that contain a secret: sslpassword, oauth_client_secret, scram_client_key.
_SECRET_NAMES = ("password", "secret", "scram_")

_HIDDEN = "***"


def list_secrets(url: sa.URL) -> list[str]:
    """Return every secret of `url`, each in plain form and URL-encoded, the longest first."""
    plain = {str(url.password)} if url.password else set()
    for value in (value for name, value in url.query.items() if _is_secret_name(name)):
        plain |= {value} if isinstance(value, str) else set(value)
    ways = {way(secret) for secret in plain if secret for way in (str, quote, quote_plus)}
    return sorted(ways, key=lambda secret: (-len(secret), secret))


def mask_url(url: sa.URL) -> str:
    """Return `url` for an error message or a log, with its secrets replaced by `***`."""
    hidden = {name: _HIDDEN if _is_secret_name(name) else value for name, value in url.query.items()}
    return url.set(query=hidden).render_as_string(hide_password=True).replace(quote_plus(_HIDDEN), _HIDDEN)


def mask_secrets(text: str, url: sa.URL) -> str:
    """Return `text`, such as a driver's error message, with the secrets of `url` replaced by `***`."""
    for secret in list_secrets(url):
        text = text.replace(secret, _HIDDEN)
    return text


def _is_secret_name(name: str) -> bool:
    return any(part in name.lower() for part in _SECRET_NAMES)
