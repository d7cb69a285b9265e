"""`make quick` runs the tests that need nothing, and fails a test that connects, listens or starts a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.rings import NEEDY

pytestmark = pytest.mark.process

ROOT = Path(__file__).parent.parent
TESTS = {
    "connects": "import socket\ndef test_it():\n    socket.socket().connect_ex(('127.0.0.1', 1))\n",
    "listens": "import socket\ndef test_it():\n    socket.socket().bind(('127.0.0.1', 0))\n",
    "sends": "import socket\ndef test_it():\n    socket.socket(type=socket.SOCK_DGRAM).sendto(b'', ('127.0.0.1', 9))\n",
    "forks": "import os\ndef test_it():\n    pid = os.fork() or os._exit(0)\n    os.waitpid(pid, 0)\n",
    "starts a process": "import subprocess\ndef test_it():\n    subprocess.run(['true'])\n",
}


def run(folder: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n" + "".join(f"  {mark}\n" for mark in NEEDY))
    command = [sys.executable, "-m", "pytest", "-p", "tests.rings", "-p", "no:cacheprovider", f"--rootdir={folder}"]
    return subprocess.run(
        [*command, *options, "-c", str(folder / "pytest.ini"), str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("what", TESTS)
def test_with_quick_a_test_without_a_mark_may_not(what: str, tmp_path: Path) -> None:
    done = run(tmp_path, TESTS[what], "--quick")
    assert done.returncode == 1, done.stdout
    assert "test_it is not marked `process`, but: " in done.stdout


@pytest.mark.parametrize("what", TESTS)
def test_without_quick_it_may(what: str, tmp_path: Path) -> None:
    assert run(tmp_path, TESTS[what]).returncode == 0


def test_quick_leaves_out_every_test_with_a_mark(tmp_path: Path) -> None:
    text = "import pytest\ndef test_plain(): pass\n"
    text += "".join(f"@pytest.mark.{mark}\ndef test_{mark}(): assert False\n" for mark in NEEDY)
    done = run(tmp_path, text, "--quick")
    assert done.returncode == 0, done.stdout
    assert f"1 passed, {len(NEEDY)} deselected" in done.stdout


IN_BOTH_MODES = """
import pytest
MODES = [pytest.param(mode, marks=getattr(pytest.mark, mode)) for mode in ("kraft", "zookeeper")]
@pytest.mark.parametrize("mode", MODES)
def test_it(mode): pass
@pytest.mark.in_ci("zookeeper")
@pytest.mark.parametrize("mode", MODES)
def test_in_ci(mode): pass
"""


def test_in_ci_a_test_may_run_in_one_mode_only(tmp_path: Path) -> None:
    assert "test_in_ci[zookeeper] PASSED" in (in_ci := run(tmp_path, IN_BOTH_MODES, "-v", "-m", "not slow").stdout)
    assert "3 passed, 1 deselected" in in_ci
    assert "4 passed" in run(tmp_path, IN_BOTH_MODES).stdout


CASES = """
from tests.rings import one_in, tried
def test_it(): assert (tried(10), one_in(7)) == {expected}
"""


def test_all_cases_and_points_are_tried_where_it_is_asked_for(tmp_path: Path) -> None:
    assert run(tmp_path, CASES.format(expected=(1, 7))).returncode == 0
    assert run(tmp_path, CASES.format(expected=(10, 1)), "--every-case").returncode == 0
