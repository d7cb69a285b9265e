from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any, cast

from airflow.sdk import DAG

from kafka_steward.hooks.context import actor_fields, merge_overrides
from kafka_steward.operators.base import StewardOperator, attempt_folder
from kafka_steward.operators.leaders import ElectLeadersOperator
from tests.airflow_home import context


def test_a_runs_parameters_win_over_the_operators_settings() -> None:
    run = context(params={"throttle": 3, "window": None, "mode": "report", "brokers": [1]})
    assert merge_overrides({"throttle": 2, "window": "chunk", "min_free": 0.2}, run) == {
        "throttle": 3,
        "window": "chunk",
        "min_free": 0.2,
    }


def test_who_is_the_try_and_the_person() -> None:
    assert actor_fields(context(person="ann", task_id="submit", try_number=3)) == {
        "dag_id": "heal",
        "run_id": "manual__2026-11-21T08:00:00+00:00",
        "task_id": "submit",
        "try_number": 3,
        "person": "ann",
    }


def folder(run_id: str) -> str:
    opened = SimpleNamespace(
        access=SimpleNamespace(workspace="s3://bucket/steward"), cluster=SimpleNamespace(cluster_id="Abc-1_x")
    )
    task = context(task_id="group.snapshot", try_number=2, run_id=run_id)
    return attempt_folder(cast("Any", opened), task, "snapshot")


def test_each_try_has_a_folder_of_its_own_that_any_file_system_takes() -> None:
    assert folder("manual__1") == "s3://bucket/steward/Abc-1_x/heal/manual__1/group.snapshot-snapshot-2"
    found = re.fullmatch(
        r"s3://bucket/steward/Abc-1_x/heal/manual__2026-11-21T08_00_00_00_00-[0-9a-f]{12}/group.snapshot-snapshot-2",
        folder("manual__2026-11-21T08:00:00+00:00"),
    )
    assert found


def test_two_runs_never_share_a_folder_and_none_leaves_the_workspace() -> None:
    names = ["a:b", "a+b", "a_b", ".", "..", "...", "../x", "a/b", "", "é"]
    folders = [folder(name) for name in names]
    assert len(set(folders)) == len(names)
    assert not any(part.strip(".") == "" for each in folders for part in each.removeprefix("s3://").split("/"))
    assert {each.count("/") for each in folders} == {folder("plain").count("/")}


def test_constructing_an_operator_looks_nothing_up() -> None:
    with DAG("constructed"):
        operator = ElectLeadersOperator(task_id="elect", conn_id="nowhere", settings={"throttle": 1})
    assert isinstance(operator, StewardOperator)
    assert operator.settings == {"throttle": 1}
