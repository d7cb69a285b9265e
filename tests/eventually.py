"""Waits for something to become true, as a real cluster makes it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tests.pace import Deadline

__all__ = ["eventually"]

Value = TypeVar("Value")


def eventually(
    assertion: Callable[[], Value],
    within: float = 30.0,
    every: float = 0.25,
    *,
    errors: tuple[type[Exception], ...] = (),
) -> Value:
    """Call `assertion` until it passes, and return its value; its own failure is raised after `within` seconds.

    What is not there yet (LookupError) and `errors` are retried like a failed assertion. `within` is for a quiet
    machine: see `tests.pace`.
    """
    passing: tuple[type[Exception], ...] = (AssertionError, LookupError, *errors)
    deadline = Deadline(within)
    while True:
        try:
            return assertion()
        except passing:
            if deadline.passed():
                raise
        time.sleep(every)
