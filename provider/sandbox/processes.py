"""Child processes that end with their owner, even if it crashes.

A `Process` ends by the kernel's hand, at once. That reaches no grandchildren: Airflow's scheduler, triggerer and task
supervisors fork children of their own, some of which ignore SIGTERM and outlive their parent. Each process of a
`ProcessGroup` therefore carries the group's mark in its environment, which children inherit. To end the group, all
processes with the mark are looked up in /proc. A watchdog process does the same after a crash of the owner: it waits on
a pipe that only the owner holds open.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kafka_steward.errors import SandboxFailed

# Resolved once: a development install is a tree of links, which may be re-created while this process runs.
_DIE_WITH_PARENT = Path(__file__).resolve().with_name("die_with_parent.py")
_TAIL_BYTES = 3000

# A child of `_tie_to_parent` ends with the *thread* that spawned it. This thread lives as long as the
# interpreter, so that a broker may be restarted from any short-lived thread.
_SPAWNER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sandbox-spawner")

_VARIABLE = "KAFKA_STEWARD_PROCESS_GROUP"


class Process:
    """A running `command`; `name` is its name in messages, `log` receives all its output."""

    def __init__(self, name: str, command: Sequence[str], *, log: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self.log = log
        self._child = _SPAWNER.submit(_spawn_process, _tie_to_parent(command), environment, log).result()

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
            text = self.log.read_bytes()[-_TAIL_BYTES:].decode(errors="replace").strip()
            raise SandboxFailed(
                f"{self.name} ended with code {self._child.returncode}; the end of {self.log}:\n{text or '(empty)'}"
            )

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


def run_to_end(
    command: Sequence[str], *, environment: Mapping[str, str] | None = None, within_s: float
) -> subprocess.CompletedProcess[str]:
    """Run `command` to its end, which comes with the calling thread's at the latest; return its code and output.

    Raises subprocess.TimeoutExpired.
    """
    tied = _tie_to_parent(command)
    return subprocess.run(tied, env=environment, capture_output=True, text=True, timeout=within_s, check=False)


def _tie_to_parent(command: Sequence[str]) -> list[str]:
    """Return a command that runs `command` and ends, at the latest, with the thread that starts it."""
    return [sys.executable, "-I", "-S", str(_DIE_WITH_PARENT), str(os.getpid()), *command]


class ProcessGroup:
    """Starts processes and ends them all. `mark` must be unique on this machine."""

    def __init__(self, mark: str) -> None:
        self.mark = mark
        self._children: list[subprocess.Popen[bytes]] = []
        self._watchdog: subprocess.Popen[bytes] | None = None

    def spawn(self, command: Sequence[str], *, env: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
        """Start `command` in a session of its own, with its output in `log`."""
        if self._watchdog is None:
            watch = [sys.executable, "-c", f"from {__name__} import run_watchdog; run_watchdog()", self.mark]
            self._watchdog = subprocess.Popen(
                watch, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
            )
        # setproctitle, which Airflow uses, overwrites the environment in /proc unless SPT_NOENV is set.
        child = _spawn_process(command, {**env, _VARIABLE: self.mark, "SPT_NOENV": "1"}, log)
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


def marked_processes(mark: str) -> list[int]:
    """Return the ids of the live processes that carry `mark`, without zombies."""
    wanted = f"{_VARIABLE}={mark}".encode()
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _has_mark(entry, wanted)]


def end_marked(mark: str, *, grace_s: float) -> None:
    """Send SIGTERM to the marked processes, wait up to `grace_s` seconds, and kill the remaining ones."""
    _signal_marked(mark, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while marked_processes(mark) and time.monotonic() < deadline:
        time.sleep(0.1)
    while marked_processes(mark):
        _signal_marked(mark, signal.SIGKILL)
        time.sleep(0.05)


def run_watchdog() -> None:
    """Be the watchdog: end the processes with the mark `sys.argv[1]` when the owner's end of standard input closes."""
    # Ctrl-C on the terminal is the owner's to handle.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdin.buffer.read()
    end_marked(sys.argv[1], grace_s=3.0)


def _spawn_process(command: Sequence[str], env: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )


def _has_mark(entry: Path, wanted: bytes) -> bool:
    # A process may have ended since the listing, or belong to another user: it is then not one of the group.
    with contextlib.suppress(OSError):
        return wanted in (entry / "environ").read_bytes().split(b"\0")
    return False


def _signal_marked(mark: str, number: signal.Signals) -> None:
    for process in marked_processes(mark):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)
