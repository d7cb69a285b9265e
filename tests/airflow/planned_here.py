"""For DAG files of the tests: plans are made in the process of the task, instead of by a Spark job.

The planner is the job's own, and makes the same plans (`tests/planning/test_spark_agrees.py`). A session of Spark costs
40 seconds of processor. DAGs in `BY_SPARK` start one.
"""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from kafka_steward.assignment import EVEN_OPERATIONS
from kafka_steward.operators.plan import PlanReassignmentOperator
from kafka_steward.planning.files.formats import read_snapshot, write_plan
from kafka_steward.planning.local import plan_locally

BY_SPARK: set[str] = set()
_by_spark = PlanReassignmentOperator._run_spark_job


def _plan_here(operator: PlanReassignmentOperator, spark: Any, uri: str, settings: Any, context: Any) -> None:
    if operator.dag_id in BY_SPARK:
        _by_spark(operator, spark, uri, settings, context)
        return
    options = {**settings.planner_options(evens_out=operator.operation in EVEN_OPERATIONS), **operator.options}
    rows, proof = plan_locally(read_snapshot(operator.snapshot["uri"]), operator.operation, options)
    write_plan(uri, rows, proof)


patch.object(PlanReassignmentOperator, "_run_spark_job", _plan_here).start()
