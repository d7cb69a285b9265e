"""The tables: made once, upgraded by one process at a time, refused when newer, and the same as the code believes."""

from __future__ import annotations

import multiprocessing
import shutil
import sqlite3
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from kafka_steward.assignment import Move
from kafka_steward.errors import JournalError
from kafka_steward.journal import schema
from kafka_steward.journal.audit import Action, Actor, AuditRecord, StoredAuditRecord
from kafka_steward.journal.records import MoveRow
from kafka_steward.journal.schema import tables, upgrade
from kafka_steward.journal.sql import sqlite
from kafka_steward.journal.sql.database import open_database
from kafka_steward.journal.sql.dialect import parse_url
from kafka_steward.journal.store import open_journal
from tests.rings import tried

#: Alembic compares indexes without their condition, which is the database.
ONLY_IN_SQLITE = {"steward_plan_move_state"}


def engine_of(url: str) -> sa.Engine:
    return open_database(url, "c", "host").engine


def test_the_known_versions_are_the_migrations() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(schema.__file__).parent))
    scripts = ScriptDirectory.from_config(config)
    assert [script.revision for script in scripts.walk_revisions()][::-1] == list(upgrade.KNOWN)


def migrate(url: str, revision: str) -> None:
    """Make the tables as the release with this migration did: by all migrations up to it."""
    engine = parse_url(url)[1].create_engine(parse_url(url)[0])
    config = Config()
    config.set_main_option("script_location", str(Path(schema.__file__).parent))
    with engine.connect().execution_options(steward_writes=True) as connection, connection.begin():
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
    engine.dispose()


def described(url: str) -> dict[str, Any]:
    """What the database says of each table: columns, key, indexes."""
    with engine_of(url).connect() as connection:
        found = sa.inspect(connection)
        return {
            table: (
                {each["name"]: (str(each["type"]), each["nullable"], each["default"]) for each in columns},
                found.get_pk_constraint(table)["constrained_columns"],
                {each["name"]: (each["column_names"], each["unique"]) for each in found.get_indexes(table)},
            )
            for table in found.get_table_names()
            for columns in [found.get_columns(table)]
        }


def test_a_new_database_has_the_tables_that_the_migrations_make(fresh_url: str, other_url: str) -> None:
    migrate(other_url, "0001")
    assert described(other_url) == described(fresh_url)


@pytest.mark.parametrize("first", ["new", *upgrade.KNOWN])
def test_all_migrations_make_the_tables_that_the_code_uses(fresh_url: str, first: str) -> None:
    if first != "new":
        migrate(fresh_url, first)
    with engine_of(fresh_url).connect() as connection:
        sqlite = connection.dialect.name == "sqlite"
        expected = {"include_object": lambda _, name, *__: sqlite or name not in ONLY_IN_SQLITE}
        context = MigrationContext.configure(
            connection, opts={"version_table": upgrade.VERSION_TABLE, "compare_type": True, **expected}
        )
        assert compare_metadata(context, tables.metadata) == []
        found = sa.inspect(connection)
        assert set(found.get_table_names()) == {upgrade.VERSION_TABLE, *tables.metadata.tables}
        for table in tables.metadata.tables.values():
            columns = {column["name"]: column["nullable"] for column in found.get_columns(table.name)}
            assert columns == {column.name: bool(column.nullable) for column in table.columns}
            key = found.get_pk_constraint(table.name)["constrained_columns"]
            assert key == [column.name for column in table.primary_key.columns]


def test_each_field_of_a_record_has_its_column() -> None:
    stored = {each.name for kind in (AuditRecord, Actor, StoredAuditRecord) for each in fields(kind)}
    assert stored - {"who", "entry"} == set(tables.audit.columns.keys())
    moved = {each.name for kind in (Move, MoveRow) for each in fields(kind)}
    assert moved - {"move"} | {"cluster_id", "plan"} == set(tables.plan_move.columns.keys())


def test_an_open_journal_is_left_as_it_is(fresh_url: str) -> None:
    with open_journal(fresh_url, "c", host="h") as journal:
        journal.tree.create("/a/b", "kept")
    with open_journal(fresh_url, "c", host="h") as journal:
        assert journal.tree.get("/a/b") is not None


def test_a_newer_schema_is_refused(fresh_url: str) -> None:
    engine = engine_of(fresh_url)
    with engine.connect().execution_options(steward_writes=True) as connection, connection.begin():
        connection.execute(
            sa.update(sa.table(upgrade.VERSION_TABLE, sa.column("version_num"))).values(version_num="9999")
        )
    with pytest.raises(
        JournalError,
        match=rf"written by a newer Kafka Steward \(schema 9999; .* up to {upgrade.KNOWN[-1]}\); stop",
    ):
        open_journal(fresh_url, "c", host="host")


def _open(url: str, barrier: object, said: multiprocessing.Queue[str]) -> None:
    try:
        barrier.wait(30)  # type: ignore[attr-defined]  # a multiprocessing Barrier
        with open_journal(url, "c", host="h") as journal:
            said.put(journal.tree.create_sequential("/a/s_", "x").path)
    except Exception as error:  # noqa: BLE001 - the parent asserts on whatever it is
        said.put(repr(error))


def test_processes_that_open_at_once_do_not_break(fresh_url: str) -> None:
    context = multiprocessing.get_context("fork")
    said, barrier = context.Queue(), context.Barrier(3)
    children = [context.Process(target=_open, args=(fresh_url, barrier, said)) for _ in range(3)]
    for child in children:
        child.start()
    answers = sorted(said.get(timeout=300) for _ in children)
    assert answers == [f"/a/s_{number:010d}" for number in range(3)]
    for child in children:
        child.join(30)


def _prepare(path: str, barrier: Any, said: multiprocessing.Queue[str]) -> None:
    connection = sqlite3.connect(path)
    barrier.wait(30)
    try:
        sqlite._prepare_connection(connection, None)
        said.put("")
    except sqlite3.OperationalError as error:
        said.put(repr(error))


def test_a_new_file_is_switched_to_wal_by_all_that_open_it_at_the_same_moment(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    for attempt in range(tried(20)):
        said, barrier = context.Queue(), context.Barrier(4)
        given = f"{tmp_path}/{attempt}.db", barrier, said
        children = [context.Process(target=_prepare, args=given) for _ in range(4)]
        for child in children:
            child.start()
        assert [said.get(timeout=300) for _ in children] == [""] * 4
        for child in children:
            child.join(30)


def test_a_migration_that_fails_in_the_middle_leaves_nothing(fresh_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = upgrade._run_migrations

    def migrate_and_die(connection: sa.Connection) -> None:
        real(connection)
        raise JournalError("The process died.")

    monkeypatch.setattr(upgrade, "_run_migrations", migrate_and_die)
    with pytest.raises(JournalError, match="died"):
        open_journal(fresh_url, "c", host="h")
    monkeypatch.undo()
    with open_journal(fresh_url, "c", host="h") as journal:
        assert journal.plans.latest(9) == []


def test_the_folder_of_the_migrations_may_have_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "100%sure"
    shutil.copytree(Path(schema.__file__).parent, folder)
    monkeypatch.setattr(upgrade, "__file__", str(folder / "upgrade.py"))
    with open_journal(f"sqlite:///{tmp_path}/journal.db", "c", host="h") as journal:
        journal.tree.create("/a/b", "x")
        assert journal.tree.children("/a") == ["b"]


def test_the_journal_lives_beside_other_tables(fresh_url: str) -> None:
    """Also beside another program's Alembic."""
    engine = sa.create_engine(fresh_url)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)"))
        connection.execute(sa.text("INSERT INTO alembic_version VALUES ('theirs')"))
    with open_journal(fresh_url, "c", host="h") as journal:
        journal.tree.create("/a/b", "x")
    with engine.connect() as connection:
        assert connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar() == "theirs"
    engine.dispose()


def test_a_process_that_had_the_journal_open_changes_nothing_after_its_upgrade(fresh_url: str) -> None:
    with open_journal(fresh_url, "c", host="h") as journal, sa.create_engine(fresh_url).connect() as newer:
        journal.tree.create("/steward/plans/aa", "{}")
        with journal.step_lock("before") as fence:
            newer.execute(sa.text("UPDATE steward_version SET version_num = '9999'"))
            newer.commit()
            stored = {table: newer.execute(sa.select(table)).all() for table in tables.metadata.sorted_tables}
            for change in (
                fence.check,
                journal.step_lock("after").acquire,
                lambda: journal.tree.set("/steward/plans/aa", "[]", version=0),
                lambda: journal.audit.record(AuditRecord(Action.PUBLISH, "", plan="aa")),
                lambda: journal.record_poll("failures"),
            ):
                with pytest.raises(JournalError) as refused:
                    change()
                assert refused.value.retriable, "the task waits for its triggerer to be restarted"
            assert stored == {table: newer.execute(sa.select(table)).all() for table in tables.metadata.sorted_tables}
            newer.execute(sa.text("UPDATE steward_version SET version_num = :known"), {"known": upgrade.KNOWN[-1]})
            newer.commit()
        journal.tree.set("/steward/plans/aa", "[]", version=0)
