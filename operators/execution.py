"""Common parts of executing and cancelling a plan: run the steps to the end, in the triggerer or in the worker."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from kafka_steward.errors import StewardError
from kafka_steward.escaping import printable
from kafka_steward.hooks.context import actor_fields, actor_of, hook_of, merge_overrides
from kafka_steward.operators.base import Notifiers, StewardOperator, notify, open_session, to_notifier_list
from kafka_steward.operators.links import LinkedToPlan
from kafka_steward.triggers.base import REREAD_S, FreshConnections
from kafka_steward.triggers.reporting import ProgressLog, emit_progress
from kafka_steward.triggers.run_plan import PlanStepper, RunPlanTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_steward.execution.moves.progress import Progress
    from kafka_steward.execution.plans.drive import StepRunner
    from kafka_steward.execution.plans.runner import PlanRunner
    from kafka_steward.hooks.session import ClusterSession
    from kafka_steward.hooks.steward import StewardHook

__all__ = ["PlanExecutionOperator", "fail_task", "may_end_within"]

#: A deferral costs 10 s before the first event, and about 2 s to resume: a plan that ends sooner is not deferred.
_DEFER_AFTER = timedelta(seconds=20)


class PlanExecutionOperator(LinkedToPlan, StewardOperator):
    """An operator that runs the steps of a plan to the end: in the triggerer, or with `deferrable=False` in the worker.

    A deferrable task takes the steps of its first `defer_after` in the worker, and is not deferred if the plan ends
    within that time. It is deferred sooner if the plan cannot end in time: nothing is in flight, or the bytes that are
    left take longer, or an error has to be waited out. With a `defer_after` of 0 it takes none in the worker.

    `plan_timeout` limits the deferral: when it is exceeded the task fails, and a retry resumes the plan. Killing the
    task stops its steps. Both look the Airflow connection up every minute, and continue with an edited one.
    `on_problem` is notified before the task fails, with the event `stalled`, or `stuck` if the plan needs operator
    action.
    """

    #: Seconds between two lookups of the Airflow connection in the worker.
    _reread_s = REREAD_S

    def __init__(
        self,
        *,
        deferrable: bool = True,
        defer_after: timedelta = _DEFER_AFTER,
        plan_timeout: timedelta = timedelta(days=7),
        on_problem: Notifiers = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.on_problem = to_notifier_list(on_problem)
        self.deferrable = deferrable
        self.defer_after = defer_after
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
            fresh = hook_of(self, context)
            fresh.expected_origin = fresh.expected_origin if before is None else before.origin
            return fresh

        with closing(FreshConnections(hook, open_session, reread_s=self._reread_s)) as connections:
            yield connections

    def create_runner(self, opened: ClusterSession, digest: str, context: Context) -> PlanRunner:
        """Return the runner of a plan over open connections."""
        from kafka_steward.execution.plans.runner import PlanRunner

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

    def run_or_defer(
        self,
        connections: FreshConnections,
        digest: str,
        context: Context,
        *,
        killed: Callable[[ClusterSession, StepRunner], None] | None = None,
        kwargs: dict[str, Any] | None = None,
        **options: Any,
    ) -> Progress:
        """Step until the plan has ended; with `deferrable`, in the triggerer if that takes longer than `defer_after`.

        Raises AirflowException for a stall, and AirflowFailException (no retry) for a plan that is blocked. If the task
        is killed in the worker, `killed` is called in this thread, not in the signal handler. `kwargs` are for
        `execute_complete`, `options` are arguments of RunPlanTrigger.
        """
        opened = connections.current()
        if not self.deferrable:
            progress = self._run_in_worker(connections, digest, context, killed)
        else:
            progress = self._run_for_a_while(connections, digest, context, killed) if self.defer_after else None
        if progress is None:
            self.defer_to_trigger(opened, digest, context, kwargs=kwargs, **options)
        return progress

    def _run_for_a_while(
        self,
        connections: FreshConnections,
        digest: str,
        context: Context,
        killed: Callable[[ClusterSession, StepRunner], None] | None,
    ) -> Progress | None:
        """Step for at most `defer_after`; return None if the plan does not end in time, or an error is in the way."""
        try:
            return self._run_in_worker(connections, digest, context, killed)
        except StewardError as error:
            if not error.retriable:
                fail_task(str(error), for_good=True)
            self.log.warning("Plan %s: %s The triggerer tries again.", digest[:12], printable(str(error)))
            return None

    def _run_in_worker(
        self,
        connections: FreshConnections,
        digest: str,
        context: Context,
        killed: Callable[[ClusterSession, StepRunner], None] | None,
    ) -> Progress | None:
        """Step until the plan has ended; with `deferrable`, return None if it does not end within `defer_after`."""
        from kafka_steward.execution.plans.drive import DrivePolicy, run_to_end

        stepper = PlanStepper(lambda opened: self.create_runner(opened, digest, context))
        log = ProgressLog(self.log.info, time.monotonic)
        until_s = time.monotonic() + min(self.defer_after, self.plan_timeout).total_seconds()

        def report(progress: Progress) -> None:
            log.report(progress)
            emit_progress(self.conn_id, progress)

        def wait(seconds: float) -> None:
            try:
                self._wait_unless_killed(seconds)
            except AirflowException:
                if killed is not None and stepper.latest is not None:
                    killed(*stepper.latest)
                raise

        def goes_on(progress: Progress, pause_s: float) -> bool:
            return not self.deferrable or may_end_within(progress, until_s - time.monotonic(), pause_s)

        policy = DrivePolicy(lambda: stepper.interval_s, report, goes_on)
        progress = run_to_end(lambda: stepper.step(connections.current()), wait, policy)
        if not progress.run_is_over:
            return None
        if not progress.ended:
            self._notify_problem(context, progress.to_json(), progress.sentence)
            fail_task(progress.sentence, for_good=progress.waits_for_person)
        return progress

    def progress_from_event(self, event: Mapping[str, Any], context: Context) -> Mapping[str, Any]:
        """Return the progress of a trigger's event if the plan ended. Raise otherwise, as `run_or_defer` does."""
        progress: Mapping[str, Any] | None = event["progress"]
        if progress is None:
            fail_task(event["sentence"], for_good=event.get("for_good", False))
        self.linked_plan = progress["digest"]
        if not event["ended"]:
            self._notify_problem(context, progress, event["sentence"])
            fail_task(event["sentence"], for_good=progress["status"] == "stuck")
        self.log.info("%s", printable(event["sentence"]))
        return progress

    def _notify_problem(self, context: Context, progress: Mapping[str, Any], sentence: str) -> None:
        facts = {name: progress[name] for name in ("digest", "status", "left")}
        event = "stuck" if progress["status"] == "stuck" else "stalled"
        notify(
            self.on_problem, context, event, {"sentence": sentence, "partitions": progress["partitions_total"], **facts}
        )

    def _wait_unless_killed(self, seconds: float) -> None:
        if self._killed.wait(seconds):
            raise AirflowException(
                "The task was killed; the plan stays in the journal, and clearing the task resumes it."
            )


def may_end_within(progress: Progress, left_s: float, pause_s: float) -> bool:
    """Return whether a plan may end within `left_s` seconds, the next step of which is in `pause_s`.

    It may not while nothing is in flight: what it waits for, such as its maintenance window, may take hours.
    """
    if not (progress.in_flight or progress.busy or progress.soon_s is not None):
        return False
    return max(pause_s, progress.eta_s or 0.0) <= left_s


def fail_task(sentence: str, *, for_good: bool) -> NoReturn:
    """Fail the task; with `for_good`, without the remaining retries."""
    raise (AirflowFailException if for_good else AirflowException)(printable(sentence))
