"""The database that a setting `journal` names."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from kafka_steward.errors import SettingError
from kafka_steward.hooks.cluster_config import ConnectionFields
from kafka_steward.journal.sql.database import table_names
from kafka_steward.journal.sql.dialect import dialect_by_name, join_alternatives, list_secrets, mask_url

#: Tables that occur together only in Airflow's metadata database.
_AIRFLOWS = ("dag_run", "task_instance")


def journal_url(setting: str, connection: Callable[[str], tuple[str, ConnectionFields, str | None]]) -> URL:
    """Return the database URL of `setting`: a URL itself, or the URL of the Airflow connection with that id.

    `connection` returns a connection's type, fields and schema by id. Its extra is passed to the driver. Raises
    SettingError, also for an extra that would be ignored.
    """
    if "://" in setting:
        return _parse_journal_url(setting)
    kind, given, schema = connection(setting)
    dialect = dialect_by_name(kind)
    if dialect is None:
        types = join_alternatives(lambda _, database: database.name)
        raise SettingError(
            f"The journal is set to the connection {setting}, whose type is {kind or 'empty'}; it takes a {types} "
            "connection, or a SQL URL."
        )
    fields = URL.create(kind, given.login, given.password, given.host, given.port, schema)
    return dialect.connection_url(given.conn_id, fields, given.extra)


def find_secrets(setting: object) -> list[str]:
    """Return the parts of a setting `journal` to mask: the secrets of a URL, or the whole text of an unreadable one."""
    text = str(setting or "")
    try:
        return list_secrets(_parse_journal_url(text)) if "://" in text else []
    except SettingError:
        return [text]


def refuse_airflow_database(url: URL) -> None:
    """Raise SettingError if `url` is Airflow's metadata database: its migrations and ours must never share a database.

    The database is recognised by its tables, because a task does not know the address of Airflow's database.
    """
    dialect = dialect_by_name(url.get_backend_name())
    if dialect is not None and dialect.is_missing(url):
        return
    # Errors propagate: a failed check must not accept Airflow's own database.
    if table_names(url.render_as_string(hide_password=False)).issuperset(_AIRFLOWS):
        raise SettingError(
            f"The journal at {mask_url(url)} is Airflow's own database; give the journal its own database, with "
            "`journal` in the connection's extra or in the section [kafka_steward]."
        )


def _parse_journal_url(text: str) -> URL:
    try:
        return make_url(text)
    except (ArgumentError, ValueError):  # such as a port that is not a number
        # The text may contain a password, so the message does not repeat it.
        examples = join_alternatives(lambda _, database: database.example)
        raise SettingError(f"The journal's URL cannot be read; write it like {examples}.") from None
