"""A plan's progress as log lines: often enough to watch, rarely enough to read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kafka_steward.escaping import printable

if TYPE_CHECKING:
    from kafka_steward.execution.decisions.progress import Progress

__all__ = ["ProgressLog", "progress_line"]

_WIDTH = 20
#: Seconds between lines while nothing ends.
_QUIET_S = 30.0
#: Seconds between lines while partitions end.
_BUSY_S = 5.0


class ProgressLog:
    """Tells a plan's progress to `say`: the first step, the end, and in between by what has changed."""

    def __init__(self, say: Callable[[str], None], now_s: Callable[[], float]) -> None:
        self._say, self._now_s = say, now_s
        self._told_s: float | None = None
        self._told: tuple[int, str] | None = None

    def tell(self, progress: Progress) -> None:
        """Say one line, or nothing when one was said a moment ago."""
        now_s, news = self._now_s(), (progress.partitions_settled, progress.status.value)
        pause_s = _BUSY_S if news != self._told else _QUIET_S
        if self._told_s is None or progress.ended or progress.waits_for_person or now_s - self._told_s >= pause_s:
            self._say(progress_line(progress))
            self._told_s, self._told = now_s, news


def progress_line(progress: Progress) -> str:
    """One line with a bar: `[#####---------------]  25 % of 60 partitions. ...`."""
    total = progress.partitions_total
    share = progress.partitions_settled / total if total else 1.0
    done = int(share * _WIDTH)
    return f"[{'#' * done}{'-' * (_WIDTH - done)}] {share:4.0%} of {total} partitions. {printable(progress.sentence)}"
