"""One child process: in its own session, bound to this process's lifetime, with its output in a file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kafka_steward.errors import SandboxFailed

# Resolved once: a development install is a tree of links, which may be re-created while this process runs.
_DIE_WITH_PARENT = Path(__file__).resolve().with_name("die_with_parent.py")
_TAIL_BYTES = 3000

# A child of `tethered` ends with the *thread* that spawned it. This thread lives as long as the interpreter, so that
# a broker may be restarted from any short-lived thread.
_SPAWNER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sandbox-spawner")


class Process:
    """A running `command`; `name` is its name in messages, `log` receives all its output."""

    def __init__(self, name: str, command: Sequence[str], *, log: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self.log = log
        self._child = _SPAWNER.submit(_spawn, command, log, dict(environment)).result()

    @property
    def pid(self) -> int:
        """The process id, also after the process has ended."""
        return self._child.pid

    @property
    def alive(self) -> bool:
        """Return whether the process runs, or is paused."""
        return self._child.poll() is None

    def require_alive(self) -> None:
        """Raise SandboxFailed, with the end of the log, if the process has ended."""
        if not self.alive:
            raise SandboxFailed(f"{self.name} ended with code {self._child.returncode}; {self.tail()}")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; does nothing if the process has ended."""
        self._child.send_signal(number)

    def kill(self) -> None:
        """End the process with SIGKILL, and wait until it is gone."""
        self._child.kill()
        self._child.wait(timeout=30)

    def terminate(self, *, within_s: float) -> None:
        """Send SIGTERM to the process, and kill it after `within_s` seconds."""
        self._child.send_signal(signal.SIGCONT)
        self._child.terminate()
        try:
            self._child.wait(timeout=within_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def tail(self) -> str:
        """Return the end of the log, introduced by the file's name."""
        text = self.log.read_bytes()[-_TAIL_BYTES:].decode(errors="replace") if self.log.exists() else ""
        return f"the end of {self.log}:\n{text.strip() or '(empty)'}"


def die_with_parent_command(command: Sequence[str]) -> list[str]:
    """Return a command that runs `command` and ends, at the latest, with the thread that starts it."""
    return [sys.executable, "-I", "-S", str(_DIE_WITH_PARENT), str(os.getpid()), *command]


def _spawn(command: Sequence[str], log: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(
            die_with_parent_command(command),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
