"""Log lines and Airflow metrics of plans, clusters and watches, for dashboards and alerts.

`docs/metrics.md` lists the metrics.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kafka_steward.airflow_versions import stats
from kafka_steward.assignment import counted
from kafka_steward.escaping import printable

if TYPE_CHECKING:
    from kafka_steward.execution.moves.progress import Progress
    from kafka_steward.hooks.session import ClusterSession


#: Characters of a progress bar.
_WIDTH = 20
#: Units of bytes, each a thousand of the one before.
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
#: Seconds between lines about a plan, while no partition completes and while partitions complete.
_QUIET_S, _BUSY_S = 30.0, 5.0
#: Seconds before the first retry after an error; doubled by each further error.
_BACK_OFF_S = 2.0
_LONGEST_BACK_OFF_S = 60.0
#: Seconds after which an error that persists is logged again: the log with the first message may be gone by then.
_REPEATED_S = 3600.0
#: The most messages that are remembered, so that they are not repeated.
_REMEMBERED = 200


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
    """Emit gauges of a cluster, with the tag `conn_id`; named after KIP-352's metrics. Never raises.

    A gauge of one broker is emitted twice: with the broker's id in its name, and as a tag.
    """
    for name, value in measures.items():
        stats.gauge(f"kafka_steward.cluster.{name}", value, tags={"conn_id": conn_id})
        measure, _, broker = name.partition(".")
        if broker:
            # Another name: plain StatsD, which drops tags, would write over the gauge of the cluster.
            stats.gauge(f"kafka_steward.broker.{measure}", value, tags={"conn_id": conn_id, "broker": broker})


def set_gauge(name: str, conn_id: str, value: int) -> None:
    """Set a gauge of the watch of one cluster."""
    stats.gauge(f"kafka_steward.watch.{name}", value, tags={"conn_id": conn_id})


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
    """Return one line with a bar, bytes, rate, time left and the message of the step. Pure.

    `[#####---------------]  25% of 12 partitions, 48.0 of 192.0 MB at 9.6 MB/s, about 15 s left. ...`. What is unknown
    is left out; of a plan without moves, that is all but the message.
    """
    total = progress.partitions_total
    if not total:
        return printable(progress.sentence)
    done = int(progress.share * _WIDTH)
    facts = [
        f"[{'#' * done}{'-' * (_WIDTH - done)}] {progress.share:4.0%} of {counted(total, 'partition')}",
        *_transfer_facts(progress),
    ]
    return f"{', '.join(facts)}. {printable(progress.sentence)}"


def transferred_text(progress: Progress) -> str:
    """Return the copied bytes, all bytes and the rate: `48.0 of 192.0 MB at 9.6 MB/s`. Empty without bytes. Pure.

    With a throttle, that is beside the rate: `(at most 10.0 MB/s into each broker)`; or a stricter rate of others, the
    strictest at a broker that is copied to.
    """
    if not progress.bytes_total:
        return ""
    unit, name = _unit_of(progress.bytes_total)
    text = f"{progress.bytes_done / unit:.1f} of {progress.bytes_total / unit:.1f} {name}"
    if not progress.bytes_per_s:
        return text
    rates = [(progress.throttle, "each broker")] if progress.throttle else []
    rates += [
        (rate.bytes_per_s, "each broker" if rate.for_all else f"broker {rate.broker}")
        for rate in progress.external_rates
        if progress.throttle and rate.side.value == "follower"
    ]
    least, where = min(rates, default=(0, ""))
    unit, name = _unit_of(least)
    limit = f" (at most {least / unit:.1f} {name}/s into {where})" if where else ""
    return f"{text} at {progress.bytes_per_s / 1e6:.1f} MB/s{limit}"


def _unit_of(count: int) -> tuple[int, str]:
    power = min((len(str(count)) - 1) // 3, len(_UNITS) - 1)
    return 1000**power, _UNITS[power]


def _transfer_facts(progress: Progress) -> list[str]:
    if progress.ended or not progress.bytes_total:
        return []
    facts = [transferred_text(progress)]
    return facts if not progress.eta_s else [*facts, f"about {duration_text(max(1, progress.eta_s))} left"]


def duration_text(seconds: float) -> str:
    """Return a duration to the second, or from an hour on to the minute: `15 s`, `2 min 21 s`, `3 h 5 min`. Pure."""
    minutes, left_s = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {left_s} s" if minutes else f"{left_s} s"


def event_payload(opened: ClusterSession, at_ms: int, brokers: Collection[int] | None = None) -> dict[str, Any]:
    """Return an event's payload: `{"cluster_id", "conn_id", "at_ms", "journal"}`, plus `brokers` unless None.

    `journal` names the journal that the watch reads: a run with another journal would not find the cause of the event.
    """
    named = {"cluster_id": opened.cluster.cluster_id, "conn_id": opened.access.conn_id}
    return {
        **named,
        **({} if brokers is None else {"brokers": list(brokers)}),
        "at_ms": at_ms,
        "journal": opened.origin,
    }


class Outage:
    """The errors of a watch, or of one of its checks: each is reported once, and again after an hour. So is the end."""

    def __init__(self) -> None:
        self._failing: set[str] = set()
        self._reported_s: dict[str, float] = {}

    def begin(self, what: str, error: str, now_s: float) -> bool:
        """Record that the check `what` failed; return whether its error must be reported."""
        self._failing.add(what)
        if now_s - self._reported_s.get(error, -_REPEATED_S) < _REPEATED_S:
            return False
        self._reported_s[error] = now_s
        for old in list(self._reported_s)[:-_REMEMBERED]:
            del self._reported_s[old]
        return True

    def end(self, what: str) -> bool:
        """Record that the check `what` succeeded; return whether it was the last one that failed."""
        if what not in self._failing:
            return False
        self._failing.remove(what)
        if self._failing:
            return False
        self._reported_s.clear()
        return True


class WatchReporter:
    """Reports for one loop of the watch of `conn_id`; `failing` names the gauge of its consecutive errors.

    A second gauge, with "age" in place of "failing" in its name, is the number of seconds since the last successful
    check. `log` logs at level INFO, `log_warning` and `log_error` at theirs. `clock` counts seconds.
    """

    def __init__(
        self,
        conn_id: str,
        log: Callable[..., None],
        *,
        failing: str,
        what: str,
        log_error: Callable[..., None] | None = None,
        log_warning: Callable[..., None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._conn_id, self._log, self._log_error = conn_id, log, log_error or log
        self._log_warning = log_warning or log
        self._failing, self._what = failing, what
        self._clock, self._worked_s = clock, clock()
        self._logged: object = None
        self._lines: dict[str, None] = {}
        self._failures, self._message = 0, ""
        self._outage = Outage()

    @property
    def failures(self) -> int:
        """The number of consecutive errors."""
        return self._failures

    @property
    def age_s(self) -> float:
        """The seconds since the last successful check."""
        return self._clock() - self._worked_s

    @property
    def last_message(self) -> str:
        """The message of the last error, empty after a successful check."""
        return self._message if self._failures else ""

    def share(self, outage: Outage | None) -> None:
        """Report errors together with the other checks that share `outage`, if any."""
        self._outage = outage or self._outage

    def record_success(self) -> None:
        """Record a successful check."""
        if self._outage.end(self._what):
            self._log("The watch of %s works again.", self._conn_id)
        self._failures = 0
        self._worked_s = self._clock()
        set_gauge(self._failing, self._conn_id, 0)

    def restart(self, *, rests: bool) -> None:
        """Count the age from now on. If the check `rests`, because another watch polls, its errors are over."""
        self._worked_s = self._clock()
        if rests:
            self._failures = 0
            self._outage.end(self._what)

    def report_age(self) -> None:
        """Set the gauge of the age. It also covers a stalled check, which neither succeeds nor fails."""
        age = self._failing.removesuffix("failing") + "age"
        set_gauge(age, self._conn_id, int(self.age_s))

    def report_error(self, error: Exception) -> float:
        """Log the error, once an hour while it persists; count it, and return the seconds until the next check."""
        self._failures += 1
        set_gauge(self._failing, self._conn_id, self._failures)
        sentence = f"The watch of {self._conn_id} cannot {self._what}, and tries again: {error}"
        if self._outage.begin(self._what, str(error), self._clock()):
            self._log_error("%s", printable(sentence))
        self._logged = self._message = sentence
        return min(_LONGEST_BACK_OFF_S, _BACK_OFF_S * 2.0 ** min(self._failures - 1, 10))

    def log_once(self, sentence: str, *, about: object) -> None:
        """Log the message, unless the last one had the same subject `about`."""
        if about != self._logged:
            self._log("%s", printable(sentence))
            self._logged = about

    def log_new(self, sentences: Sequence[str], warnings: Collection[str] = ()) -> None:
        """Log each message that was not logged recently; those that are in `warnings` as warnings."""
        for sentence in sentences:
            if sentence not in self._lines:
                log = self._log_warning if sentence in warnings else self._log
                log("%s", printable(sentence))
            self._lines[sentence] = self._lines.pop(sentence, None)
        for old in list(self._lines)[:-_REMEMBERED]:
            del self._lines[old]
