"""The throttle DAG as it is parsed: with nothing to connect to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.serialization.serialized_objects import DagSerialization

from kafka_steward.dags import cancel, throttle
from kafka_steward.errors import SettingError
from kafka_steward.operators.throttle import ChangeThrottleOperator
from tests.dags.tasks import schedule_of, task_of

THREE_LINES = """\
from airflow_provider_kafka_steward.dags import throttle

throttle_production = throttle(conn_id="kafka_production")
"""


def test_three_lines_are_found_in_safe_mode(tmp_path: Path) -> None:
    (tmp_path / "throttle.py").write_text(THREE_LINES)
    bag = DagBag(tmp_path, safe_mode=True)
    assert bag.import_errors == {}
    assert list(bag.dags) == ["throttle_kafka_production"]
    DagSerialization.from_dict(DagSerialization.to_dict(bag.dags["throttle_kafka_production"]))


def test_it_is_ready_when_it_is_needed_and_never_waits_for_another_run() -> None:
    dag = throttle(settings={"step_interval": 5})
    assert (dag.dag_id, dag.is_paused_upon_creation, dag.catchup) == ("throttle", False, False)
    assert schedule_of(dag) is None
    assert dag.max_active_runs > 1
    assert dag.task_ids == ["throttle"]
    assert task_of(dag, "throttle", ChangeThrottleOperator).settings == {"step_interval": 5}


@pytest.mark.parametrize(
    "conf", [{"rate": 0}, {"rate": 50_000_000}, {"plan": "3f2a91c0"}, {"plan": ""}, {"plan": None}, {"reason": "quiet"}]
)
def test_the_form_accepts(conf: dict[str, Any]) -> None:
    for name, value in conf.items():
        jsonschema.validate(value, throttle().params.get_param(name).schema)


@pytest.mark.parametrize(
    "conf", [{"rate": None}, {"rate": -1}, {"rate": "50M"}, {"rate": 1.5}, {"plan": "../x"}, {"reason": None}]
)
def test_the_form_refuses(conf: dict[str, Any]) -> None:
    for name, value in conf.items():
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(value, throttle().params.get_param(name).schema)


def test_plan_and_reason_are_the_same_fields_as_those_of_a_cancel() -> None:
    ours, theirs = throttle().params, cancel().params
    assert list(ours) == ["plan", "rate", "reason"]
    for name in ("plan", "reason"):
        assert ours.get_param(name).dump() == theirs.get_param(name).dump()


def test_what_is_wrong_is_said_when_the_file_is_parsed() -> None:
    with pytest.raises(SettingError, match="There is no setting 'trottle'"):
        throttle(settings={"trottle": 1})
