"""`pip install` of the wheel alone, into an empty environment: what works there is what the README promises."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.demo.readme import assert_as_the_readme_shows
from tests.install.environments import Environment, assert_works, build_wheel, run

pytestmark = [pytest.mark.kraft, pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow, pytest.mark.apart]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """By pip, without a version, a constraint or an order: pyspark-client comes over pyspark, or before it."""
    place = tmp_path_factory.mktemp("pip")
    wheel = build_wheel(tmp_path_factory.mktemp("sources"))
    run(sys.executable, "-m", "venv", place / "venv", cwd=place)
    made = Environment(place / "venv" / "bin")
    # Each module is compiled when it is imported first: most never are.
    made.run("python", "-m", "pip", "install", "--quiet", "--no-compile", f"{wheel}[sandbox]", cwd=place)
    made.run("python", "-m", "pip", "check", cwd=place)
    yield made
    # An environment has a gigabyte.
    shutil.rmtree(place)


def test_airflow_lists_it_and_the_documented_plan_is_made(installed: Environment, tmp_path: Path) -> None:
    assert_works(installed, tmp_path)


def test_the_demo_heals_and_prints_what_the_readme_shows(installed: Environment, tmp_path: Path) -> None:
    assert_as_the_readme_shows(
        installed.run("python", "-m", "kafka_steward.demo", cwd=tmp_path, TMPDIR=str(tmp_path)).splitlines()
    )
