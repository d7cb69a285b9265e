"""Waits for something to become true, as a real cluster makes it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")


def eventually(
    assertion: Callable[[], Value],
    within: float = 30.0,
    every: float = 0.25,
    *,
    errors: tuple[type[Exception], ...] = (),
) -> Value:
    """Call `assertion` until it passes, and give its value; after `within` seconds its own failure is what is raised.

    `errors` are retried like a failed assertion.
    """
    passing: tuple[type[Exception], ...] = (AssertionError, *errors)
    deadline = time.monotonic() + within
    while True:
        try:
            return assertion()
        except passing:
            if time.monotonic() > deadline:
                raise
        time.sleep(every)
