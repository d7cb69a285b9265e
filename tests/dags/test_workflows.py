"""The DAGs of heal, fill, rebalance, expand and apply as they are parsed, with nothing to connect to."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from airflow.sdk import DAG, Asset, TriggerRule
from airflow.serialization.serialized_objects import DagSerialization

from kafka_steward.dags import (
    apply,
    broker_failed,
    broker_imbalanced,
    broker_joined,
    demoted_leads,
    disk_full,
    empty_broker_joined,
    fill,
    heal,
    rebalance,
)
from kafka_steward.errors import SettingError
from kafka_steward.operators.approve import ApprovePlanOperator
from kafka_steward.operators.failures import FindFailuresOperator
from kafka_steward.operators.plan import PlanReassignmentOperator
from kafka_steward.operators.report import ReportPlanOperator
from kafka_steward.operators.submit import SubmitReassignmentOperator
from tests.dags.tasks import schedule_of, task_of


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


@pytest.mark.parametrize(
    ("make", "first", "operation"), [(heal, "find_failures", "heal"), (fill, "find_pending", "fill")]
)
def test_its_tasks_follow_each_other(make: Callable[[], DAG], first: str, operation: str) -> None:
    dag, tasks = make(), [first, "plan", "submit", "report"]
    assert [task.task_id for task in dag.topological_sort()] == tasks
    for task, following in pairwise(tasks):
        assert following in dag.get_task(task).downstream_task_ids
    finding: Any = dag.get_task(first)
    assert finding.takes_snapshot
    assert task_of(dag, "plan", PlanReassignmentOperator).operation == operation
    assert task_of(dag, "submit", SubmitReassignmentOperator).elect_leaders
    DagSerialization.from_dict(DagSerialization.to_dict(dag))


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


@pytest.mark.parametrize(
    ("make", "workflow", "asset_of", "event"),
    [
        (heal, "heal", broker_failed, "broker-failed"),
        (fill, "fill", broker_joined, "broker-joined"),
        (partial(rebalance, on_join=True), "expand", empty_broker_joined, "broker-new"),
        (partial(rebalance, on_imbalance=True), "leaders", broker_imbalanced, "broker-imbalanced"),
        (partial(rebalance, on_full_disk=True), "relieve", disk_full, "disk-full"),
        (partial(rebalance, on_demoted_leader=True), "demote", demoted_leads, "demoted-leads"),
    ],
)
def test_it_listens_to_its_own_clusters_watch(
    make: Callable[..., DAG], workflow: str, asset_of: Callable[..., Asset], event: str
) -> None:
    dag = make(conn_id="kafka_production", settings={"throttle": 7})
    identity = dag.dag_id, dag.is_paused_upon_creation, dag.max_active_runs, dag.catchup
    assert identity == (f"{workflow}_kafka_production", True, 1, False)
    schedule: Any = dag.schedule
    assert [asset.name for asset in schedule] == [f"kafka-steward:kafka_production:{event}"]
    (watcher,) = asset_of("kafka_production").watchers
    assert watcher.trigger.serialize()[1] == {"conn_id": "kafka_production", "event": event}


@pytest.mark.parametrize(
    ("conn_id", "dag_id"), [("kafka_steward_default", "heal"), ("kafka_east", "heal_kafka_east"), ("a(b)", "heal_a_b_")]
)
def test_the_dag_is_named_for_its_connection(conn_id: str, dag_id: str) -> None:
    assert heal(conn_id).dag_id == dag_id
    assert heal(conn_id, dag_id="mine").dag_id == "mine"


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
    dag = rebalance("kafka_production", on_join=True)
    assert [task.task_id for task in dag.topological_sort()][: len(FIRST)] == FIRST
    assert (dag.params["operation"], dag.params["when_busy"]) == ("expand", "wait")
    assert dag.get_task("plan").upstream_task_ids == {"snapshot"}
    DagSerialization.from_dict(DagSerialization.to_dict(dag))
    assert "find_joined" not in rebalance().task_ids
    with pytest.raises(SettingError, match="has on_join or a schedule, not several"):
        rebalance(on_join=True, schedule="@daily")
    with pytest.raises(SettingError, match="has on_imbalance or on_full_disk, not several"):
        rebalance(on_full_disk=True, on_imbalance=True)


@pytest.mark.parametrize(
    ("argument", "operation"),
    [("on_imbalance", "leaders"), ("on_full_disk", "relieve"), ("on_demoted_leader", "demote")],
)
def test_a_broker_that_stands_out_starts_a_plan_of_its_own_kind(argument: str, operation: str) -> None:
    dag = rebalance("kafka_production", **{argument: True})  # type: ignore[arg-type]
    assert (dag.params["operation"], dag.params["when_busy"]) == (operation, "wait")
    moving = rebalance(fields={"operation": "rebalance", "balance": "load"}, **{argument: True})  # type: ignore[arg-type]
    assert [moving.params[name] for name in ("operation", "balance", "when_busy")] == ["rebalance", "load", "wait"]
    assert "find_joined" not in dag.task_ids
    DagSerialization.from_dict(DagSerialization.to_dict(dag))


def test_form_name_schedule_settings_and_waiting_are_the_authors_choice() -> None:
    expand = rebalance(on_join=True, dag_id="mine", fields={"when_busy": "skip", "max_bytes": 10**9})
    assert (expand.dag_id, expand.params["when_busy"], expand.params["max_bytes"]) == ("mine", "skip", 10**9)
    nightly = fill(schedule="@daily", settings={"throttle": 1_000}, deferrable=False, dag_id="mine")
    assert (nightly.dag_id, schedule_of(nightly), nightly.params["throttle"]) == ("mine", "@daily", 1_000)
    assert not task_of(nightly, "submit", SubmitReassignmentOperator).deferrable
    params = heal(mode="report", settings={"throttle": 7}).params.dump()
    assert (params["mode"], params["throttle"], params["min_free"]) == ("report", 7, None)
