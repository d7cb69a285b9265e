"""Our own state: what every store of rows must do, on a dict, SQLite and PostgreSQL, and what rows may hold."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import JournalError, VersionConflict
from kafka_steward.journal.hosts import OPENINGS
from kafka_steward.journal.schema import tables
from kafka_steward.journal.state import ONLY, Noun, Row, Rows, State, parse_partition, read_together
from kafka_steward.journal.store import Journal
from tests.present import present


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Inner:
    number: int | None = None


@dataclass(frozen=True)
class Thing:
    """One of everything that a value may have."""

    text: str = ""
    number: int = 0
    flag: bool = False
    colour: Colour | None = None
    inner: Inner | None = None
    numbers: tuple[int, ...] = ()
    inners: tuple[Inner, ...] = ()
    by_name: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    times: Mapping[str, int] = field(default_factory=dict)


THINGS: Noun[str, Thing] = Noun("things", Thing)
OTHERS: Noun[int, Inner] = Noun("others", Inner, int)
FULL = Thing(
    'ü "\x00\ud800', 2**60, True, Colour.RED, Inner(3), (1, -1), (Inner(), Inner(1)), {"a": ("b",), "c": ()}, {"t-0": 5}
)


@pytest.fixture
def things(state: State) -> Rows[str, Thing]:
    return Rows(state, THINGS)


@pytest.mark.parametrize("value", [Thing(), FULL], ids=["empty", "full"])
def test_a_value_is_read_as_it_was_written(things: Rows[str, Thing], value: Thing) -> None:
    written = things.put("a", value, None)
    assert things.get("a") == written
    assert present(written).value == value
    assert things.get("b") is None


def test_rows_of_a_noun_are_in_the_order_of_their_keys_and_of_no_other(things: Rows[str, Thing]) -> None:
    others = Rows(things.state, OTHERS)
    others.put(10, Inner(), None)
    others.put(9, Inner(9), None)
    things.put("b", Thing("b"), None)
    things.put("B/a.-_", Thing(), None)
    assert [row.key for row in things.all()] == ["B/a.-_", "b"]
    assert [row.key for row in others.all()] == [9, 10]
    assert [list(map(str, rows)) for rows in read_together(things.state, THINGS, OTHERS)] == [
        list(map(str, things.all())),
        sorted(map(str, others.all()), key=lambda text: "key=9" in text),
    ]
    assert {(row.noun, row.key) for row in things.state.everything() if row.noun != OPENINGS.name} == {
        ("others", "9"), ("others", "10"), ("things", "b"), ("things", "B/a.-_")
    }  # fmt: skip


def test_only_who_has_seen_the_last_change_may_make_the_next(things: Rows[str, Thing]) -> None:
    first = present(things.put("a", Thing("1"), None))
    assert things.put("a", Thing("2"), None) is None
    second = present(things.put("a", Thing("2"), first))
    assert second.stored.created_id == first.stored.created_id
    assert second.at_ms >= first.at_ms
    assert things.put("a", Thing("3"), first) is None
    assert not things.delete(first)
    assert things.get("a") == second
    assert things.delete(second)
    assert (things.get("a"), things.delete(second), things.put("a", Thing("3"), second)) == (None, False, None)


def test_a_row_that_is_written_again_is_another_one(things: Rows[str, Thing]) -> None:
    first = present(things.put("a", Thing(), None))
    assert things.delete(first)
    second = present(things.put("a", Thing(), None))
    assert second.stored.created_id > first.stored.created_id
    assert (things.put("a", Thing("late"), first), things.renew(first), things.delete(first)) == (None, None, False)


def test_a_renewal_is_a_change_that_compares_the_value_alone(things: Rows[str, Thing]) -> None:
    first = present(things.put("a", Thing("1"), None))
    renewed = present(things.renew(first))
    assert things.renew(first) is not None
    assert things.put("a", Thing("2"), renewed) is None
    last = present(things.get("a"))
    assert (last.value, last.stored.revision) == (first.value, 2)
    changed = things.renew(first, Thing("2"))
    assert things.get("a") == changed
    assert (things.renew(last), things.renew(first, Thing("3"))) == (None, None)


@pytest.mark.parametrize("change", ["changed", "deleted", "new"])
def test_several_rows_are_written_or_deleted_all_or_none(things: Rows[str, Thing], change: str) -> None:
    seen = things.put_all({str(number): Thing() for number in range(1_200)}, {})
    assert things.all() == sorted(seen.values(), key=lambda row: row.key)
    assert things.put_all({}, {}) == {}
    more = {"5": Thing("5"), "7": Thing("7"), "new": Thing("new")}
    if change == "new":
        things.put("new", Thing("theirs"), None)
    elif change == "changed":
        things.put("7", Thing("theirs"), seen["7"])
    else:
        things.delete(seen["7"])
    before = things.all()
    with pytest.raises(VersionConflict, match="things 5 was changed since it was read"):
        things.put_all(more, seen)
    if change != "new":
        with pytest.raises(VersionConflict, match="things 5 was"):
            things.delete_all([seen["5"], seen["7"]])
    assert things.all() == before
    now = {row.key: row for row in before}
    assert {key: row.value for key, row in things.put_all(more, now).items()} == more
    things.delete_all(things.all())
    things.delete_all([])
    assert things.all() == []


def test_of_many_who_write_the_same_row_one_wins(things: Rows[str, Thing]) -> None:
    for key, seen in (("a", None), ("b", things.put("b", Thing(), None))):
        write = partial(things.put, key, seen=seen)
        with ThreadPoolExecutor(8) as pool:
            answers = pool.map(write, [Thing(str(number)) for number in range(8)])
            winners = [row for row in answers if row is not None]
        assert winners == [things.get(key)]


def test_the_clock_is_that_of_the_times_of_rows(things: Rows[str, Thing]) -> None:
    before_ms = things.state.now_ms()
    row = present(things.put("a", Thing(), None))
    assert before_ms <= row.at_ms <= things.state.now_ms()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "Expecting"),
        ("[]", "list"),
        ('{"number": null, "strange": 1}', "strange"),
        ('{"colour": "blue"}', "blue"),
        ('{"inner": {"more": 1}}', "more"),
        ('{"numbers": 5}', "int"),
    ],
)
def test_a_row_that_cannot_be_read_is_named(things: Rows[str, Thing], text: str, why: str) -> None:
    things.state.write("things", {"a\nb": text}, {})
    for read in (things.all, lambda: things.get("a\nb")):
        with pytest.raises(JournalError, match=rf"^The row a.x0ab of things in .* steward_state .*{why}.*delete it"):
            read()


def test_a_key_is_what_the_noun_makes_of_it(state: State) -> None:
    noun: Noun[TopicPartition, Inner] = Noun("partitions", Inner, parse_partition)
    rows = Rows(state, noun)
    partition = TopicPartition("a-1.b_2", 3)
    written = rows.put(partition, Inner(), None)
    assert rows.all() == [written]
    assert present(written).key == partition


# With a database


def test_rows_are_part_of_the_transaction(sql_journal: Journal) -> None:
    rows = sql_journal.rows(OTHERS)

    def write_and_fail(seen: Row[int, Inner] | None) -> None:
        with sql_journal.transaction():
            assert rows.put(1, Inner(1), seen) is not None
            raise ZeroDivisionError

    for seen in (None, rows.put(1, Inner(0), None)):
        before = rows.all()
        with pytest.raises(ZeroDivisionError):
            write_and_fail(rows.get(1))
        del seen
        assert rows.all() == before


def test_clusters_have_rows_of_their_own(sql_journal: Journal) -> None:
    sql_journal.rows(THINGS).put(ONLY, Thing(), None)
    database: Any = sql_journal.plans._table.database
    with database.read_connection() as connection:
        found = connection.execute(sa.select(tables.state.c.cluster_id).where(tables.state.c.noun == "things"))
        assert sql_journal.cluster_id in set(found.scalars())
