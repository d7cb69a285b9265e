"""Plans made by the operator on a Spark of one's own: everything that a job needs comes from one connection."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from kafka_steward.errors import PlanningFailed
from kafka_steward.operators.plan import PlanReassignmentOperator
from kafka_steward.planning.files.formats import SnapshotFolder
from kafka_steward.planning.spark.archive import make_archive
from tests.airflow_home import Connect, context
from tests.builders import cluster, planned, written
from tests.own_spark import SPARK, bare_python, connect_server, standalone
from tests.own_yarn import yarn
from tests.planning.test_job import TOPICS

__all__ = ["bare_python", "connect_server", "standalone", "yarn"]

#: What the operator adds to the options of a plan: the defaults of the settings.
SETTINGS = {"chunk_size": 50, "max_in_per_broker": 1000, "max_out_per_broker": 1000, "throttle": 50_000_000}
SNAPSHOTS = {
    "heal": cluster("1a 2b 3c 4a! 5b 6c", *TOPICS),
    "rebalance": cluster("1a 2b 3c 4a 5b 6c", *TOPICS),
    "expand": cluster("1a 2b 3c 4a 5b+ 6c+", *TOPICS),
}


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("archive") / "kafka-steward.tar.gz")
    make_archive(path)
    return path


def extra_of(python: Path, archive: str | None, **more: Any) -> dict[str, Any]:
    """The extra of a connection to the standalone master; what is not of the job keeps it small and on 127.0.0.1."""
    conf = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": False,
        "spark.executor.memory": "512m",
        "spark.task.maxFailures": 1,
        "spark.sql.codegen.wholeStage": False,
        "spark.pyspark.python": str(python),
    }
    given = {"archive": archive, "spark_conf": conf, "shared_workspace": True, **more}
    env = {"SPARK_LOCAL_IP": "127.0.0.1", "PATH": f"{SPARK / 'bin'}:{os.environ['PATH']}"}
    return {"env_vars": env, **{key: value for key, value in given.items() if value}}


def plan_of(snapshot: SnapshotFolder, folder: Path | str, operation: str, **more: Any) -> dict[str, Any]:
    uri = written(snapshot, f"{folder}/snapshot")
    given = {"uri": uri, "digest": snapshot_digest(uri)}
    # No argument names a Spark: the setting spark_conn_id does.
    operator = PlanReassignmentOperator(
        task_id="plan", snapshot=given, operation=operation, conn_id="kafka_test", **more
    )
    return operator.execute(context(task_id="plan"))


def snapshot_digest(uri: str) -> str:
    from kafka_steward.planning.files.formats import read_snapshot

    return read_snapshot(uri).digest


def local_digest(operation: str) -> str:
    return planned(SNAPSHOTS[operation], operation, SETTINGS).digest


pytestmark = [pytest.mark.spark, pytest.mark.slow]

OPERATIONS = ["heal", "rebalance", "expand"]


@pytest.fixture
def on_standalone(connect: Connect, standalone: str, bare_python: Path, archive: str) -> dict[str, Any]:
    """The two connections: of the cluster, which names that of the Spark. Returns the extra of the latter."""
    connect(extra={"spark_conn_id": "spark_test"})
    extra = extra_of(bare_python, archive)
    connect("spark_test", conn_type="spark", host=standalone, extra=extra)
    return extra


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_standalone_master_makes_the_plan_that_this_machine_makes(
    on_standalone: dict[str, Any], tmp_path: Path, operation: str
) -> None:
    told = plan_of(SNAPSHOTS[operation], tmp_path, operation)
    assert told["digest"] == local_digest(operation)
    assert not (Path(told["uri"]) / "probe").exists()


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory, bare_python: Path) -> Path:
    """An archive with a Python for executors, as `venv-pack` would make it, were it not so large."""
    folder = tmp_path_factory.mktemp("environment")
    program = folder / "python"
    program.write_text(f'#!/bin/sh\nexec {bare_python} "$@"\n')
    program.chmod(0o755)
    with tarfile.open(folder / "environment.tar.gz", "w:gz") as packed:
        packed.add(program, "bin/python")
    return folder / "environment.tar.gz"


@pytest.fixture
def on_yarn(connect: Connect, yarn: Path, environment: Path, archive: str, tmp_path: Path) -> Path:
    """The two connections, as docs/spark.md has them for YARN. Returns the folder with the logs of the containers."""
    connect(extra={"spark_conn_id": "spark_test"})
    extra = extra_of(Path("environment/bin/python"), archive)
    extra["env_vars"]["HADOOP_CONF_DIR"] = str(yarn)
    extra["spark_conf"] |= {
        "spark.archives": f"{environment.as_uri()}#environment",
        "spark.pyspark.python": "./environment/bin/python",
        # Else Spark's jars, half a gigabyte, are copied to the home folder, and from there to the containers.
        "spark.yarn.jars": f"local:{SPARK / 'jars'}/*",
        "spark.yarn.stagingDir": (tmp_path / "staging").as_uri(),
        "spark.yarn.am.memory": "256m",
    }
    connect("spark_test", conn_type="spark", host="yarn", extra=extra)
    return yarn.parent / "containers"


@pytest.mark.parametrize("operation", ["heal", "rebalance", "expand"])
def test_yarn_makes_the_plan_that_this_machine_makes(on_yarn: Path, tmp_path: Path, operation: str) -> None:
    assert plan_of(SNAPSHOTS[operation], tmp_path, operation)["digest"] == local_digest(operation)
    assert any("YarnCoarseGrainedExecutorBackend" in log.read_text() for log in on_yarn.glob("*/*/stderr"))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_spark_connect_server_makes_the_plan_that_this_machine_makes(
    connect: Connect, tmp_path: Path, connect_server: int, archive: str, operation: str
) -> None:
    connect(extra={"spark_conn_id": "spark_test"})
    extra = {"archive": archive, "shared_workspace": True}
    connect("spark_test", conn_type="spark_connect", host="127.0.0.1", port=connect_server, extra=extra)
    assert plan_of(SNAPSHOTS[operation], tmp_path, operation)["digest"] == local_digest(operation)


def test_executors_that_do_not_share_the_workspace_are_named_before_anything_is_planned(
    on_standalone: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same path is another folder in each process: what a workspace is that only this machine mounts."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        PlanningFailed, match=r"Spark's executor on \S+ does not share .*reading .*snapshot.json: No such file.*mount"
    ):
        plan_of(SNAPSHOTS["heal"], "/proc/self/cwd/workspace", "heal")
    assert {path.name for path in tmp_path.glob("workspace/*")} == {"snapshot", "plan-plan-1"}
    assert list(tmp_path.glob("workspace/plan-plan-1/*")) == []


def test_executors_without_our_code_are_named_before_anything_is_planned(
    connect: Connect, tmp_path: Path, standalone: str, bare_python: Path
) -> None:
    connect(extra={"spark_conn_id": "spark_test"})
    connect("spark_test", conn_type="spark", host=standalone, extra=extra_of(bare_python, None))
    with pytest.raises(PlanningFailed, match=r"Spark's executor on \S+ has no kafka_steward; make an archive with"):
        plan_of(SNAPSHOTS["heal"], tmp_path, "heal")
