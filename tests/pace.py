"""How slow this machine is at the moment, and limits that are stretched by it."""

from __future__ import annotations

import time
from functools import cache

__all__ = ["Deadline", "slowdown_at_start"]

#: A limit says what a quiet machine was seen to need: the same work may well take this many times as long.
_MARGIN = 2
#: What is not there after this many times as long will not come, and waiting on takes the time of all other tests.
_MOST = 4.0
_ROUNDS = 3_000_000
#: What `_ROUNDS` take on an idle core of the machine on which the limits were chosen.
_QUIET_S = 0.15


class Deadline:
    """The moment `within` seconds from now, as a quiet machine counts them.

    The seconds are multiplied by the slowdown that was measured at the start of the session. What is late by then may
    be late because of the other tests: the slowdown is measured once more, and the limit stretched if it is larger now.
    """

    def __init__(self, within: float) -> None:
        self._began_s = time.monotonic()
        self._within_s = within * _MARGIN
        self._slowdown = slowdown_at_start()

    def passed(self) -> bool:
        """Return whether the limit is over, however slow the machine is now."""
        if not self._over():
            return False
        self._slowdown = max(self._slowdown, _slowdown())
        return self._over()

    def _over(self) -> bool:
        return time.monotonic() - self._began_s > self._within_s * self._slowdown


@cache
def slowdown_at_start() -> float:
    """Return how many times as long as on a quiet machine a known piece of work took when the session began."""
    return _slowdown()


def _slowdown() -> float:
    began_s = time.perf_counter()
    total = 0
    for number in range(_ROUNDS):
        total += number * number
    return min(max(1.0, (time.perf_counter() - began_s) / _QUIET_S), _MOST)
