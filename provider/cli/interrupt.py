"""Ctrl-C in the foreground: the current step is finished, then the loop stops; a second Ctrl-C stops at once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from time import sleep
from types import FrameType

from kafka_steward.cli.output import print_error

__all__ = ["Interrupt", "interruptible"]


class Interrupt:
    """Handles signals and provides the `wait` of a loop. Only for the main thread, where Python handles signals."""

    def __init__(self) -> None:
        self._asked = self._waiting = False

    def wait(self, seconds: float) -> None:
        """Sleep. Raises KeyboardInterrupt if a signal arrived before, or arrives during the sleep."""
        self._waiting = True
        try:
            if self._asked:
                raise KeyboardInterrupt
            sleep(seconds)
        finally:
            self._waiting = False

    def take(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - what Python calls a handler with
        """Handle a signal. Raises KeyboardInterrupt during `wait`, and for a second signal at any point."""
        if self._waiting or self._asked:
            raise KeyboardInterrupt
        self._asked = True
        print_error("Stopping after this step; press Ctrl-C again to stop at once.")


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Handle SIGINT and SIGTERM by an Interrupt inside the block."""
    interrupt = Interrupt()
    before = {number: signal.signal(number, interrupt.take) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
