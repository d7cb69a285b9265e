"""The rebalance and apply DAGs as they are parsed: their shape, their forms, and nothing to connect to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG, TriggerRule
from airflow.serialization.serialized_objects import DagSerialization

from kafka_steward.dags import apply, rebalance
from kafka_steward.errors import SettingError
from kafka_steward.operators.approve import ApprovePlanOperator
from kafka_steward.operators.submit import SubmitReassignmentOperator
from tests.dags.tasks import schedule_of, task_of

THREE_LINES = """\
from airflow_provider_kafka_steward.dags import {name}

{name}_production = {name}(conn_id="kafka_production")
"""
SHARED = ["show_plan", "approve", "submit", "report"]
GIVEN: dict[str, Any] = {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}


@pytest.mark.parametrize("name", ["rebalance", "apply"])
def test_three_lines_are_found_in_safe_mode(tmp_path: Path, name: str) -> None:
    (tmp_path / "file.py").write_text(THREE_LINES.format(name=name))
    bag = DagBag(tmp_path, safe_mode=True)
    assert bag.import_errors == {}
    assert list(bag.dags) == [f"{name}_kafka_production"]
    DagSerialization.from_dict(DagSerialization.to_dict(bag.dags[f"{name}_kafka_production"]))


def test_what_the_page_of_workflows_prints_makes_dags(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/workflows.md").read_text()
    blocks = [block.split("```", 1)[0] for block in page.split("```python\n")[1:]]
    for number, block in enumerate(blocks):
        (tmp_path / f"file{number}.py").write_text(block)
    bag = DagBag(tmp_path, safe_mode=True)
    assert bag.import_errors == {}
    assert set(bag.dags) >= {"rebalance_kafka_production", "rebalance_nightly", "apply_kafka_production"}
    assert len(bag.dags) == len(blocks)


@pytest.mark.parametrize(
    ("make", "first"), [(rebalance, ["gate", "snapshot", "plan"]), (apply, ["check", "snapshot", "plan"])]
)
def test_what_is_submitted_was_approved_and_the_report_runs_whatever_was_skipped(
    make: Callable[[], DAG], first: list[str]
) -> None:
    dag = make()
    assert [task.task_id for task in dag.topological_sort()] == [*first, *SHARED]
    submit, report = task_of(dag, "submit", SubmitReassignmentOperator), dag.get_task("report")
    assert submit.require_approval
    assert submit.elect_leaders
    assert submit.upstream_task_ids == {"approve"}
    assert task_of(dag, "approve", ApprovePlanOperator).defaults == ["Reject"]
    assert report.trigger_rule == TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS
    assert report.upstream_task_ids == {"submit", "show_plan"}


def test_a_rebalance_is_for_people_unless_it_has_a_schedule() -> None:
    dag = rebalance()
    assert (dag.dag_id, dag.is_paused_upon_creation, dag.max_active_runs) == ("rebalance", False, 1)
    assert schedule_of(dag) is None
    nightly = rebalance("kafka_production", schedule="@daily", dag_id="nightly", approve_above=10**9)
    assert (nightly.dag_id, nightly.is_paused_upon_creation, nightly.catchup) == ("nightly", True, False)
    assert task_of(nightly, "approve", ApprovePlanOperator).approve_above == 10**9
    assert "approve_above" not in nightly.params


@pytest.mark.parametrize(
    "conf",
    [
        {"operation": "drain", "brokers": [4]},
        {"operation": "drain", "brokers": "3, 4", "exclude_brokers": "5 6"},
        {"operation": "set-replication-factor", "replication_factor": 3, "topics": ["orders"]},
        {"max_bytes": None, "max_moves": 1, "tolerance": 0.5},
        {"maintenance_window": "mon-fri 22:00-06:00; sat 00:00-24:00", "maintenance_timezone": "Europe/Berlin"},
        {"maintenance_window": "", "throttle": 1_000_000, "dry_run": True, "when_busy": "wait"},
    ],
)
def test_the_form_accepts(conf: dict[str, Any]) -> None:
    for name, value in conf.items():
        jsonschema.validate(value, rebalance().params.get_param(name).schema)


@pytest.mark.parametrize(
    "conf",
    [
        {"operation": "shrink"},
        {"brokers": [-1]},
        {"brokers": [4, 4]},
        {"brokers": "four"},
        {"brokers": "3-4"},
        {"brokers": 4},
        {"replication_factor": 0},
        {"topics": [""]},
        {"tolerance": 1.5},
        {"max_moves": 0},
        {"max_bytes": -5},
        {"when_busy": "hope"},
        {"dry_run": "yes"},
        {"throttle": -1},
        {"maintenance_window": "at night"},
    ],
)
def test_the_form_refuses(conf: dict[str, Any]) -> None:
    for name, value in conf.items():
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(value, rebalance().params.get_param(name).schema)


@pytest.mark.parametrize(
    ("given", "accepted"),
    [
        (GIVEN, True),
        ({"partitions": GIVEN["partitions"]}, True),
        ({"partitions": [{**GIVEN["partitions"][0], "log_dirs": ["any", "any"]}]}, True),
        ({}, False),
        ({"version": 2, "partitions": GIVEN["partitions"]}, False),
        ({"version": 1, "partitions": []}, False),
        ({"version": 1, "partitions": [{"topic": "t", "partition": -1, "replicas": [1]}]}, False),
        ({"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": []}]}, False),
        ({"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}, False),
        ("t-0 to 1, 2", False),
    ],
)
def test_the_form_of_an_apply_takes_kafkas_own_document(given: Any, accepted: bool) -> None:
    schema = apply().params.get_param("reassignment").schema
    assert jsonschema.Draft7Validator(schema).is_valid(given) is accepted


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"fields": {"tolerance": 3}}, "The field tolerance of the form does not take 3: .*greater than the maximum"),
        ({"fields": {"operations": "drain"}}, "The form has no field 'operations'; there are operation, brokers"),
        ({"fields": {"approve_above": 1}}, "The form has no field 'approve_above'"),
        ({"approve_above": "1"}, "approve_above is '1'; it takes a whole number of bytes, or None to ask always"),
        ({"approvers": "ann"}, "approvers is 'ann'; it takes a list of the ids of Airflow's users"),
        ({"approvers": [{"id": 7}]}, "The approver {'id': 7} is neither the id of a user nor"),
        ({"settings": {"trottle": 1}}, "There is no setting 'trottle'"),
        ({"settings": {"maintenance_window": "22:00-22:00"}}, "22:00-22:00 never opens"),
        ({"settings": {"maintenance_window": "1:00-2:00", "maintenance_timezone": "x"}}, "There is no time zone 'x'"),
    ],
)
def test_what_is_wrong_is_said_when_the_file_is_parsed(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        rebalance(**wrong)
