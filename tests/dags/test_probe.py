"""The probe DAG as it is parsed."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from kafka_steward.dags import probe
from tests.dags.tasks import schedule_of


def test_it_is_ready_when_it_is_needed_and_is_not_retried() -> None:
    dag = probe(conn_id="kafka_production")
    assert (dag.dag_id, dag.is_paused_upon_creation, schedule_of(dag)) == ("probe_kafka_production", False, None)
    assert [(task.task_id, task.retries) for task in dag.topological_sort()] == [("probe", 0)]


@pytest.mark.parametrize("value", ["", "doctor-0123456789abcdef.txt"])
def test_the_form_accepts(value: str) -> None:
    jsonschema.validate(value, probe().params.get_param("marker").schema)


@pytest.mark.parametrize("value", ["../x", "doctor-0123456789abcdef.txt/..", None, 7])
def test_the_form_refuses(value: Any) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(value, probe().params.get_param("marker").schema)
