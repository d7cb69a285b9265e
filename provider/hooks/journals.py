"""The database of the journal: the URL of a setting, and the rejection of Airflow's own database."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from kafka_steward.errors import SettingError
from kafka_steward.hooks.access import ConnectionFields
from kafka_steward.journal.sql.engine import table_names
from kafka_steward.journal.sql.urls import secrets_of, shown_url

#: Airflow connection types, and SQLAlchemy's drivers for them.
_DRIVERS = {"postgres": "postgresql+psycopg", "postgresql": "postgresql+psycopg", "sqlite": "sqlite"}
#: Tables that occur together only in Airflow's metadata database.
_AIRFLOWS = ("dag_run", "task_instance")
#: libpq's parameters that correspond to fields of an Airflow connection.
_FIELDS = {"host": "host", "port": "port", "user": "login", "password": "password", "dbname": "schema"}


def journal_url(setting: str, connection: Callable[[str], tuple[str, ConnectionFields, str | None]]) -> URL:
    """Return the database URL of `setting`: a URL itself, or the URL of the Airflow connection with that id.

    `connection` returns a connection's type, fields and schema by id. The extra of a postgres connection is passed to
    libpq (`sslmode`, `sslrootcert`, `options`). Raises SettingError, also for an extra that would be ignored.
    """
    if "://" in setting:
        return _parsed(setting)
    kind, given, schema = connection(setting)
    if kind not in _DRIVERS:
        raise SettingError(
            f"The journal is set to the connection {setting}, whose type is {kind or 'empty'}; it takes a postgres or "
            "sqlite connection, or a SQL URL."
        )
    if kind == "sqlite":
        return _file(given)
    return _server(given, schema)


def secrets_in(setting: object) -> list[str]:
    """Return the parts of a setting `journal` to mask: the secrets of a URL, or the whole text of an unreadable one."""
    text = str(setting or "")
    try:
        return secrets_of(_parsed(text)) if "://" in text else []
    except SettingError:
        return [text]


def refuse_airflows_own(url: URL) -> None:
    """Raise SettingError if `url` is Airflow's metadata database: its migrations and ours must never share a database.

    The database is recognised by its tables, because a task does not know the address of Airflow's database.
    """
    if _is_new_file(url):
        return
    # Errors propagate: a failed check must not accept Airflow's own database.
    if table_names(url.render_as_string(hide_password=False)).issuperset(_AIRFLOWS):
        raise SettingError(
            f"The journal at {shown_url(url)} is Airflow's own database; give the journal one of its own, with "
            "`journal` in the connection's extra or in the section [kafka_steward]."
        )


def _file(given: ConnectionFields) -> URL:
    useless = [name for name in ("login", "password", "port", "extra") if getattr(given, name)]
    if useless:
        raise SettingError(
            f"The journal is set to the sqlite connection {given.conn_id}, whose {useless[0]} nothing would use; leave "
            "everything but its host empty, which is the path of a file."
        )
    return _parsed(f"sqlite:///{given.host or ''}")


def _server(given: ConnectionFields, schema: str | None) -> URL:
    query = {name: _parameter(given.conn_id, name, value) for name, value in given.extra.items() if value is not None}
    _refuse_unknown(given.conn_id, query)
    host = given.host
    if host and host.startswith("/"):  # a socket directory, which a URL accepts only as a parameter
        query["host"], host = host, None
    return URL.create(_DRIVERS["postgres"], given.login, given.password, host, given.port, schema, query)


def _parameter(conn_id: str, name: str, value: Any) -> str:
    if name in _FIELDS or isinstance(value, bool) or not isinstance(value, str | int | float):
        why = f"enter it as the connection's {_FIELDS[name]}" if name in _FIELDS else "libpq takes texts and numbers"
        raise SettingError(f"The connection {conn_id} has {name!r} in its extra, which cannot be used there; {why}.")
    return str(value)


def _refuse_unknown(conn_id: str, query: Collection[str]) -> None:
    try:
        from kafka_steward.journal.sql.postgres import unknown_parameters  # noqa: PLC0415 - psycopg may not be installed
    except ImportError:
        return  # opening the journal reports this
    for name in unknown_parameters(query):
        raise SettingError(
            f"The journal is set to the connection {conn_id}, whose extra has {name!r}, which libpq does not know; "
            "remove it, or mend its spelling."
        )


def _is_new_file(url: URL) -> bool:
    if url.get_backend_name() != "sqlite":
        return False
    if not url.database or url.database == ":memory:":
        raise SettingError("The journal must outlive the process: name a file, such as sqlite:////var/lib/steward.db.")
    return not Path(url.database).exists()


def _parsed(text: str) -> URL:
    try:
        return make_url(text)
    except (ArgumentError, ValueError):  # such as a port that is not a number
        # The text may contain a password, so the message does not repeat it.
        raise SettingError(
            "The journal's URL cannot be read; write it like postgresql+psycopg://user@host:5432/database."
        ) from None
