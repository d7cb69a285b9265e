"""Which Spark makes the plans of a DAG: no DAG file has to say so."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from airflow.sdk import DAG

from kafka_steward.dags import apply, fill, heal, rebalance
from kafka_steward.operators.plan import PlanReassignmentOperator


@pytest.mark.parametrize("factory", [apply, fill, heal, rebalance])
def test_a_dag_leaves_the_spark_to_the_setting_unless_its_file_names_one(factory: Callable[..., DAG]) -> None:
    for given, expected in (({}, None), ({"spark_conn_id": "spark_production"}, "spark_production")):
        plan = factory(**given).get_task("plan")
        assert isinstance(plan, PlanReassignmentOperator)
        assert plan.spark_conn_id == expected
