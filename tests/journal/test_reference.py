"""docs/reference/journal.md: its schemas hold for what is written and for the KIPs' examples, and its SQL works."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import sqlalchemy as sa

from kafka_steward.document_api.request_documents import read_requests
from kafka_steward.journal.kip_documents import (
    AnnouncedRestartDocument,
    CancelRequest,
    Chunk,
    ChunkPartition,
    FailedBroker,
    InFlight,
    ReassignmentsDisabled,
    Request,
)
from kafka_steward.journal.plans import Approval
from kafka_steward.journal.records import DeferredPartitions, PendingReplicas, WatchLease
from kafka_steward.journal.store import open_journal
from tests.present import present

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/journal.md").read_text()
KIPS = ROOT / "tests/journal/kips"
SCHEMAS = {name: json.loads(text) for name, text in re.findall(r'```json title="(\w+)"\n(.*?)```', PAGE, re.DOTALL)}
MOVED = (ChunkPartition("t", 0, (1, 2), (2, 3), "id"),)
DOCUMENTS = [
    ("failed_brokers", FailedBroker(5).to_json()),
    ("rolling_bounce", AnnouncedRestartDocument(5, 7).to_json()),
    ("reassign_cancel", ReassignmentsDisabled("ada", "racks").to_json()),
    ("cancel_reassignment_in_progress", CancelRequest("d", "plan", "ada", "why").to_json()),
    ("reassignment_requests", Request(MOVED, legacy=True).to_json()),
    ("reassignment_requests", (KIPS / "236_request.json").read_text()),
    ("reassignment_requests", (KIPS / "236_submitted.json").read_text()),
    ("reassign_partitions_queue", (KIPS / "236_queue.json").read_text()),
    ("reassign_chunks", Chunk(MOVED, True, "d", 0).to_json()),
    ("reassignments", InFlight((1, 2), (2, 3), True, 2, "d").to_json()),
    ("pending_replicas", PendingReplicas.from_brokers((2, 1), 3, "id").to_json()),
    ("deferred_partitions", DeferredPartitions(12, "id", "ada").to_json()),
    ("watch_leases", WatchLease("airflow-1:4711:0a1b", 17_000, polled=True).to_json()),
    ("approvals", Approval("3f2a91c0" * 8, "ann", "looks right", 5).to_json()),
]


@pytest.mark.parametrize(("name", "text"), DOCUMENTS)
def test_what_is_written_and_the_kips_examples_fit_the_schema(name: str, text: str) -> None:
    jsonschema.validate(json.loads(text), SCHEMAS[name])


def test_every_path_has_a_schema_and_every_schema_a_document() -> None:
    paths = set(re.findall(r"^\| \[`/(?:admin|steward)/(\w+)", PAGE, re.MULTILINE)) - {"reassign_partitions"}
    assert paths == set(SCHEMAS) == {name for name, _ in DOCUMENTS}


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
        node = present(journal.tree.get(REQUEST))
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
