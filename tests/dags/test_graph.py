"""The graph of each workflow: no edge that others imply, each result from a task upstream, each task explained."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.serialization.serialized_objects import DagSerialization

from kafka_steward.cluster_tag import STEWARD_TAG
from kafka_steward.dags import alert, apply, cancel, controls, fill, heal, health, rebalance, throttle
from kafka_steward.dags.earlier import EarlierResult
from kafka_steward.operators.report import ReportPlanOperator
from tests.dags.tasks import task_of

#: The report runs when all tasks between are skipped: this edge is needed.
NEEDED = {("show_plan", "report")}
WORKFLOWS = {
    **{make.__name__: make for make in (alert, apply, cancel, controls, fill, heal, health, rebalance, throttle)},
    "expand": lambda **options: rebalance(on_join=True, **options),
}
each_workflow = pytest.mark.parametrize("make", WORKFLOWS.values(), ids=WORKFLOWS)
Make = Callable[..., DAG]


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
def test_no_edge_is_implied_by_others(make: Make) -> None:
    dag = make()
    for task in dag.tasks:
        implied = set().union(*(all_upstream(dag.get_task(each)) for each in task.upstream_task_ids))
        redundant = {(each, task.task_id) for each in task.upstream_task_ids & implied}
        assert redundant <= NEEDED


@each_workflow
def test_each_result_comes_from_a_task_that_has_ended(make: Make) -> None:
    dag = make()
    for task in dag.tasks:
        taken = {each for name in task.template_fields for each in earlier_tasks(getattr(task, name))}
        assert taken <= all_upstream(task), task.task_id


def test_a_heal_takes_results_from_far_up() -> None:
    report = task_of(heal(), "report", ReportPlanOperator)
    assert {*earlier_tasks(report.plan), *earlier_tasks(report.brokers)} == {"plan", "find_failures"}


@each_workflow
def test_each_task_says_what_it_does_and_where_to_look(make: Make) -> None:
    for task in make().tasks:
        assert task.doc_md, task.task_id
        assert len(task.doc_md) < 400, task.task_id


@each_workflow
def test_its_tags_are_the_provider_and_the_connection(make: Make) -> None:
    assert make(conn_id="kafka_east").tags >= {STEWARD_TAG, "kafka-steward:kafka_east"}


@each_workflow
def test_each_parse_is_the_same_version_of_the_dag(make: Make) -> None:
    once, again = (DagSerialization.to_dict(make())["dag"]["tasks"] for _ in range(2))
    assert once == again
    assert " object at 0x" not in repr(once)
