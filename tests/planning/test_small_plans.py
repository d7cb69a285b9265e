"""What a small plan spares itself on Spark: it has one job of one task, no shuffle, and reads its snapshot once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafka_steward.planning.files.formats import read_plan
from kafka_steward.planning.files.storage import Folder
from kafka_steward.planning.spark import session
from kafka_steward.planning.spark.pipeline import run
from tests.builders import cluster, written

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SNAPSHOT = cluster("1a 2b 3c 4a!", "t: 124 234 341 412", "u: 413 124")


@pytest.mark.parametrize("operation", ["heal", "rebalance"])
def test_a_plan_of_one_shard_is_one_job_of_one_task_and_reads_its_snapshot_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    read: Counter[str] = Counter()
    read_table = Folder.read_table

    def count(folder: Folder, name: str) -> pa.Table:
        read[name] += 1
        return read_table(folder, name)

    monkeypatch.setattr(Folder, "read_table", count)
    snapshot, plan = written(SNAPSHOT, tmp_path / "snapshot"), str(tmp_path / "plan")
    context = spark.sparkContext
    context.setJobGroup(operation, "a plan of one shard")
    try:
        run(spark, snapshot, plan, operation)
    finally:
        context._jsc.clearJobGroup()
    assert read == {"brokers.parquet": 1, "partitions.parquet": 1}
    assert read_plan(plan).moves

    tracker = context.statusTracker()
    (job,) = map(tracker.getJobInfo, tracker.getJobIdsForGroup(operation))
    assert job is not None
    (stage,) = map(tracker.getStageInfo, job.stageIds)  # a second one would be a shuffle
    assert stage is not None
    assert stage.numTasks == 1


def test_the_settings_of_a_session_are_for_small_jobs_unless_its_user_has_others(spark: SparkSession) -> None:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    system = jvm.java.lang.System
    name = "spark.sql.files.openCostInBytes"
    # The session itself would be that of all tests, and has other settings.
    assert session._spark_conf().get(name) == "65536"
    system.setProperty(name, "7")
    try:
        assert session._spark_conf().get(name) == "7"
    finally:
        system.clearProperty(name)
