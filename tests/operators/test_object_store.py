"""A workspace in a store of the kind of S3: plans made by the operator on each kind of Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.clusters import make_snapshot
from kafka_steward.errors import PlanningFailed
from kafka_steward.operators.plan_folders import read_plan_page, read_task_plan
from kafka_steward.planning.files.formats import read_plan, read_snapshot
from kafka_steward.planning.files.storage import Folder
from kafka_steward.planning.shards import SHARD_ROWS
from tests.airflow_home import NOWHERE, Connect
from tests.builders import planned
from tests.object_store import bucket, hadoop_aws, objects, s3_environment, s3_server, s3a
from tests.operators.test_own_spark import SETTINGS, SNAPSHOTS, archive, extra_of, local_digest, plan_of
from tests.own_spark import bare_python, connect_server, running_connect_server, standalone

__all__ = [
    "archive",
    "bare_python",
    "bucket",
    "connect_server",
    "hadoop_aws",
    "s3_environment",
    "s3_server",
    "s3a",
    "standalone",
]

#: They download 0.7 GB, and each job copies that.
pytestmark = [pytest.mark.spark, pytest.mark.slow]
OPERATIONS = ("heal", "rebalance", "expand")
#: The job as it is for more than a million partitions.
JOB_THAT_SENDS_NOTHING = """
import sys
from functools import partial
from kafka_steward.planning.spark import job
job.run = partial(job.run, most_sent=0)
sys.exit(job.main())
"""


@pytest.fixture
def workspace(connect: Connect, bucket: str) -> str:
    """The workspace of the cluster's connection, which names that of the Spark."""
    connect(extra={"spark_conn_id": "spark_test", "workspace": f"{bucket}/steward"})
    return f"{bucket}/steward/cluster/run"


def leave_half_a_plan(workspace: str) -> None:
    """What an earlier attempt leaves at the same address, if it ends at the wrong moments."""
    folder = Folder(f"{workspace}/plan-plan-1", "plan")
    folder.write_json("proof.json", {"digest": "0" * 64})
    for name in ("_temporary/0/_temporary/attempt_1/part-00000.parquet", "part-00009-old.snappy.parquet", "_SUCCESS"):
        folder.write_text(f"plan.parquet/{name}", "half a file")


def assert_planned_like_here(workspace: str, operation: str) -> None:
    leave_half_a_plan(workspace)
    told = plan_of(SNAPSHOTS[operation], workspace, operation)
    assert told["uri"] == f"{workspace}/plan-plan-1"
    assert told["digest"] == local_digest(operation)
    assert read_task_plan(told) == read_plan(told["uri"])
    assert (read_plan_page(told) or "").startswith(f"Plan **{told['digest'][:12]}**")
    left = objects(told["uri"])
    assert {"proof.json", "review.md"} < set(left)
    assert [name for name in left if "old" in name or "_temporary" in name] == []


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_worker_itself_makes_the_plan_in_a_store(
    connect: Connect, workspace: str, s3a: dict[str, Any], operation: str
) -> None:
    connect("spark_test", conn_type="spark", host="local[*]", extra=s3a)
    assert_planned_like_here(workspace, operation)


@pytest.fixture
def on_standalone(
    connect: Connect, standalone: str, bare_python: Path, archive: str, s3a: dict[str, Any]
) -> dict[str, Any]:
    extra = extra_of(bare_python, archive, packages=s3a["packages"], shared_workspace=None)
    extra["spark_conf"] |= s3a["spark_conf"]
    connect("spark_test", conn_type="spark", host=standalone, extra=extra)
    return extra


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_standalone_master_makes_the_plan_in_a_store(
    workspace: str, on_standalone: dict[str, Any], operation: str
) -> None:
    assert_planned_like_here(workspace, operation)


def test_spark_itself_reads_and_writes_the_store_where_one_task_is_too_small(
    workspace: str, on_standalone: dict[str, Any], tmp_path: Path
) -> None:
    make_snapshot(str(tmp_path), "heal", SHARD_ROWS + 2_000, 12)
    snapshot = read_snapshot(str(tmp_path))
    application = tmp_path / "job.py"
    application.write_text(JOB_THAT_SENDS_NOTHING)
    made = plan_of(snapshot, workspace, "heal", application=str(application))
    assert made["digest"] == planned(snapshot, "heal", SETTINGS).digest
    assert any(name.startswith("plan.parquet/part-") for name in objects(made["uri"]))


@pytest.fixture(scope="module")
def connect_server_with_store(
    tmp_path_factory: pytest.TempPathFactory, bare_python: Path, s3a: dict[str, Any]
) -> Iterator[int]:
    folder = tmp_path_factory.mktemp("connect-store")
    with running_connect_server(folder, bare_python, s3a["spark_conf"], s3a["packages"]) as port:
        yield port


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_spark_connect_server_makes_the_plan_in_a_store(
    connect: Connect, workspace: str, connect_server_with_store: int, archive: str, operation: str
) -> None:
    where = {"host": "127.0.0.1", "port": connect_server_with_store}
    connect("spark_test", conn_type="spark_connect", **where, extra={"archive": archive})
    assert_planned_like_here(workspace, operation)


def test_credentials_and_endpoint_of_the_environment_are_enough(
    connect: Connect, workspace: str, s3a: dict[str, Any]
) -> None:
    conf = {"spark.jars.ivy": s3a["spark_conf"]["spark.jars.ivy"]}
    connect("spark_test", conn_type="spark", host="local[*]", extra={**s3a, "spark_conf": conf})
    assert_planned_like_here(workspace, "heal")


def refused(workspace: str) -> str:
    with pytest.raises(PlanningFailed) as caught:
        plan_of(SNAPSHOTS["heal"], workspace, "heal")
    assert objects(f"{workspace}/plan-plan-1") == []
    return str(caught.value)


def test_a_spark_without_the_jar_is_one_sentence_before_anything_is_planned(connect: Connect, workspace: str) -> None:
    connect("spark_test", conn_type="spark", host="local[*]")
    assert f"Spark has no jar that opens {workspace}/plan-plan-1; name org.apache.hadoop:hadoop-aws:" in refused(
        workspace
    )


def test_a_spark_connect_server_without_the_jar_is_one_sentence_before_anything_is_planned(
    connect: Connect, workspace: str, connect_server: int, archive: str
) -> None:
    where = {"host": "127.0.0.1", "port": connect_server}
    connect("spark_test", conn_type="spark_connect", **where, extra={"archive": archive})
    assert "as packages where the Spark Connect server is started." in refused(workspace)


def test_an_endpoint_that_spark_does_not_reach_is_one_sentence_soon(
    connect: Connect, workspace: str, s3a: dict[str, Any]
) -> None:
    conf = {**s3a["spark_conf"], "spark.hadoop.fs.s3a.endpoint": f"http://{NOWHERE}"}
    connect("spark_test", conn_type="spark", host="local[*]", extra={**s3a, "spark_conf": conf})
    assert f"Spark does not reach the store of {workspace}/plan-plan-1; check" in refused(workspace)
