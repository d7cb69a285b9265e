"""The trigger of the deferrable sensors: it repeats a sensor's check until it is met."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from kafka_steward.errors import StewardError
from kafka_steward.escaping import printable
from kafka_steward.triggers.checks import CheckResult, evaluate
from kafka_steward.triggers.run_plan import FIRST_EVENT_AFTER_S
from kafka_steward.triggers.worker import ClusterWorker

if TYPE_CHECKING:
    from kafka_steward.hooks.steward import ClusterSession


class WaitTrigger(BaseTrigger):
    """Runs the check `question` on the cluster behind `conn_id` every `interval_s` seconds; fires once, when it is met.

    The check runs in a thread. While the cluster or journal is unreachable, it is retried. An error that waiting cannot
    resolve (a wrong password, an unknown plan) fires as a failure. The sensor's timeout ends the wait. `journal` is the
    task's `ClusterSession.origin`.
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
        self._thread = ClusterWorker(conn_id, self.overrides, journal=journal)
        self._logged = ""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and keywords, enough to rebuild the trigger in any triggerer."""
        names = ("conn_id", "question", "arguments", "interval_s", "overrides", "journal")
        return f"{__name__}.{type(self).__name__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Check until met, then yield one event, `{"done": bool, "sentence": str, "value": ...}`."""
        began_s = time.monotonic()
        answer = await self._answer()
        await self._wait(FIRST_EVENT_AFTER_S - (time.monotonic() - began_s))
        yield TriggerEvent({"done": answer.met, "sentence": answer.sentence, "value": answer.value})

    async def cleanup(self) -> None:
        """Close the connections."""
        self._thread.close()

    async def _answer(self) -> CheckResult:
        while True:
            try:
                answer = await self._thread.submit(self._ask)
            except StewardError as error:
                if not error.retriable:
                    return CheckResult(False, str(error))
                answer = CheckResult(False, f"{error} Asking again.")
            self._log_new(answer.sentence)
            if answer.met:
                return answer
            await self._wait(self.interval_s)

    def _ask(self, opened: ClusterSession) -> CheckResult:
        return evaluate(self.question, opened, self.arguments)

    def _log_new(self, sentence: str) -> None:
        if sentence != self._logged:
            self.log.info("%s", printable(sentence))
            self._logged = sentence

    async def _wait(self, seconds: float) -> None:
        if seconds > 0:
            await asyncio.sleep(seconds)
