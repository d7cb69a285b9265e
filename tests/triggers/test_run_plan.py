"""The trigger of a plan: when it fires, how patient it is, when a kill cancels, and that it is rebuilt the same."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import pytest
from airflow.sdk import AssetWatcher
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
from airflow.serialization.encoders import encode_trigger
from airflow.triggers.base import BaseEventTrigger, BaseTrigger

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import AuthenticationFailed, ClusterUnreachable, JournalUnreachable, PlanError
from kafka_steward.execution.progress import Progress
from kafka_steward.journal.records import PlanStatus
from kafka_steward.triggers import run_plan
from kafka_steward.triggers.base import FIRST_EVENT_AFTER_S
from kafka_steward.triggers.run_plan import RunPlanTrigger, is_task_over
from kafka_steward.triggers.wait import WaitTrigger
from kafka_steward.triggers.watch import WatchTrigger
from tests.triggers.progress_values import DIGEST, progress


class Scripted(RunPlanTrigger):
    """Steps through a script; a wait costs no time."""

    def __init__(self, script: Sequence[Progress | Exception]) -> None:
        super().__init__("kafka", DIGEST)
        self.script = list(script)
        self.waits: list[float] = []
        self._thread = self  # type: ignore[assignment]  # stands in for the thread: asks nothing but the script

    async def submit(self, _: Any) -> tuple[Progress, float]:
        step = self.script.pop(0)
        if isinstance(step, Exception):
            raise step
        return step, 2.0

    async def _wait(self, seconds: float) -> None:
        self.waits.append(round(seconds))


def fired(script: Sequence[Progress | Exception]) -> tuple[list[dict[str, Any]], Scripted]:
    trigger = Scripted(script)

    async def events() -> list[dict[str, Any]]:
        return [event.payload async for event in trigger.run()]

    return asyncio.run(events()), trigger


def test_it_fires_once_at_the_end_and_not_within_the_first_seconds() -> None:
    done = progress(4, status=PlanStatus.COMPLETED, sentence="All of it is done.")
    events, trigger = fired([progress(1), progress(2), done])
    assert [(event["ended"], event["sentence"]) for event in events] == [(True, "All of it is done.")]
    assert events[0]["progress"]["digest"] == DIGEST
    assert trigger.waits == [2, 2, FIRST_EVENT_AFTER_S]


def test_a_plan_that_waits_for_a_person_fires() -> None:
    events, _ = fired([progress(1, status=PlanStatus.STUCK, sentence="It waits.")])
    assert [(event["ended"], event["sentence"]) for event in events] == [(False, "It waits.")]


def test_a_plan_that_was_preempted_goes_on_after_the_other() -> None:
    preempted = progress(1, status=PlanStatus.PREEMPTED, sentence="It made way for the heal.")
    events, trigger = fired([preempted, progress(2), progress(4, status=PlanStatus.COMPLETED)])
    assert [event["ended"] for event in events] == [True]
    assert trigger.waits[:2] == [2, 2]


def test_a_stall_fires() -> None:
    events, _ = fired([progress(1), progress(1, stalled=(TopicPartition("orders", 7),), stops=True)])
    assert [event["ended"] for event in events] == [False]
    assert events[0]["progress"]["status"] == "running"


def test_the_event_which_airflow_logs_whole_is_short_whatever_the_plan_holds() -> None:
    many = tuple(TopicPartition("orders" * 20, number) for number in range(1000))
    events, _ = fired([progress(1, total=1000, stalled=many, stops=True, left=3)])
    facts = {"digest": DIGEST, "status": "running", "partitions_total": 1000, "left": 3}
    assert events == [{"ended": False, "sentence": "1 of 1000.", "progress": facts}]


def test_a_journal_that_comes_back_is_waited_for() -> None:
    away = JournalUnreachable("The journal does not answer.")
    events, trigger = fired([progress(1), away, away, progress(4, status=PlanStatus.COMPLETED)])
    assert [event["ended"] for event in events] == [True]
    assert trigger.waits[:3] == [2, 15, 15]


def test_a_cluster_that_stays_away_fires_as_a_failure() -> None:
    away = ClusterUnreachable("No bootstrap server answers.")
    events, _ = fired([away] * 100)
    assert events == [{"ended": False, "sentence": "No bootstrap server answers.", "progress": None, "for_good": False}]


@pytest.mark.parametrize("error", [PlanError("No such plan."), AuthenticationFailed("Authentication failed.")])
def test_what_waiting_does_not_mend_fires_at_once(error: Exception) -> None:
    events, trigger = fired([error])
    assert events == [{"ended": False, "sentence": str(error), "progress": None, "for_good": True}]
    assert trigger.waits == [FIRST_EVENT_AFTER_S]


def test_another_process_that_steps_is_waited_for() -> None:
    events, _ = fired([progress(0, busy=True), progress(4, status=PlanStatus.COMPLETED)])
    assert [event["ended"] for event in events] == [True]


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


TRIGGERS: list[BaseTrigger] = [
    RunPlanTrigger("kafka", "digest", {"throttle": 1, "window": "chunk"}, {"dag_id": "heal", "try_number": 2}),
    RunPlanTrigger("kafka", "digest", when_killed="cancel", map_index=3),
    WaitTrigger("kafka", "caught_up", {"partitions": [["orders", 7]]}, 5.0, {"throttle": 1}),
    WatchTrigger("kafka", {"heal_failure_interval": 10}),
]


def rebuilt(trigger: BaseTrigger, **more: Any) -> BaseTrigger:
    path, keywords = trigger.serialize()
    module, _, name = path.rpartition(".")
    built = getattr(import_module(module), name)(**json.loads(json.dumps(keywords)), **more)
    assert isinstance(built, BaseTrigger)
    return built


@pytest.mark.parametrize("trigger", TRIGGERS, ids=lambda trigger: type(trigger).__name__)
def test_the_round_trip_changes_nothing_and_takes_keywords_of_another_version(trigger: BaseTrigger) -> None:
    assert rebuilt(trigger).serialize() == trigger.serialize()
    assert rebuilt(trigger, from_a_later_release=1).serialize() == trigger.serialize()


def test_the_watch_is_an_event_trigger_with_a_stable_identity() -> None:
    watch = WatchTrigger("kafka", {"b": 1, "a": 2})
    AssetWatcher(name="watch", trigger=watch)
    same = rebuilt(watch)
    assert BaseEventTrigger.hash(*watch.serialize()) == BaseEventTrigger.hash(*same.serialize())
    assert encode_trigger(watch)["classpath"] == "kafka_steward.triggers.watch.WatchTrigger"
