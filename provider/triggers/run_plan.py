"""The trigger that executes a plan: it steps the runner until the plan ends, and fires once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from kafka_steward.errors import StewardError
from kafka_steward.escaping import printable
from kafka_steward.triggers.checks import is_retriable
from kafka_steward.triggers.on_kill import request_cancel_and_step, task_is_over
from kafka_steward.triggers.progress import ProgressLog, emit_progress
from kafka_steward.triggers.worker import ClusterWorker

if TYPE_CHECKING:
    from kafka_steward.execution.progress import Progress
    from kafka_steward.execution.runner import StepRunner
    from kafka_steward.hooks.steward import ClusterSession


#: An event within about 6 s of the deferral costs the task a try: the executor still reports the deferred worker.
FIRST_EVENT_AFTER_S = 10.0
#: Seconds between attempts while the journal is unreachable, or the connection cannot be used.
_RETRY_S = 15.0
_ATTEMPTS = 40


class RunPlanTrigger(BaseTrigger):
    """Steps the plan `digest` of the cluster behind `conn_id` in a thread; fires when it ends, fails or stalls.

    A plan that is cancelled with a rollback of all its moves ends with its rollback.

    `overrides` are settings as strings and numbers, `who` the fields of journal.audit.Who. Stopping the trigger leaves
    at most one step running to its end, which the step lock makes harmless. Stopping alone cancels nothing, because
    Airflow also stops triggers that another triggerer continues. With `when_killed="cancel"` the cancel of the plan is
    requested after Airflow has reported the task as failed, success or skipped. `journal` is the task's
    `ClusterSession.origin`: a plan in another journal is not stepped.
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
        self._thread = ClusterWorker(conn_id, self.overrides, journal=journal)
        self._runner: tuple[ClusterSession, StepRunner] | None = None

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and keywords, enough to rebuild the trigger in any triggerer."""
        names = ("conn_id", "digest", "overrides", "who", "when_killed", "map_index", "journal")
        return f"{__name__}.{type(self).__name__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Step to the end, then yield one event, `{"ended": bool, "sentence": str, "progress": {...} | None}`.

        An event without progress has `"for_good"`: whether a further try would change nothing.
        """
        began_s = time.monotonic()
        payload = await self._payload()
        await self._wait(FIRST_EVENT_AFTER_S - (time.monotonic() - began_s))
        yield TriggerEvent(payload)

    async def on_kill(self) -> None:
        """Request the cancel if that is configured and the task itself was ended, not only this trigger."""
        if self.when_killed != "cancel":
            return
        if not await asyncio.to_thread(task_is_over, self.who, self.map_index):
            self.log.info("Plan %s is left alone: another process continues its task.", self.digest[:12])
            return
        try:
            self.log.info("%s", printable(await self._thread.submit(self._cancel)))
        finally:
            self._thread.close()  # Airflow has called `cleanup` before

    async def cleanup(self) -> None:
        """Close the connections; leave the plan as it is."""
        self._thread.close()

    async def _payload(self) -> dict[str, Any]:
        try:
            progress = await self._run_to_end()
        except StewardError as error:
            return {"ended": False, "sentence": str(error), "progress": None, "for_good": not is_retriable(error)}
        return {"ended": progress.ended, "sentence": progress.sentence, "progress": progress.to_json()}

    async def _run_to_end(self) -> Progress:
        log, failures = ProgressLog(self.log.info, time.monotonic), 0
        while True:
            try:
                progress, interval_s = await self._thread.submit(self._step)
            except StewardError as error:
                failures += 1
                self.log.warning(
                    "Plan %s: %s Attempt %d of %d.", self.digest[:12], printable(str(error)), failures, _ATTEMPTS
                )
                if failures >= _ATTEMPTS or not is_retriable(error):
                    raise
                await self._wait(_RETRY_S)
                continue
            failures = 0
            log.report(progress)
            emit_progress(self.conn_id, progress)
            if progress.run_is_over:
                return progress
            await self._wait(progress.pause_s(interval_s))

    def _cancel(self, opened: ClusterSession) -> str:
        return request_cancel_and_step(opened, self.digest, self.who, self._new_runner(opened))

    def _step(self, opened: ClusterSession) -> tuple[Progress, float]:
        # Runs in the thread. One runner per connection, because it keeps byte counts for rate and ETA.
        if self._runner is None or self._runner[0] is not opened:
            self._runner = opened, self._new_runner(opened)
        return self._runner[1].step(), opened.settings.step_interval

    def _new_runner(self, opened: ClusterSession) -> StepRunner:
        from kafka_steward.execution.context import ClusterContext
        from kafka_steward.execution.runner import PlanRunner
        from kafka_steward.journal.audit import Actor

        return PlanRunner(
            ClusterContext(opened.cluster, opened.journal, opened.settings, Actor(**self.who)), self.digest
        )

    async def _wait(self, seconds: float) -> None:
        if seconds > 0:
            await asyncio.sleep(seconds)
