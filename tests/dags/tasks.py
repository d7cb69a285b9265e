"""The tasks of a DAG, as what they are."""

from __future__ import annotations

from typing import TypeVar

from airflow.sdk import DAG, BaseOperator

Task = TypeVar("Task", bound=BaseOperator)


def task_of(dag: DAG, task_id: str, kind: type[Task]) -> Task:
    """The task of this id, which must be of this kind."""
    task = dag.get_task(task_id)
    assert isinstance(task, kind), type(task)
    return task


def schedule_of(dag: DAG) -> object:
    """The schedule; as mypy reads Airflow's own type of it, it is never None nor a word."""
    return dag.schedule
