"""Processes that end together: stubborn ones, nested ones, ones in sessions of their own, and those of a dead owner."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kafka_steward.sandbox.processes import ProcessGroup, marked_processes
from tests.eventually import eventually

pytestmark = pytest.mark.process

#: Ignores SIGTERM, and has a child in a session of its own that does too.
STUBBORN = ["bash", "-c", "trap '' TERM; setsid bash -c \"trap '' TERM; sleep 300\" & sleep 300"]
OWNER = """
import sys, time
from pathlib import Path
from kafka_steward.sandbox.processes import ProcessGroup
ProcessGroup(sys.argv[1]).spawn({command!r}, env={{"PATH": "/usr/bin:/bin"}}, log=Path(sys.argv[2]))
time.sleep(300)
"""


@pytest.fixture
def mark(tmp_path: Path) -> str:
    return f"test:{tmp_path}"


def test_end_ends_what_ignores_it_and_what_it_started(mark: str, tmp_path: Path) -> None:
    group = ProcessGroup(mark)
    group.spawn(STUBBORN, env=dict(os.environ), log=tmp_path / "log")
    try:
        eventually(lambda: _at_least(mark, 3), within=10)
    finally:
        began = time.monotonic()
        group.end(grace_s=0.5)
    assert marked_processes(mark) == []
    assert time.monotonic() - began < 10


def test_nothing_survives_an_owner_that_is_killed(mark: str, tmp_path: Path) -> None:
    script = OWNER.format(command=STUBBORN)
    owner = subprocess.Popen([sys.executable, "-c", script, mark, str(tmp_path / "log")])
    try:
        eventually(lambda: _at_least(mark, 3), within=30)
    finally:
        owner.kill()
        owner.wait(timeout=10)
    eventually(lambda: _none(mark), within=20)


def _at_least(mark: str, count: int) -> None:
    assert len(marked_processes(mark)) >= count


def _none(mark: str) -> None:
    assert marked_processes(mark) == []
