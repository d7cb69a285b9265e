"""Which database keeps the journal, and that Airflow's own never does."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest
from sqlalchemy import create_engine, make_url, text

from kafka_steward.errors import SettingError
from kafka_steward.hooks.access import Given
from kafka_steward.hooks.journals import journal_url, refuse_airflows_own


def no_connection(conn_id: str) -> NoReturn:
    raise AssertionError(conn_id)


def test_a_url_is_taken_as_it_is() -> None:
    url = "postgresql+psycopg://steward:word@db:5433/steward"
    assert journal_url(url, no_connection).render_as_string(hide_password=False) == url


@pytest.mark.parametrize(
    ("kind", "given", "schema", "url"),
    [
        ("postgres", Given("pg", host="db", login="me", password="p@ss:w/rd"), "steward",
         "postgresql+psycopg://me:p%40ss%3Aw%2Frd@db/steward"),
        ("postgres", Given("pg", host="db", port=5433), "steward", "postgresql+psycopg://db:5433/steward"),
        ("sqlite", Given("lite", host="/var/lib/journal.db"), None, "sqlite:////var/lib/journal.db"),
    ],
)  # fmt: skip
def test_a_connections_id_stands_for_its_database(kind: str, given: Given, schema: str | None, url: str) -> None:
    found = journal_url(given.conn_id, lambda _: (kind, given, schema))
    assert found.render_as_string(hide_password=False) == url


def test_a_connection_of_another_kind_is_refused() -> None:
    with pytest.raises(SettingError, match=r"journal is set to the connection web, whose type is http"):
        journal_url("web", lambda _: ("http", Given("web"), None))


def test_an_unreadable_url_is_refused_without_repeating_its_password() -> None:
    with pytest.raises(SettingError, match=r"The journal's URL cannot be read") as caught:
        journal_url("://me:secret-word@db", no_connection)
    assert "secret-word" not in str(caught.value)


def test_airflows_own_database_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/airflow.db"
    with create_engine(url).begin() as database:
        for table in ("dag_run", "task_instance"):
            database.execute(text(f"CREATE TABLE {table} (id INTEGER)"))
    with pytest.raises(SettingError, match=r"is Airflow's own database; give the journal one of its own"):
        refuse_airflows_own(make_url(url))


def test_a_database_of_its_own_is_accepted_and_not_created_by_looking(tmp_path: Path) -> None:
    refuse_airflows_own(make_url(f"sqlite:///{tmp_path}/journal.db"))
    assert not (tmp_path / "journal.db").exists()


def test_a_journal_in_memory_is_refused() -> None:
    with pytest.raises(SettingError, match=r"must outlive the process"):
        refuse_airflows_own(make_url("sqlite://"))
