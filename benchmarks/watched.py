"""What a process takes, with all its descendants: memory at its peak, and seconds on a core."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

__all__ = ["Watch", "spent"]


class Watch(threading.Thread):
    """Looks ten times a second how much memory a process and its descendants hold."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid, self._peak, self._done = pid, 0, threading.Event()
        self.start()

    def run(self) -> None:
        while not self._done.wait(0.1):
            self._peak = max(self._peak, sum(_resident(pid) for pid in _family(self._pid)))

    def stop(self) -> int:
        """The peak, in mebibytes."""
        self._done.set()
        self.join()
        return self._peak >> 20


def _family(pid: int) -> Iterator[int]:
    yield pid
    try:
        found = [(task / "children").read_text().split() for task in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        # It ended while we looked.
        return
    for child in (int(word) for words in found for word in words):
        yield from _family(child)


def _resident(pid: int) -> int:
    """Bytes that are this process' own: forked workers share what they never wrote."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def spent(pid: int) -> float:
    """Seconds on a core of a process and its descendants, those included that have ended."""
    return sum(_ticks(one) for one in _family(pid)) / os.sysconf("SC_CLK_TCK")


def _ticks(pid: int) -> int:
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        # It ended while we looked.
        return 0
    # Fields 14 to 17: user and system time, its own and that of children it has waited for.
    return sum(int(word) for word in words[11:15])
