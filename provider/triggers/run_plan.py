"""The trigger that carries a plan out: it steps the Runner until the plan ends, and fires once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from kafka_steward.errors import StewardError
from kafka_steward.triggers.killed import cancel_soon, task_is_over
from kafka_steward.triggers.metrics import emit_progress
from kafka_steward.triggers.progress import ProgressLog
from kafka_steward.triggers.questions import passes
from kafka_steward.triggers.thread import ClusterThread

if TYPE_CHECKING:
    from kafka_steward.execution.decisions.progress import Progress
    from kafka_steward.execution.loop import Stepper
    from kafka_steward.hooks.steward import Opened

__all__ = ["FIRST_EVENT_AFTER_S", "RunPlanTrigger"]

#: An event within some 6 s of the deferral costs the task a try: the executor still reports the worker that deferred.
FIRST_EVENT_AFTER_S = 10.0
#: Seconds between attempts while the journal does not answer, or the connection cannot be used.
_RETRY_S = 15.0
_ATTEMPTS = 40


class RunPlanTrigger(BaseTrigger):
    """Steps the plan `digest` of the cluster behind `conn_id` in a thread; fires when it ends, fails or stalls.

    A plan that is cancelled with the rollback of all of it ends with its rollback.
    `overrides` are settings as strings and numbers, `who` the fields of journal.audit.Who. Stopping the trigger leaves
    at most one step running to its end, which the step lock makes harmless; by itself it cancels nothing, because
    Airflow also stops triggers that another triggerer goes on with. With `when_killed="cancel"` the plan's cancel is
    asked for, once Airflow has said that the task is failed, success or skipped. `journal` is the task's
    `Opened.origin`: another journal is not stepped.
    """

    def __init__(
        self,
        conn_id: str,
        digest: str,
        overrides: Mapping[str, Any] | None = None,
        who: Mapping[str, Any] | None = None,
        *,
        when_killed: str = "nothing",
        map_index: int = -1,
        journal: Mapping[str, Any] | None = None,
        **_: Any,  # a trigger outlives an upgrade: keywords of other versions are accepted
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow leaves it untyped
        self.conn_id = conn_id
        self.digest = digest
        self.overrides = dict(overrides or {})
        self.who = dict(who or {})
        self.when_killed = when_killed
        self.map_index = map_index
        self.journal = journal
        self._thread = ClusterThread(conn_id, self.overrides, journal=journal)
        self._runner: tuple[Opened, Stepper] | None = None

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class path and keywords, enough to build it again in any triggerer."""
        names = ("conn_id", "digest", "overrides", "who", "when_killed", "map_index", "journal")
        return f"{__name__}.{type(self).__name__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Step to the end; then one event, `{"ended": bool, "sentence": str, "progress": {...} | None}`.

        Without progress there is `"for_good"`: whether no further try would change it.
        """
        began_s = time.monotonic()
        payload = await self._payload()
        await self._wait(FIRST_EVENT_AFTER_S - (time.monotonic() - began_s))
        yield TriggerEvent(payload)

    async def on_kill(self) -> None:
        """Ask for the cancel, if that is wanted, and if it was this task that was ended, not only this trigger."""
        if self.when_killed != "cancel":
            return
        if not await asyncio.to_thread(task_is_over, self.who, self.map_index):
            self.log.info("Plan %s is left alone: its task goes on elsewhere.", self.digest[:12])
            return
        try:
            self.log.info("%s", await self._thread.ask(self._cancel))
        finally:
            self._thread.close()  # cleanup has come before this

    async def cleanup(self) -> None:
        """Close the connections; the plan itself is left as it stands."""
        self._thread.close()

    async def _payload(self) -> dict[str, Any]:
        try:
            progress = await self._step_to_the_end()
        except StewardError as error:
            return {"ended": False, "sentence": str(error), "progress": None, "for_good": not passes(error)}
        return {"ended": progress.ended, "sentence": progress.sentence, "progress": progress.to_json()}

    async def _step_to_the_end(self) -> Progress:
        told, failures = ProgressLog(self.log.info, time.monotonic), 0
        while True:
            try:
                progress, interval_s = await self._thread.ask(self._step)
            except StewardError as error:
                failures += 1
                self.log.warning("Plan %s: %s Attempt %d of %d.", self.digest[:12], error, failures, _ATTEMPTS)
                if failures >= _ATTEMPTS or not passes(error):
                    raise
                await self._wait(_RETRY_S)
                continue
            failures = 0
            told.tell(progress)
            emit_progress(self.conn_id, progress)
            if progress.ended or progress.waits_for_person or progress.stops:
                return progress
            await self._wait(progress.pause_s(interval_s))

    def _cancel(self, opened: Opened) -> str:
        return cancel_soon(opened, self.digest, self.who, self._new_runner(opened))

    def _step(self, opened: Opened) -> tuple[Progress, float]:
        # Runs in the thread. One Runner per connection: it remembers byte counts, for rate and ETA.
        if self._runner is None or self._runner[0] is not opened:
            self._runner = opened, self._new_runner(opened)
        return self._runner[1].step(), opened.settings.step_interval

    def _new_runner(self, opened: Opened) -> Stepper:
        from kafka_steward.execution.undoing.plan_run import PlanRun
        from kafka_steward.journal.audit import Who

        return PlanRun(opened.cluster, opened.journal, self.digest, opened.settings, Who(**self.who))

    async def _wait(self, seconds: float) -> None:
        if seconds > 0:
            await asyncio.sleep(seconds)
