"""A workflow's `notify` is called at each of its events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.serialization.serialized_objects import DagSerialization

from kafka_steward import dags
from kafka_steward.operators.report import ReportPlanOperator
from tests.dags.tasks import task_of

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
    "alert": {"tell.on_alert"},
}


def told(context: Any) -> None:
    print(context)


def others(context: Any) -> None:
    print(context)


@pytest.mark.parametrize("workflow", EVENTS)
def test_it_reaches_every_task_that_has_events_and_the_failure_of_a_run(workflow: str) -> None:
    make: Callable[..., DAG] = getattr(dags, workflow)
    dag = make(notify=told, on_failed=others)
    assert _notified(dag) == EVENTS[workflow]
    assert dag.on_failure_callback == [others, told]
    DagSerialization.to_dict(dag)


def test_it_is_called_beside_the_notifiers_of_one_event() -> None:
    report = task_of(dags.heal(notify=[told], on_healed=others), "report", ReportPlanOperator)
    assert report.on_done == [others, told]


def test_without_it_nothing_is_notified() -> None:
    assert _notified(dags.rebalance()) == set()


def _notified(dag: DAG) -> set[str]:
    return {
        f"{task.task_id}.{name}"
        for task in dag.tasks
        for name, value in vars(task).items()
        if name.startswith("on_") and isinstance(value, list) and told in value
    }
