"""The heal DAG as it is parsed: with nothing to connect to, and nothing imported that a DAG file does not need."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from airflow.sdk import Asset
from airflow.serialization.serialized_objects import DagSerialization

from kafka_steward.dags import broker_failed, fill, heal, rebalance
from kafka_steward.errors import SettingError
from kafka_steward.operators.failures import FindFailuresOperator
from kafka_steward.operators.plan import PlanReassignmentOperator
from kafka_steward.operators.report import ReportPlanOperator
from kafka_steward.operators.submit import SubmitReassignmentOperator
from tests.dags.tasks import task_of

TASKS = ["find_failures", "plan", "submit", "report"]


def test_it_is_paused_runs_once_at_a_time_and_catches_nothing_up() -> None:
    dag = heal()
    assert (dag.dag_id, dag.is_paused_upon_creation, dag.max_active_runs, dag.catchup) == ("heal", True, 1, False)


def test_failed_runs_pause_no_dag_whose_watch_would_end_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__MAX_CONSECUTIVE_FAILED_DAG_RUNS_PER_DAG", "3")
    made = [
        heal(),
        fill(),
        rebalance(on_join=True),
        rebalance(schedule="@daily"),
        heal(max_consecutive_failed_dag_runs=5),
    ]
    assert [dag.max_consecutive_failed_dag_runs for dag in made] == [0, 0, 0, 3, 5]
    read = DagSerialization.from_dict(DagSerialization.to_dict(made[0]))
    assert read.max_consecutive_failed_dag_runs == 0


def test_its_tasks_follow_each_other() -> None:
    dag = heal()
    assert [task.task_id for task in dag.topological_sort()] == TASKS
    for task, following in pairwise(TASKS):
        assert following in dag.get_task(task).downstream_task_ids
    assert task_of(dag, "submit", SubmitReassignmentOperator).elect_leaders
    assert task_of(dag, "find_failures", FindFailuresOperator).takes_snapshot


def test_retries_outlast_an_outage_and_can_be_shortened() -> None:
    task = heal().get_task("submit")
    assert (task.retries, task.retry_delay, task.retry_exponential_backoff) == (5, timedelta(seconds=30), 2)
    short = heal(retries=1, retry_delay=timedelta(seconds=1), default_args={"owner": "ann"}).get_task("submit")
    assert (short.retries, short.retry_delay, short.owner) == (1, timedelta(seconds=1), "ann")


def test_what_a_killed_submit_does_is_said_once() -> None:
    assert task_of(heal(), "submit", SubmitReassignmentOperator).when_killed == "nothing"
    assert task_of(heal(on_kill="cancel"), "submit", SubmitReassignmentOperator).when_killed == "cancel"
    with pytest.raises(SettingError, match="it takes nothing or cancel"):
        heal(on_kill="stop")


def test_it_listens_to_its_own_clusters_watch() -> None:
    asset = broker_failed("kafka_production", {"throttle": 1})
    assert isinstance(asset, Asset)
    assert asset.name == "kafka-steward:kafka_production:broker-failed"
    assert asset.watchers[0].trigger.serialize()[1] == {"conn_id": "kafka_production", "overrides": {"throttle": 1}}


@pytest.mark.parametrize(
    ("conn_id", "dag_id"), [("kafka_steward_default", "heal"), ("kafka_east", "heal_kafka_east"), ("a(b)", "heal_a_b_")]
)
def test_the_dag_is_named_for_its_connection(conn_id: str, dag_id: str) -> None:
    assert heal(conn_id).dag_id == dag_id
    assert heal(conn_id, dag_id="mine").dag_id == "mine"


def test_settings_of_the_author_are_the_forms_defaults() -> None:
    params = heal(mode="report", settings={"throttle": 7}).params.dump()
    assert (params["mode"], params["throttle"], params["min_free"]) == ("report", 7, None)


def test_notifiers_reach_their_tasks() -> None:
    names = ("on_failure_detected", "on_not_healable", "on_failed", "on_healed")
    told = {name: _printing(name) for name in names}
    dag = heal(**told)  # type: ignore[arg-type]  # each is a notifier
    find = task_of(dag, "find_failures", FindFailuresOperator)
    assert find.on_failure_detected == [told["on_failure_detected"]]
    assert find.on_not_healable == [told["on_not_healable"]]
    assert task_of(dag, "plan", PlanReassignmentOperator).on_not_healable == [told["on_not_healable"]]
    assert task_of(dag, "report", ReportPlanOperator).on_done == [told["on_healed"]]
    assert dag.on_failure_callback == [told["on_failed"]]
    DagSerialization.to_dict(dag)


def _printing(name: str) -> Callable[[Any], None]:
    return lambda _: print(name)
