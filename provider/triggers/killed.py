"""What a killed task may do: Airflow also kills what another try, or another triggerer, goes on with.

`on_kill` runs when a person marks a task, but also when they clear it, and then after the new try has begun; and a
triggerer that was hung and wakes up runs it for every trigger that it lost. So who wants a killed task to cancel its
plan must ask Airflow first what has become of the task.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kafka_steward.errors import PlanError, SettingError

if TYPE_CHECKING:
    from kafka_steward.execution.loop import Stepper
    from kafka_steward.hooks.steward import Opened

__all__ = ["ON_KILL", "cancel_soon", "checked_on_kill", "task_is_over"]

#: What a killed task does: nothing (its plan stays resumable), or ask for the cancel of its plan.
ON_KILL = ("nothing", "cancel")
#: States of a task with which nobody goes on.
_OVER = frozenset({"failed", "success", "skipped"})
#: Steps of a cancel that a killed task takes itself; what is left then is for the watch, or the cancel DAG.
_STEPS = 4


def checked_on_kill(value: str) -> str:
    """The value itself. Raises SettingError for one that on_kill does not take."""
    if value not in ON_KILL:
        raise SettingError(f"on_kill is {value!r}; it takes {' or '.join(ON_KILL)}.")
    return value


def task_is_over(who: Mapping[str, Any], map_index: int = -1) -> bool:
    """Whether Airflow says that this task is failed, success or skipped. To be asked from a task or a trigger's thread.

    When Airflow does not answer, nobody knows, and that is a no.
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


def cancel_soon(opened: Opened, digest: str, who: Mapping[str, Any], stepper: Stepper) -> str:
    """Write the request to cancel a plan down, and take the first steps of it; returns what was done, as a sentence."""
    from kafka_steward.execution.cancelling import request_cancel
    from kafka_steward.journal.audit import Who

    try:
        request_cancel(opened.journal, digest, who=Who(**who), reason="its task was ended in Airflow (on_kill=cancel)")
    except PlanError as error:
        return str(error)  # it has ended: nothing is left to cancel
    for _ in range(_STEPS):
        progress = stepper.step()
        if progress.ended:
            break
    return progress.sentence
