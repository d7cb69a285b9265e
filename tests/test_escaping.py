"""What others wrote leaves as one printable line, as no formula and as no markup."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_steward.escaping import escape_csv_cell, escape_markdown, printable, utc_datetime, utc_text

_TEXT = st.text() | st.text("\x00\t\n\r\x1b\x7f\x9b\u2028\u202e\ud800=+-@|*_`<[#\\ \uff1da1")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("orders-7 is moved", "orders-7 is moved"),
        ("Zoë, 社 and \U0001f600", "Zoë, 社 and \U0001f600"),
        ("a\nINFO all is well", r"a\x0aINFO all is well"),
        ("\x1b[2J\x9b31m", r"\x1b[2J\x9b31m"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("half \ud800", r"half \ud800"),
        ("tag \U000e0041", r"tag \U000e0041"),
    ],
)
def test_what_cannot_be_printed_is_written_out(text: str, line: str) -> None:
    assert printable(text) == line


@given(_TEXT)
def test_a_line_is_one_line_without_control_characters(text: str) -> None:
    line = printable(text)
    assert len(line.splitlines()) <= 1
    assert not any(ord(each) < 32 or 127 <= ord(each) < 160 or 0xD800 <= ord(each) < 0xE000 for each in line)
    assert printable(line) == line


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "  =1", "\uff1d1"])
def test_no_cell_is_a_formula(text: str) -> None:
    assert escape_csv_cell(text) == f"'{printable(text)}"


@given(_TEXT)
def test_a_cell_comes_back_from_csv_on_its_line(text: str) -> None:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow([escape_csv_cell(text), "next"])
    (row,) = csv.reader(io.StringIO(out.getvalue()))
    assert row == [escape_csv_cell(text), "next"]
    assert not row[0].lstrip(" ").startswith(("=", "+", "-", "@"))


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("my_topic | x", r"my\_topic \| x"),
        ("# a", r"\# a"),
        ("- a", r"\- a"),
        ("1. a", r"1\. a"),
        ("2.0 kB", "2.0 kB"),
        ("<script>", r"\<script\>"),
        ("[here](javascript:x)", r"\[here\](javascript:x)"),
        ("a\n\n# b", r"a\\x0a\\x0a# b"),
    ],
)
def test_no_mark_of_markdown_is_left(text: str, escaped: str) -> None:
    assert escape_markdown(text) == escaped


@pytest.mark.parametrize("ms", [-1, 2**53, 10**18, 253_402_300_800_000])
def test_a_time_that_no_calendar_has_is_shown_as_it_is(ms: int) -> None:
    assert utc_datetime(ms) is None
    assert utc_text(ms) == f"{ms} ms"


def test_a_time_is_shown_in_utc() -> None:
    assert utc_text(1_763_712_000_000) == "2025-11-21 08:00:00"
