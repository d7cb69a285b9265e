"""Where the Spark job runs, and what is said when it cannot."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kafka_steward.errors import PlanningFailed, SettingError
from kafka_steward.hooks.spark import find_spark_cluster, local_environment
from tests.airflow_home import Connect


def test_without_a_connection_it_runs_here() -> None:
    assert find_spark_cluster(None).is_local


@pytest.mark.parametrize(
    ("host", "local"), [("local[2]", True), ("spark://master:7077", False), ("yarn", False), ("k8s://https://k", False)]
)
def test_a_connection_names_the_master(connect: Connect, host: str, local: bool) -> None:
    connect("spark_test", conn_type="spark", host=host)
    assert find_spark_cluster("spark_test").is_local is local


def test_no_such_connection_is_one_sentence() -> None:
    with pytest.raises(
        SettingError, match=r"^There is no Airflow connection spark_gone; create it \(type spark or spark_connect\)"
    ):
        find_spark_cluster("spark_gone")


def test_the_local_job_uses_this_python_and_its_pyspark() -> None:
    environment = local_environment()
    assert environment["PYSPARK_PYTHON"] == sys.executable
    assert (Path(environment["SPARK_HOME"]) / "bin" / "spark-submit").is_file()
    assert environment["SPARK_LOCAL_IP"] == "127.0.0.1"


def test_spark_without_jars_is_one_sentence_with_the_one_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(
        PlanningFailed, match=r"Spark is missing: .* -m pip install --force-reinstall --no-deps pyspark=="
    ):
        local_environment()


def test_no_spark_at_all_is_one_sentence_with_the_one_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setattr("kafka_steward.planning.spark.installed.util.find_spec", lambda _: None)
    with pytest.raises(PlanningFailed, match=r"the package pyspark is not installed on the worker. Run `.*pip install"):
        local_environment()
