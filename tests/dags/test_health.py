"""The health DAG as it is parsed: with nothing to connect to."""

from __future__ import annotations

import pytest
from airflow.serialization.serialized_objects import DagSerialization

from kafka_steward.dags import health
from kafka_steward.errors import SettingError
from tests.dags.tasks import schedule_of


def test_it_runs_on_demand_or_on_a_schedule_of_the_authors() -> None:
    dag = health(conn_id="kafka_production")
    assert (dag.dag_id, [task.task_id for task in dag.tasks]) == ("health_kafka_production", ["health"])
    assert schedule_of(dag) is None
    assert schedule_of(health(schedule="@hourly")) == "@hourly"
    DagSerialization.from_dict(DagSerialization.to_dict(dag))


def test_what_becomes_of_an_unhealthy_cluster_is_a_field_of_the_form() -> None:
    field = health(when_unhealthy="fail").params.get_param("when_unhealthy")
    assert (field.value, field.schema["enum"]) == ("fail", ["report", "fail"])
    with pytest.raises(SettingError, match="it takes report or fail"):
        health(when_unhealthy="shout")
