"""`make demo` does what the README says: it kills a broker of a real cluster, and heals it in a real Airflow."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.demo.test_interrupt import COMMAND

README = Path(__file__).parents[2] / "README.md"
#: Its two sentences of the README: the first line, and the last.
TITLE = "Kafka Steward: "
LAST = "healed broker="

pytestmark = [pytest.mark.kraft, pytest.mark.airflow, pytest.mark.spark, pytest.mark.ci, pytest.mark.apart]


def facts(line: str) -> dict[str, str]:
    return dict(word.split("=") for word in line.split()[1:])


def test_the_demo_heals_and_prints_what_the_readme_shows(tmp_path: Path) -> None:
    done = subprocess.run(
        COMMAND, capture_output=True, text=True, timeout=900, env={**os.environ, "TMPDIR": str(tmp_path)}, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    printed = README.read_text()
    shown = next(line for line in printed.splitlines() if line.startswith(LAST))
    title = next(line for line in printed.splitlines() if line.startswith(TITLE))
    assert title in done.stdout.splitlines()
    told, expected = facts(done.stdout.splitlines()[-1]), facts(shown)
    assert {**told, "seconds": ""} == {**expected, "seconds": ""}
    assert (told["replicas_moved"], told["under_replicated"]) == (told["lower_bound"], "0")
