from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from kafka_steward.errors import AuthenticationFailed, ClusterUnreachable, PlanError, RequestError
from kafka_steward.triggers.base import FIRST_EVENT_AFTER_S
from kafka_steward.triggers.wait import CheckResult, WaitTrigger, evaluate_check


class Scripted(WaitTrigger):
    """Gets its answers from a script; a wait costs no time."""

    def __init__(self, script: Sequence[CheckResult | Exception]) -> None:
        super().__init__("kafka", "caught_up", interval_s=5.0)
        self.script = list(script)
        self.waits: list[float] = []
        self._thread = self  # type: ignore[assignment]  # stands in for the thread: asks nothing but the script

    async def submit(self, _: Any) -> CheckResult:
        answer = self.script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _wait(self, seconds: float) -> None:
        self.waits.append(round(seconds))


def fired(script: Sequence[CheckResult | Exception]) -> tuple[list[Any], Scripted]:
    trigger = Scripted(script)

    async def events() -> list[Any]:
        return [event.payload async for event in trigger.run()]

    return asyncio.run(events()), trigger


def test_it_asks_until_yes_and_says_each_sentence_once(capsys: pytest.CaptureFixture[str]) -> None:
    no, yes = CheckResult(False, "Two are missing."), CheckResult(True, "All in sync.", {"partitions": 2})
    events, trigger = fired([no, no, ClusterUnreachable("Nobody answers."), no, yes])
    assert events == [{"done": True, "sentence": "All in sync.", "value": {"partitions": 2}}]
    assert trigger.waits == [5, 5, 5, 5, FIRST_EVENT_AFTER_S]
    logged = capsys.readouterr().out
    assert logged.count("Two are missing.") == 2
    assert logged.count("Nobody answers. Retrying.") == 1


@pytest.mark.parametrize("error", [AuthenticationFailed("Wrong password."), PlanError("No such plan.")])
def test_what_waiting_does_not_mend_fires_as_a_failure(error: Exception) -> None:
    events, _ = fired([error])
    assert events == [{"done": False, "sentence": str(error), "value": None}]


def test_an_unknown_question_is_named() -> None:
    with pytest.raises(RequestError, match=r"no check 'why'; there are broker_joined, .*ready\."):
        evaluate_check("why", None, {})  # type: ignore[arg-type]  # it is not looked at
