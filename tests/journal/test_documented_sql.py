"""The SQL of docs/reference/journal.md, exactly as printed, on each database that the page names."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from kafka_steward.document_api.request_documents import read_requests
from kafka_steward.journal.store import open_journal

PAGE = (Path(__file__).parents[2] / "docs/reference/journal.md").read_text()
#: Each printed statement and the database that it is for; empty: both.
PRINTED: list[tuple[str, str]] = re.findall(r'```sql(?: title="(\w+)")?\n(.*?)```', PAGE, re.DOTALL)
CLUSTER, REQUEST = "KAFKAS-CLUSTER-ID", "/admin/reassignment_requests/from-ada-1"


def statement(verb: str, database: str) -> str:
    (found,) = [text for of, text in PRINTED if of in ("", database) and text.startswith(verb)]
    return found


@contextmanager
def driver(url: str) -> Iterator[Callable[[str], Any]]:
    """The database's own driver, which gets the text as it is: no parameters, nothing of ours."""
    engine = sa.create_engine(url)
    raw = engine.raw_connection()
    try:

        def run(text: str) -> Any:
            cursor = raw.cursor()
            cursor.execute(text)
            return cursor.fetchall() if cursor.description else None

        yield run
        raw.commit()
    finally:
        raw.close()
        engine.dispose()


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Its name on the page, and a journal's URL."""
    fixture = "sqlite_url" if request.param == "sqlite" else "postgres_url"
    return request.param, request.getfixturevalue(fixture)


def test_a_request_is_written_read_and_withdrawn_by_the_printed_statements(database: tuple[str, str]) -> None:
    name, url = database
    with open_journal(url, CLUSTER) as journal:
        before = journal.tree.create("/steward/something", "")
        with driver(url) as run:
            run(statement("INSERT", name))
        node = journal.tree.get(REQUEST)
        assert node is not None
        assert (node.version, node.created_id == node.modified_id > before.modified_id) == (0, True)
        assert node.created_ms == node.modified_ms
        assert abs(node.created_ms - time.time() * 1000) < 60_000
        ((document,), more) = read_requests(journal.tree)
        assert [(str(each.partition), each.replicas) for each in document.requested] == [("my-topic-0", (1, 2, 4))]
        assert not more
        with driver(url) as run:
            assert [tuple(row) for row in run(statement("SELECT", name))] == [(REQUEST, node.data)]
            run(statement("DELETE", name))
        assert journal.tree.get(REQUEST) is None
        journal.tree.create(REQUEST, "later")  # the ids go on


def test_every_printed_statement_is_tried() -> None:
    tried = {statement(verb, name) for verb in ("INSERT", "SELECT", "DELETE") for name in ("sqlite", "postgresql")}
    assert tried == {text for _, text in PRINTED}
    assert {name for name, _ in PRINTED} == {"", "sqlite", "postgresql"}
