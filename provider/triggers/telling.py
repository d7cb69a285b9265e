"""What a watch says: a sentence once, an error once, and a gauge for whoever looks at none of the logs."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from airflow.sdk.observability import stats

from kafka_steward.escaping import printable

if TYPE_CHECKING:
    from kafka_steward.hooks.steward import Opened

__all__ = ["Teller", "bell_of", "gauge"]

#: Seconds before the first new look after an error; doubled by each further one.
_BACK_OFF_S = 2.0
_LONGEST_BACK_OFF_S = 60.0
#: Sentences that are remembered, so as not to be said again.
_REMEMBERED = 200


def gauge(name: str, conn_id: str, value: int) -> None:
    """Set a gauge of the watch of one cluster."""
    stats.gauge(f"kafka_steward.watch.{name}", value, tags={"conn_id": conn_id})


def bell_of(opened: Opened, at_ms: int, brokers: Collection[int] | None = None) -> dict[str, Any]:
    """The payload of an event: `{"cluster_id", "conn_id", "at_ms", "journal"}`, and `brokers` if they are what it says.

    `journal` names the journal that the watch reads: a run that opens another one would not find what it rings for.
    """
    named = {"cluster_id": opened.cluster.cluster_id, "conn_id": opened.access.conn_id}
    return {
        **named,
        **({} if brokers is None else {"brokers": list(brokers)}),
        "at_ms": at_ms,
        "journal": opened.origin,
    }


class Teller:
    """Speaks for one loop of the watch of `conn_id`; `failing` names the gauge that counts its errors in a row.

    Another gauge, of the same name but with "age", is the seconds since its last look that worked. `clock` counts
    seconds.
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
        """A look went well."""
        if self._failures:
            self._say("The watch of %s works again.", self._conn_id)
        self._failures = 0
        self._worked_s = self._clock()
        gauge(self._failing, self._conn_id, 0)

    def tell_age(self) -> None:
        """Set the gauge of the age: also of a look that hangs, which neither succeeds nor fails."""
        age = self._failing.removesuffix("failing") + "age"
        gauge(age, self._conn_id, int(self._clock() - self._worked_s))

    def complain(self, error: Exception) -> float:
        """Say it once, count it, and return the seconds until the next look."""
        self._failures += 1
        gauge(self._failing, self._conn_id, self._failures)
        sentence = f"The watch of {self._conn_id} cannot {self._what}, and tries again: {error}"
        self.say(sentence, about=sentence)
        return min(_LONGEST_BACK_OFF_S, _BACK_OFF_S * 2.0 ** min(self._failures - 1, 10))

    def say(self, sentence: str, *, about: object) -> None:
        """Say it, unless the last thing said was about the same."""
        if about != self._said:
            self._say("%s", printable(sentence))
            self._said = about

    def lines(self, sentences: list[str], **_: Any) -> None:
        """Say each that was not said lately."""
        for sentence in sentences:
            if sentence not in self._lines:
                self._say("%s", printable(sentence))
            self._lines[sentence] = self._lines.pop(sentence, None)
        for old in list(self._lines)[:-_REMEMBERED]:
            del self._lines[old]
