"""What is noticed where the demo prints something else than README.md shows."""

from __future__ import annotations

import re

import pytest

from tests.demo.readme import assert_as_the_readme_shows, shown_lines

SHOWN = shown_lines()
WORDS = [at for at, line in enumerate(SHOWN) if line.strip()]


def test_it_shows_the_steps_from_the_start_to_the_result() -> None:
    steps = [line.split()[2] for line in SHOWN if re.match(r" *[\d.]+ s  ", line)]
    assert (steps[0], steps[-1]) == ("start", "healed")


def test_other_numbers_and_more_lines_are_no_difference() -> None:
    printed = [line if "healed broker" in line else re.sub(r"\d", "7", line) for line in SHOWN]
    assert_as_the_readme_shows([each for line in printed for each in ("something else", line)])


@pytest.mark.parametrize("at", WORDS)
def test_a_line_that_is_not_printed_is_noticed(at: int) -> None:
    with pytest.raises(AssertionError):
        assert_as_the_readme_shows([*SHOWN[:at], *SHOWN[at + 1 :]])


@pytest.mark.parametrize("at", [at for at in WORDS if "is up at" in SHOWN[at] or "first seen" in SHOWN[at]])
def test_another_word_is_noticed(at: int) -> None:
    with pytest.raises(AssertionError):
        assert_as_the_readme_shows([*SHOWN[:at], SHOWN[at].replace(" is ", " was "), *SHOWN[at + 1 :]])


def test_another_result_is_noticed() -> None:
    for before, after in (("replicas_moved=72", "replicas_moved=73"), ("under_replicated=0", "under_replicated=1")):
        with pytest.raises(AssertionError):
            assert_as_the_readme_shows([*SHOWN[:-1], SHOWN[-1].replace(before, after)])
