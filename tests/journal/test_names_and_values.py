"""Names, paths and values of nodes, and fields of JSON: what is taken, and what is refused in words."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import DocumentError, RequestError
from kafka_steward.journal import paths
from kafka_steward.journal.document import MAX_WORDS, FieldReader, parse_json, read_fields
from kafka_steward.journal.kip_documents import (
    AnnouncedRestartDocument,
    CancelRequest,
    FailedBroker,
    InFlight,
    ReassignmentsDisabled,
    Request,
)

_NAMES = st.text() | st.text("0123456789") | st.integers().map(str)


@given(_NAMES)
def test_a_number_has_one_name(name: str) -> None:
    number = paths.BROKER.parse(name)
    assert number is None or (str(number) == name and 0 <= number < 2**31)


@pytest.mark.parametrize(
    ("names", "are_ids"),
    [
        (["0", "3", "2147483647"], True),
        (["", "03", "0003", "-1", "+1", "3\n", " 3", "٣", "2147483648", "9" * 11, "9" * 5000, "1e3", "0x1"], False),
    ],
)
def test_a_broker_and_a_partition_are_named_by_their_ids_and_by_nothing_else(names: list[str], are_ids: bool) -> None:
    for name in names:
        assert paths.BROKER.parse(name) == paths.PARTITION.parse(name) == (int(name) if are_ids else None)


@pytest.mark.parametrize("name", ["", ".", "a/b", "by\nhand", "x" * 901, "\u202ea", "\ue000"])
def test_a_request_may_have_any_name_that_zookeeper_takes(name: str) -> None:
    assert paths.REQUEST.parse(name) is None
    assert paths.REQUEST.parse("from ada: =1+1") == "from ada: =1+1"


@pytest.mark.parametrize(("name", "number"), [("request_0000000007", 7), ("request_" + "7" * 20, None), ("x_1", None)])
def test_requests_are_numbered(name: str, number: int | None) -> None:
    assert paths.request_number(name) == number


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"a":' * 21 + "1" + "}" * 21, "/x contains lists or objects more than 20 deep"),
        ('{"a": 1e400}', "too large"),
        ('{"a": ' + "1" * 5000 + "}", "/x does not contain JSON"),
        ('"' + "x" * 1_000_000 + '"', "/x has more than the 1000000 bytes of a document"),
        ('"' + "ö" * 600_000 + '"', "/x has more than the 1000000 bytes of a document"),
    ],
    ids=["deep", "infinite", "digits", "large", "large in UTF-8"],
)
def test_json_is_bounded(text: str, sentence: str) -> None:
    with pytest.raises(DocumentError, match=sentence):
        parse_json("/x", text)
    assert parse_json("/x", "[" * 20 + "]" * 20) == json.loads("[" * 20 + "]" * 20)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (FailedBroker, '{"failure_timestamp": 9007199254740992}'),
        (AnnouncedRestartDocument, '{"timestamp": 1, "expiry": 1' + "0" * 400 + "}"),
        (InFlight, '{"replicas": [1], "plan": "not a digest!"}'),
        (InFlight, '{"replicas": [1], "plan": "/"}'),
        (InFlight, '{"replicas": [2147483648]}'),
        (InFlight, '{"replicas": [true]}'),
        (InFlight, json.dumps({"replicas": list(range(1001))})),
        (Request, '{"partitions": [{"topic": "my topic", "partition": 0, "replicas": [1]}]}'),
        (Request, '{"partitions": [{"topic": "\\ud800", "partition": 0, "replicas": [1]}]}'),
        (Request, '{"partitions": [{"topic": "t", "partition": 100000000000000000000, "replicas": [1]}]}'),
        (Request, '{"assignments": {"a b": {"0": [1]}}}'),
        (Request, '{"assignments": {"t": {"00": [1]}}}'),
        (Request, '{"assignments": {"t": {"' + "1" * 5000 + '": [1]}}}'),
    ],
)
def test_what_no_such_document_can_hold_is_refused(kind: type[FailedBroker], text: str) -> None:
    with pytest.raises(DocumentError, match=r"^/x"):
        kind.from_json(text, "/x")


@pytest.mark.parametrize("kind", [CancelRequest, ReassignmentsDisabled])
def test_a_persons_words_are_cut_and_cleaned_and_never_make_a_document_unreadable(
    kind: type[CancelRequest | ReassignmentsDisabled],
) -> None:
    text = json.dumps({"person": "\ud800ada\x1b[2J", "reason": "two\nlines " + "r" * 900_000})
    read = kind.from_json(text, "/x")
    assert read.person == "\ufffdada\ufffd[2J"
    assert read.reason is not None
    assert read.reason.startswith("two lines rrr")
    assert len(read.reason) == MAX_WORDS
    assert read.to_json() == text


def test_a_sentence_about_a_hostile_name_can_be_printed() -> None:
    with pytest.raises(DocumentError, match=r"^/a\\x0aINFO fine, partitions\[0\] has 'topic' = "):
        Request.from_json('{"partitions": [{"topic": "\\u001b", "partition": 0, "replicas": []}]}', "/a\nINFO fine")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (paths.failed_broker(3), "/admin/failed_brokers/3"),
        (paths.rolling_bounce(0), "/admin/rolling_bounce/0"),
        (paths.REASSIGN_CANCEL, "/admin/reassign_cancel"),
        (paths.CANCEL_IN_PROGRESS, "/admin/cancel_reassignment_in_progress"),
        (paths.REQUEST_PREFIX, "/admin/reassignment_requests/request_"),
        (paths.REASSIGN_QUEUE, "/admin/reassign_partitions_queue"),
        (paths.CHUNK_PREFIX, "/admin/reassign_chunks/chunk_"),
        (paths.chunk("chunk_0000000001"), "/admin/reassign_chunks/chunk_0000000001"),
        (paths.reassignment(TopicPartition("a.b_C-d", 7)), "/admin/reassignments/a.b_C-d/7"),
        (paths.reassignments_of("t"), "/admin/reassignments/t"),
        (paths.failed_broker(2**31 - 1), "/admin/failed_brokers/2147483647"),
        (paths.reassignments_of("t" * 249), f"/admin/reassignments/{'t' * 249}"),
    ],
)
def test_paths_are_the_designs(path: str, expected: str) -> None:
    assert path == expected
    assert paths.validate_path(path) == path


OTHERS = ["", ".", "..", "a/b", "../reassign_cancel", "a b", "ü", "a\n", "t" * 250, "a\x00"]


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize(
    ("what", "path"),
    [
        ("topic", lambda name: paths.reassignment(TopicPartition(name, 0))),
        ("topic", paths.reassignments_of),
        ("chunk", paths.chunk),
    ],
)
def test_no_name_reaches_another_node(what: str, path: Callable[[str], str], name: str) -> None:
    with pytest.raises(RequestError) as refused:
        path(name)
    assert str(refused.value) == (
        f"{name[:80]!r} is no {what}: at most 249 letters, digits, dots, underscores and hyphens."
    )


@pytest.mark.parametrize("number", [-1, 2**31, True])
@pytest.mark.parametrize(
    ("what", "path"),
    [
        ("broker id", paths.failed_broker),
        ("broker id", paths.rolling_bounce),
        ("partition", lambda number: paths.reassignment(TopicPartition("t", number))),
    ],
)
def test_numbers_are_kafkas(what: str, path: Callable[[int], str], number: int) -> None:
    with pytest.raises(RequestError) as refused:
        path(number)
    assert str(refused.value) == (
        f"'{number}' is no {what}, a whole number from 0 to 2147483647 without leading zeros."
    )


def test_a_path_is_as_long_as_every_backend_takes() -> None:
    longest = "/" + "a" * 1023
    assert paths.validate_path(longest) == longest
    with pytest.raises(RequestError) as refused:
        paths.validate_path(f"{longest}a")
    assert str(refused.value) == (
        f"'/{'a' * 79}' is not a path in the journal; a path looks like /admin/failed_brokers/3."
    )


@pytest.mark.parametrize(("name", "broker"), [("3", 3), ("0", 0), ("x", None), ("-1", None), ("٣", None), ("", None)])
def test_a_child_that_names_no_broker_is_left_out(name: str, broker: int | None) -> None:
    assert paths.BROKER.parse(name) == broker


def test_names_and_ids_at_their_limits() -> None:
    longest = "r" * 900
    assert [paths.REQUEST.parse(name) for name in (longest, longest + "r", ".", "..")] == [longest, None, None, None]
    assert [paths.is_broker_or_partition_id(number) for number in (0, 2**31 - 1, 2**31)] == [True, True, False]


NUMBER, TEXT, FLAG, LIST = "a whole number of at least 0", "a string", "true or false", "a list"
BROKERS, TEXTS = "a list of broker ids", "a list of strings"


def take(kind: str, value: Any) -> Any:
    return getattr(FieldReader("/x", {"key": value}), kind)("key")


@pytest.mark.parametrize(
    ("kind", "value", "taken"),
    [
        ("integer", 0, 0),
        ("text", "", ""),
        ("flag", False, False),
        ("brokers", [], ()),
        ("brokers", [3, 0, 1], (3, 0, 1)),
        ("texts", ["b", "", "a"], ("b", "", "a")),
    ],
)
def test_each_kind_is_taken_as_it_is(kind: str, value: Any, taken: Any) -> None:
    assert take(kind, value) == taken


@pytest.mark.parametrize(
    ("kind", "value", "belongs"),
    [
        ("integer", -1, NUMBER),
        ("integer", 1.0, NUMBER),
        ("integer", True, NUMBER),
        ("integer", None, NUMBER),
        ("text", 1, TEXT),
        ("flag", 1, FLAG),
        ("brokers", "12", LIST),
        ("brokers", [1, -1], BROKERS),
        ("brokers", [1, True], BROKERS),
        ("brokers", ["1"], BROKERS),
        ("texts", "ab", LIST),
        ("texts", ["a", 1], TEXTS),
        ("objects", 7, LIST),
    ],
)
def test_another_kind_is_refused_with_what_is_expected(kind: str, value: Any, belongs: str) -> None:
    with pytest.raises(DocumentError) as refused:
        take(kind, value)
    assert (
        str(refused.value) == f"/x has 'key' = {json.dumps(value)} where {belongs} is expected; correct or delete it."
    )


def test_a_number_may_be_as_large_as_the_limit_and_no_larger() -> None:
    fields = FieldReader("/x", {"key": 7, "more": 8})
    assert fields.integer("key", high=7) == 7
    with pytest.raises(DocumentError, match=r"has 'more' = 8 where a whole number of at most 7 is expected"):
        fields.integer("more", high=7)


@pytest.mark.parametrize("kind", ["brokers"])
def test_a_broker_that_is_named_twice_is_refused(kind: str) -> None:
    with pytest.raises(DocumentError) as refused:
        take(kind, [1, 2, 1])
    assert str(refused.value) == "/x names a broker twice in 'key' = [1, 2, 1]; correct or delete it."


@pytest.mark.parametrize("kind", ["integer", "text", "flag", "brokers", "texts", "objects", "object"])
def test_a_field_that_is_missing_is_named(kind: str) -> None:
    with pytest.raises(DocumentError) as refused:
        getattr(FieldReader("/x", {}), kind)("key")
    assert str(refused.value) == "/x has no 'key'; correct or delete it."


@pytest.mark.parametrize(
    ("value", "held"),
    [([], "a list"), ("", "a string"), (True, "a truth value"), (1, "a number"), (1.5, "a number"), (None, "nothing")],
)
def test_what_is_no_object_is_refused_with_its_place(value: Any, held: str) -> None:
    places: dict[str, Callable[[], object]] = {
        "/x": lambda: FieldReader("/x", value),
        "/x, key": lambda: take("object", value),
        "/x, key[1]": lambda: take("objects", [{}, value]),
    }
    for place, read in places.items():
        with pytest.raises(DocumentError) as refused:
            read()
        assert str(refused.value) == f"{place} holds {held} where an object is expected; correct or delete it."


@pytest.mark.parametrize(("length", "shown"), [(58, '"' + "a" * 58 + '"'), (59, '"' + "a" * 56 + "...")])
def test_a_long_value_is_shown_in_part(length: int, shown: str) -> None:
    with pytest.raises(DocumentError) as refused:
        take("integer", "a" * length)
    assert str(refused.value) == f"/x has 'key' = {shown} where {NUMBER} is expected; correct or delete it."


def test_what_is_absent_and_what_is_null_is_none_and_neither_is_left_over() -> None:
    fields = FieldReader("/x", {"null": None, "zero": 0, "more": [1]})
    assert (fields.optional("null", fields.integer), fields.optional("absent", fields.integer)) == (None, None)
    assert fields.optional("zero", fields.integer) == 0
    assert fields.peek("more") == [1]
    assert fields.peek("absent") is None
    assert fields.remaining() == {"more": [1]}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "Expecting value: line 1 column 1 (char 0)"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a": NaN}', "NaN is not JSON"),
        ('{"a": -Infinity}', "-Infinity is not JSON"),
        ("{", "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
    ],
    ids=range(5),
)
def test_what_is_no_json_is_refused_with_the_place(text: str, why: str) -> None:
    with pytest.raises(DocumentError) as refused:
        read_fields("/x", text)
    assert str(refused.value) == f"/x does not contain JSON ({why}); correct or delete it."


@pytest.mark.parametrize(("newest", "version"), [(1, 2), (3, 4)])
def test_a_newer_version_is_refused_with_both_numbers(newest: int, version: int) -> None:
    assert read_fields("/x", f'{{"version": {newest}}}', newest=newest).remaining() == {"version": newest}
    with pytest.raises(DocumentError) as refused:
        read_fields("/x", f'{{"version": {version}}}', newest=newest)
    assert str(refused.value) == (
        f"/x was written by a newer Kafka Steward (version {version}; this one reads up to {newest}); upgrade this one."
    )


def test_what_others_added_comes_after_what_is_known_and_what_is_none_is_left_out() -> None:
    assert ReassignmentsDisabled(person="ann", extra={"c": None}).to_json() == '{"version":1,"person":"ann","c":null}'
    assert FailedBroker(5, extra={"c": [1, 2]}).to_json() == '{"failure_timestamp": 5, "c": [1, 2]}'
