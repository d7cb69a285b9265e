"""What a watch logs is one printable line for each message, also if the message quotes text from outside."""

from __future__ import annotations

import pytest

from kafka_steward.errors import PlanError
from kafka_steward.triggers.reporting import WatchReporter

HOSTILE = "orders\n2026 INFO all is well \x1b[2J\u202e"
ESCAPED = r"orders\x0a2026 INFO all is well \x1b[2J\u202e"


@pytest.fixture
def logged() -> list[str]:
    return []


@pytest.fixture
def teller(logged: list[str]) -> WatchReporter:
    return WatchReporter("kafka", lambda line, *rest: logged.append(line % rest), failing="failing", what="look")


def test_a_message_is_logged_as_one_printable_line(teller: WatchReporter, logged: list[str]) -> None:
    teller.log_once(HOSTILE, about=1)
    assert logged == [ESCAPED]


def test_each_of_several_messages_is_logged_as_one_printable_line(teller: WatchReporter, logged: list[str]) -> None:
    teller.log_new([HOSTILE, "a", f"{HOSTILE}2"])
    assert logged == [ESCAPED, "a", f"{ESCAPED}2"]


@pytest.mark.parametrize("error", [ValueError(HOSTILE), PlanError(HOSTILE)], ids=["of Python", "of ours"])
def test_an_error_is_logged_as_one_printable_line(teller: WatchReporter, logged: list[str], error: Exception) -> None:
    teller.report_error(error)
    assert logged == [f"The watch of kafka cannot look, and tries again: {ESCAPED}"]
