"""Log lines of a plan's progress, at a limited rate."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kafka_steward.escaping import printable

if TYPE_CHECKING:
    from kafka_steward.execution.decisions.progress import Progress

__all__ = ["ProgressLog", "progress_line"]

_WIDTH = 20
#: Seconds between lines while no partition completes.
_QUIET_S = 30.0
#: Seconds between lines while partitions complete.
_BUSY_S = 5.0


class ProgressLog:
    """Reports a plan's progress to `say`: the first step, the end, and in between at a rate that depends on changes."""

    def __init__(self, say: Callable[[str], None], now_s: Callable[[], float]) -> None:
        self._say, self._now_s = say, now_s
        self._told_s: float | None = None
        self._told: tuple[int, str] | None = None

    def report(self, progress: Progress) -> None:
        """Log one line, unless the last line is too recent."""
        now_s, news = self._now_s(), (progress.partitions_settled, progress.status.value)
        pause_s = _BUSY_S if news != self._told else _QUIET_S
        if self._told_s is None or progress.ended or progress.waits_for_person or now_s - self._told_s >= pause_s:
            self._say(progress_line(progress))
            self._told_s, self._told = now_s, news


def progress_line(progress: Progress) -> str:
    """Return one line with a bar: `[#####---------------]  25 % of 60 partitions. ...`."""
    total = progress.partitions_total
    share = progress.partitions_settled / total if total else 1.0
    done = int(share * _WIDTH)
    return f"[{'#' * done}{'-' * (_WIDTH - done)}] {share:4.0%} of {total} partitions. {printable(progress.sentence)}"
