"""The tables of docs/benchmarks.md keep what was measured in other runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import carrying_out, drain, planner_speed
from benchmarks.report import merge_between, merged, table

HEAD = ("mode", "work", "s")
BEFORE = [["kraft", "600", "1.0"], ["kraft", "80", "2.0"], ["zookeeper", "300", "3.0"]]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], BEFORE),
        ([["kraft", "80", "9.9"]], [BEFORE[0], ["kraft", "80", "9.9"], BEFORE[2]]),
        ([["kraft", "3000", "4.0"]], [*BEFORE[:2], ["kraft", "3000", "4.0"], BEFORE[2]]),
        ([["zookeeper", "80", "5.0"]], [*BEFORE, ["zookeeper", "80", "5.0"]]),
        (
            [["other", "80", "5.0"], ["kraft", "600", "6.0"]],
            [["kraft", "600", "6.0"], *BEFORE[1:], ["other", "80", "5.0"]],
        ),
    ],
)
def test_a_row_replaces_that_of_the_same_work_and_no_other(rows: list[list[str]], expected: list[list[str]]) -> None:
    assert [list(row) for row in merged(table(HEAD, BEFORE), HEAD, rows, keys=2)] == expected


def test_rows_of_a_table_with_another_head_are_left_out() -> None:
    assert merged(table(["mode", "work", "ms"], BEFORE), HEAD, [["kraft", "80", "2.0"]], keys=2) == [
        ["kraft", "80", "2.0"]
    ]


def test_a_table_is_merged_in_its_place(tmp_path: Path) -> None:
    report = tmp_path / "page.md"
    report.write_text(f"before\n<!-- a -->\n\n{table(HEAD, BEFORE)}\n\n<!-- /a -->\nafter\n<!-- b -->\n<!-- /b -->\n")
    merge_between("a", HEAD, [["kraft", "600", "7.0"]], keys=2, report=report)
    expected = table(HEAD, [["kraft", "600", "7.0"], *BEFORE[1:]])
    assert report.read_text() == f"before\n<!-- a -->\n\n{expected}\n\n<!-- /a -->\nafter\n<!-- b -->\n<!-- /b -->\n"
    with pytest.raises(ValueError, match="no marks for c"):
        merge_between("c", HEAD, [], keys=2, report=report)


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("carrying out", carrying_out._SHOWN),
        ("planner", tuple(planner_speed._SHOWN.values())),
        ("drain", drain._HEAD),
    ],
)
def test_the_page_has_the_tables_that_the_commands_write(name: str, head: tuple[str, ...]) -> None:
    """Otherwise the next run of a single row would leave out all the others."""
    found = re.search(
        f"<!-- {name} -->\n\n(.*?)\n", (Path(__file__).parent.parent / "docs" / "benchmarks.md").read_text()
    )
    assert found is not None
    assert found[1] == table(head, []).splitlines()[0]


def test_the_bound_is_what_the_busier_broker_receives_at_the_throttle() -> None:
    work = carrying_out.parse_work("80:800@20")
    assert (work.bytes, work.throttle, work.bound_s) == (800_000_000, 20_000_000, 20.0)
    mixed = carrying_out.parse_work("1:200+5:100+500:50@20")
    assert [topic.partitions for topic in mixed.topics] == [1, 5, 500]
    assert {move.after for move in mixed.moves(home=False)} == {move.before for move in mixed.moves(home=True)}


def test_a_tool_that_did_not_end_has_no_time_and_a_bound_of_its_ratio() -> None:
    span = carrying_out.Span(10.0, 19.0, 18.0)
    spans = {"Kafka Steward": [span], "bare requests": [carrying_out.Span(0.0, 4.5, 4.0)]}
    ended = {"kafka-reassign-partitions": [carrying_out.Span(0.0, float("inf"), float("inf"))]}
    row = carrying_out.CarriedOut("kraft", carrying_out.parse_work("600:60"), 180.0, spans | ended, {"at rest": 3.4})
    cells = dict(zip(carrying_out._HEAD, carrying_out._cells(row), strict=True))
    assert cells["kafka-reassign-partitions"] == "more than 180"
    assert (cells["Kafka Steward"], cells["ours, arrived"], cells["ours / the tool's"]) == ("9.0", "8.0", "< 0.05")
    assert (cells["ours / the bare requests"], cells["p99 ms at rest"], cells["ours"]) == ("2.00", "3", "-")
