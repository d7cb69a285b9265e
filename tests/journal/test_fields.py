"""Fields of a JSON object: each kind is taken as it is, and what is something else is told in one sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kafka_steward.errors import DocumentError
from kafka_steward.journal.document import FieldReader, read_fields
from kafka_steward.journal.kip_documents import FailedBroker, ReassignmentsDisabled

NUMBER, TEXT, FLAG, LIST = "a whole number of at least 0", "a string", "true or false", "a list"
BROKERS, PLACEHOLDERS, TEXTS = "a list of broker ids", "a list of broker ids and placeholders", "a list of strings"


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
        ("replicas", [2, 0, -1, -2], (2, 0, -1, -2)),
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
        ("replicas", {"1": 2}, LIST),
        ("replicas", [False], PLACEHOLDERS),
        ("replicas", [1.5], PLACEHOLDERS),
        ("texts", "ab", LIST),
        ("texts", ["a", 1], TEXTS),
        ("objects", 7, LIST),
    ],
)
def test_another_kind_is_told_with_what_belongs_there(kind: str, value: Any, belongs: str) -> None:
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


@pytest.mark.parametrize("kind", ["brokers", "replicas"])
def test_a_broker_that_is_named_twice_is_told(kind: str) -> None:
    with pytest.raises(DocumentError) as refused:
        take(kind, [1, 2, 1])
    assert str(refused.value) == "/x names a broker twice in 'key' = [1, 2, 1]; correct or delete it."


@pytest.mark.parametrize("kind", ["integer", "text", "flag", "brokers", "replicas", "texts", "objects", "object"])
def test_one_that_is_not_there_is_told(kind: str) -> None:
    with pytest.raises(DocumentError) as refused:
        getattr(FieldReader("/x", {}), kind)("key")
    assert str(refused.value) == "/x has no 'key'; correct or delete it."


@pytest.mark.parametrize(
    ("value", "held"),
    [
        ([], "a list"),
        ("", "a string"),
        (True, "a truth value"),
        (1, "a number"),
        (1.5, "a number"),
        (None, "nothing"),
    ],
)
def test_what_is_no_object_is_told_with_its_place(value: Any, held: str) -> None:
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


def test_the_object_that_was_given_is_left_as_it_is() -> None:
    given = {"key": 1}
    assert FieldReader("/x", given).integer("key") == 1
    assert given == {"key": 1}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" * 100_000, "nested too deeply"),
        ('{"a": NaN}', "NaN is not JSON"),
        ('{"a": -Infinity}', "-Infinity is not JSON"),
        ("{", "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
    ],
    ids=range(4),
)
def test_what_is_no_json_is_told_with_the_place(text: str, why: str) -> None:
    with pytest.raises(DocumentError) as refused:
        read_fields("/x", text)
    assert str(refused.value) == f"/x does not contain JSON ({why}); correct or delete it."


@pytest.mark.parametrize(("newest", "version"), [(1, 2), (3, 4)])
def test_a_newer_version_is_told_with_both_numbers(newest: int, version: int) -> None:
    assert read_fields("/x", f'{{"version": {newest}}}', newest=newest).remaining() == {"version": newest}
    with pytest.raises(DocumentError) as refused:
        read_fields("/x", f'{{"version": {version}}}', newest=newest)
    assert str(refused.value) == (
        f"/x was written by a newer Kafka Steward (version {version}; this one reads up to {newest}); upgrade this one."
    )


def test_what_others_added_comes_after_what_is_known_and_what_is_none_is_left_out() -> None:
    assert ReassignmentsDisabled(person="ann", extra={"c": None}).to_json() == '{"version":1,"person":"ann","c":null}'
    assert FailedBroker(5, extra={"c": [1, 2]}).to_json() == '{"failure_timestamp": 5, "c": [1, 2]}'
