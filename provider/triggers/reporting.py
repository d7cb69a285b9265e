"""Status reports of a watch: each message once, each error once, and gauges for monitoring."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from airflow.sdk.observability import stats

from kafka_steward.escaping import printable

if TYPE_CHECKING:
    from kafka_steward.hooks.steward import ClusterSession


#: Seconds before the first retry after an error; doubled by each further error.
_BACK_OFF_S = 2.0
_LONGEST_BACK_OFF_S = 60.0
#: Seconds after which an error that persists is logged again: the log with the first message may be gone by then.
_REPEATED_S = 3600.0
#: The most messages that are remembered, so that they are not repeated.
_REMEMBERED = 200


def gauge(name: str, conn_id: str, value: int) -> None:
    """Set a gauge of the watch of one cluster."""
    stats.gauge(f"kafka_steward.watch.{name}", value, tags={"conn_id": conn_id})


def event_of(opened: ClusterSession, at_ms: int, brokers: Collection[int] | None = None) -> dict[str, Any]:
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


class WatchReporter:
    """Reports for one loop of the watch of `conn_id`; `failing` names the gauge of its consecutive errors.

    A second gauge, with "age" in place of "failing" in its name, is the number of seconds since the last successful
    check. `log` logs at level INFO; `log_error` at level ERROR. `clock` counts seconds.
    """

    def __init__(
        self,
        conn_id: str,
        log: Callable[..., None],
        *,
        failing: str,
        what: str,
        log_error: Callable[..., None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._conn_id, self._log, self._log_error = conn_id, log, log_error or log
        self._failing, self._what = failing, what
        self._clock, self._worked_s = clock, clock()
        self._logged: object = None
        self._lines: dict[str, None] = {}
        self._failures = 0
        self._error_logged_s = 0.0

    def ok(self) -> None:
        """Record a successful check."""
        if self._failures:
            self._log("The watch of %s works again.", self._conn_id)
        self._failures = 0
        self._worked_s = self._clock()
        gauge(self._failing, self._conn_id, 0)

    def report_age(self) -> None:
        """Set the gauge of the age. It also covers a stalled check, which neither succeeds nor fails."""
        age = self._failing.removesuffix("failing") + "age"
        gauge(age, self._conn_id, int(self._clock() - self._worked_s))

    def error(self, error: Exception) -> float:
        """Log the error, once an hour while it persists, count it, and return the seconds until the next check."""
        self._failures += 1
        gauge(self._failing, self._conn_id, self._failures)
        sentence = f"The watch of {self._conn_id} cannot {self._what}, and tries again: {error}"
        if sentence != self._logged or self._clock() - self._error_logged_s >= _REPEATED_S:
            self._log_error("%s", printable(sentence))
            self._logged, self._error_logged_s = sentence, self._clock()
        return min(_LONGEST_BACK_OFF_S, _BACK_OFF_S * 2.0 ** min(self._failures - 1, 10))

    def log_once(self, sentence: str, *, about: object) -> None:
        """Log the message, unless the last one had the same subject `about`."""
        if about != self._logged:
            self._log("%s", printable(sentence))
            self._logged = about

    def log_new(self, sentences: list[str], **_: Any) -> None:
        """Log each message that was not logged recently."""
        for sentence in sentences:
            if sentence not in self._lines:
                self._log("%s", printable(sentence))
            self._lines[sentence] = self._lines.pop(sentence, None)
        for old in list(self._lines)[:-_REMEMBERED]:
            del self._lines[old]
