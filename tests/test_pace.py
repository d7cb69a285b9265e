"""Limits are stretched by how slow the machine is, at the start and again when they are over."""

from __future__ import annotations

import itertools

import pytest

from tests import pace
from tests.pace import Deadline


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> itertools.count[int]:
    """A second passes between two looks at the clock."""
    seconds = itertools.count()
    monkeypatch.setattr("tests.pace.time.monotonic", lambda: float(next(seconds)))
    return seconds


def waited(deadline: Deadline) -> int:
    return sum(1 for _ in itertools.takewhile(lambda _: not deadline.passed(), itertools.count()))


def slow(monkeypatch: pytest.MonkeyPatch, *, at_start: float, now: float) -> None:
    monkeypatch.setattr(pace, "slowdown_at_start", lambda: at_start)
    monkeypatch.setattr(pace, "_slowdown", lambda: now)


def test_a_limit_is_multiplied_by_the_slowdown_at_the_start(
    monkeypatch: pytest.MonkeyPatch, clock: itertools.count[int]
) -> None:
    slow(monkeypatch, at_start=1.0, now=1.0)
    quiet = waited(Deadline(10))
    slow(monkeypatch, at_start=3.0, now=1.0)
    assert waited(Deadline(10)) == 3 * quiet


def test_a_limit_that_is_over_is_stretched_if_the_machine_has_become_slower(
    monkeypatch: pytest.MonkeyPatch, clock: itertools.count[int]
) -> None:
    slow(monkeypatch, at_start=1.0, now=1.0)
    quiet = waited(Deadline(10))
    slow(monkeypatch, at_start=1.0, now=4.0)
    assert waited(Deadline(10)) > 3 * quiet


def test_a_machine_that_seems_to_stand_still_gets_no_more_than_four_times_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moments = itertools.count(0, 3600)
    monkeypatch.setattr("tests.pace.time.perf_counter", lambda: float(next(moments)))
    assert pace._slowdown() == 4.0


def test_a_fast_machine_gets_no_less_than_the_limit_says() -> None:
    assert pace.slowdown_at_start() >= 1.0
