"""The second name of the workflows, by which Airflow finds a DAG file in safe mode."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.utils.file import might_contain_dag

import airflow_provider_kafka_steward.dags as alias
from kafka_steward import dags


def test_both_names_lead_to_the_same_objects() -> None:
    assert sorted(alias.__all__) == sorted(dags.__all__)
    assert [name for name in alias.__all__ if getattr(alias, name) is not getattr(dags, name)] == []


@pytest.mark.parametrize("name", ["dags.heal", "operators", "hooks.steward"])
def test_no_module_of_ours_can_be_loaded_a_second_time_by_the_other_name(name: str) -> None:
    with pytest.raises(ModuleNotFoundError):
        import_module(f"airflow_provider_kafka_steward.{name}")


@pytest.mark.parametrize("name", alias.__all__)
def test_the_import_alone_is_enough_for_airflow(tmp_path: Path, name: str) -> None:
    file = tmp_path / "file.py"
    file.write_text(f"from airflow_provider_kafka_steward.dags import {name}\n")
    assert might_contain_dag(str(file), safe_mode=True)
    file.write_text(f"from kafka_steward.dags import {name}\n")
    assert not might_contain_dag(str(file), safe_mode=True)


def test_a_file_of_two_lines_makes_a_dag_in_safe_mode(tmp_path: Path) -> None:
    (tmp_path / "cancel.py").write_text(
        "from airflow_provider_kafka_steward.dags import cancel\ncancel_it = cancel()\n"
    )
    bag = DagBag(tmp_path, safe_mode=True)
    assert (bag.import_errors, list(bag.dags)) == ({}, ["cancel"])
