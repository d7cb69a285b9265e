"""What triggers and watches log: lines of progress, and one printable line for each message."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_steward.errors import PlanError
from kafka_steward.journal.records import PlanStatus
from kafka_steward.triggers.reporting import ProgressLog, WatchReporter, progress_line
from tests.triggers.progress_values import progress


@pytest.mark.parametrize(
    ("settled", "line"),
    [
        (0, "[--------------------]   0% of 4 partitions. 0 of 4."),
        (1, "[#####---------------]  25% of 4 partitions. 1 of 4."),
        (4, "[####################] 100% of 4 partitions. 4 of 4."),
    ],
)
def test_a_line_has_a_bar_and_the_runners_sentence(settled: int, line: str) -> None:
    assert progress_line(progress(settled)) == line


MB = 10**6
COPYING: dict[str, Any] = {"bytes_total": 192 * MB, "bytes_done": 48 * MB, "bytes_per_s": 9.6e6, "eta_s": 15.0}


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({}, "48.0 of 192.0 MB at 9.6 MB/s, about 15 s left"),
        ({"eta_s": 141.4}, "48.0 of 192.0 MB at 9.6 MB/s, about 2 min 21 s left"),
        ({"eta_s": 0.2}, "48.0 of 192.0 MB at 9.6 MB/s, about 1 s left"),
        ({"bytes_total": 3 * 10**12, "eta_s": 307_500}, "0.0 of 3.0 TB at 9.6 MB/s, about 85 h 25 min left"),
        ({"bytes_per_s": None, "eta_s": None}, "48.0 of 192.0 MB"),
        ({"bytes_per_s": 0.0, "eta_s": None}, "48.0 of 192.0 MB"),
        ({"bytes_done": 192 * MB, "eta_s": 0.0}, "192.0 of 192.0 MB at 9.6 MB/s"),
    ],
)
def test_a_line_has_bytes_rate_and_time_left_as_far_as_they_are_known(changes: dict[str, Any], facts: str) -> None:
    line = progress_line(progress(3, total=12, **{**COPYING, **changes}))
    assert line == f"[#####---------------]  25% of 12 partitions, {facts}. 3 of 12."


def test_without_sizes_or_after_the_end_a_line_says_what_is_known() -> None:
    unknown = {**COPYING, "bytes_total": 0, "bytes_done": 0}
    assert progress_line(progress(3, total=12, **unknown)) == "[#####---------------]  25% of 12 partitions. 3 of 12."
    ended = progress(12, total=12, status=PlanStatus.COMPLETED, **COPYING)
    assert progress_line(ended) == "[####################] 100% of 12 partitions. 12 of 12."


def test_an_empty_plan_is_done() -> None:
    assert "100% of 0 partitions" in progress_line(progress(0, total=0))


class Log:
    """Collects lines by second."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.lines: list[float] = []
        self.told = ProgressLog(lambda _: self.lines.append(self.now_s), lambda: self.now_s)


def test_while_nothing_ends_a_line_every_half_minute() -> None:
    log = Log()
    for second in range(100):
        log.now_s = second
        log.told.report(progress(1))
    assert log.lines == [0, 30, 60, 90]


def test_while_partitions_end_a_line_every_five_seconds() -> None:
    log = Log()
    for second in range(12):
        log.now_s = second
        log.told.report(progress(second, total=100))
    assert log.lines == [0, 5, 10]


@pytest.mark.parametrize("status", [PlanStatus.COMPLETED, PlanStatus.STUCK])
def test_the_end_is_told_at_once(status: PlanStatus) -> None:
    log = Log()
    log.told.report(progress(1))
    log.now_s = 0.1
    log.told.report(progress(4, status=status))
    assert log.lines == [0, 0.1]


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
