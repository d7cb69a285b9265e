"""Which database keeps the journal, that Airflow's own never does, and that work does not go on with another one."""

from __future__ import annotations

import asyncio
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from sqlalchemy import make_url

from kafka_steward.errors import JournalError, SettingError, WrongJournal
from kafka_steward.hooks.cluster_config import ConnectionFields as Fields
from kafka_steward.hooks.cluster_config import find_secrets, journal_url, refuse_airflow_database
from kafka_steward.hooks.context import hook_of
from kafka_steward.hooks.steward import StewardHook
from kafka_steward.triggers.base import ClusterWorker
from kafka_steward.triggers.run_plan import RunPlanTrigger
from kafka_steward.triggers.wait import WaitTrigger
from tests.airflow_home import Connect, context


def no_connection(conn_id: str) -> NoReturn:
    raise AssertionError(conn_id)


def test_a_url_is_taken_as_it_is() -> None:
    url = "postgresql+psycopg://steward:word@db:5433/steward"
    assert journal_url(url, no_connection).render_as_string(hide_password=False) == url


@pytest.mark.parametrize(
    ("kind", "given", "schema", "url"),
    [
        ("postgres", Fields("pg", host="db", login="me", password="p@ss:w/rd"), "steward",
         "postgresql+psycopg://me:p%40ss%3Aw%2Frd@db/steward"),
        ("postgres", Fields("pg", host="db", port=5433), "steward", "postgresql+psycopg://db:5433/steward"),
        ("postgres", Fields("pg", host="/run/postgresql", login="me"), "steward",
         "postgresql+psycopg://me@/steward?host=%2Frun%2Fpostgresql"),
        ("postgres", Fields("pg", host="db", extra={"sslmode": "require", "connect_timeout": 3, "sslcert": None}), "s",
         "postgresql+psycopg://db/s?connect_timeout=3&sslmode=require"),
        ("sqlite", Fields("lite", host="/var/lib/journal.db"), None, "sqlite:////var/lib/journal.db"),
    ],
)  # fmt: skip
def test_a_connections_id_stands_for_its_database(kind: str, given: Fields, schema: str | None, url: str) -> None:
    found = journal_url(given.conn_id, lambda _: (kind, given, schema))
    assert found.render_as_string(hide_password=False) == url


@pytest.mark.parametrize(
    ("kind", "given", "sentence"),
    [
        ("postgres", Fields("pg", extra={"sslmod": "require"}), "connection pg, whose extra has 'sslmod', which libpq"),
        ("postgres", Fields("pg", extra={"cursor": "dictcursor"}), "extra has 'cursor', which libpq does not know"),
        ("postgres", Fields("pg", extra={"password": "s3cret"}), "'password' in its extra, .* connection's password"),
        ("postgres", Fields("pg", extra={"dbname": "x"}), "'dbname' in its extra, .* as the connection's schema"),
        ("postgres", Fields("pg", extra={"keepalives": True}), "'keepalives' in its extra, .* takes texts and numbers"),
        ("postgres", Fields("pg", extra={"sslmode": {"s3cret": 1}}), "'sslmode' in its extra, which cannot be used"),
        ("sqlite", Fields("lite", password="s3cret"), "sqlite connection lite, whose password nothing uses"),
        ("sqlite", Fields("lite", extra={"mode": "ro"}), "sqlite connection lite, whose extra nothing uses"),
    ],
)  # fmt: skip
def test_what_nothing_would_use_is_refused(kind: str, given: Fields, sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence) as refused:
        journal_url(given.conn_id, lambda _: (kind, given, "steward"))
    assert "s3cret" not in str(refused.value)


def test_a_connection_of_another_kind_is_refused() -> None:
    with pytest.raises(SettingError, match=r"journal is set to the connection web, whose type is http"):
        journal_url("web", lambda _: ("http", Fields("web"), None))


@pytest.mark.parametrize("url", ["://me:secret-word@db", "postgresql://me:secret-word@db:port/steward"])
def test_an_unreadable_url_is_refused_without_repeating_its_password(url: str) -> None:
    with pytest.raises(SettingError, match=r"The journal's URL cannot be read") as caught:
        journal_url(url, no_connection)
    assert "secret-word" not in "".join(traceback.format_exception(caught.value))


def test_a_database_of_its_own_is_accepted_and_not_created_by_looking(tmp_path: Path) -> None:
    refuse_airflow_database(make_url(f"sqlite:///{tmp_path}/journal.db"))
    assert not (tmp_path / "journal.db").exists()


def test_a_file_that_cannot_be_looked_at_does_not_pass(tmp_path: Path) -> None:
    (tmp_path / "journal.db").write_text("This is no database, and long enough to be taken for one." * 99)
    with pytest.raises(JournalError, match=r"journal\.db cannot be written .*file is not a database"):
        refuse_airflow_database(make_url(f"sqlite:///{tmp_path}/journal.db"))


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("mysql://db/x", "names the database mysql; the journal is kept in SQLite or PostgreSQL"),
        ("postgresql+asyncpg://db/x", r"names the driver asyncpg, .* write postgresql\+psycopg://"),
        ("postgresql://db/x?sslmod=require", "has the parameter sslmod, which libpq does not know"),
    ],
)
def test_a_url_that_the_journal_cannot_be_at_does_not_pass(url: str, sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        refuse_airflow_database(make_url(url))


def test_a_journal_in_memory_is_refused() -> None:
    with pytest.raises(SettingError, match=r"must outlive the process"):
        refuse_airflow_database(make_url("sqlite://"))


def test_the_secrets_of_a_setting_are_known_before_it_is_used() -> None:
    assert find_secrets("postgresql://me:secret-word@db/x?sslpassword=other-word") == ["secret-word", "other-word"]
    assert find_secrets("postgresql://me:secret-word@db:port/x") == ["postgresql://me:secret-word@db:port/x"]
    assert find_secrets("my_connection") == find_secrets("sqlite:////var/lib/journal.db") == find_secrets(None) == []


ELSEWHERE = {"id": "bb", "place": "sqlite:////airflow/journal.db on the host triggerer-1"}


def run_started_by(*payloads: Any) -> Any:
    """A task's context in a run that these events of watches started."""
    found = context()
    found["dag_run"].consumed_asset_events = [SimpleNamespace(extra={"payload": payload}) for payload in payloads]
    return found


def hook_in(run: Any, conn_id: str) -> StewardHook:
    return hook_of(SimpleNamespace(conn_id=conn_id, settings={}), run)


def test_a_run_refuses_another_journal_than_its_watch_has(connect: Connect) -> None:
    run = run_started_by({"conn_id": "another", "journal": {"id": "cc"}}, {"conn_id": connect(), "journal": ELSEWHERE})
    with pytest.raises(
        WrongJournal,
        match=r"started with the journal at .* on the host triggerer-1, and this process opened another one",
    ):
        hook_in(run, "kafka_test").journal("c1")


@pytest.mark.parametrize(
    "payload",
    [
        {"conn_id": "another", "journal": ELSEWHERE},
        {"conn_id": "kafka_test"},
        {"conn_id": "kafka_test", "journal": 5},
        [],
    ],
)
def test_an_event_that_says_nothing_of_this_journal_holds_up_nothing(connect: Connect, payload: Any) -> None:
    connect()
    with hook_in(run_started_by(payload), "kafka_test").journal("c1") as journal:
        assert journal.identity is not None


def test_a_run_goes_on_with_the_journal_of_its_watch(connect: Connect) -> None:
    with StewardHook(connect()).journal("c1") as theirs:
        assert theirs.identity is not None
        payload = {"conn_id": "kafka_test", "journal": theirs.identity.to_json()}
    with hook_in(run_started_by(payload), "kafka_test").journal("c1") as ours:
        assert ours.identity == theirs.identity


def test_a_trigger_opens_the_journal_of_its_task_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []

    def open_and_fail(hook: StewardHook) -> None:
        opened.append(hook.expected_origin)
        raise WrongJournal("Another one.")

    monkeypatch.setattr(StewardHook, "open", open_and_fail)
    triggers: list[RunPlanTrigger | WaitTrigger] = [
        RunPlanTrigger("kafka", "aa", journal=ELSEWHERE),
        WaitTrigger("kafka", "ready", journal=ELSEWHERE),
    ]

    async def connect(thread: ClusterWorker) -> None:
        with pytest.raises(WrongJournal):
            await thread.submit(lambda _: None)
        thread.close()

    for trigger in triggers:
        asyncio.run(connect(type(trigger)(**trigger.serialize()[1])._thread))
    assert opened == [ELSEWHERE] * 2
