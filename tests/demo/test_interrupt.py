"""The demo leaves nothing behind, whenever it is stopped."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.eventually import eventually

COMMAND = [sys.executable, "-m", "kafka_steward.demo"]


@pytest.mark.kraft
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_a_demo_that_is_stopped_while_airflow_starts_leaves_no_process(number: signal.Signals, tmp_path: Path) -> None:
    demo = subprocess.Popen(
        COMMAND,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        start_new_session=True,
    )
    assert demo.stdout is not None
    assert any("is up at" in line for line in demo.stdout)
    eventually(lambda: _assert_mentioned(tmp_path), within=60)
    demo.send_signal(number)
    _, errors = demo.communicate(timeout=300)
    assert demo.returncode == 130
    assert errors.strip().splitlines()[-1] == "The demo was interrupted; everything that it started has ended."
    eventually(lambda: _assert_unmentioned(tmp_path), within=30)
    assert not list(tmp_path.glob("kafka-steward-demo-*"))


@pytest.mark.process
def test_an_unknown_mode_is_refused_with_a_sentence() -> None:
    refused = subprocess.run([*COMMAND, "--mode", "raft"], capture_output=True, text=True, timeout=300, check=False)
    assert refused.returncode == 2
    assert re.search(r"invalid choice: '?raft'?", refused.stderr)


def _mentions(folder: Path) -> list[int]:
    """Processes whose environment or command line names the folder that everything of the demo lives in."""
    processes = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit() and int(entry.name) != os.getpid()]
    return [int(entry.name) for entry in processes if _names(entry, str(folder).encode())]


def _names(entry: Path, text: bytes) -> bool:
    try:
        return text in (entry / "environ").read_bytes() or text in (entry / "cmdline").read_bytes()
    except OSError:
        return False


def _assert_mentioned(folder: Path) -> None:
    assert len(_mentions(folder)) >= 7  # the demo, its brokers and controller, and the first process of Airflow


def _assert_unmentioned(folder: Path) -> None:
    assert _mentions(folder) == []
