"""The trigger of a plan: when it fires, how patient it is, when a kill cancels, and that it is rebuilt the same."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, NoReturn

import pytest
from airflow.sdk import AssetWatcher
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
from airflow.serialization.encoders import encode_trigger
from airflow.triggers.base import BaseEventTrigger, BaseTrigger

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import AuthenticationFailed, ClusterUnreachable, JournalUnreachable, PlanError, SettingError
from kafka_steward.execution.moves.progress import Progress
from kafka_steward.hooks.steward import StewardHook
from kafka_steward.journal.records import PlanStatus
from kafka_steward.triggers import run_plan
from kafka_steward.triggers.base import FIRST_EVENT_AFTER_S, ClusterWorker, freeze_gc
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
def test_an_error_that_waiting_cannot_resolve_fires_at_once(error: Exception) -> None:
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


def test_a_mapped_task_is_distinguished_from_its_siblings(monkeypatch: pytest.MonkeyPatch) -> None:
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
    WatchTrigger("kafka", "broker-joined"),
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
    watch = WatchTrigger("kafka", "cancel")
    AssetWatcher(name="watch", trigger=watch)
    same = rebuilt(watch)
    assert BaseEventTrigger.hash(*watch.serialize()) == BaseEventTrigger.hash(*same.serialize())
    assert encode_trigger(watch)["classpath"] == "kafka_steward.triggers.watch.WatchTrigger"


class Counted:
    """Stands in for an opened cluster; counts."""

    opened: list[Counted]

    access: object = "as it was"

    def __init__(self) -> None:
        self.closed = threading.Event()

    def close(self) -> None:
        self.closed.set()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Counted]:
    made: list[Counted] = []

    def open_one(hook: StewardHook) -> Counted:
        made.append(Counted())
        return made[-1]

    monkeypatch.setattr(StewardHook, "open", open_one)
    return made


def test_it_connects_once_in_a_thread_of_its_own(opened: list[Counted]) -> None:
    async def ask() -> list[Any]:
        thread = ClusterWorker("kafka", {})
        answers = [await thread.submit(lambda one: (one, threading.get_ident())) for _ in range(3)]
        thread.close()
        return answers

    answers = asyncio.run(ask())
    assert len(opened) == 1
    assert {ident for _, ident in answers} != {threading.get_ident()}
    assert len({ident for _, ident in answers}) == 1
    assert opened[0].closed.wait(5)


def test_an_error_closes_and_the_next_question_connects_anew(opened: list[Counted]) -> None:
    async def ask() -> None:
        thread = ClusterWorker("kafka", {})
        with pytest.raises(ValueError, match="once"):
            await thread.submit(raise_once)
        assert opened[0].closed.is_set()
        await thread.submit(lambda _: None)
        thread.close()
        thread.close()

    def raise_once(_: object) -> None:
        raise ValueError("once")

    asyncio.run(ask())
    assert len(opened) == 2


def test_a_cluster_that_hangs_does_not_hold_up_the_loop_nor_the_end(opened: list[Counted]) -> None:
    released = threading.Event()

    async def ask() -> float:
        hanging, other = ClusterWorker("hangs", {}), ClusterWorker("kafka", {})
        stuck = asyncio.ensure_future(hanging.submit(lambda _: released.wait(20)))
        await asyncio.sleep(0)
        began = time.monotonic()
        await other.submit(lambda _: None)
        hanging.close()
        other.close()
        stuck.cancel()
        return time.monotonic() - began

    assert asyncio.run(ask()) < 5
    released.set()
    assert opened[0].closed.wait(5)


def test_a_question_after_the_end_never_shares_the_connections_of_one_that_is_still_asked(
    opened: list[Counted],
) -> None:
    begun, released = threading.Event(), threading.Event()

    def wait(one: Any) -> None:
        begun.set()
        released.wait(20)
        assert not one.closed.is_set(), "closed under it"

    async def ask() -> tuple[Any, Any]:
        thread = ClusterWorker("kafka", {})
        stuck = asyncio.ensure_future(thread.submit(wait))
        await asyncio.to_thread(begun.wait, 5)
        thread.close()
        later: Any = await thread.submit(lambda one: one)
        released.set()
        await stuck
        assert await asyncio.to_thread(opened[0].closed.wait, 5)
        assert not later.closed.is_set()
        thread.close()
        return opened[0], later

    first, later = asyncio.run(ask())
    assert later is not first
    assert later.closed.wait(5)


def test_an_edited_connection_is_used_within_a_minute_and_a_lost_one_ends_nothing(
    opened: list[Counted], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: dict[str, Any] = {"access": "as it was"}

    def access(_: StewardHook) -> Any:
        if said["access"] is None:
            raise SettingError("There is no such connection.")
        return said["access"]

    def open_one(hook: StewardHook) -> Counted:
        opened.append(Counted())
        opened[-1].access = hook.access
        return opened[-1]

    monkeypatch.setattr(StewardHook, "access", property(access))
    monkeypatch.setattr(StewardHook, "open", open_one)
    times = iter(range(0, 3000, 25))

    async def ask() -> None:
        thread = ClusterWorker("kafka", {}, clock=lambda: next(times))
        for edit, connected in [("as it was", 1), (None, 1), ("edited", 2), ("edited", 2)]:
            said["access"] = edit
            for _ in range(4):
                await thread.submit(lambda one: one)
            assert len(opened) == connected
        assert opened[0].closed.is_set()
        thread.close()

    asyncio.run(ask())


@pytest.fixture
def thawing() -> Iterator[None]:
    freeze_gc.cache_clear()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("thawing")
def test_what_is_loaded_is_not_gone_through_again() -> None:
    gc.unfreeze()
    before = len(gc.get_objects())
    freeze_gc("airflow")
    assert len(gc.get_objects()) < before / 10
    assert gc.get_freeze_count() > before / 2


@pytest.mark.usefixtures("thawing")
def test_only_once_so_that_what_later_watches_drop_is_collected() -> None:
    freeze_gc("airflow")
    frozen = gc.get_freeze_count()
    later: list[list[int]] = [[] for _ in range(1000)]
    freeze_gc("airflow")
    assert gc.get_freeze_count() <= frozen
    assert later


@pytest.mark.usefixtures("thawing")
def test_a_thread_that_is_to_load_kafkas_clients_begins_after_that() -> None:
    gc.unfreeze()
    before = len(gc.get_objects())
    worker = ClusterWorker("kafka_test", {})
    worker._create_hook = raising  # type: ignore[method-assign]  # it would connect
    with pytest.raises(ZeroDivisionError):
        asyncio.run(worker.submit(lambda _: None))
    worker.close()
    assert gc.get_freeze_count() > before / 2


def raising(_: object) -> NoReturn:
    raise ZeroDivisionError
