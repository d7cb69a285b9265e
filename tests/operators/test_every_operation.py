"""Every operation of the planner, by way of the operator and of the command line that it submits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from kafka_steward.errors import PlanError
from kafka_steward.hooks.spark import SparkCluster
from kafka_steward.operators.plan import PlanReassignmentOperator
from kafka_steward.planning.checker.check import check
from kafka_steward.planning.files.formats import SnapshotFolder, read_plan
from tests.airflow_home import Connect, context
from tests.builders import cluster, planned, written

LINES = ["t: 124 421 345 512 413 241", "u: 45 24 12 51"]
WHOLE = cluster("1a 2b 3c 4a 5b 6c+", *LINES)
DEAD = cluster("1a 2b 3c 4a! 5b 6c", *LINES)
GIVEN = {"version": 1, "partitions": [{"topic": "u", "partition": 0, "replicas": [5, 6]}]}

OPERATIONS: list[tuple[str, SnapshotFolder, dict[str, Any]]] = [
    ("heal", DEAD, {}),
    ("fill", DEAD, {"exclude": ["u"]}),
    ("rebalance", WHOLE, {}),
    ("rebalance", WHOLE, {"balance": "bytes"}),
    ("rebalance", WHOLE, {"max_moves": 2}),
    ("rebalance", WHOLE, {"max_bytes": 3000}),
    ("expand", WHOLE, {"exclude_brokers": [3]}),
    ("drain", cluster("1a 2b 3c 4a- 5b 6c", *LINES), {"rackless": "own-rack"}),
    ("set-replication-factor", WHOLE, {"replication_factor": 4, "topics": ["t"]}),
    ("set-replication-factor", WHOLE, {"replication_factor": 1, "topics": ["u"]}),
    ("apply", WHOLE, {"reassignment": GIVEN}),
]


def taken(snapshot: SnapshotFolder, folder: Any) -> dict[str, str]:
    """What SnapshotClusterOperator would return."""
    uri = written(snapshot, f"{folder}/run/snapshot")
    return {"uri": uri, "digest": snapshot.digest}


@pytest.mark.usefixtures("plans_in_process")
@pytest.mark.parametrize("asked", OPERATIONS, ids=[f"{one[0]}-{list(one[2])}" for one in OPERATIONS])
def test_every_operation_runs_from_the_operator(
    connect: Connect, tmp_path: Any, asked: tuple[str, SnapshotFolder, dict[str, Any]]
) -> None:
    connect()
    operation, snapshot, options = asked
    operator = PlanReassignmentOperator(
        task_id="plan", snapshot=taken(snapshot, tmp_path), operation=operation, options=options, conn_id="kafka_test"
    )
    told = operator.execute(context(task_id="plan"))
    plan = read_plan(told["uri"])
    assert plan.moves
    assert plan.moves == planned(snapshot, operation, options).moves
    assert check(snapshot, plan).problems == []
    assert (told["digest"], told["replicas_moved"]) == (plan.digest, plan.proof["replicas_moved"])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"spark.archives": "s3a://b/a.tgz#kafka_steward_archive"}),
        (
            {"spark.archives": "env.tgz#env", "spark.executorEnv.PYTHONPATH": "env/lib"},
            {
                "spark.archives": "s3a://b/a.tgz#kafka_steward_archive,env.tgz#env",
                "spark.executorEnv.PYTHONPATH": "./kafka_steward_archive:env/lib",
            },
        ),
    ],
)
def test_the_archive_reaches_the_executors_beside_what_the_task_brings(
    connect: Connect,
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, str],
    expected: dict[str, str],
) -> None:
    connect()
    connect("spark_test", conn_type="spark", host="spark://master:7077")
    seen: dict[str, str] = {}

    def execute(self: SparkSubmitOperator, context: Any) -> None:
        seen.update(self.conf or {})

    monkeypatch.setattr(SparkSubmitOperator, "execute", execute)
    # Neither the master nor the archive is there.
    monkeypatch.setattr(SparkCluster, "refuse_what_cannot_work", lambda *_, **__: None)
    monkeypatch.setattr("kafka_steward.operators.plan._check_archive", lambda _: None)
    operator = PlanReassignmentOperator(
        task_id="plan",
        snapshot=taken(WHOLE, tmp_path),
        conn_id="kafka_test",
        spark_conn_id="spark_test",
        archive="s3a://b/a.tgz",
        conf=given,
    )
    with pytest.raises(PlanError, match=r"proof\.json: no such file"):
        operator.execute(context(task_id="plan"))
    assert expected.items() <= seen.items()
    assert "spark.driver.host" not in seen


def test_a_plan_that_was_changed_on_its_way_is_refused(
    connect: Connect, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect()

    def execute(self: SparkSubmitOperator, context: Any) -> None:
        from kafka_steward.planning.files.formats import plan_table, write_plan

        out = (self.application_args or [])[3]
        plan = planned(DEAD)
        write_plan(out, plan_table(plan.moves), plan.proof)
        path = Path(out) / "proof.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "digest": "0" * 64}))

    monkeypatch.setattr(SparkSubmitOperator, "execute", execute)
    operator = PlanReassignmentOperator(task_id="plan", snapshot=taken(DEAD, tmp_path), conn_id="kafka_test")
    with pytest.raises(PlanError, match="was edited after it was made"):
        operator.execute(context(task_id="plan"))
