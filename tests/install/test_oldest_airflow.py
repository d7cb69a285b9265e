"""The oldest Airflow that the wheel admits: Airflow lists all of it there, and every DAG is made."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.install.environments import assert_airflow_lists, build_wheel, requirements_of, uv_environment
from tests.versions import make_every_dag

pytestmark = pytest.mark.process


def test_airflow_lists_all_of_it_and_every_dag_is_made(tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path / "sources")
    (admitted,) = (each for each in map(Requirement, requirements_of(wheel)) if each.name == "apache-airflow")
    (oldest,) = (each.version for each in admitted.specifier if each.operator == ">=")
    (tmp_path / "oldest.txt").write_text(f"apache-airflow=={oldest}\n")
    environment = uv_environment(tmp_path, Path(sys.executable), wheel, "--constraints", tmp_path / "oldest.txt")
    assert_airflow_lists(environment, tmp_path)
    assert make_every_dag(environment, tmp_path) == f"Airflow {oldest}"
    shutil.rmtree(tmp_path / "venv")  # it has a gigabyte
