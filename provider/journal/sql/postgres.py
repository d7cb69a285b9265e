"""PostgreSQL as the database of a journal: every response has a time limit, whichever component stops responding.

There are three kinds of failure, each with its own remedy. A statement takes too long: the server aborts it
(`statement_timeout`, `lock_timeout`). The network drops packets: the kernel closes the connection (`tcp_user_timeout`,
keepalives). A peer acknowledges packets and never responds, such as a proxy or a suspended server: only the client can
detect that, so psycopg's wait for a response has a deadline here. A response that is still arriving may take longer.

An idle connection may have been lost unnoticed: it is tested before it is used.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Generator, Mapping
from typing import Any, ClassVar, TypeVar, cast

import psycopg
import sqlalchemy as sa
from psycopg import pq
from sqlalchemy.dialects import postgresql

from kafka_steward.errors import SettingError
from kafka_steward.journal.sql.dialect import DATABASES, Dialect

_DRIVER = "postgresql+psycopg"

#: libpq's parameters that correspond to fields of an Airflow connection.
_FIELDS = {"host": "host", "port": "port", "user": "login", "password": "password", "dbname": "schema"}

#: Seconds for a statement, including the wait for a lock: the server's own error arrives before our deadline.
_STATEMENT_S = 15

#: Seconds without a byte from the server after which a connection is closed.
_SILENCE_S = _STATEMENT_S + 3

#: Seconds for a liveness test, and for a new connection. Each plus `_SILENCE_S` is less than 30.
_PING_S, _CONNECT_S = 5, 10

#: Seconds for each statement of an upgrade, and for the wait until another process has upgraded.
_UPGRADE_S, _OTHERS_UPGRADE_S = 600, 25

#: The id of the advisory lock of an upgrade: any number that no other application uses.
_UPGRADE_LOCK = 0x5354_4557_4152_44

#: PostgreSQL aborts a transaction whose process was suspended in the middle, so that it blocks others no longer. It
#: makes a plan for each execution (PostgreSQL 12): psycopg prepares what it executes for many rows, and a plan that is
#: kept suits the table as it was then. For one row of an audit trail that was empty then, it would read all rows.
_OPTIONS = (
    f"-c lock_timeout={_STATEMENT_S}s -c statement_timeout={_STATEMENT_S}s -c idle_in_transaction_session_timeout=60s"
    " -c plan_cache_mode=force_custom_plan"
)

#: libpq's parameters; a parameter in the URL takes precedence.
_PARAMETERS = {
    "connect_timeout": _CONNECT_S,
    "keepalives_idle": 10,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": _SILENCE_S * 1000,
}

#: PostgreSQL's errors for a missing right, and for a user to whom no schema is visible.
_FORBIDDEN = ("42501", "3F000")

_FRESH = "steward_fresh"

Answer = TypeVar("Answer")


class DeadlineConnection(psycopg.Connection[Any]):
    """A psycopg connection that is closed when the server sends nothing for `deadline_s` seconds during a call.

    The call then raises psycopg.OperationalError.
    """

    deadline_s: float = _SILENCE_S

    def wait(self, gen: Any, *arguments: Any, **options: Any) -> Any:
        """Wait as psycopg does, with a deadline: psycopg resumes `gen` every 0.1 s even if the socket is not ready."""
        try:
            return super().wait(_run_until_silent(gen, self.deadline_s), *arguments, **options)
        except _ServerSilent as error:
            # The response may still arrive: no later statement may mistake it for its own.
            self.close()
            raise psycopg.OperationalError(f"no answer within {self.deadline_s:g} s") from error

    def is_alive(self) -> bool:
        """Return whether the server responds to a query outside any transaction."""
        usual, self.deadline_s = self.deadline_s, _PING_S
        try:
            self.autocommit = True
            self.execute("SELECT 1")
            self.autocommit = False
        except psycopg.Error:
            return False
        finally:
            self.deadline_s = usual
        return True


class _ServerSilent(Exception):
    """The server sent nothing for too long."""


def _run_until_silent(waiting: Generator[Any, Any, Answer], deadline_s: float) -> Generator[Any, Any, Answer]:
    """Run psycopg's generator; raise `_ServerSilent` when its socket has not been ready for `deadline_s` seconds."""
    try:
        wanted = next(waiting)
        since = time.monotonic()
        while True:
            ready = yield wanted
            if ready:
                since = time.monotonic()
            elif time.monotonic() - since > deadline_s:
                raise _ServerSilent
            wanted = waiting.send(ready)
    except StopIteration as end:
        return cast("Answer", end.value)


class Postgres(Dialect):
    """The `Dialect` of PostgreSQL. A transaction that writes locks its cluster's row, which excludes other writers."""

    reading_options: ClassVar[Mapping[str, Any]] = {"postgresql_readonly": True}
    clock = "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)"
    # DISTINCT, without which a join would carry the numbers of the whole topic along with each of them.
    select_names = (
        "SELECT DISTINCT named.key, CAST(number.value AS BIGINT) FROM json_each(CAST(:names AS json)) named "
        "CROSS JOIN json_array_elements_text(named.value) number"
    )

    def with_driver(self, given: sa.URL) -> sa.URL:
        """Return the URL with psycopg as its driver; only SQLAlchemy's default driver may be named instead."""
        if given.drivername in {"postgresql", "postgres", "postgresql+psycopg2"}:
            return given.set(drivername=_DRIVER)
        if given.get_driver_name() != "psycopg":
            raise SettingError(
                f"The setting journal names the driver {given.get_driver_name()}, and the journal is kept with "
                f"psycopg; write {DATABASES['postgresql'].example}."
            )
        return given

    def connection_url(self, conn_id: str, fields: sa.URL, extra: Mapping[str, Any]) -> sa.URL:
        """Return the URL of a connection, whose extra is passed to libpq (`sslmode`, `sslrootcert`, `options`)."""
        query = {name: _check_parameter(conn_id, name, value) for name, value in extra.items() if value is not None}
        for name in _unknown_parameters(query):
            raise SettingError(
                f"The journal is set to the connection {conn_id}, whose extra has {name!r}, which libpq does not "
                "know; remove it, or correct its spelling."
            )
        host = fields.host
        if host and host.startswith("/"):  # a socket directory, which a URL accepts only as a parameter
            query["host"], host = host, None
        return sa.URL.create(_DRIVER, fields.username, fields.password, host, fields.port, fields.database, query)

    def create_engine(self, url: sa.URL) -> sa.Engine:
        """Return an engine of `DeadlineConnection`s. Raises SettingError for an unknown parameter."""
        unknown = _unknown_parameters(url.query)
        if unknown:
            raise SettingError(
                f"The journal's URL has the parameter {unknown[0]}, which libpq does not know; remove it, or correct "
                "its spelling."
            )
        engine = sa.create_engine(
            url, connect_args=_connect_arguments(url), pool_timeout=_SILENCE_S, hide_parameters=True
        )
        # Connections of our own class: their waits have a deadline.
        sa.event.listen(engine, "do_connect", _connect)
        sa.event.listen(engine, "connect", _mark_connection_fresh)
        sa.event.listen(engine, "checkout", _check_alive)
        return engine

    def exclude_writers(self, connection: sa.Connection, counter: sa.Select[Any]) -> None:
        """Lock the row that every writer locks first."""
        connection.execute(counter.with_for_update()).first()

    def exclude_upgrades(self, connection: sa.Connection) -> None:
        """Acquire an advisory lock, and raise the time-outs of this transaction to those of an upgrade."""
        _raise_timeouts(connection, _OTHERS_UPGRADE_S)
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_UPGRADE_LOCK)))
        _raise_timeouts(connection, _UPGRADE_S)

    def insert_or_ignore(self, table: sa.Table) -> sa.Insert:
        """Return an insert statement that leaves existing rows unchanged."""
        return postgresql.insert(table).on_conflict_do_nothing()

    def is_permission_error(self, error: sa.exc.DBAPIError) -> bool:
        """Return whether a right is missing, or no schema is visible to the user."""
        return getattr(error.orig, "sqlstate", None) in _FORBIDDEN


DIALECT = Postgres()


def _unknown_parameters(names: Collection[str]) -> list[str]:
    """Return the elements of `names` that are not connection parameters of libpq, sorted."""
    return sorted(set(names) - {parameter.keyword.decode() for parameter in pq.Conninfo.get_defaults()})


def _check_parameter(conn_id: str, name: str, value: Any) -> str:
    if name in _FIELDS or isinstance(value, bool) or not isinstance(value, str | int | float):
        why = f"enter it as the connection's {_FIELDS[name]}" if name in _FIELDS else "libpq takes texts and numbers"
        raise SettingError(f"The connection {conn_id} has {name!r} in its extra, which cannot be used there; {why}.")
    return str(value)


def _raise_timeouts(connection: sa.Connection, bound_s: int) -> None:
    """Raise the time-outs of this transaction to `bound_s` seconds for each statement."""
    for setting in ("lock_timeout", "statement_timeout"):
        connection.execute(sa.text(f"SET LOCAL {setting} = '{bound_s}s'"))
    bounded = cast("DeadlineConnection", connection.connection.driver_connection)
    bounded.deadline_s = bound_s + _SILENCE_S - _STATEMENT_S


def _connect_arguments(url: sa.URL) -> dict[str, Any]:
    given = url.query.get("options", ())
    # The later of two options takes precedence: the one in the URL.
    options = " ".join([_OPTIONS, *([given] if isinstance(given, str) else given)])
    return {**{name: value for name, value in _PARAMETERS.items() if name not in url.query}, "options": options}


def _connect(_dialect: object, _record: object, arguments: Any, parameters: dict[str, Any]) -> DeadlineConnection:
    return DeadlineConnection.connect(*arguments, **parameters)


def _mark_connection_fresh(_connection: object, record: Any) -> None:
    record.info[_FRESH] = True


def _check_alive(connection: DeadlineConnection, record: Any, _proxy: object) -> None:
    connection.deadline_s = _SILENCE_S  # an upgrade on this connection may have raised it
    if not record.info.pop(_FRESH, False) and not connection.is_alive():
        # The pool's other connections are probably lost, too: testing each one would wait for a time-out each time.
        raise sa.exc.InvalidatePoolError("the connection no longer responds")
