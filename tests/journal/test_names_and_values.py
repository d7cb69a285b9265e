"""Names and values of nodes: what is taken, and what is refused in words."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_steward.errors import DocumentError
from kafka_steward.journal import paths
from kafka_steward.journal.document import MAX_WORDS, parse_json
from kafka_steward.journal.kip_documents import (
    AnnouncedRestartDocument,
    CancelRequest,
    FailedBroker,
    InFlight,
    ReassignmentsDisabled,
    Request,
)
from kafka_steward.journal.records import Lock, SlotOwnership, ThrottleLease

_NAMES = st.text() | st.text("0123456789") | st.integers().map(str)


@given(_NAMES)
def test_a_number_has_one_name(name: str) -> None:
    number = paths.BROKER.parse(name)
    assert number is None or (str(number) == name and 0 <= number < 2**31)


@pytest.mark.parametrize("name", ["0", "3", "2147483647"])
def test_a_broker_is_named_by_its_id(name: str) -> None:
    assert paths.BROKER.parse(name) == paths.PARTITION.parse(name) == int(name)


@pytest.mark.parametrize(
    "name", ["", "03", "0003", "-1", "+1", "3\n", " 3", "٣", "2147483648", "99999999999", "9" * 5000, "1e3", "0x1"]
)
def test_no_other_name_is_a_brokers(name: str) -> None:
    assert paths.BROKER.parse(name) is None


@pytest.mark.parametrize("name", ["", ".", "..", "my topic", "t" * 250, "a/b", "ü", "t\n", "a\x00"])
def test_topics_are_named_by_kafkas_rule(name: str) -> None:
    assert paths.TOPIC.parse(name) is None
    assert paths.TOPIC.parse("a.b_C-9" + "t" * 242) is not None


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
        ("[" * 100_000, "nested too deeply"),
        ('{"a": 1e400}', "too large"),
        ('{"a": ' + "1" * 5000 + "}", "/x does not contain JSON"),
        ('"' + "x" * 1_000_000 + '"', "/x has more than the 1000000 bytes of a document"),
        ('"' + "ö" * 600_000 + '"', "/x has more than the 1000000 bytes of a document"),
    ],
    ids=["deep", "deeper", "infinite", "digits", "large", "large in UTF-8"],
)
def test_json_is_bounded(text: str, sentence: str) -> None:
    with pytest.raises(DocumentError, match=sentence):
        parse_json("/x", text)


def test_json_of_twenty_levels_is_read() -> None:
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
        (SlotOwnership, '{"version": 1, "plan": "../slot", "preempted": []}'),
        (SlotOwnership, '{"version": 1, "preempted": ["a b"]}'),
        (Lock, '{"version": 1, "owner": "x", "ttl_ms": 9007199254740991, "fencing_token": 1}'),
        (Lock, '{"version": 1, "owner": "x", "ttl_ms": 1, "fencing_token": 9007199254740992}'),
        (Lock, '{"version": 1, "owner": "\\u001b[2J", "ttl_ms": 1, "fencing_token": 1}'),
        (ThrottleLease, '{"version": 1, "before": "x", "ours": "y", "entries": {}}'),
        (ThrottleLease, '{"version": 1, "before": "x", "entries": {}, "earlier": ["50"]}'),
        (ThrottleLease, '{"version": 1, "entries": {"no digest": []}}'),
        (ThrottleLease, '{"version": 1, "entries": {"abc": ["a:b"]}}'),
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
