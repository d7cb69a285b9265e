"""The tables: made once, upgraded by one process at a time, refused when newer; and journals of former releases."""

from __future__ import annotations

import multiprocessing
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from kafka_steward.assignment import Move
from kafka_steward.errors import JournalError
from kafka_steward.journal import paths, schema
from kafka_steward.journal.audit import Action, Actor, AuditRecord, Outcome, StoredAuditRecord
from kafka_steward.journal.kip_documents import (
    AnnouncedRestartDocument,
    CancelRequest,
    Chunk,
    FailedBroker,
    InFlight,
    Request,
)
from kafka_steward.journal.mailbox import read_one
from kafka_steward.journal.records import MoveRow, MoveState, PlanStatus
from kafka_steward.journal.schema import tables, upgrade
from kafka_steward.journal.sql import sqlite
from kafka_steward.journal.sql.database import open_database
from kafka_steward.journal.store import Journal, open_journal
from tests.documents import change_document, create_document
from tests.journal.later import LATER, TABLE, later_version
from tests.journal.recorded import record
from tests.present import present
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


def stored(url: str) -> dict[str, Any]:
    """The columns, key, indexes and rows of each table that the database has."""
    with sa.create_engine(url).connect() as connection:
        found = sa.inspect(connection)
        return {
            table: (
                {each["name"]: (str(each["type"]), each["nullable"], each["default"]) for each in columns},
                found.get_pk_constraint(table)["constrained_columns"],
                {each["name"]: (each["column_names"], each["unique"]) for each in found.get_indexes(table)},
                connection.execute(sa.select(sa.text("*")).select_from(sa.table(table))).all(),
            )
            for table in found.get_table_names()
            for columns in [found.get_columns(table)]
        }


def test_a_new_database_has_the_tables_that_the_code_uses(fresh_url: str) -> None:
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


def test_an_older_schema_is_upgraded_and_what_it_holds_is_kept(fresh_url: str, tmp_path: Path) -> None:
    with open_journal(fresh_url, "c", host="h") as journal:
        create_document(journal.mailbox, "/a/b", "kept")
        journal.record_poll("failures")
    # The folder of the installation may have any name.
    with later_version(tmp_path / "100%sure"), open_journal(fresh_url, "c", host="h") as journal:
        assert [each and each.data for each in journal.mailbox.read(["/a/b"])] == ["kept"]
        create_document(journal.mailbox, "/a/c", "written")
    after = stored(fresh_url)
    assert after[upgrade.VERSION_TABLE][-1] == [(LATER,)]
    assert [row.later for row in after["steward_state"][-1]] == ["filled"] * 2
    assert after.keys() == {*tables.metadata.tables, upgrade.VERSION_TABLE, TABLE}


def test_an_upgrade_that_fails_in_the_middle_leaves_nothing(fresh_url: str, tmp_path: Path) -> None:
    with open_journal(fresh_url, "c", host="h") as journal:
        journal.record_poll("failures")
    before = stored(fresh_url)
    with later_version(tmp_path / "later", dies=True), pytest.raises(JournalError, match="died"):
        open_journal(fresh_url, "c", host="h")
    assert stored(fresh_url) == before


def test_a_newer_schema_is_refused_and_left_as_it_is(fresh_url: str, tmp_path: Path) -> None:
    with later_version(tmp_path / "later"):
        open_journal(fresh_url, "c", host="host").close()
    before = stored(fresh_url)
    with pytest.raises(
        JournalError, match=rf"written by a newer Kafka Steward \(schema {LATER}; .* up to {upgrade.KNOWN[-1]}\); stop"
    ):
        open_journal(fresh_url, "c", host="host")
    assert stored(fresh_url) == before


def _open(url: str, barrier: object, said: multiprocessing.Queue[str]) -> None:
    try:
        barrier.wait(30)  # type: ignore[attr-defined]  # a multiprocessing Barrier
        with open_journal(url, "c", host="h") as journal:
            said.put(journal.mailbox.append("/a/s_", "x").path)
    except Exception as error:  # noqa: BLE001 - the parent asserts on whatever it is
        said.put(repr(error))


@pytest.mark.parametrize("first", ["new", "older"])
@pytest.mark.process
def test_processes_that_open_at_once_do_not_break(fresh_url: str, tmp_path: Path, first: str) -> None:
    if first == "older":
        open_journal(fresh_url, "c", host="h").close()
    context = multiprocessing.get_context("fork")
    said, barrier = context.Queue(), context.Barrier(3)
    children = [context.Process(target=_open, args=(fresh_url, barrier, said)) for _ in range(3)]
    with later_version(tmp_path / "later"):
        for child in children:
            child.start()
        answers = sorted(said.get(timeout=300) for _ in children)
    assert answers == [f"/a/s_{number:010d}" for number in range(3)]
    assert stored(fresh_url)[upgrade.VERSION_TABLE][-1] == [(LATER,)]
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


@pytest.mark.process
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


def test_a_creation_that_fails_in_the_middle_leaves_nothing(fresh_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_the_journal_lives_beside_other_tables(fresh_url: str) -> None:
    """Also beside another program's Alembic."""
    engine = sa.create_engine(fresh_url)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)"))
        connection.execute(sa.text("INSERT INTO alembic_version VALUES ('theirs')"))
    with open_journal(fresh_url, "c", host="h") as journal:
        create_document(journal.mailbox, "/a/b", "x")
    with engine.connect() as connection:
        assert connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar() == "theirs"
    engine.dispose()


def test_a_process_that_had_the_journal_open_changes_nothing_after_its_upgrade(fresh_url: str, tmp_path: Path) -> None:
    with open_journal(fresh_url, "c", host="h") as journal:
        create_document(journal.mailbox, "/admin/aa", "{}")
        fence = journal.step_lock("before", ttl_ms=1).acquire()
        with later_version(tmp_path / "later"):
            open_journal(fresh_url, "c", host="h").close()
        before = stored(fresh_url)
        for change in (
            fence.check,
            journal.step_lock("after").acquire,
            lambda: change_document(journal.mailbox, "/admin/aa", "[]"),
            lambda: journal.audit.record(AuditRecord(Action.PUBLISH, "", plan="aa")),
            lambda: journal.record_poll("failures"),
        ):
            with pytest.raises(JournalError, match=f"changed to schema {LATER} while this process") as refused:
                change()
            assert refused.value.retriable, "the task waits for its triggerer to be restarted"
        assert stored(fresh_url) == before


#: The journals that are recorded, and the one that the command would record now.
JOURNALS = ["of this version", *sorted(path.parent.name for path in record.FOLDER.glob("*/journal.sql"))]


@pytest.fixture(params=JOURNALS)
def recorded_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    now = request.param == JOURNALS[0]
    file = record.main(tmp_path) if now else record.FOLDER / request.param / "journal.sql"
    with closing(sqlite3.connect(tmp_path / "journal.db")) as database:
        database.executescript(file.read_text())
    return f"sqlite:///{tmp_path}/journal.db"


@pytest.fixture
def recorded(recorded_url: str) -> Iterator[Journal]:
    with open_journal(recorded_url, record.CLUSTER, host=record.HOST) as journal:
        yield journal


def test_a_recorded_journal_is_never_written_again(tmp_path: Path) -> None:
    record.main(tmp_path)
    with pytest.raises(FileExistsError):
        record.main(tmp_path)


@pytest.mark.usefixtures("recorded")
def test_its_tables_are_those_of_a_new_journal(recorded_url: str, tmp_path: Path) -> None:
    open_journal(f"sqlite:///{tmp_path}/new.db", "c").close()
    opened, new = stored(recorded_url), stored(f"sqlite:///{tmp_path}/new.db")
    assert {name: found[:-1] for name, found in opened.items()} == {name: found[:-1] for name, found in new.items()}


def test_the_plans_the_documents_and_the_audit_trail_are_read(recorded: Journal) -> None:
    assert [(plan.digest, plan.status) for plan in recorded.plans.unfinished()] == [
        ("aaaa", PlanStatus.PREEMPTED),
        ("bbbb", PlanStatus.RUNNING),
    ]
    heal = present(recorded.plans.get("bbbb"))
    assert (heal.operation, heal.failed_brokers, heal.attempts, heal.who) == ("heal", (1,), 1, record.WHO)
    states = [row.state for row in recorded.plans.rows("bbbb")]
    completed, held = MoveState.COMPLETED, MoveState.HELD
    assert states == [completed, completed, held, MoveState.SUBMITTED, MoveState.WAITING]
    assert recorded.plans.rows("bbbb")[3].move.before == (1, 2, 3)
    for path, kind in (
        (paths.failed_broker(1), FailedBroker),
        (paths.rolling_bounce(4), AnnouncedRestartDocument),
        (paths.CANCEL_IN_PROGRESS, CancelRequest),
        (f"{paths.REASSIGNMENTS}/orders/3", InFlight),
        (f"{paths.REQUEST_PREFIX}0000000000", Request),
        (paths.chunk("chunk_0000000003"), Chunk),
    ):
        node = present(read_one(recorded.mailbox, path))
        assert kind.from_node(node).to_json() == node.data
    detect, submit = recorded.audit.rows()
    assert (detect.entry.broker, detect.entry.plan) == (1, "")
    assert (submit.outcome, submit.entry.after, submit.entry.who) == (Outcome.DONE, [4, 2, 3], record.WHO)


def test_the_plan_goes_on_to_its_end(recorded: Journal) -> None:
    assert (recorded.slot.holders(), recorded.slot.preempted_plans()) == (("bbbb",), ("aaaa",))
    with recorded.step_lock("today") as fence:
        rest = [row.topic_partition for row in recorded.plans.rows("bbbb") if not row.state.settled]
        recorded.plans.set_move_states("bbbb", rest, MoveState.COMPLETED, fence=fence)
        recorded.plans.update(present(recorded.plans.get("bbbb")), fence=fence, status=PlanStatus.COMPLETED)
    assert recorded.slot.release("bbbb") == "aaaa"
    left = [read_one(recorded.mailbox, paths.chunk(name)) for name in recorded.mailbox.children(paths.REASSIGN_CHUNKS)]
    assert {Chunk.from_node(node).plan for node in left if node} == {"aaaa"}
    assert recorded.mailbox.append(paths.CHUNK_PREFIX, "{}").path == paths.chunk("chunk_0000000005")
