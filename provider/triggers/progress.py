"""Log lines and Airflow metrics of plan progress and cluster health, for dashboards and alerts.

`docs/metrics.md` lists them all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from airflow.sdk.observability import stats

from kafka_steward.escaping import printable

if TYPE_CHECKING:
    from kafka_steward.execution.progress import Progress


def emit_progress(conn_id: str, progress: Progress) -> None:
    """Emit gauges of the plan's remaining work, with the tag `conn_id`, and a count of its end. Bytes; never raises.

    Emits nothing for a step that found the plan locked by another process: that process emits the metrics.
    """
    if progress.busy:
        return
    tags = {"conn_id": conn_id}
    gauges = {
        "partitions_left": progress.partitions_total - progress.partitions_settled,
        "in_flight": progress.in_flight,
        "held": len(progress.held),
        "stalled": len(progress.stalled),
        "bytes_left": progress.bytes_total - progress.bytes_done,
    }
    for name, value in gauges.items():
        stats.gauge(f"kafka_steward.plan.{name}", value, tags=tags)
    if progress.ended or progress.waits_for_person:
        # The status is part of the name, because plain StatsD has no tags.
        stats.incr(f"kafka_steward.plan.ended.{progress.status.value}", tags=tags)


def emit_health(conn_id: str, measures: Mapping[str, float]) -> None:
    """Emit gauges of a cluster, with the tag `conn_id`; named after KIP-352's metrics. Never raises."""
    for name, value in measures.items():
        stats.gauge(f"kafka_steward.cluster.{name}", value, tags={"conn_id": conn_id})


_WIDTH = 20

#: Seconds between lines while no partition completes.
_QUIET_S = 30.0

#: Seconds between lines while partitions complete.
_BUSY_S = 5.0


class ProgressLog:
    """Reports a plan's progress to `log`: the first step, the end, and in between at a rate that depends on changes."""

    def __init__(self, log: Callable[[str], None], now_s: Callable[[], float]) -> None:
        self._log, self._now_s = log, now_s
        self._reported_s: float | None = None
        self._reported: tuple[int, str] | None = None

    def report(self, progress: Progress) -> None:
        """Log one line, unless the last line is too recent."""
        now_s, news = self._now_s(), (progress.partitions_settled, progress.status.value)
        pause_s = _BUSY_S if news != self._reported else _QUIET_S
        if (
            self._reported_s is None
            or progress.ended
            or progress.waits_for_person
            or now_s - self._reported_s >= pause_s
        ):
            self._log(progress_line(progress))
            self._reported_s, self._reported = now_s, news


def progress_line(progress: Progress) -> str:
    """Return one line with a bar: `[#####---------------]  25 % of 60 partitions. ...`."""
    total = progress.partitions_total
    share = progress.partitions_settled / total if total else 1.0
    done = int(share * _WIDTH)
    return f"[{'#' * done}{'-' * (_WIDTH - done)}] {share:4.0%} of {total} partitions. {printable(progress.sentence)}"
