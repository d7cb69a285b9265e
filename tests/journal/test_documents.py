"""Each document as it is stored: the KIPs' examples byte for byte, and what releases and others wrote is not lost."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import jsonschema
import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from kafka_steward.document_api.request_documents import read_requests
from kafka_steward.errors import DocumentError
from kafka_steward.journal.document import Document, FieldPresence, TopicName, Words
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
from kafka_steward.journal.mailbox import read_one
from kafka_steward.journal.store import open_journal
from tests.documents import create_document
from tests.present import present

_KIPS = Path(__file__).parent / "kips"
# KIP-236 prints this znode as it was read from a real cluster.
KIP_236_PENDING = (
    '{"version":1,"partitions":[{"topic":"test_topic","partition":25,"replicas":[1,2,4],"original_replicas":[1,2,3]}]}'
)
# KIP-236's other examples, with the brackets that the page lost, tabs and all.
KIP_236_SUBMITTED = (_KIPS / "236_submitted.json").read_text()
KIP_236_QUEUE = (_KIPS / "236_queue.json").read_text()
KIP_236_REQUEST = (_KIPS / "236_request.json").read_text()
KIP_46_FAILED = '{ "failure_timestamp" : 1431644400000 }'
KIP_46_BOUNCE = '{"timestamp" : 1431644400000}'

PENDING = (ChunkPartition("test_topic", 25, (1, 2, 4), (1, 2, 3)),)
SUBMITTED = (ChunkPartition("foo1", 0, (1, 2, 4), (1, 2, 3)), ChunkPartition("foo2", 1, (57, 69, 8), (75, 96, 8)))
QUEUED = (ChunkPartition("foo1", 0, (1, 2, 5)), ChunkPartition("foo2", 1, (7, 9, 10)))
ASKED = (ChunkPartition("my-topic", 0, (1, 2, 3)), ChunkPartition("your-topic", 3, (4, 5, 6)))


@pytest.mark.parametrize(
    ("text", "document"),
    [
        (KIP_46_FAILED, FailedBroker(1431644400000)),
        (KIP_46_BOUNCE, AnnouncedRestartDocument(1431644400000)),
        (KIP_236_PENDING, Request(PENDING)),
        (KIP_236_SUBMITTED, Request(SUBMITTED)),
        (KIP_236_QUEUE, Request(QUEUED)),
        (KIP_236_REQUEST, Request(ASKED, legacy=True)),
        (KIP_236_PENDING, Chunk(PENDING)),
        ("", CancelRequest()),
    ],
)
def test_the_kips_examples_are_read_and_written_back_unchanged(text: str, document: Document) -> None:
    read = type(document).from_json(text)
    assert read == document
    assert read.to_json() == text


def test_each_field_is_read_and_written_as_its_annotation_says() -> None:
    @dataclass(frozen=True)
    class Sample(Document):  # a new class each time: its format is made when it is first read, and kept
        topic: TopicName
        renamed: Annotated[int, "otherName"]
        signal: CancelRequest
        person: Words | None = None
        few: Annotated[int, FieldPresence.OMITTED] = 0

    whole = Sample("t", 1, CancelRequest("d1"), "ann", 3)
    text = '{"version":1,"topic":"t","otherName":1,"signal":{"version":1,"plan":"d1","scope":"pending"},'
    assert whole.to_json() == text + '"person":"ann","few":3}'
    assert Sample.from_json(whole.to_json()) == whole
    assert replace(whole, person=None, few=0).to_json() == text[:-1] + "}"
    assert Sample.from_json(text[:-1] + "}") == replace(whole, person=None, few=0)
    with pytest.raises(DocumentError, match="/x has no 'topic'"):
        Sample.from_json('{"version":1,"otherName":1}', "/x")
    with pytest.raises(DocumentError, match="/x has 'topic' = \"my topic\" where"):
        Sample.from_json('{"version":1,"topic":"my topic"}', "/x")


def test_unknown_fields_are_kept_when_a_document_is_changed() -> None:
    text = '{"timestamp": 1, "by": {"host": "a"}}'
    changed = replace(AnnouncedRestartDocument.from_json(text), expiry_ms=2)
    assert json.loads(changed.to_json()) == {"timestamp": 1, "expiry": 2, "by": {"host": "a"}}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"partitions":[1]}', r"/x, partitions\[0\] holds a number where an object is expected"),
        ('{"partitions":[{"topic":"t","partition":0}]}', r"/x, partitions\[0\] has no 'replicas'"),
        (
            '{"assignments":{"t":{"zero":[1]}}}',
            "/x, assignments, t names the partition 'zero', which is not a partition number",
        ),
        (
            '{"assignments":{"t":{"٣":[1]}}}',
            "/x, assignments, t names the partition '٣', which is not a partition number",
        ),
        (
            '{"assignments":{"t":{"-1":[1]}}}',
            "/x, assignments, t names the partition '-1', which is not a partition number",
        ),
        (
            f'{{"assignments":{{"t":{{"{"x" * 21}":[1]}}}}}}',
            f"names the partition '{'x' * 20}', which is not a partition number",
        ),
    ],
)
def test_a_malformed_request_is_refused_with_place_and_fault(text: str, sentence: str) -> None:
    with pytest.raises(DocumentError, match=sentence):
        Request.from_json(text, "/x")


def test_assignments_by_topic_are_in_the_order_of_topics_and_numbers() -> None:
    text = '{"assignments":{"u":{"0":[5]},"t":{"10":[1,2],"9":[2],"2":[4,3]}}}'
    assert Request.from_json(text).partitions == (
        ChunkPartition("t", 2, (4, 3)),
        ChunkPartition("t", 9, (2,)),
        ChunkPartition("t", 10, (1, 2)),
        ChunkPartition("u", 0, (5,)),
    )


PENDING_CANCEL, WHOLE_PLAN = (
    CancelRequest(person="ann", reason="a"),
    CancelRequest(scope="plan", person="bob", reason="b"),
)


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [
        (PENDING_CANCEL, PENDING_CANCEL, PENDING_CANCEL),
        (PENDING_CANCEL, replace(PENDING_CANCEL, person="carl"), PENDING_CANCEL),
        (PENDING_CANCEL, WHOLE_PLAN, WHOLE_PLAN),
        (WHOLE_PLAN, PENDING_CANCEL, WHOLE_PLAN),
        (WHOLE_PLAN, replace(WHOLE_PLAN, person="carl"), WHOLE_PLAN),
        (PENDING_CANCEL, replace(WHOLE_PLAN, even_if_disabled=True), replace(WHOLE_PLAN, even_if_disabled=True)),
        (replace(PENDING_CANCEL, even_if_disabled=True), WHOLE_PLAN, replace(WHOLE_PLAN, even_if_disabled=True)),
        (WHOLE_PLAN, replace(PENDING_CANCEL, even_if_disabled=True), replace(WHOLE_PLAN, even_if_disabled=True)),
        (
            PENDING_CANCEL,
            replace(PENDING_CANCEL, person="carl", even_if_disabled=True),
            replace(PENDING_CANCEL, even_if_disabled=True),
        ),
    ],
)
def test_two_requests_in_one_ask_for_as_much_as_either(
    first: CancelRequest, second: CancelRequest, both: CancelRequest
) -> None:
    assert first.merge(second) == both


def test_an_unknown_scope_is_refused() -> None:
    with pytest.raises(DocumentError, match="'scope' = 'all' where pending or plan is expected"):
        CancelRequest.from_json('{"scope": "all"}', "/x")


OF_KIPS = [FailedBroker, AnnouncedRestartDocument, Chunk, InFlight, Request, CancelRequest]
KEYS = ["version", "partitions", "topic", "partition", "replicas", "timestamp", "status", "who"]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS) | st.text(), inner, max_size=6),
)


@given(st.sampled_from(OF_KIPS), VALUES.map(json.dumps) | st.text())
def test_whatever_comes_from_outside_is_read_or_refused_in_words(kind: type[Document], text: str) -> None:
    assert _read(kind, text) in {text, "/x"}


def _read(kind: type[Document], text: str) -> str:
    """What is written back, or where the fault lies."""
    try:
        return kind.from_json(text, "/x").to_json()
    except DocumentError as error:
        return str(error)[:2]


PARTITION = ChunkPartition("t", 3, (1, 2), (2, 3), "id-1")
PARTITION_TEXT = '{"topic":"t","partition":3,"replicas":[1,2],"original_replicas":[2,3],"topic_id":"id-1"}'
#: Each with every field that it can have.
STORED: list[tuple[Document, str]] = [
    (FailedBroker(5), '{"failure_timestamp": 5}'),
    (AnnouncedRestartDocument(5, 9), '{"timestamp": 5, "expiry": 9}'),
    (AnnouncedRestartDocument(5), '{"timestamp": 5}'),
    (PARTITION, PARTITION_TEXT),
    (
        Chunk((PARTITION,), is_auto_generated=True, plan="d1", chunk=2),
        f'{{"version":1,"partitions":[{PARTITION_TEXT}],"isAutoGenerated":true,"plan":"d1","chunk":2}}',
    ),
    (
        InFlight((1, 2), (2, 3), legacy=True, top=2, plan="d1"),
        '{"version":1,"replicas":[2,3],"original_replicas":[1,2],"legacy":true,"top":2,"plan":"d1"}',
    ),
    (Request((PARTITION,), legacy=True), f'{{"version":1,"partitions":[{PARTITION_TEXT}],"legacy":true}}'),
    (
        CancelRequest("d1", "plan", "ann", "not now", even_if_disabled=True),
        '{"version":1,"plan":"d1","scope":"plan","person":"ann","reason":"not now","even_if_disabled":true}',
    ),
    (ReassignmentsDisabled("ann", "not now"), '{"version":1,"person":"ann","reason":"not now"}'),
]
#: What is read where everything that may be left out is left out.
SHORTEST: list[tuple[Document, str]] = [
    (AnnouncedRestartDocument(5), '{"timestamp":5}'),
    (ChunkPartition("t", 3, (1,)), '{"topic":"t","partition":3,"replicas":[1]}'),
    (Chunk(()), '{"partitions":[]}'),
    (InFlight(None, (1,)), '{"replicas":[1]}'),
    (InFlight((), (1,)), '{"replicas":[1],"original_replicas":[]}'),
    (Request(()), '{"partitions":[]}'),
    (CancelRequest(), "{}"),
    (CancelRequest(), " \n"),
    (ReassignmentsDisabled(), "{}"),
    (ReassignmentsDisabled(), " \n"),
]
each_stored = pytest.mark.parametrize(("document", "text"), STORED, ids=[type(each).__name__ for each, _ in STORED])


def values_of(kind: type[Document]) -> dict[str, Any]:
    return next(dict(json.loads(text)) for document, text in STORED if type(document) is kind)


@each_stored
def test_each_is_written_and_read_in_this_form(document: Document, text: str) -> None:
    assert document.to_json() == text
    assert type(document).from_json(text) == document
    spaced = json.dumps(json.loads(text), indent=1)
    assert type(document).from_json(spaced).to_json() == spaced, "what was not changed is written back byte for byte"
    # What someone added is kept when it is written anew.
    longer = {**json.loads(text), "added": {"by": "someone"}}
    read = type(document).from_json(json.dumps(longer))
    assert json.loads(replace(read, source=None).to_json()) == longer


def test_what_someone_added_within_it_is_kept_too() -> None:
    longer = values_of(Request)
    longer["partitions"][0]["added"] = "by someone"
    read = Request.from_json(json.dumps(longer))
    assert json.loads(replace(read, source=None).to_json()) == longer


@each_stored
def test_each_field_that_holds_something_else_is_named(document: Document, text: str) -> None:
    values = json.loads(text)
    for key in values:
        with pytest.raises(DocumentError, match=f"/x(, {key})? (has '{key}' = 1.5 where|holds a number where)"):
            type(document).from_json(json.dumps({**values, key: 1.5}), "/x")


@pytest.mark.parametrize(("document", "text"), SHORTEST)
def test_what_is_left_out_is_as_if_it_were_null(document: Document, text: str) -> None:
    assert type(document).from_json(text) == document
    absent = {key: None for key in values_of(type(document)) if f'"{key}"' not in text}
    absent.pop("version", None)
    assert type(document).from_json(json.dumps({**json.loads(text.strip() or "{}"), **absent})) == document


ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/journal.md").read_text()
KIPS = ROOT / "tests/journal/kips"
SCHEMAS: dict[str, Any] = json.loads((ROOT / "docs/reference/journal.schema.json").read_text())["$defs"]
#: The example of each node on the page, by the heading that its row of the table leads to.
EXAMPLES = [
    (node, re.findall(r"```json\n(.*?)```", section, re.DOTALL))
    for node, anchor in re.findall(r"^\| \[`/admin/(\w+)[^]]*\]\(#([\w-]+)\)", PAGE, re.MULTILINE)
    for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)
    if section.partition("\n")[0].lower().replace(" ", "-") == anchor and node in SCHEMAS
]
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
]


@pytest.mark.parametrize(("name", "text"), DOCUMENTS)
def test_what_is_written_and_the_kips_examples_fit_the_schema(name: str, text: str) -> None:
    jsonschema.validate(json.loads(text), SCHEMAS[name])


def test_each_example_of_the_page_fits_its_schema() -> None:
    assert {name for name, _ in EXAMPLES} == set(SCHEMAS)
    for name, texts in EXAMPLES:
        assert texts, name
        for text in texts:
            jsonschema.validate(json.loads(text), SCHEMAS[name])


def test_every_path_has_a_schema_and_every_schema_a_document() -> None:
    paths = set(re.findall(r"^\| \[`/admin/(\w+)", PAGE, re.MULTILINE)) - {"reassign_partitions"}
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
        before = create_document(journal.mailbox, "/other/something", "")
        with driver(url) as run:
            run(statement("INSERT", name))
        node = present(read_one(journal.mailbox, REQUEST))
        assert (node.version, node.created_id == node.modified_id > before.modified_id) == (0, True)
        assert node.created_ms == node.modified_ms
        assert abs(node.created_ms - time.time() * 1000) < 60_000
        ((document,), more) = read_requests(journal.mailbox)
        assert [(str(each.partition), each.replicas) for each in document.requested] == [("my-topic-0", (1, 2, 4))]
        assert not more
        with driver(url) as run:
            assert [tuple(row) for row in run(statement("SELECT", name))] == [(REQUEST, node.data)]
            run(statement("DELETE", name))
        assert read_one(journal.mailbox, REQUEST) is None
        create_document(journal.mailbox, REQUEST, "later")  # the ids go on


def test_every_printed_statement_is_tried() -> None:
    tried = {statement(verb, name) for verb in ("INSERT", "SELECT", "DELETE") for name in ("sqlite", "postgresql")}
    assert tried == {text for _, text in PRINTED}
    assert {name for name, _ in PRINTED} == {"", "sqlite", "postgresql"}
