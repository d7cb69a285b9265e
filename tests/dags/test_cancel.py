"""The cancel DAG as it is parsed: with nothing to connect to, and nothing imported that a DAG file does not need."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.serialization.serialized_objects import DagSerialization

from kafka_steward.dags import cancel
from kafka_steward.errors import SettingError
from kafka_steward.operators.cancel import CancelReassignmentOperator, RollbackReassignmentOperator
from tests.dags.tasks import schedule_of, task_of

THREE_LINES = """\
from airflow_provider_kafka_steward.dags import cancel

cancel_production = cancel(conn_id="kafka_production")
"""


def test_three_lines_are_found_in_safe_mode(tmp_path: Path) -> None:
    (tmp_path / "cancel.py").write_text(THREE_LINES)
    bag = DagBag(tmp_path, safe_mode=True)
    assert bag.import_errors == {}
    assert list(bag.dags) == ["cancel_kafka_production"]
    DagSerialization.from_dict(DagSerialization.to_dict(bag.dags["cancel_kafka_production"]))


def test_it_is_ready_when_it_is_needed_and_never_waits_for_another_run() -> None:
    dag = cancel()
    assert (dag.dag_id, dag.is_paused_upon_creation, dag.catchup) == ("cancel", False, False)
    assert schedule_of(dag) is None
    assert dag.max_active_runs > 1
    assert [task.task_id for task in dag.topological_sort()] == ["cancel", "elect_leaders"]
    # What the second task takes of the first is one of several values.
    assert task_of(dag, "cancel", CancelReassignmentOperator).multiple_outputs


@pytest.mark.parametrize(
    "conf",
    [{}, {"plan": "3f2a91c0"}, {"plan": ""}, {"scope": "plan"}, {"even_if_disabled": True}, {"throttle": 1_000_000}],
)
def test_the_form_accepts(conf: dict[str, Any]) -> None:
    for name, value in conf.items():
        jsonschema.validate(value, cancel().params.get_param(name).schema)


@pytest.mark.parametrize(
    "conf", [{"plan": "../x"}, {"plan": 7}, {"scope": "all"}, {"reason": None}, {"even_if_disabled": "yes"}]
)
def test_the_form_refuses(conf: dict[str, Any]) -> None:
    for name, value in conf.items():
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(value, cancel().params.get_param(name).schema)


def test_what_is_wrong_is_said_when_the_file_is_parsed() -> None:
    with pytest.raises(SettingError, match="There is no setting 'trottle'"):
        cancel(settings={"trottle": 1})


def test_a_rollback_is_the_cancel_of_a_whole_plan() -> None:
    undo = RollbackReassignmentOperator(task_id="undo", plan="3f2a", scope="pending")
    assert (undo.scope, undo.plan) == ("plan", "3f2a")
