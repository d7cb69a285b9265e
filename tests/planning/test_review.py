"""The checker on Spark says what the plain one says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafka_steward.planning.checker.check import check
from kafka_steward.planning.files.formats import PlanFolder, plan_table, read_plan, read_snapshot, write_plan
from kafka_steward.planning.spark.pipeline import check_with_spark
from tests.builders import cluster, planned, written
from tests.planning.test_job import TOPICS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
SNAPSHOT = cluster("1a 2b 3c 4a- 5b 6c+", *TOPICS)


def saved(plan: PlanFolder, path: Path, **changes: Any) -> str:
    """A plan on disk, with rows or proof changed."""
    moves = changes.pop("moves", plan.moves)
    proof = {name: value for name, value in plan.proof.items() if name != "digest"}
    write_plan(str(path), plan_table(moves), {**proof, **changes})
    return str(path)


@pytest.mark.parametrize("shard_rows", [20, 10_000])
def test_a_good_plan_is_valid_and_proven(spark: SparkSession, tmp_path: Path, shard_rows: int) -> None:
    snapshot = read_snapshot(written(SNAPSHOT, tmp_path / "snapshot"))
    plan = saved(planned(SNAPSHOT, "drain"), tmp_path / "plan")
    verdict = check_with_spark(spark, snapshot, plan, shard_rows=shard_rows)
    assert (verdict.ok, verdict.problems, verdict.unproven) == (True, [], ())


def test_whatever_is_wrong_is_found_by_either(spark: SparkSession, tmp_path: Path) -> None:
    snapshot = read_snapshot(written(SNAPSHOT, tmp_path / "snapshot"))
    plan = planned(SNAPSHOT, "drain")
    first, *others = plan.moves
    broken: dict[str, dict[str, Any]] = {
        "dropped": {"moves": [replace(move, chunk=0, position=at) for at, move in enumerate(others)]},
        "twice and nowhere": {"moves": [*plan.moves, first, replace(first, topic="nowhere")]},
        "bound": {"lower_bound": 10_000},
    }
    for name, changes in broken.items():
        saved(plan, tmp_path / name, **changes)
        plain = check(SNAPSHOT, read_plan(str(tmp_path / name)))
        on_spark = check_with_spark(spark, snapshot, str(tmp_path / name), shard_rows=20)
        assert plain.problems or plain.unproven, name
        assert sorted(on_spark.problems) == sorted(plain.problems), name
        assert on_spark.unproven == plain.unproven, name
