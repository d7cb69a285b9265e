"""Waits for something to become true, as a real cluster makes it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["BUSY", "eventually"]

Value = TypeVar("Value")

#: Limits are what a quiet machine needs; one that is busy with other tests gets as many times that.
BUSY = 4


def eventually(
    assertion: Callable[[], Value],
    within: float = 30.0,
    every: float = 0.25,
    *,
    errors: tuple[type[Exception], ...] = (),
) -> Value:
    """Call `assertion` until it passes, and give its value; its own failure is raised after `within` seconds.

    What is not there yet (LookupError) and `errors` are retried like a failed assertion. A busy machine gets `BUSY`
    times as long.
    """
    passing: tuple[type[Exception], ...] = (AssertionError, LookupError, *errors)
    deadline = time.monotonic() + within * BUSY
    while True:
        try:
            return assertion()
        except passing:
            if time.monotonic() > deadline:
                raise
        time.sleep(every)
