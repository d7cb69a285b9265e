"""Common parts of executing and cancelling a plan: run the steps to the end, in the triggerer or in the worker."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from kafka_steward.escaping import printable
from kafka_steward.hooks.context import actor_fields, actor_of, hook_of, merge_overrides
from kafka_steward.operators.base import StewardOperator, open_session
from kafka_steward.triggers.base import REREAD_S, FreshConnections
from kafka_steward.triggers.reporting import ProgressLog, emit_progress
from kafka_steward.triggers.run_plan import RunPlanTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_steward.execution.progress import Progress
    from kafka_steward.execution.runner import PlanRunner, StepRunner
    from kafka_steward.hooks.steward import ClusterSession, StewardHook

__all__ = ["PlanExecutionOperator", "fail_task"]


class PlanExecutionOperator(StewardOperator):
    """An operator that runs the steps of a plan to the end: in the triggerer, or with `deferrable=False` in the worker.

    `plan_timeout` limits the deferral: when it is exceeded the task fails, and a retry resumes the plan. Killing the
    task stops its steps. Both look the Airflow connection up every minute, and continue with an edited one.
    """

    #: Seconds between two lookups of the Airflow connection in the worker.
    _reread_s = REREAD_S

    def __init__(self, *, deferrable: bool = True, plan_timeout: timedelta = timedelta(days=7), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.deferrable = deferrable
        self.plan_timeout = plan_timeout
        self._killed = threading.Event()

    def on_kill(self) -> None:
        """Stop stepping and leave the cluster as it is: Airflow also kills tasks that another try continues."""
        self._killed.set()

    @contextmanager
    def open_connections(self, context: Context) -> Iterator[FreshConnections]:
        """Yield connections that follow edits of the Airflow connection; they keep to one journal.

        Opening them raises as `open_session` does.
        """

        def hook(before: ClusterSession | None) -> StewardHook:
            found = hook_of(self, context)
            found.expected_origin = found.expected_origin if before is None else before.origin
            return found

        with closing(FreshConnections(hook, open_session, reread_s=self._reread_s)) as connections:
            yield connections

    def create_runner(self, opened: ClusterSession, digest: str, context: Context) -> PlanRunner:
        """Return the runner of a plan over open connections."""
        from kafka_steward.execution.runner import PlanRunner

        return PlanRunner(opened.context(actor_of(context)), digest)

    def defer_to_trigger(
        self,
        opened: ClusterSession,
        digest: str,
        context: Context,
        *,
        kwargs: dict[str, Any] | None = None,
        **options: Any,
    ) -> NoReturn:
        """Defer to the trigger that steps the plan to its end; `options` are arguments of RunPlanTrigger."""
        overrides, who = merge_overrides(self.settings, context), actor_fields(context)
        trigger = RunPlanTrigger(self.conn_id, digest, overrides, who, journal=opened.origin, **options)
        self.defer(trigger=trigger, method_name="execute_complete", kwargs=kwargs, timeout=self.plan_timeout)

    def run_to_completion(
        self,
        connections: FreshConnections,
        digest: str,
        context: Context,
        *,
        killed: Callable[[ClusterSession, StepRunner], None] | None = None,
    ) -> Progress:
        """Step in this process until the plan has ended. Raises AirflowException for a stall.

        Raises AirflowFailException (no retry) for a plan that is blocked. If the task is killed, `killed` is called in
        this thread, not in the signal handler.
        """
        from kafka_steward.execution.runner import run_to_end

        log = ProgressLog(self.log.info, time.monotonic)
        followed = _ReconnectingRunner(connections, lambda opened: self.create_runner(opened, digest, context))

        def report(progress: Progress) -> None:
            log.report(progress)
            emit_progress(self.conn_id, progress)

        def wait(seconds: float) -> None:
            try:
                self._wait_unless_killed(seconds)
            except AirflowException:
                if killed is not None:
                    killed(followed.opened, followed.stepper)
                raise

        progress = run_to_end(followed, wait, interval_s=lambda: followed.opened.settings.step_interval, report=report)
        if not progress.ended:
            fail_task(progress.sentence, for_good=progress.waits_for_person)
        return progress

    def progress_from_event(self, event: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the progress of a trigger's event if the plan ended. Raise otherwise, as `run_to_completion` does."""
        progress: Mapping[str, Any] | None = event["progress"]
        if progress is None:
            fail_task(event["sentence"], for_good=event.get("for_good", False))
        if not event["ended"]:
            fail_task(event["sentence"], for_good=progress["status"] == "stuck")
        self.log.info("%s", printable(event["sentence"]))
        return progress

    def _wait_unless_killed(self, seconds: float) -> None:
        if self._killed.wait(seconds):
            raise AirflowException(
                "The task was killed; the plan stays in the journal, and clearing the task resumes it."
            )


class _ReconnectingRunner:
    """A stepper that is made again when its connections were opened again."""

    def __init__(self, connections: FreshConnections, make: Callable[[ClusterSession], StepRunner]) -> None:
        self._connections, self._make = connections, make
        self.opened = connections.current()
        self.stepper = make(self.opened)

    def step(self) -> Progress:
        """Take one step, over the connections as they are now."""
        opened = self._connections.current()
        if opened is not self.opened:
            self.opened, self.stepper = opened, self._make(opened)
        return self.stepper.step()


def fail_task(sentence: str, *, for_good: bool) -> NoReturn:
    """Fail the task; with `for_good`, without the remaining retries."""
    raise (AirflowFailException if for_good else AirflowException)(printable(sentence))
