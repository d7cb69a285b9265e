"""The trigger that executes a plan: it steps the runner until the plan ends, and fires once.

Airflow also kills tasks that another try, or another triggerer, continues. `on_kill` runs when a user marks a task, but
also when a user clears it, and then after the new try has begun. A triggerer that stalled and resumes runs it for every
trigger that it lost. Before a killed task cancels its plan, the task's state must therefore be queried from Airflow.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kafka_steward.errors import PlanError, StewardError
from kafka_steward.escaping import printable
from kafka_steward.triggers.base import ClusterTrigger
from kafka_steward.triggers.reporting import ProgressLog, emit_progress

if TYPE_CHECKING:
    from kafka_steward.execution.moves.progress import Progress
    from kafka_steward.execution.plans.drive import StepRunner
    from kafka_steward.execution.watch.alerts import StallRecorder
    from kafka_steward.hooks.session import ClusterSession


#: Seconds between attempts while the journal is unreachable, or the connection cannot be used.
_RETRY_S = 15.0
_ATTEMPTS = 40
#: States of a task that is not continued.
_OVER = frozenset({"failed", "success", "skipped"})
#: Steps of a cancel that a killed task runs itself; the watch or the cancel DAG runs the rest.
_STEPS = 4


class PlanStepper:
    """Steps a plan over the connections as they are now: with a new runner after they were opened again.

    A runner keeps byte counts, for the rate and the ETA. Stalls are recorded.
    """

    def __init__(self, create_runner: Callable[[ClusterSession], StepRunner]) -> None:
        self._create_runner = create_runner
        #: The connections and the runner of the last step.
        self.latest: tuple[ClusterSession, StepRunner] | None = None
        self._stalls: StallRecorder | None = None

    def step(self, opened: ClusterSession) -> Progress:
        """Take one step, and return the progress."""
        from kafka_steward.execution.watch.alerts import StallRecorder

        if self.latest is None or self.latest[0] is not opened:
            self.latest = opened, self._create_runner(opened)
        progress = self.latest[1].step()
        self._stalls = self._stalls or StallRecorder()
        self._stalls.record(opened.journal, progress)
        return progress

    @property
    def interval_s(self) -> float:
        """The setting step_interval of the connections of the last step."""
        return self.latest[0].settings.step_interval if self.latest else 0.0


class RunPlanTrigger(ClusterTrigger):
    """Steps the plan `digest` of the cluster behind `conn_id` in a thread; fires when it ends, fails or stalls.

    A plan that is cancelled with a rollback of all its moves ends with its rollback.

    `overrides` are settings as strings and numbers, `who` the fields of journal.audit.Actor. Stopping the trigger
    leaves at most one step running to its end, which the step lock makes harmless. Stopping alone cancels nothing,
    because Airflow also stops triggers that another triggerer continues. With `when_killed="cancel"` the cancel of the
    plan is requested after Airflow has reported the task as failed, success or skipped. `journal` is the task's
    `ClusterSession.origin`: a plan in another journal is not stepped.
    """

    KEYWORDS = ("conn_id", "digest", "overrides", "who", "when_killed", "map_index", "journal")

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
        super().__init__(conn_id, overrides, journal)
        self.digest = digest
        self.who = dict(who or {})
        self.when_killed = when_killed
        self.map_index = map_index
        self._stepper = PlanStepper(self._new_runner)

    async def on_kill(self) -> None:
        """Request the cancel if that is configured and the task itself was ended, not only this trigger."""
        if self.when_killed != "cancel":
            return
        if not await asyncio.to_thread(is_task_over, self.who, self.map_index):
            self.log.info("Plan %s is not cancelled: another process continues its task.", self.digest[:12])
            return
        try:
            self.log.info("%s", printable(await self._thread.submit(self._request_cancel)))
        finally:
            self._thread.close()  # Airflow has called `cleanup` before

    async def payload(self) -> dict[str, Any]:
        """Step to the end; return `{"ended": bool, "sentence": str, "progress": {...} | None}`.

        `progress` holds what the task needs of it: Airflow writes the whole event to the task's log, which has the
        other numbers already. A payload without progress has `"for_good"`: whether a further try would change nothing.
        """
        try:
            progress = await self._run_to_end()
        except StewardError as error:
            return {"ended": False, "sentence": str(error), "progress": None, "for_good": not error.retriable}
        return {"ended": progress.ended, "sentence": progress.sentence, "progress": _event_progress(progress)}

    async def _run_to_end(self) -> Progress:
        from kafka_steward.execution.plans.drive import DrivePolicy, Patience, drive

        log, interval_s = ProgressLog(self.log.info, time.monotonic), 0.0

        def step_plan(opened: ClusterSession) -> tuple[Progress, float]:
            return self._stepper.step(opened), opened.settings.step_interval

        async def step() -> Progress:
            nonlocal interval_s
            progress, interval_s = await self._thread.submit(step_plan)
            return progress

        def report(progress: Progress) -> None:
            log.report(progress)
            emit_progress(self.conn_id, progress)

        def warn(error: StewardError, failures: int) -> None:
            self.log.warning(
                "Plan %s: %s Attempt %d of %d.", self.digest[:12], printable(str(error)), failures, _ATTEMPTS
            )

        patience = Patience((_RETRY_S,) * (_ATTEMPTS - 1), warn)
        return await drive(step, self._wait, DrivePolicy(lambda: interval_s, report, patience=patience))

    def _request_cancel(self, opened: ClusterSession) -> str:
        return request_cancel_and_step(opened, self.digest, self.who, self._new_runner(opened))

    def _new_runner(self, opened: ClusterSession) -> StepRunner:
        from kafka_steward.execution.plans.runner import PlanRunner
        from kafka_steward.journal.audit import Actor

        return PlanRunner(opened.context(Actor(**self.who)), self.digest)


def _event_progress(progress: Progress) -> dict[str, Any]:
    return {
        "digest": progress.digest,
        "status": progress.status.value,
        "partitions_total": progress.partitions_total,
        "left": progress.left,
    }


def is_task_over(who: Mapping[str, Any], map_index: int = -1) -> bool:
    """Return whether Airflow reports this task as failed, success or skipped. Call it in a task or a trigger's thread.

    Returns False when Airflow does not answer, because the state is unknown then.
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


def request_cancel_and_step(opened: ClusterSession, digest: str, who: Mapping[str, Any], runner: StepRunner) -> str:
    """Record the request to cancel a plan, and run the first steps of it; return the result as a message."""
    from kafka_steward.execution.plans.lifecycle import request_cancel
    from kafka_steward.journal.audit import Actor

    try:
        request_cancel(
            opened.journal, digest, who=Actor(**who), reason="its task was killed in Airflow (on_kill=cancel)"
        )
    except PlanError as error:
        return str(error)  # the plan has ended: nothing is left to cancel
    for _ in range(_STEPS):
        progress = runner.step()
        if progress.ended:
            break
    return progress.sentence
