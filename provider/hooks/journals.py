"""The database of the journal: the URL of a setting, and the rejection of Airflow's own database."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from kafka_steward.errors import SettingError
from kafka_steward.hooks.access import ConnectionFields
from kafka_steward.journal.sql.database import table_names
from kafka_steward.journal.sql.dialect import any_of, dialect_named, secrets_of, shown_url

#: Tables that occur together only in Airflow's metadata database.
_AIRFLOWS = ("dag_run", "task_instance")


def journal_url(setting: str, connection: Callable[[str], tuple[str, ConnectionFields, str | None]]) -> URL:
    """Return the database URL of `setting`: a URL itself, or the URL of the Airflow connection with that id.

    `connection` returns a connection's type, fields and schema by id. Its extra is passed to the driver. Raises
    SettingError, also for an extra that would be ignored.
    """
    if "://" in setting:
        return _parsed(setting)
    kind, given, schema = connection(setting)
    dialect = dialect_named(kind)
    if dialect is None:
        types = any_of(lambda _, database: database.name)
        raise SettingError(
            f"The journal is set to the connection {setting}, whose type is {kind or 'empty'}; it takes a {types} "
            "connection, or a SQL URL."
        )
    fields = URL.create(kind, given.login, given.password, given.host, given.port, schema)
    return dialect.url_of(given.conn_id, fields, given.extra)


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
    dialect = dialect_named(url.get_backend_name())
    if dialect is not None and dialect.is_missing(url):
        return
    # Errors propagate: a failed check must not accept Airflow's own database.
    if table_names(url.render_as_string(hide_password=False)).issuperset(_AIRFLOWS):
        raise SettingError(
            f"The journal at {shown_url(url)} is Airflow's own database; give the journal one of its own, with "
            "`journal` in the connection's extra or in the section [kafka_steward]."
        )


def _parsed(text: str) -> URL:
    try:
        return make_url(text)
    except (ArgumentError, ValueError):  # such as a port that is not a number
        # The text may contain a password, so the message does not repeat it.
        examples = any_of(lambda _, database: database.example)
        raise SettingError(f"The journal's URL cannot be read; write it like {examples}.") from None
