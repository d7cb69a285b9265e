"""Handling of killed tasks: Airflow also kills tasks that another try, or another triggerer, continues.

`on_kill` runs when a user marks a task, but also when a user clears it, and then after the new try has begun. A
triggerer that stalled and resumes runs it for every trigger that it lost. Before a killed task cancels its plan, the
task's state must therefore be queried from Airflow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kafka_steward.errors import PlanError, SettingError

if TYPE_CHECKING:
    from kafka_steward.execution.runner import StepRunner
    from kafka_steward.hooks.steward import ClusterSession


#: Actions of a killed task: nothing (its plan stays resumable), or request the cancel of its plan.
ON_KILL = ("nothing", "cancel")
#: States of a task that is not continued.
_OVER = frozenset({"failed", "success", "skipped"})
#: Steps of a cancel that a killed task runs itself; the watch or the cancel DAG runs the rest.
_STEPS = 4


def checked_on_kill(value: str) -> str:
    """Return the value itself. Raises SettingError for a value that on_kill does not take."""
    if value not in ON_KILL:
        raise SettingError(f"on_kill is {value!r}; it takes {' or '.join(ON_KILL)}.")
    return value


def task_is_over(who: Mapping[str, Any], map_index: int = -1) -> bool:
    """Return whether Airflow reports this task as failed, success or skipped. Call it in a task or a trigger's thread.

    Returns False when Airflow does not answer, because the state is unknown then.
    """
    from airflow.sdk.exceptions import AirflowRuntimeError
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    names = who.get("dag_id"), who.get("run_id"), who.get("task_id")
    dag_id, run_id, task_id = names
    if not (dag_id and run_id and task_id):
        return False
    try:
        states = RuntimeTaskInstance.get_task_states(dag_id=dag_id, run_ids=[run_id], task_ids=[task_id])
    except (AirflowRuntimeError, OSError):
        return False
    key = task_id if map_index < 0 else f"{task_id}_{map_index}"
    return states.get(run_id, {}).get(key) in _OVER


def request_cancel_and_step(opened: ClusterSession, digest: str, who: Mapping[str, Any], runner: StepRunner) -> str:
    """Record the request to cancel a plan, and run the first steps of it; return the result as a message."""
    from kafka_steward.execution.lifecycle import request_cancel
    from kafka_steward.journal.audit import Actor

    try:
        request_cancel(
            opened.journal, digest, who=Actor(**who), reason="its task was ended in Airflow (on_kill=cancel)"
        )
    except PlanError as error:
        return str(error)  # the plan has ended: nothing is left to cancel
    for _ in range(_STEPS):
        progress = runner.step()
        if progress.ended:
            break
    return progress.sentence
