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
from kafka_steward.journal.sql import view
from kafka_steward.journal.sql.database import Database, open_database
from kafka_steward.journal.sql.state import StateTable
from kafka_steward.journal.sql.tree import SqlTree
from kafka_steward.journal.sql.view import View, Views
from kafka_steward.journal.state import StoredRow
from kafka_steward.journal.tree import Node
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
def tree(fresh_url: str, cluster_id: str) -> Iterator[SqlTree]:
    database = open_database(fresh_url, cluster_id, "here")
    yield SqlTree(Views(database))
    database.close()


def write(tree: SqlTree) -> None:
    for path, text in WRITTEN.items():
        tree.create(path, text)


def answers(tree: SqlTree) -> list[Any]:
    return [
        [tree.get(path) for path in ASKED],
        tree.read(ASKED),
        tree.created_ids(ASKED),
        [tree.children(path) for path in PARENTS],
        [tree.below(path) for path in PARENTS[1:]],
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


def test_in_one_read_every_answer_is_what_it_is_without(tree: SqlTree) -> None:
    assert answers(tree)[0] == [None] * len(ASKED)
    with tree.one_read():
        assert answers(tree)[0] == [None] * len(ASKED)
    write(tree)
    before = answers(tree)
    with tree.one_read():
        assert answers(tree) == before
    assert answers(tree) == before


def test_what_a_poll_reads_takes_one_statement(tree: SqlTree) -> None:
    write(tree)
    polled = [path for path in WRITTEN if View.covers(path) and path != LONG]
    assert len(polled) == 5
    with counted(tree.database) as statements, tree.one_read():
        with tree.one_read():
            assert None not in tree.read(polled)
        assert tree.children("/admin/failed_brokers") == ["3", "4"]
        assert [node.data for node in tree.below("/admin/failed_brokers")] == ['{"a": 1}', ""]
        assert None not in tree.created_ids(polled)
        tree._views.now_ms()
    assert len(statements) == 1


@pytest.mark.parametrize(
    "read", [lambda tree: tree.get(LONG), lambda tree: tree.below("/admin/reassign_chunks")], ids=["get", "below"]
)
def test_a_long_text_is_read_whole_by_a_statement_of_its_own(
    tree: SqlTree, read: Callable[[SqlTree], Node | list[Node]]
) -> None:
    write(tree)
    with counted(tree.database) as statements, tree.one_read():
        found = read(tree)
    nodes: Sequence[Node] = [found] if isinstance(found, Node) else found
    assert nodes[0].data == WRITTEN[LONG]
    assert len(statements) == 2


def test_the_clock_goes_on_in_one_read(tree: SqlTree, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [1_000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    with tree.one_read():
        before_ms = tree._views.now_ms()
        now_s[0] += 1.5
        assert tree._views.now_ms() == before_ms + 1_500
    assert abs(tree._views.now_ms() - before_ms) < 60_000


def test_after_a_change_of_its_own_a_thread_reads_what_there_is(tree: SqlTree) -> None:
    write(tree)
    with tree.one_read():
        changed = tree.set(PATH, "changed", version=0)
        assert tree.get(PATH) == changed
        tree.delete(PATH, version=1)
        assert tree.children("/admin/failed_brokers") == ["4"]


def test_what_others_change_is_seen_by_the_next_read_and_after_an_end(tree: SqlTree) -> None:
    write(tree)
    with ThreadPoolExecutor(1) as other, tree.one_read():
        other.submit(tree.set, PATH, "changed", version=0).result()
        assert [node and node.version for node in tree.read([PATH])] == [0]
        assert other.submit(tree.read, [PATH]).result() != tree.read([PATH])
        tree.end_read()
        assert [node and node.version for node in tree.read([PATH])] == [1]
    with tree.one_read():
        assert [node and node.version for node in tree.read([PATH])] == [1]


def test_an_answer_is_never_older_than_some_seconds(tree: SqlTree, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tree)
    now_s = [1_000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    with ThreadPoolExecutor(1) as other, tree.one_read():
        other.submit(tree.set, PATH, "changed", version=0).result()
        now_s[0] += view.LIFETIME_S
        assert [node and node.version for node in tree.read([PATH])] == [1]


def test_of_too_many_documents_no_view_is_read_and_none_is_tried_for_a_while(
    tree: SqlTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tree)
    before = answers(tree)
    now_s = [1_000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(view, "MOST", 3)
    crowded = SqlTree(Views(tree.database))
    for later_s, views in ((0.0, 1), (29.0, 0), (2.0, 1)):
        now_s[0] += later_s
        with counted(tree.database) as statements, crowded.one_read():
            assert answers(crowded) == before
        assert sum("UNION" in statement for statement in statements) == views


def test_an_invalid_path_is_refused_in_one_read_too(tree: SqlTree) -> None:
    with tree.one_read():
        for path in ("/admin/../secret", "/admin//3", "admin"):
            with pytest.raises(RequestError):
                tree.get(path)
            with pytest.raises(RequestError):
                tree.children(path)


# Our own state


@pytest.fixture
def rows(tree: SqlTree) -> StateTable:
    """The state beside the documents, in the same views."""
    state = StateTable(tree._views)
    assert state.write("things", {"a": "1", "b": "2", "long": "x" * (view.LONGEST + 1)}, {}) is not None
    assert state.write("others", {"": "3"}, {}) is not None
    assert state.write(QUARANTINE.name, {"7": "4"}, {}) is not None
    return state


WANTED: list[tuple[str, str | None]] = [("things", "a"), ("things", "none"), ("others", None), ("nothing", None)]


def test_rows_come_with_the_documents_in_the_same_statement(tree: SqlTree, rows: StateTable) -> None:
    write(tree)
    before = rows.select(WANTED)
    assert [(row.noun, row.key, row.text) for row in before] == [("others", "", "3"), ("things", "a", "1")]
    with counted(tree.database) as statements, tree.one_read():
        assert rows.select(WANTED) == before
        assert tree.get(PATH) is not None
        assert rows.now_ms() > 0
    assert len(statements) == 1


def test_a_long_row_is_read_whole_by_a_statement_of_its_own(tree: SqlTree, rows: StateTable) -> None:
    before = rows.select([("things", None)])
    with counted(tree.database) as statements, rows.one_read():
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
        rows.end_read()
        assert text() == "changed"
    with rows.one_read():
        changed: StoredRow = rows.select([("others", "")])[0]
        rows.write("others", {"": "ours"}, {"": changed})
        assert text() == "ours"
