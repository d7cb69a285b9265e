"""The summary counts tests by mode, and a skipped test fails the run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).parent.parent
PASSING = """
import pytest
pytestmark = pytest.mark.spark
def test_one(): pass
@pytest.mark.kraft
def test_two(): pass
"""
SKIPPING = "import pytest\ndef test_three(): pytest.skip('no Java')\n"
SKIPPING_WHOLE = "import pytest\npytest.skip('no Spark', allow_module_level=True)\n"


def run(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "tests.modes", "-p", "no:cacheprovider", "-c", "/dev/null"]
    return subprocess.run([*command, str(folder)], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


def test_passed_tests_are_counted_under_each_of_their_modes(tmp_path: Path) -> None:
    done = run(tmp_path, PASSING + "\n" + "def test_three(): pass\n")
    assert done.returncode == 0
    assert "kraft 1, zookeeper 0, airflow 0, spark 3, other 0; skipped 0" in done.stdout


@pytest.mark.parametrize("skipping", [SKIPPING, SKIPPING_WHOLE])
def test_a_skipped_test_fails_the_run(tmp_path: Path, skipping: str) -> None:
    done = run(tmp_path, skipping)
    assert done.returncode == 1
    assert "skipped 1" in done.stdout
    assert "A skipped test fails the run" in done.stdout
