"""The trigger behind the deferrable sensors: it asks a sensor's question until the answer is yes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from kafka_steward.errors import StewardError
from kafka_steward.triggers.questions import Answer, ask, passes
from kafka_steward.triggers.run_plan import FIRST_EVENT_AFTER_S
from kafka_steward.triggers.thread import ClusterThread

if TYPE_CHECKING:
    from kafka_steward.hooks.steward import Opened

__all__ = ["WaitTrigger"]


class WaitTrigger(BaseTrigger):
    """Asks `question` of the cluster behind `conn_id` every `interval_s` seconds, in a thread; fires once, on yes.

    A cluster or journal that does not answer is asked again; what no waiting mends (a wrong password, no such plan)
    fires as a failure. The sensor's time-out ends the wait. `journal` is the task's `Opened.origin`.
    """

    def __init__(
        self,
        conn_id: str,
        question: str,
        arguments: Mapping[str, Any] | None = None,
        interval_s: float = 10.0,
        overrides: Mapping[str, Any] | None = None,
        *,
        journal: Mapping[str, Any] | None = None,
        **_: Any,  # a trigger outlives an upgrade: keywords of other versions are accepted
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow leaves it untyped
        self.conn_id = conn_id
        self.question = question
        self.arguments = dict(arguments or {})
        self.interval_s = interval_s
        self.overrides = dict(overrides or {})
        self.journal = journal
        self._thread = ClusterThread(conn_id, self.overrides, journal=journal)
        self._said = ""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class path and keywords, enough to build it again in any triggerer."""
        names = ("conn_id", "question", "arguments", "interval_s", "overrides", "journal")
        return f"{__name__}.{type(self).__name__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Ask until yes; then one event, `{"done": bool, "sentence": str, "value": ...}`."""
        began_s = time.monotonic()
        answer = await self._answer()
        await self._wait(FIRST_EVENT_AFTER_S - (time.monotonic() - began_s))
        yield TriggerEvent({"done": answer.done, "sentence": answer.sentence, "value": answer.value})

    async def cleanup(self) -> None:
        """Close the connections."""
        self._thread.close()

    async def _answer(self) -> Answer:
        while True:
            try:
                answer = await self._thread.ask(self._ask)
            except StewardError as error:
                if not passes(error):
                    return Answer(False, str(error))
                answer = Answer(False, f"{error} Asking again.")
            self._say(answer.sentence)
            if answer.done:
                return answer
            await self._wait(self.interval_s)

    def _ask(self, opened: Opened) -> Answer:
        return ask(self.question, opened, self.arguments)

    def _say(self, sentence: str) -> None:
        if sentence != self._said:
            self.log.info("%s", sentence)
            self._said = sentence

    async def _wait(self, seconds: float) -> None:
        if seconds > 0:
            await asyncio.sleep(seconds)
