"""How DAG files are found and read again and again: by either name of the package, and what that may import."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.serialization.serialized_objects import DagSerialization
from airflow.utils.file import might_contain_dag

import airflow_provider_kafka_steward.dags as alias
from kafka_steward import dags

DAGS = ("alert", "apply", "cancel", "controls", "fill", "heal", "health", "rebalance", "throttle")
#: Runs each file of a folder as the dag-processor does, and prints what it has imported that it should not.
READ_ALL = """
import runpy, sys
from pathlib import Path

heavy = {"kafka", "kazoo", "pyspark", "pyarrow", "pylmcf", "numpy"}
parts = ("journal", "cluster", "execution", "planning", "hooks.steward")
ours = tuple(f"kafka_steward.{part}." for part in parts)
# The forms are made from the table of options, which imports nothing else of the planner.
light = {f"kafka_steward.planning{part}" for part in ("", ".options")}
for path in sorted(Path(sys.argv[1]).iterdir()):
    runpy.run_path(str(path))
    imported = {name for name in sys.modules if name in heavy or f"{name}.".startswith(ours)}
    print(path.stem, sorted(imported - light))
"""


@pytest.mark.process
def test_no_dag_file_imports_kafka_or_spark_or_the_journal(tmp_path: Path) -> None:
    for name in DAGS:
        (tmp_path / f"{name}.py").write_text(
            f"# An Airflow DAG.\nfrom kafka_steward.dags import {name}\ndag = {name}(conn_id='production')\n"
        )
    command = [sys.executable, "-c", READ_ALL, str(tmp_path)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert printed.stdout.splitlines()[-len(DAGS) :] == [f"{name} []" for name in DAGS]


def test_both_names_lead_to_the_same_objects() -> None:
    assert [name for name in dags.__all__ if getattr(alias, name) is not getattr(dags, name)] == []


@pytest.mark.parametrize("name", ["dags.heal", "operators", "hooks.steward"])
def test_no_module_of_ours_can_be_loaded_a_second_time_by_the_other_name(name: str) -> None:
    with pytest.raises(ModuleNotFoundError):
        import_module(f"airflow_provider_kafka_steward.{name}")


@pytest.mark.parametrize("name", dags.__all__)
def test_the_import_alone_is_enough_for_airflow(tmp_path: Path, name: str) -> None:
    file = tmp_path / "file.py"
    file.write_text(f"from airflow_provider_kafka_steward.dags import {name}\n")
    assert might_contain_dag(str(file), safe_mode=True)
    file.write_text(f"from kafka_steward.dags import {name}\n")
    assert not might_contain_dag(str(file), safe_mode=True)


#: The shortest DAG file.
THREE_LINES = """\
from airflow_provider_kafka_steward.dags import {name}

{name}_production = {name}(conn_id="kafka_production")
"""


@pytest.mark.parametrize("name", DAGS)
def test_three_lines_are_found_in_safe_mode(tmp_path: Path, name: str) -> None:
    (tmp_path / "file.py").write_text(THREE_LINES.format(name=name))
    bag = DagBag(tmp_path, safe_mode=True)
    assert bag.import_errors == {}
    assert list(bag.dags) == [f"{name}_kafka_production"]
    dag = bag.dags[f"{name}_kafka_production"]
    assert dag.fileloc == str(tmp_path / "file.py")
    DagSerialization.from_dict(DagSerialization.to_dict(dag))
