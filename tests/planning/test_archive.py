"""A Spark standalone cluster whose Python has none of our code makes the same plan, given the archive."""

import json
import os
import socket
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from kafka_steward.planning.files.formats import read_plan
from kafka_steward.planning.spark import job
from kafka_steward.planning.spark.archive import archive_conf
from kafka_steward.planning.spark.jvm import QUICK_JAVA
from tests.builders import cluster, planned, written
from tests.own_spark import SPARK, bare_python, standalone
from tests.planning.test_job import TOPICS

SNAPSHOT = cluster("1a 2b 3c 4a! 5b 6c", *TOPICS)
__all__ = ["bare_python", "standalone"]


def submitted(
    master: str, python: Path, snapshot: str, out: Path, conf: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    everything = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.executor.memory": "512m",
        "spark.task.maxFailures": "1",
        "spark.sql.codegen.wholeStage": "false",
        "spark.pyspark.python": str(python),
        "spark.pyspark.driver.python": sys.executable,
        **conf,
    }
    command = [str(SPARK / "bin" / "spark-submit"), "--master", master]
    for name, value in everything.items():
        command += ["--conf", f"{name}={value}"]
    command += [job.__file__, "--snapshot", snapshot, "--out", str(out), "--operation", "heal"]
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYSPARK_")}
    env |= {"SPARK_LOCAL_IP": "127.0.0.1", "JAVA_TOOL_OPTIONS": QUICK_JAVA}
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=400, check=False)


@pytest.mark.spark
@pytest.mark.slow
def test_executors_without_our_code_need_the_archive_and_then_make_the_same_plan(
    tmp_path: Path, bare_python: Path, standalone: str
) -> None:
    snapshot = written(SNAPSHOT, tmp_path / "snapshot")
    without = submitted(standalone, bare_python, snapshot, tmp_path / "without", {})
    assert without.returncode == 1
    # spark-submit prints what its Python says, on either stream, to its own standard output.
    assert without.stdout.splitlines()[-1] == (
        f"Spark's executor on {socket.gethostname()} has no kafka_steward; make an archive with `airflow kafka-steward "
        "make-archive`, and name it as archive in the extra of the Spark connection."
    )
    archive = tmp_path / "archive.tar.gz"
    assert job.main(["--make-archive", str(archive)]) == 0
    done = submitted(standalone, bare_python, snapshot, tmp_path / "plan", archive_conf(archive.as_uri()))
    assert done.returncode == 0, done.stderr[-3000:]
    plan = read_plan(str(tmp_path / "plan"))
    assert plan == planned(SNAPSHOT)
    assert json.loads(done.stdout.splitlines()[-1]) == plan.proof


def test_the_archive_holds_what_planning_imports_and_no_airflow(tmp_path: Path) -> None:
    assert job.main(["--make-archive", str(tmp_path / "a.tar.gz")]) == 0
    with tarfile.open(tmp_path / "a.tar.gz") as archive:
        names = archive.getnames()
    ours = {name for name in names if name.startswith("kafka_steward/")}
    assert {"kafka_steward/__init__.py", "kafka_steward/planning/solver/sharded/plan.py"} <= ours
    assert {name.split("/")[1] for name in ours} == {
        "__init__.py",
        "assignment.py",
        "cache.py",
        "errors.py",
        "escaping.py",
        "planning",
    }
