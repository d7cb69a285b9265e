"""A failed test on real brokers, Airflow or Spark is run once more, alone; no other test is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).parent.parent
#: `fails(n)`: in its first n runs, a test fails; `cluster` is made once per process.
HEAD = """
import os, pathlib, pytest
HERE = pathlib.Path(__file__).parent
def fails(times):
    with (HERE / "runs").open("a") as file:
        file.write(f"{os.getpid()}\\n")
    assert len((HERE / "runs").read_text().splitlines()) > times, "the first output"
@pytest.fixture(scope="session")
def cluster():
    return os.getpid()
"""
BESIDE = "def test_beside(): pass\n"
ONCE = "@pytest.mark.kraft\ndef test_it(cluster): fails(1)\n"
BROKEN_CLUSTER = """
@pytest.fixture
def broken(): fails(1)
@pytest.mark.kraft
def test_it(broken): pass
"""


@pytest.fixture(autouse=True)
def with_the_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the process that runs a test once more, too."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in [name for name in os.environ if name.startswith("PYTEST_XDIST")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p tests.modes -p tests.unstable")


def run(folder: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(HEAD + text)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n  kraft\n  spark\n  process\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, *options, "test_it.py"], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )


def runs(folder: Path) -> list[str]:
    return (folder / "runs").read_text().splitlines()


@pytest.mark.parametrize("workers", [(), ("-n", "2", "--dist", "loadgroup", "--no-loadscope-reorder")])
@pytest.mark.parametrize("text", [ONCE, BROKEN_CLUSTER], ids=["test", "fixture"])
def test_one_that_passes_the_second_time_is_listed_with_both_outputs(
    tmp_path: Path, workers: tuple[str, ...], text: str
) -> None:
    done = run(tmp_path, BESIDE + text, "--retry-real", *workers)
    assert done.returncode == 0, done.stdout
    assert "1 passed, 1 unstable" in done.stdout
    told = done.stdout.partition("unstable: test_it.py::test_it")[2]
    assert "the first output" in told
    assert "1 passed" in told.partition("The second time, alone, it passed:")[2]
    assert len(runs(tmp_path)) == 2, done.stdout
    first, second = runs(tmp_path)
    assert first != second, "a process of its own, and so a fresh cluster"


@pytest.mark.parametrize(
    ("text", "times"),
    [
        pytest.param("@pytest.mark.spark\ndef test_it(): fails(2)\n", 2, id="fails twice"),
        pytest.param("def test_it(): fails(1)\n", 1, id="has no mark"),
        pytest.param("@pytest.mark.process\ndef test_it(): fails(1)\n", 1, id="is not on brokers, Airflow or Spark"),
        pytest.param(ONCE + "def test_other(): assert False\n", 1, id="is not alone in failing"),
        pytest.param(
            "@pytest.mark.kraft\n@pytest.mark.parametrize('n', range(5))\ndef test_it(n): fails(9)\n", 5, id="many"
        ),
    ],
)
def test_what_fails_still_fails_the_run(tmp_path: Path, text: str, times: int) -> None:
    done = run(tmp_path, text, "--retry-real")
    assert done.returncode == 1, done.stdout
    assert "unstable" not in done.stdout.splitlines()[-1]
    assert len(runs(tmp_path)) == times
    if times == 2:
        told = done.stdout.partition("failed twice: test_it.py::test_it")[2]
        assert "the first output" in told.partition("The second time, alone, it failed too:")[2]


def test_without_the_option_nothing_is_run_twice(tmp_path: Path) -> None:
    assert run(tmp_path, ONCE).returncode == 1
    assert len(runs(tmp_path)) == 1
