"""What each workflow's DAG has: no needless edges, tasks that are explained, notifiers, assets and windows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.serialization.serialized_objects import DagSerialization
from airflow.utils.types import DagRunType

from kafka_steward import dags
from kafka_steward.dags import alert, apply, cancel, controls, fill, heal, health, rebalance, throttle
from kafka_steward.dags.documents import cancel_requested, reassignment_requested
from kafka_steward.dags.earlier import EarlierResult
from kafka_steward.dags.heal import broker_failed
from kafka_steward.operators.plan import PlanReassignmentOperator
from kafka_steward.operators.report import ReportPlanOperator
from tests.dags.tasks import task_of

#: The report runs when all tasks between are skipped: this edge is needed.
NEEDED = {("show_plan", "report")}
WORKFLOWS: dict[str, Callable[..., DAG]] = {
    **{make.__name__: make for make in (alert, apply, cancel, controls, fill, heal, health, rebalance, throttle)},
    "expand": lambda **options: rebalance(on_join=True, **options),
}
each_workflow = pytest.mark.parametrize("workflow", WORKFLOWS)


@cache
def parsed(workflow: str) -> DAG:
    """The DAG of a workflow, which no test changes."""
    return WORKFLOWS[workflow]()


def earlier_tasks(value: Any) -> Iterator[str]:
    """The tasks whose results an argument takes without an edge."""
    if isinstance(value, EarlierResult):
        yield value.task.task_id
    elif isinstance(value, dict):
        for each in value.values():
            yield from earlier_tasks(each)


def all_upstream(task: Any) -> set[str]:
    return {each.task_id for each in task.get_flat_relatives(upstream=True)}


@each_workflow
def test_no_edge_is_implied_by_others(workflow: str) -> None:
    dag = parsed(workflow)
    for task in dag.tasks:
        implied = set().union(*(all_upstream(dag.get_task(each)) for each in task.upstream_task_ids))
        redundant = {(each, task.task_id) for each in task.upstream_task_ids & implied}
        assert redundant <= NEEDED


@each_workflow
def test_each_result_comes_from_a_task_that_has_ended(workflow: str) -> None:
    for task in parsed(workflow).tasks:
        taken = {each for name in task.template_fields for each in earlier_tasks(getattr(task, name))}
        assert taken <= all_upstream(task), task.task_id


def test_a_heal_takes_results_from_far_up() -> None:
    report = task_of(parsed("heal"), "report", ReportPlanOperator)
    assert {*earlier_tasks(report.plan), *earlier_tasks(report.brokers)} == {"plan", "find_failures"}


@each_workflow
def test_each_task_says_what_it_does_and_where_to_look(workflow: str) -> None:
    for task in parsed(workflow).tasks:
        assert task.doc_md, task.task_id
        assert len(task.doc_md) < 400, task.task_id


@each_workflow
def test_each_parse_is_the_same_version_of_the_dag_and_takes_no_backfill(workflow: str) -> None:
    once, again = (DagSerialization.to_dict(dag) for dag in (parsed(workflow), WORKFLOWS[workflow]()))
    assert once["dag"]["tasks"] == again["dag"]["tasks"]
    assert " object at 0x" not in repr(once["dag"]["tasks"])
    allowed = {str(getattr(kind, "value", kind)) for kind in DagSerialization.from_dict(once).allowed_run_types or ()}
    assert allowed == {str(kind) for kind in DagRunType} - {"backfill"}


def test_each_asset_has_a_watch_of_its_own() -> None:
    assets = [broker_failed("kafka"), cancel_requested("kafka"), reassignment_requested("kafka")]
    assert len({asset.name for asset in assets}) == len({asset.uri for asset in assets}) == 3
    events = [asset.watchers[0].trigger.serialize()[1].get("event") for asset in assets]
    assert events == ["broker-failed", "cancel", "request"]


@pytest.mark.parametrize(
    ("workflow", "waits"), [("apply", True), ("rebalance", True), ("cancel", False), ("fill", False), ("heal", False)]
)
def test_only_work_that_waits_for_a_window_has_its_fields(workflow: str, waits: bool) -> None:
    shown = {"maintenance_window", "maintenance_timezone"} & set(parsed(workflow).params)
    assert len(shown) == (2 if waits else 0)


@pytest.mark.parametrize("factory", [apply, fill, heal, rebalance])
def test_a_dag_leaves_the_spark_to_the_setting_unless_its_file_names_one(factory: Callable[..., DAG]) -> None:
    for given, expected in (({}, None), ({"spark_conn_id": "spark_production"}, "spark_production")):
        plan = factory(**given).get_task("plan")
        assert isinstance(plan, PlanReassignmentOperator)
        assert plan.spark_conn_id == expected


#: The arguments of the tasks that take notifiers, by workflow: each `on_*` of each task.
EVENTS = {
    "apply": {"approve.on_approval_asked", "submit.on_started", "submit.on_problem", "report.on_done"},
    "rebalance": {"approve.on_approval_asked", "submit.on_started", "submit.on_problem", "report.on_done"},
    "heal": {
        "find_failures.on_failure_detected",
        "find_failures.on_not_healable",
        "plan.on_not_healable",
        "submit.on_started",
        "submit.on_problem",
        "report.on_done",
        "report.on_not_healable",
    },
    "fill": {"submit.on_started", "submit.on_problem", "report.on_done"},
    "cancel": {"cancel.on_cancelled", "cancel.on_problem"},
    "health": {"health.on_unhealthy"},
    "throttle": set(),
    "alert": {"send_alerts.on_alert"},
}


def notify_all(context: Any) -> None:
    print(context)


def notify_others(context: Any) -> None:
    print(context)


@pytest.mark.parametrize("workflow", EVENTS)
def test_it_reaches_every_task_that_has_events_and_the_failure_of_a_run(workflow: str) -> None:
    make: Callable[..., DAG] = getattr(dags, workflow)
    dag = make(notify=notify_all, on_failed=notify_others)
    assert _notified(dag) == EVENTS[workflow]
    assert dag.on_failure_callback == [notify_others, notify_all]
    DagSerialization.to_dict(dag)


def test_it_is_called_beside_the_notifiers_of_one_event() -> None:
    report = task_of(dags.heal(notify=[notify_all], on_healed=notify_others), "report", ReportPlanOperator)
    assert report.on_done == [notify_others, notify_all]


def test_the_brokers_that_the_form_of_a_heal_names_reach_detection_and_publication() -> None:
    tasks: dict[str, Any] = {task.task_id: task for task in dags.heal().tasks}
    named = tasks["find_failures"].brokers, tasks["submit"].named_brokers
    assert [each.serialize()["name"] for each in named] == ["brokers", "brokers"]


def test_without_it_nothing_is_notified() -> None:
    assert _notified(parsed("rebalance")) == set()


def _notified(dag: DAG) -> set[str]:
    return {
        f"{task.task_id}.{name}"
        for task in dag.tasks
        for name, value in vars(task).items()
        if name.startswith("on_") and isinstance(value, list) and notify_all in value
    }
