"""Status reports of a watch: each message once, each error once, and gauges for monitoring."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from airflow.sdk.observability import stats

from kafka_steward.escaping import printable

if TYPE_CHECKING:
    from kafka_steward.hooks.steward import Opened

__all__ = ["Teller", "bell_of", "gauge"]

#: Seconds before the first retry after an error; doubled by each further error.
_BACK_OFF_S = 2.0
_LONGEST_BACK_OFF_S = 60.0
#: The most messages that are remembered, so that they are not repeated.
_REMEMBERED = 200


def gauge(name: str, conn_id: str, value: int) -> None:
    """Set a gauge of the watch of one cluster."""
    stats.gauge(f"kafka_steward.watch.{name}", value, tags={"conn_id": conn_id})


def bell_of(opened: Opened, at_ms: int, brokers: Collection[int] | None = None) -> dict[str, Any]:
    """Return an event's payload: `{"cluster_id", "conn_id", "at_ms", "journal"}`, plus `brokers` if given.

    `journal` names the journal that the watch reads: a run with another journal would not find the cause of the event.
    """
    named = {"cluster_id": opened.cluster.cluster_id, "conn_id": opened.access.conn_id}
    return {
        **named,
        **({} if brokers is None else {"brokers": list(brokers)}),
        "at_ms": at_ms,
        "journal": opened.origin,
    }


class Teller:
    """Reports for one loop of the watch of `conn_id`; `failing` names the gauge of its consecutive errors.

    A second gauge, with "age" in place of "failing" in its name, is the number of seconds since the last successful
    check. `clock` counts seconds.
    """

    def __init__(
        self,
        conn_id: str,
        say: Callable[..., None],
        *,
        failing: str,
        what: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._conn_id, self._say, self._failing, self._what = conn_id, say, failing, what
        self._clock, self._worked_s = clock, clock()
        self._said: object = None
        self._lines: dict[str, None] = {}
        self._failures = 0

    def fine(self) -> None:
        """Record a successful check."""
        if self._failures:
            self._say("The watch of %s works again.", self._conn_id)
        self._failures = 0
        self._worked_s = self._clock()
        gauge(self._failing, self._conn_id, 0)

    def tell_age(self) -> None:
        """Set the gauge of the age. It also covers a stalled check, which neither succeeds nor fails."""
        age = self._failing.removesuffix("failing") + "age"
        gauge(age, self._conn_id, int(self._clock() - self._worked_s))

    def complain(self, error: Exception) -> float:
        """Log the error once, count it, and return the seconds until the next check."""
        self._failures += 1
        gauge(self._failing, self._conn_id, self._failures)
        sentence = f"The watch of {self._conn_id} cannot {self._what}, and tries again: {error}"
        self.say(sentence, about=sentence)
        return min(_LONGEST_BACK_OFF_S, _BACK_OFF_S * 2.0 ** min(self._failures - 1, 10))

    def say(self, sentence: str, *, about: object) -> None:
        """Log the message, unless the last one had the same subject `about`."""
        if about != self._said:
            self._say("%s", printable(sentence))
            self._said = about

    def lines(self, sentences: list[str], **_: Any) -> None:
        """Log each message that was not logged recently."""
        for sentence in sentences:
            if sentence not in self._lines:
                self._say("%s", printable(sentence))
            self._lines[sentence] = self._lines.pop(sentence, None)
        for old in list(self._lines)[:-_REMEMBERED]:
            del self._lines[old]
