"""The dag-processor reads every DAG file again and again: what that may import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

DAGS = ("alert", "apply", "cancel", "controls", "fill", "heal", "health", "rebalance", "throttle")
#: Runs each file of a folder as the dag-processor does, and prints what it has imported that it should not.
READ_ALL = """
import runpy, sys
from pathlib import Path

heavy = {"kafka", "kazoo", "pyspark", "pyarrow", "pylmcf", "numpy"}
parts = ("journal", "cluster", "execution", "planning", "hooks.steward")
ours = tuple(f"kafka_steward.{part}." for part in parts)
for path in sorted(Path(sys.argv[1]).iterdir()):
    runpy.run_path(str(path))
    print(path.stem, sorted(name for name in sys.modules if name in heavy or f"{name}.".startswith(ours)))
"""


def test_no_dag_file_imports_kafka_or_spark_or_the_journal(tmp_path: Path) -> None:
    for name in DAGS:
        (tmp_path / f"{name}.py").write_text(
            f"# An Airflow DAG.\nfrom kafka_steward.dags import {name}\ndag = {name}(conn_id='production')\n"
        )
    command = [sys.executable, "-c", READ_ALL, str(tmp_path)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert printed.stdout.splitlines()[-len(DAGS) :] == [f"{name} []" for name in DAGS]
