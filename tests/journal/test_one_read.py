"""A poll reads its documents by one statement, and what it reads is what single reads return."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa

from kafka_steward.errors import RequestError
from kafka_steward.journal.listing import QUARANTINE
from kafka_steward.journal.mailbox import Node, read_below, read_one
from kafka_steward.journal.sql import view
from kafka_steward.journal.sql.database import Database, open_database
from kafka_steward.journal.sql.mailbox import SqlMailbox
from kafka_steward.journal.sql.state import StateTable
from kafka_steward.journal.sql.view import View, Views
from kafka_steward.journal.state import StoredRow
from tests.documents import change_document, create_document, delete_document
from tests.present import present

PATH = "/admin/failed_brokers/3"
LONG = "/admin/reassign_chunks/long"
WRITTEN = {
    PATH: '{"a": 1}',
    "/admin/failed_brokers/4": "",
    "/admin/failed_brokers_not/5": "beside",
    "/admin/reassignments/t/0": "{}",
    "/steward/journal": "{}",
    "/admin/reassign_chunks/short": "short",
    LONG: "x" * (view.LONGEST + 1),
    "/other/root": "{}",
}
PARENTS = (
    "/", "/admin", "/admin/failed_brokers", "/admin/reassignments", "/admin/reassignments/t", "/steward",
    "/admin/reassign_chunks", "/other", "/nothing", "/admin/nothing",
)  # fmt: skip
ASKED = (*WRITTEN, *PARENTS[1:])


@pytest.fixture
def mailbox(fresh_url: str, cluster_id: str) -> Iterator[SqlMailbox]:
    database = open_database(fresh_url, cluster_id, "here")
    yield SqlMailbox(Views(database))
    database.close()


def write(mailbox: SqlMailbox) -> None:
    for path, text in WRITTEN.items():
        create_document(mailbox, path, text)


def answers(mailbox: SqlMailbox) -> list[Any]:
    return [
        [read_one(mailbox, path) for path in ASKED],
        mailbox.read(ASKED),
        [mailbox.children(path) for path in PARENTS],
        [read_below(mailbox, path) for path in PARENTS[1:]],
    ]


@contextmanager
def counted(database: Database) -> Iterator[list[str]]:
    """The statements of a block, without the beginnings of transactions."""
    statements: list[str] = []

    def count(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if not statement.startswith("BEGIN"):
            statements.append(statement)

    sa.event.listen(database.engine, "before_cursor_execute", count)
    try:
        yield statements
    finally:
        sa.event.remove(database.engine, "before_cursor_execute", count)


def test_in_one_read_every_answer_is_what_it_is_without(mailbox: SqlMailbox) -> None:
    assert answers(mailbox)[0] == [None] * len(ASKED)
    with mailbox.one_read():
        assert answers(mailbox)[0] == [None] * len(ASKED)
    write(mailbox)
    before = answers(mailbox)
    with mailbox.one_read():
        assert answers(mailbox) == before
    assert answers(mailbox) == before


def test_what_a_poll_reads_takes_one_statement(mailbox: SqlMailbox) -> None:
    write(mailbox)
    polled = [path for path in WRITTEN if View.covers(path) and path != LONG]
    assert len(polled) == 5
    with counted(mailbox.database) as statements, mailbox.one_read():
        with mailbox.one_read():
            assert None not in mailbox.read(polled)
        assert mailbox.children("/admin/failed_brokers") == ["3", "4"]
        assert [node.data for node in read_below(mailbox, "/admin/failed_brokers")] == ['{"a": 1}', ""]
        mailbox._views.now_ms()
    assert len(statements) == 1


@pytest.mark.parametrize(
    "read",
    [lambda mailbox: read_one(mailbox, LONG), lambda mailbox: read_below(mailbox, "/admin/reassign_chunks")],
    ids=["get", "below"],
)
def test_a_long_text_is_read_whole_by_a_statement_of_its_own(
    mailbox: SqlMailbox, read: Callable[[SqlMailbox], Node | list[Node]]
) -> None:
    write(mailbox)
    with counted(mailbox.database) as statements, mailbox.one_read():
        found = read(mailbox)
    nodes: Sequence[Node] = [found] if isinstance(found, Node) else found
    assert nodes[0].data == WRITTEN[LONG]
    assert len(statements) == 2


def test_the_clock_goes_on_in_one_read(mailbox: SqlMailbox, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [1_000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    with mailbox.one_read():
        before_ms = mailbox._views.now_ms()
        now_s[0] += 1.5
        assert mailbox._views.now_ms() == before_ms + 1_500
    assert abs(mailbox._views.now_ms() - before_ms) < 60_000


def test_after_a_change_of_its_own_a_thread_reads_what_there_is(mailbox: SqlMailbox) -> None:
    write(mailbox)
    with mailbox.one_read():
        changed = change_document(mailbox, PATH, "changed")
        assert read_one(mailbox, PATH) == changed
        delete_document(mailbox, PATH)
        assert mailbox.children("/admin/failed_brokers") == ["4"]


def test_what_others_change_is_seen_by_the_next_read_and_after_an_end(mailbox: SqlMailbox) -> None:
    write(mailbox)
    with ThreadPoolExecutor(1) as other, mailbox.one_read():
        other.submit(change_document, mailbox, PATH, "changed").result()
        assert [node and node.version for node in mailbox.read([PATH])] == [0]
        assert other.submit(mailbox.read, [PATH]).result() != mailbox.read([PATH])
        with mailbox.one_read(again=True):
            assert [node and node.version for node in mailbox.read([PATH])] == [1]
    with mailbox.one_read():
        assert [node and node.version for node in mailbox.read([PATH])] == [1]


def test_an_answer_is_never_older_than_some_seconds(mailbox: SqlMailbox, monkeypatch: pytest.MonkeyPatch) -> None:
    write(mailbox)
    now_s = [1_000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    with ThreadPoolExecutor(1) as other, mailbox.one_read():
        other.submit(change_document, mailbox, PATH, "changed").result()
        now_s[0] += view.LIFETIME_S
        assert [node and node.version for node in mailbox.read([PATH])] == [1]


def test_of_too_many_documents_no_view_is_read_and_none_is_tried_for_a_while(
    mailbox: SqlMailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(mailbox)
    before = answers(mailbox)
    now_s = [1_000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(view, "MOST", 3)
    crowded = SqlMailbox(Views(mailbox.database))
    for later_s, views in ((0.0, 1), (29.0, 0), (2.0, 1)):
        now_s[0] += later_s
        with counted(mailbox.database) as statements, crowded.one_read():
            assert answers(crowded) == before
        assert sum("UNION" in statement for statement in statements) == views


def test_an_invalid_path_is_refused_in_one_read_too(mailbox: SqlMailbox) -> None:
    with mailbox.one_read():
        for path in ("/admin/../secret", "/admin//3", "admin"):
            with pytest.raises(RequestError):
                read_one(mailbox, path)


# Our own state


@pytest.fixture
def rows(mailbox: SqlMailbox) -> StateTable:
    """The state beside the documents, in the same views."""
    state = StateTable(mailbox._views)
    assert state.write("things", {"a": "1", "b": "2", "long": "x" * (view.LONGEST + 1)}, {}) is not None
    assert state.write("others", {"": "3"}, {}) is not None
    assert state.write(QUARANTINE.name, {"7": "4"}, {}) is not None
    return state


WANTED: list[tuple[str, str | None]] = [("things", "a"), ("things", "none"), ("others", None), ("nothing", None)]


def test_rows_come_with_the_documents_in_the_same_statement(mailbox: SqlMailbox, rows: StateTable) -> None:
    write(mailbox)
    before = rows.select(WANTED)
    assert [(row.noun, row.key, row.text) for row in before] == [("others", "", "3"), ("things", "a", "1")]
    with counted(mailbox.database) as statements, mailbox.one_read():
        assert rows.select(WANTED) == before
        assert read_one(mailbox, PATH) is not None
        assert rows.now_ms() > 0
    assert len(statements) == 1


def test_a_long_row_is_read_whole_by_a_statement_of_its_own(mailbox: SqlMailbox, rows: StateTable) -> None:
    before = rows.select([("things", None)])
    with counted(mailbox.database) as statements, rows.one_read():
        assert rows.select([("things", None)]) == before
    assert len(statements) == 2


def test_quarantined_documents_which_grow_with_the_past_are_in_no_view(rows: StateTable) -> None:
    wanted = [*WANTED, (QUARANTINE.name, None)]
    before = rows.select(wanted)
    with rows.one_read():
        assert present(rows._views.current).select(wanted) == rows.select(WANTED)
        assert rows.select(wanted) == before


def test_rows_that_others_change_are_seen_after_an_end_and_own_changes_at_once(rows: StateTable) -> None:
    (row,) = rows.select([("others", "")])

    def text() -> str:
        return rows.select([("others", "")])[0].text

    with ThreadPoolExecutor(1) as other, rows.one_read():
        other.submit(rows.write, "others", {"": "changed"}, {"": row}).result()
        assert text() == "3"
        with rows.one_read(again=True):
            assert text() == "changed"
    with rows.one_read():
        changed: StoredRow = rows.select([("others", "")])[0]
        rows.write("others", {"": "ours"}, {"": changed})
        assert text() == "ours"
