"""The trigger's own part: when it fires, with what, and how patient it is. The Runner is scripted here."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import AuthenticationFailed, ClusterUnreachable, JournalUnreachable, PlanError
from kafka_steward.execution.progress import Progress
from kafka_steward.journal.records import PlanStatus
from kafka_steward.triggers.base import FIRST_EVENT_AFTER_S
from kafka_steward.triggers.run_plan import RunPlanTrigger
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
