"""Verdicts that are kept from step to step are those of preflight, whatever has changed in between."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from kafka_steward.assignment import Move
from kafka_steward.execution import verdicts
from kafka_steward.execution.moves import HoldReason
from kafka_steward.execution.preflight import PreflightInputs, preflight
from kafka_steward.execution.verdicts import KnownVerdicts
from kafka_steward.journal.records import MoveRow
from tests.execution.test_preflight import CASES, MOVE, free, outlook

ALL: dict[str, tuple[Move, PreflightInputs]] = {
    "submitted": (MOVE, outlook()),
    **{reason.value: (given, inputs) for reason, (given, inputs, _) in CASES.items()},
}


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[Move]:
    """The moves of which preflight is asked."""
    asked: list[Move] = []

    def counted(given: Move, inputs: PreflightInputs, *, between_stages: bool) -> object:
        asked.append(given)
        return preflight(given, inputs, between_stages=between_stages)

    monkeypatch.setattr(verdicts, "preflight", counted)
    return asked


@pytest.mark.parametrize(("before", "after"), product(ALL, ALL))
def test_whatever_changes_the_verdict_is_that_of_preflight(before: str, after: str) -> None:
    known = KnownVerdicts()
    for given, inputs in (ALL[before], ALL[after]):
        (found,) = known.judge([MoveRow(given)], inputs)
        assert (found.row, found.left, found.held) == (MoveRow(given), given, preflight(given, inputs))


@pytest.mark.parametrize("case", ALL)
def test_nothing_is_checked_again_where_nothing_has_changed(case: str, judged: list[Move]) -> None:
    known, (given, inputs) = KnownVerdicts(), ALL[case]
    first = known.judge([MoveRow(given)], inputs)
    # A later poll: equal objects, less room, and bytes that have arrived.
    room = {broker: free((0, 5_000)) for broker in inputs.rooms}
    if case != HoldReason.DISK_FULL.value:
        inputs = replace(inputs, rooms=room)
    later = replace(inputs, snapshot=replace(inputs.snapshot, taken_ms=9), left_bytes={given.topic_partition: 3})
    assert known.judge([MoveRow(replace(given))], later) == first
    assert judged == [given]


def test_a_disk_that_fills_up_and_is_emptied_is_noticed() -> None:
    known, found = KnownVerdicts(), []
    for free_bytes in (100, 99, 100):
        inputs = outlook(rooms={4: free((0, free_bytes))})
        (verdict,) = known.judge([MoveRow(MOVE)], inputs)
        found.append(verdict.held and verdict.held.code)
    assert found == [None, HoldReason.DISK_FULL, None]


def test_only_the_moves_whose_partition_has_changed_are_checked_again(judged: list[Move]) -> None:
    moves = [MOVE, replace(MOVE, partition=1, before=(2, 3, 1), after=(4, 3, 1))]
    known, rows = KnownVerdicts(), [MoveRow(each) for each in moves]
    known.judge(rows, outlook())
    judged.clear()
    known.judge(rows, outlook(foreign="523"))
    assert judged == [MOVE]
    judged.clear()
    known.judge(rows, outlook(5, foreign="523"))
    assert judged == moves
