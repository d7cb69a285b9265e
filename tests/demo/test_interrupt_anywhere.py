"""Ctrl-C at each point of the demo, as its lines name them: nothing is left running, whatever was under way."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.demo.test_interrupt import COMMAND, _assert_unmentioned, _mentions
from tests.eventually import eventually
from tests.sandbox.processes import restore_ctrl_c

pytestmark = [pytest.mark.kraft, pytest.mark.slow]

#: What is under way when the demo prints a line with these words.
POINTS = {
    "setting up": "a broker fails, and the cluster is fully replicated again",
    "brokers starting": "four brokers in three racks",
    "Airflow starting": "is up at",
    "filling topics": "are healthy at",
    "detection": "got SIGKILL",
    "Spark planning": "task plan",
    "moving": "catching up",
    "after the moves": "moved   ",
}


@contextmanager
def demo(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The demo as a terminal starts it, in a process group of its own; everything that it writes is in `folder`."""
    child = subprocess.Popen(
        [*COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder), "PYTHONUNBUFFERED": "1"},
        start_new_session=True,
        preexec_fn=restore_ctrl_c,  # noqa: PLW1509 - no thread of ours runs
    )
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def output_up_to(child: subprocess.Popen[str], words: str) -> str:
    """Its output up to the line with these words."""
    assert child.stdout is not None
    assert child.stderr is not None
    lines: list[str] = []
    for line in child.stdout:
        lines.append(line)
        if words in line:
            return "".join(lines)
    raise AssertionError(f"it never said {words!r}: {''.join(lines)}{child.stderr.read()}")


def ctrl_c(child: subprocess.Popen[str]) -> str:
    """What a terminal does: SIGINT to the whole group. What it prints on standard error until it has ended."""
    os.killpg(child.pid, signal.SIGINT)
    return child.communicate(timeout=180)[1]


@pytest.mark.parametrize("point", POINTS)
def test_ctrl_c_leaves_no_process_and_no_file(point: str, tmp_path: Path) -> None:
    with demo(tmp_path) as child:
        output_up_to(child, POINTS[point])
        errors = ctrl_c(child)
    assert child.returncode == 130
    assert errors.strip().splitlines()[-1] == "The demo was interrupted; everything that it started has ended."
    assert "Traceback" not in errors
    eventually(lambda: _assert_unmentioned(tmp_path), within=30)
    # The empty file in which ports are reserved is for all processes of the user, and stays.
    assert [path for path in tmp_path.glob("kafka-steward-*") if path.is_dir() or path.stat().st_size] == []


def test_what_is_kept_runs_until_ctrl_c_and_its_files_stay(tmp_path: Path) -> None:
    with demo(tmp_path, "--keep") as child:
        said = output_up_to(child, "healed broker=")
        assert re.search(r"Airflow UI: http://127\.0\.0\.1:\d+  \(user admin, password admin\)", said)
        files = re.search(r"Kafka: 127\.0\.0\.1:\S+\nFiles: (\S+)\nCtrl-C stops everything", said)
        assert files, said
        assert len(_mentions(tmp_path)) >= 10
        errors = ctrl_c(child)
    assert child.returncode == 0, errors
    assert "Traceback" not in errors
    eventually(lambda: _assert_unmentioned(tmp_path), within=30)
    assert (Path(files[1]) / "airflow" / "journal.db").exists()
