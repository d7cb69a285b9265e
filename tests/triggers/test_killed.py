"""Killed with on_kill="cancel": the cancel is asked for only when Airflow says that the task itself is over."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

from kafka_steward.errors import SettingError
from kafka_steward.operators.submit import SubmitReassignmentOperator
from kafka_steward.triggers import run_plan
from kafka_steward.triggers.run_plan import RunPlanTrigger, is_task_over
from tests.triggers.progress_values import DIGEST

WHO = {"dag_id": "heal", "run_id": "manual__1", "task_id": "submit", "try_number": 1}


def answering(monkeypatch: pytest.MonkeyPatch, answer: Any) -> list[dict[str, Any]]:
    """Let Airflow answer this about the task's state; returns what it was asked."""
    asked: list[dict[str, Any]] = []

    def states(**criteria: Any) -> Any:
        asked.append(criteria)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(RuntimeTaskInstance, "get_task_states", states)
    return asked


@pytest.mark.parametrize("state", ["failed", "success", "skipped"])
def test_a_task_that_a_person_marked_is_over(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answering(monkeypatch, {"manual__1": {"submit": state}})
    assert is_task_over(WHO)
    assert asked == [{"dag_id": "heal", "run_ids": ["manual__1"], "task_ids": ["submit"]}]


@pytest.mark.parametrize(
    "answer",
    [
        {"manual__1": {"submit": "deferred"}},
        {"manual__1": {"submit": "running"}},
        {"manual__1": {"submit": "restarting"}},
        {"manual__1": {"submit": None}},
        {"manual__1": {}},
        {},
        BrokenPipeError("the supervisor is gone"),
    ],
    ids=["woken triggerer", "cleared and begun", "cleared", "cleared, not yet begun", "no task", "no run", "no answer"],
)
def test_whatever_else_is_no_end(answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, answer)
    assert not is_task_over(WHO)


def test_a_mapped_task_is_told_from_its_siblings(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, {"manual__1": {"submit_0": "failed", "submit_1": "deferred"}})
    assert is_task_over(WHO, 0)
    assert not is_task_over(WHO, 1)
    assert not is_task_over(WHO)


class Killed(RunPlanTrigger):
    """Writes down what it asks its thread for."""

    asked: list[str]

    async def submit(self, question: Any) -> str:
        self.asked.append(question.__name__)
        return "Cancelled."

    def close(self) -> None:
        self.asked.append("close")


@pytest.mark.parametrize(
    ("when_killed", "over", "asked"),
    [("nothing", True, []), ("cancel", False, []), ("cancel", True, ["_request_cancel", "close"])],
)
def test_the_trigger(when_killed: str, over: bool, asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_plan, "is_task_over", lambda *_: over)
    trigger = Killed("kafka", DIGEST, {}, WHO, when_killed=when_killed)
    trigger.asked = []
    trigger._thread = trigger  # type: ignore[assignment]  # stands in for the thread
    asyncio.run(trigger.on_kill())
    assert trigger.asked == asked


def test_a_wrong_value_is_told_when_the_file_is_parsed() -> None:
    assert SubmitReassignmentOperator(task_id="submit", plan="/plan", on_kill="cancel").when_killed == "cancel"
    with pytest.raises(SettingError, match="on_kill is 'stop'; it takes nothing or cancel"):
        SubmitReassignmentOperator(task_id="submit", plan="/plan", on_kill="stop")
