"""A group of processes that end together: with their owner, even if it crashes, and however deep they nest.

Airflow's scheduler, triggerer and task supervisors fork children of their own, some of which ignore SIGTERM and
outlive their parent. Each process of a group therefore carries the group's mark in its environment, which children
inherit. To end the group, all processes with the mark are looked up in /proc. A watchdog process does the same after
a crash of the owner: it waits on a pipe that only the owner holds open.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

_VARIABLE = "KAFKA_STEWARD_PROCESS_GROUP"


class ProcessGroup:
    """Starts processes and ends them all. `mark` must be unique on this machine."""

    def __init__(self, mark: str) -> None:
        self.mark = mark
        self._children: list[subprocess.Popen[bytes]] = []
        self._watchdog: subprocess.Popen[bytes] | None = None

    def spawn(self, command: Sequence[str], *, env: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
        """Start `command` in a session of its own, with its output in `log`."""
        self._watch()
        with log.open("ab") as output:
            # setproctitle, which Airflow uses, overwrites the environment in /proc unless SPT_NOENV is set.
            child = _start(command, {**env, _VARIABLE: self.mark, "SPT_NOENV": "1"}, output)
        self._children.append(child)
        return child

    def end(self, *, grace_s: float = 8.0) -> None:
        """End every process of the group: with SIGTERM first, with SIGKILL after `grace_s` seconds."""
        end_marked(self.mark, grace_s=grace_s)
        for child in self._children:
            child.wait(timeout=30)
        self._children.clear()
        if self._watchdog is not None and self._watchdog.stdin is not None:
            self._watchdog.stdin.close()
            self._watchdog.wait(timeout=30)
            self._watchdog = None

    def _watch(self) -> None:
        if self._watchdog is None:
            command = [sys.executable, "-m", "kafka_steward.sandbox.process_group", self.mark]
            self._watchdog = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
            )


def marked_processes(mark: str) -> list[int]:
    """Return the ids of the live processes that carry `mark`, without zombies."""
    wanted = f"{_VARIABLE}={mark}".encode()
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _has_marker(entry, wanted)]


def end_marked(mark: str, *, grace_s: float) -> None:
    """Send SIGTERM to the marked processes, wait up to `grace_s` seconds, and kill the remaining ones."""
    _signal_all(mark, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while marked_processes(mark) and time.monotonic() < deadline:
        time.sleep(0.1)
    while marked_processes(mark):
        _signal_all(mark, signal.SIGKILL)
        time.sleep(0.05)


def _start(command: Sequence[str], env: Mapping[str, str], output: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
    )


def _has_marker(entry: Path, wanted: bytes) -> bool:
    # A process may have ended since the listing, or belong to another user: it is then not one of the group.
    with contextlib.suppress(OSError):
        return wanted in (entry / "environ").read_bytes().split(b"\0")
    return False


def _signal_all(mark: str, number: signal.Signals) -> None:
    for process in marked_processes(mark):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


def _watch_owner(mark: str) -> None:
    # The owner handles Ctrl-C on the terminal; the watchdog only waits until the owner's end of the pipe is closed.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdin.buffer.read()
    end_marked(mark, grace_s=3.0)


if __name__ == "__main__":
    _watch_owner(sys.argv[1])
