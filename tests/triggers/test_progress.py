from __future__ import annotations

import pytest

from kafka_steward.journal.records import PlanStatus
from kafka_steward.triggers.reporting import ProgressLog, progress_line
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
