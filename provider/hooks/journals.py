"""Which database keeps the journal: the URL behind a setting, and the refusal of Airflow's own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from sqlalchemy import URL, create_engine, inspect, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from kafka_steward.errors import SettingError
from kafka_steward.hooks.access import Given

__all__ = ["journal_url", "refuse_airflows_own"]

#: Airflow connection types, and SQLAlchemy's drivers for them.
_DRIVERS = {"postgres": "postgresql+psycopg", "postgresql": "postgresql+psycopg", "sqlite": "sqlite"}
#: Tables that only Airflow's metadata database has together.
_AIRFLOWS = ("dag_run", "task_instance")


def journal_url(setting: str, connection: Callable[[str], tuple[str, Given, str | None]]) -> URL:
    """The database that `setting` means: a URL as it is, or what the Airflow connection of that id says.

    `connection` gives a connection's type, fields and schema by id. Raises SettingError.
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
        return _parsed(f"sqlite:///{given.host or ''}")
    return URL.create(_DRIVERS[kind], given.login, given.password, given.host, given.port, schema)


def refuse_airflows_own(url: URL) -> None:
    """Raise SettingError if `url` is Airflow's metadata database: its upgrades and ours must never meet.

    It is known by its tables, because a task is not told where Airflow's database is.
    """
    if _is_new_file(url):
        return
    if all(table in _tables(url) for table in _AIRFLOWS):
        raise SettingError(
            f"The journal at {url.render_as_string()} is Airflow's own database; give the journal one of its own, with "
            "`journal` in the connection's extra or in the section [kafka_steward]."
        )


def _is_new_file(url: URL) -> bool:
    if url.get_backend_name() != "sqlite":
        return False
    if not url.database or url.database == ":memory:":
        raise SettingError("The journal must outlive the process: name a file, such as sqlite:////var/lib/steward.db.")
    return not Path(url.database).exists()


def _tables(url: URL) -> list[str]:
    # What is wrong with a database that cannot be opened, is said by whoever opens the journal.
    with suppress(SQLAlchemyError, ModuleNotFoundError):
        engine = create_engine(url)
        try:
            return inspect(engine).get_table_names()
        finally:
            engine.dispose()
    return []


def _parsed(text: str) -> URL:
    try:
        return make_url(text)
    except ArgumentError as error:
        # The text may hold a password: it is not repeated.
        raise SettingError(
            "The journal's URL cannot be read; write it like postgresql+psycopg://user@host/database."
        ) from error
