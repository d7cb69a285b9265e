"""One SQL database: what it is asked for, and its errors in sentences. Nothing here connects to a server."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from kafka_steward.errors import JournalError, JournalUnreachable, SettingError
from kafka_steward.journal.audit import Action, AuditRecord
from kafka_steward.journal.document import MAX_NUMBER
from kafka_steward.journal.mailbox import put_one, read_one
from kafka_steward.journal.schema import tables
from kafka_steward.journal.sql import database as database_module
from kafka_steward.journal.sql import postgres
from kafka_steward.journal.sql import sqlite as sqlite_dialect
from kafka_steward.journal.sql.database import IDS, Database, as_journal_error, open_database, table_names
from kafka_steward.journal.sql.dialect import (
    journal_dialect,
    list_secrets,
    mask_secrets,
    mask_url,
    now_ms,
    parse_url,
    untrusted_text,
)
from kafka_steward.journal.sql.mailbox import SqlMailbox
from kafka_steward.journal.sql.sqlite import Sqlite
from kafka_steward.journal.sql.view import Views
from kafka_steward.journal.store import open_journal
from tests.documents import change_document, create_document
from tests.hostile import HostileNode, sql_writer
from tests.journal.test_plans import moves_of, record_of
from tests.present import present

SECRET = "s3cret"
POSTGRESQL = f"postgresql+psycopg://ann:{SECRET}@db:5432/steward"
SHOWN = POSTGRESQL.replace(SECRET, "***")
SAID = Exception(f"password {SECRET} is wrong.\nIs it yours?")


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return open_database(f"sqlite:///{tmp_path}/journal.db", "c1", "here")


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (sa.exc.OperationalError("SELECT", {}, SAID), "does not answer (password *** is wrong); retry when it does."),
        (sa.exc.InterfaceError("SELECT", {}, SAID), "does not answer (password *** is wrong); retry when it does."),
        (sa.exc.TimeoutError("no connection is free."), "does not answer (no connection is free); retry when it does."),
        (
            sa.exc.OperationalError("SELECT", {}, Exception(" \n")),
            "does not answer (no further details); retry when it does.",
        ),
        (sa.exc.IntegrityError("INSERT", {}, SAID), "refused a statement: password *** is wrong."),
        (sa.exc.DataError("INSERT", {}, Exception("\n too long\nby far")), "refused a statement: too long."),
    ],
)
def test_what_a_database_says_is_one_sentence_without_the_password(
    error: sa.exc.SQLAlchemyError, sentence: str
) -> None:
    told = as_journal_error(sa.create_engine(POSTGRESQL), error)
    assert isinstance(told, JournalUnreachable) == ("does not answer" in sentence)
    assert str(told) == f"The journal at {SHOWN} {sentence}"


def test_a_secret_that_contains_another_is_hidden_as_a_whole() -> None:
    url = f"{POSTGRESQL}?sslpassword={SECRET}-of-the-key"
    error = sa.exc.IntegrityError("INSERT", {}, Exception(f"neither {SECRET}-of-the-key nor {SECRET} fits"))
    assert str(as_journal_error(sa.create_engine(url), error)).endswith(
        " refused a statement: neither *** nor *** fits."
    )


def test_no_secret_of_a_url_is_shown() -> None:
    url = sa.make_url("postgresql+psycopg://me:p%40ss:word@db/x?sslpassword=other+word&sslmode=require")
    assert mask_url(url) == "postgresql+psycopg://me:***@db/x?sslmode=require&sslpassword=***"
    assert list_secrets(url) == ["p%40ss%3Aword", "other%20word", "other word", "other+word", "p@ss:word"]
    assert mask_secrets("no p@ss:word, no other word", url) == "no ***, no ***"


def test_without_a_password_its_words_stay_as_they_are() -> None:
    error = sa.exc.IntegrityError("INSERT", {}, Exception("None of it"))
    told = as_journal_error(sa.create_engine("postgresql+psycopg://db/steward"), error)
    assert str(told) == "The journal at postgresql+psycopg://db/steward refused a statement: None of it."


def test_a_number_of_a_counter_is_never_given_twice(database: Database) -> None:
    other = Database(database.engine, "c2", "here")
    with database.write_transaction() as connection:
        assert [database.next_counter_value(connection, "n") for _ in range(3)] == [1, 2, 3]
        assert database.next_counter_value(connection, "m") == 1
        assert other.next_counter_value(connection, "n") == 1
        assert database.next_counter_value(connection, "n") == 4


def test_the_row_that_writers_lock_is_there_for_each_cluster(database: Database) -> None:
    url = database.engine.url.render_as_string()
    for cluster_id in ("c2", "c1", "c3"):
        open_database(url, cluster_id, "here").close()
    with database.read_connection() as connection:
        rows = connection.execute(sa.select(tables.counter)).all()
    assert sorted(tuple(row) for row in rows) == [("c1", IDS, 0), ("c2", IDS, 0), ("c3", IDS, 0)]


def test_a_database_shows_where_it_is_and_no_password() -> None:
    assert repr(Database(sa.create_engine(POSTGRESQL), "c1", "here")) == f"Database({SHOWN!r}, 'c1')"


@pytest.mark.parametrize(
    ("fields", "extra", "useless"),
    [
        ({"username": "ann"}, {}, "login"),
        ({"password": SECRET}, {}, "password"),
        ({"port": 5432}, {}, "port"),
        ({}, {"mode": "ro"}, "extra"),
    ],
)
def test_a_field_of_a_connection_that_sqlite_does_not_use_is_refused_by_its_name(
    fields: Mapping[str, Any], extra: Mapping[str, Any], useless: str
) -> None:
    given = sa.URL.create("sqlite", host="/a/journal.db", **fields)
    with pytest.raises(SettingError, match=f"^The journal is set to the sqlite connection lite, whose {useless} noth"):
        Sqlite().connection_url("lite", given, extra)


@pytest.fixture
def statements() -> Iterator[list[str]]:
    """What SQLAlchemy sends, in order."""
    sent: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        sent.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    yield sent
    sa.event.remove(sa.Engine, "before_cursor_execute", note)


def test_sqlite_locks_out_other_writers_before_anything_is_written(statements: list[str], tmp_path: Path) -> None:
    with open_journal(f"sqlite:///{tmp_path}/journal.db", "c1") as journal:
        create_document(journal.mailbox, "/a/b", "x")
        journal.plans.publish(record_of(journal), moves_of(2))
        journal.audit.record(AuditRecord(Action.DETECT, "Broker 1 is down."))
    begun, writes = "", 0
    for statement in statements:
        begun = statement if statement.startswith("BEGIN") else begun
        if statement.split()[0] in {"CREATE", "INSERT", "UPDATE", "DELETE"}:
            writes += 1
            assert begun == "BEGIN IMMEDIATE", statement
    assert writes > 10


def test_sqlite_is_asked_for_nothing_more_to_lock_out_other_writers(database: Database, statements: list[str]) -> None:
    with database.write_transaction():
        pass
    with database.read_connection():
        pass
    # What the transaction of a writer asks is whether the tables are still those that were opened.
    assert statements == ["BEGIN IMMEDIATE", "SELECT version_num FROM steward_version", "BEGIN"]


def test_no_statement_has_more_than_five_hundred_rows(statements: list[str], tmp_path: Path) -> None:
    """Nor are rows sent twice."""
    moves = moves_of(1001, size=1)
    names = [move.topic_partition for move in moves]
    entries = [AuditRecord(Action.HOLD, "why", topic=name.topic, partition=name.partition) for name in names]
    with open_journal(f"sqlite:///{tmp_path}/journal.db", "c1") as journal:
        table = journal.plans._table
        uses: list[tuple[str, Callable[[], object]]] = [
            ("INSERT INTO steward_plan_move", lambda: table.insert_missing("d1", moves)),
            ("SELECT steward_plan_move", lambda: table.submissions_by_others("d2", names)),
            ("INSERT INTO steward_audit", lambda: journal.audit.record_intent(entries)),
        ]
        for beginning, use in uses:
            statements.clear()
            use()
            assert len([each for each in statements if each.startswith(beginning)]) == 3, beginning
        assert len(journal.audit.rows()) == 1001


class Asked(Exception):
    """Told how a connection was asked for, instead of being connected."""


def connection_arguments(url: str, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Any]:
    """What the driver is given when a connection is opened."""
    asked: dict[str, Any] = {}

    def connect(**named: Any) -> None:
        asked.update(named)
        raise Asked

    monkeypatch.setattr(postgres.DeadlineConnection, "connect", connect)
    with pytest.raises(Asked):
        database_module._create_engine(*parse_url(url)).connect()
    return asked


@pytest.mark.parametrize("scheme", ["postgresql://", "postgres://", "postgresql+psycopg2://", "postgresql+psycopg://"])
def test_postgresql_ends_a_statement_after_a_quarter_of_a_minute_and_what_was_stopped_in_the_middle_after_one(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{scheme}ann:{SECRET}@db:5432/steward"
    assert database_module._create_engine(*parse_url(url)).hide_parameters
    asked = connection_arguments(url, monkeypatch)
    assert {key: asked[key] for key in ("user", "password", "host", "port", "dbname")} == {
        "user": "ann",
        "password": SECRET,
        "host": "db",
        "port": 5432,
        "dbname": "steward",
    }
    assert asked["connect_timeout"] == 10
    assert asked["options"].split(" -c ") == [
        "-c lock_timeout=15s",
        "statement_timeout=15s",
        "idle_in_transaction_session_timeout=60s",
        "plan_cache_mode=force_custom_plan",
    ]


def test_on_postgresql_a_writer_locks_the_row_of_its_own_cluster_alone() -> None:
    statements: list[Any] = []

    class Connection:
        dialect = postgresql.dialect()  # type: ignore[no-untyped-call]

        def execute(self, statement: Any) -> Any:
            statements.append(statement)
            return SimpleNamespace(first=lambda: None)

    database = Database(sa.create_engine(POSTGRESQL), "one", "host")
    database._exclude_writers(cast("Any", Connection()))
    (statement,) = statements
    text = str(statement.compile(dialect=Connection.dialect, compile_kwargs={"literal_binds": True}))
    assert "cluster_id = 'one'" in text
    assert "FOR UPDATE" in text


def test_a_user_that_may_make_no_tables_is_shown_which_was_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = RuntimeError("permission denied for schema public")
    refused.sqlstate = "42501"  # type: ignore[attr-defined]

    def upgrade(_: sa.Engine) -> None:
        raise sa.exc.ProgrammingError("CREATE TABLE steward_node", {}, refused)

    monkeypatch.setattr(database_module, "upgrade", upgrade)
    engine = sa.create_engine(POSTGRESQL)
    with pytest.raises(JournalError, match="refused a statement: permission denied for schema public; its tables"):
        database_module._upgrade_tables(engine, journal_dialect(engine.dialect))


class NothingReturned(Sqlite):
    """A database that cannot return the rows that a statement changes."""

    def change_and_return(
        self,
        connection: sa.Connection,
        change: sa.Update,
        columns: Sequence[sa.ColumnElement[Any]],
        row: sa.ColumnElement[bool],
    ) -> sa.Row[Any] | None:
        changed = connection.execute(change).rowcount
        return connection.execute(sa.select(*columns).where(row)).one() if changed else None


def test_a_database_may_be_unable_to_return_what_it_changes(
    statements: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_dialect, "DIALECT", NothingReturned())
    with open_journal(f"sqlite:///{tmp_path}/journal.db", "c1") as journal:
        made = create_document(journal.mailbox, "/a/b", "x")
        changed = change_document(journal.mailbox, "/a/b", "y")
        assert (made.version, changed.version, changed.data, changed.created_id) == (0, 1, "y", made.created_id)
        assert read_one(journal.mailbox, "/a/b") == changed
        assert put_one(journal.mailbox, "/a/b", "z", made) is None
        paths = [journal.mailbox.append("/a/s_", "x").path for _ in range(2)]
        assert paths == ["/a/s_0000000000", "/a/s_0000000001"]
        journal.plans.publish(record_of(journal), moves_of(2))
        journal.audit.record(AuditRecord(Action.DETECT, "Broker 1 is down."))
    ours = [each for each in statements if "steward_version" not in each]  # Alembic's
    assert not [each for each in ours if "RETURNING" in each]


def test_sqlite_waits_for_half_a_minute_and_writes_to_the_disk_before_a_commit_counts(database: Database) -> None:
    with database.read_connection() as connection:
        answers = [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("journal_mode", "synchronous")]
        assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == 30_000
    assert answers == ["wal", 2]
    assert database.engine.hide_parameters


def test_a_driver_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        raise ModuleNotFoundError(name="psycopg")

    monkeypatch.setattr(sa, "create_engine", missing)
    with pytest.raises(SettingError) as refused:
        open_database(POSTGRESQL, "c1", "here")
    assert str(refused.value) == (
        "The journal's database driver is missing (psycopg); install airflow-provider-kafka-steward[postgres]."
    )


def test_a_driver_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "kafka_steward.journal.sql.postgres")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(SettingError, match=r"^The journal's database driver is missing \(psycopg\); install airflow"):
        table_names(POSTGRESQL)


class Reluctant:
    """A connection to SQLite that says a few times that the file is locked."""

    def __init__(self, refusals: list[str]) -> None:
        self.isolation_level: str | None = ""
        self._refusals = refusals
        self.done: list[str] = []

    def execute(self, statement: str) -> None:
        if "journal_mode" in statement and self._refusals:
            raise sqlite3.OperationalError(self._refusals.pop())
        self.done.append(statement)


def test_a_file_that_another_switches_to_wal_at_the_same_moment_is_waited_for() -> None:
    connection = Reluctant(["database is locked"] * 3)
    sqlite_dialect._prepare_connection(connection, None)
    assert connection.isolation_level is None
    assert connection.done == ["PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL"]


def test_a_file_that_stays_locked_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_dialect, "_LOCK_TIMEOUT_S", 0.1)
    connection = Reluctant(["database is locked"] * 1000)
    with pytest.raises(sqlite3.OperationalError, match="database is locked"):
        sqlite_dialect._prepare_connection(connection, None)
    assert len(connection._refusals) > 900  # a pause between two tries


def test_any_other_error_is_raised_at_once() -> None:
    connection = Reluctant(["database is locked", "disk I/O error"])
    with pytest.raises(sqlite3.OperationalError, match="disk I/O error"):
        sqlite_dialect._prepare_connection(connection, None)
    assert connection._refusals == ["database is locked"]


def test_a_journal_that_another_process_keeps_locked_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_dialect, "_LOCK_TIMEOUT_S", 0.1)
    url = f"sqlite:///{tmp_path}/journal.db"
    holder = open_database(url, "c1", "here")
    with holder.write_transaction(), pytest.raises(JournalUnreachable) as refused:
        open_database(url, "c2", "here")
    assert str(refused.value) == f"The journal at {url} does not answer (database is locked); retry when it does."


@pytest.mark.parametrize("use", [lambda url: open_database(url, "c1", "here"), table_names], ids=["open", "tables"])
def test_who_cannot_write_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: Callable[[str], object]
) -> None:
    (tmp_path / "journal.db").write_text("not a database" * 1000)
    monkeypatch.setenv("USER", "ann")
    with pytest.raises(JournalError) as refused:
        use(f"sqlite:///{tmp_path}/journal.db")
    assert str(refused.value) == (
        f"The journal {tmp_path}/journal.db cannot be written by the user ann (file is not a database); correct its "
        "permissions, or set journal."
    )
    monkeypatch.delenv("USER")
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    with pytest.raises(JournalError, match="cannot be written by the user 4711 "):
        use(f"sqlite:///{tmp_path}/journal.db")


def test_the_tables_of_a_file_are_listed_and_the_file_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "other.db"
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE dag_run (id INTEGER)")
    connection.close()
    before = file.read_bytes()
    assert table_names(f"sqlite:///{file}") == {"dag_run"}
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]


def test_a_server_whose_tables_cannot_be_read_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(**_: object) -> None:
        raise psycopg.OperationalError(f"password {SECRET} is wrong.")

    monkeypatch.setattr(postgres.DeadlineConnection, "connect", connect)
    with pytest.raises(JournalUnreachable) as refused:
        table_names(POSTGRESQL)
    assert str(refused.value) == (
        f"The journal at {SHOWN} does not answer (password *** is wrong); retry when it does."
    )


@pytest.mark.parametrize(
    ("stored_ms", "read_ms"), [(-5, 0), (0, 0), (1, 1), (MAX_NUMBER, MAX_NUMBER), (MAX_NUMBER + 1, MAX_NUMBER)]
)
def test_a_time_that_no_clock_shows_is_read_as_the_nearest_possible_one(
    database: Database, stored_ms: int, read_ms: int
) -> None:
    hostile = HostileNode("/a/b", "{}", (0, 1, 1, stored_ms, stored_ms))
    assert sql_writer(database.engine, database.cluster_id)([hostile]) == 1
    node = present(read_one(SqlMailbox(Views(database)), "/a/b"))
    assert (node.created_ms, node.modified_ms) == (read_ms, read_ms)


@pytest.mark.parametrize(
    "build",
    [
        lambda: sa.select(now_ms()),
        lambda: sa.update(tables.node).where(tables.node.c.path == "/a").values(modified_ms=now_ms()),
        lambda: sa.select(untrusted_text(tables.node.c.data)),
    ],
)
def test_a_statement_with_an_expression_of_ours_is_compiled_once(
    build: Callable[[], sa.Executable], database: Database
) -> None:
    with database.engine.connect() as connection:
        found = [cast("Any", connection.execute(build()).context).cache_hit.name for _ in range(2)]
    assert found == ["CACHE_MISS", "CACHE_HIT"]
