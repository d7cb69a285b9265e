"""The rebalance and apply DAGs as they are parsed: their shape, their forms, and nothing to connect to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from airflow.sdk import DAG, Asset, TriggerRule
from airflow.serialization.serialized_objects import DagSerialization

from kafka_steward.dags import apply, empty_broker_joined, rebalance
from kafka_steward.errors import SettingError
from kafka_steward.operators.approve import ApprovePlanOperator
from kafka_steward.operators.submit import SubmitReassignmentOperator
from kafka_steward.triggers.watch import WatchTrigger
from tests.dags.tasks import schedule_of, task_of

SHARED = ["show_plan", "approve", "submit", "report"]


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


FIRST = ["find_joined", "gate", "snapshot", "plan", "show_plan", "approve", "submit"]


def test_with_on_join_a_new_broker_starts_an_expand_that_waits_for_a_quiet_cluster() -> None:
    dag = rebalance("kafka_production", on_join=True, settings={"throttle": 7})
    assert (dag.dag_id, dag.is_paused_upon_creation, dag.max_active_runs) == ("expand_kafka_production", True, 1)
    schedule: Any = dag.schedule
    (asset,) = schedule
    assert isinstance(asset, Asset)
    assert asset.name == "kafka-steward:kafka_production:broker-new"
    (watcher,) = empty_broker_joined("kafka_production", {"throttle": 7}).watchers
    assert isinstance(watcher.trigger, WatchTrigger)
    _, keywords = watcher.trigger.serialize()
    assert keywords == {"conn_id": "kafka_production", "overrides": {"throttle": 7}, "event": "broker-new"}
    assert [task.task_id for task in dag.topological_sort()][: len(FIRST)] == FIRST
    assert (dag.params["operation"], dag.params["when_busy"]) == ("expand", "wait")
    assert dag.get_task("plan").upstream_task_ids == {"snapshot"}
    DagSerialization.from_dict(DagSerialization.to_dict(dag))
    assert "find_joined" not in rebalance().task_ids


def test_on_join_leaves_the_form_and_the_name_to_the_author() -> None:
    dag = rebalance(on_join=True, dag_id="mine", fields={"when_busy": "skip", "max_bytes": 10**9})
    assert (dag.dag_id, dag.params["when_busy"], dag.params["max_bytes"]) == ("mine", "skip", 10**9)


def test_it_has_no_other_schedule() -> None:
    with pytest.raises(SettingError, match="has on_join or a schedule, not both"):
        rebalance(on_join=True, schedule="@daily")
