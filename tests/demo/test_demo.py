"""The demo, as the README shows it: in this environment. In one that pip made alone, see tests/install."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.demo.readme import assert_as_the_readme_shows
from tests.install.environments import clean_environment

pytestmark = [pytest.mark.kraft, pytest.mark.airflow, pytest.mark.spark, pytest.mark.ci, pytest.mark.apart]


def test_it_heals_and_prints_what_the_readme_shows(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-m", "kafka_steward.demo"],
        cwd=tmp_path,
        env={**clean_environment(), "PATH": path, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert_as_the_readme_shows(done.stdout.splitlines())
