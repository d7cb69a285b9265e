"""Common parts of executing and cancelling a plan: run the steps to the end, in the triggerer or in the worker."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from kafka_steward.operators.base import StewardOperator
from kafka_steward.triggers.metrics import emit_progress
from kafka_steward.triggers.progress import ProgressLog

if TYPE_CHECKING:
    from kafka_steward.execution.decisions.progress import Progress
    from kafka_steward.execution.loop import Stepper
    from kafka_steward.hooks.steward import Opened

__all__ = ["CarryingOperator", "refuse"]


def _nothing() -> None:
    """Do nothing: the plan stays in the journal, where another process can resume it."""


class CarryingOperator(StewardOperator):
    """An operator that runs the steps of a plan to the end: in the triggerer, or with `deferrable=False` in the worker.

    `plan_timeout` limits the deferral: when it is exceeded the task fails, and a retry resumes the plan. Killing the
    task stops its steps.
    """

    def __init__(self, *, deferrable: bool = True, plan_timeout: timedelta = timedelta(days=7), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.deferrable = deferrable
        self.plan_timeout = plan_timeout
        self._killed = threading.Event()

    def on_kill(self) -> None:
        """Stop stepping and leave the cluster as it is: Airflow also kills tasks that another try continues."""
        self._killed.set()

    def to_the_end(self, opened: Opened, stepper: Stepper, *, killed: Callable[[], None] = _nothing) -> Progress:
        """Step in this process until the plan has ended. Raises AirflowException for a stall.

        Raises AirflowFailException (no retry) for a plan that is blocked. If the task is killed, `killed` is called in
        this thread, not in the signal handler.
        """
        from kafka_steward.execution.loop import run_to_end

        told = ProgressLog(self.log.info, time.monotonic)

        def report(progress: Progress) -> None:
            told.tell(progress)
            emit_progress(self.conn_id, progress)
            if progress.stops:
                refuse(progress.sentence, for_good=False)

        def wait(seconds: float) -> None:
            try:
                self._wait(seconds)
            except AirflowException:
                killed()
                raise

        progress = run_to_end(stepper, wait, interval_s=opened.settings.step_interval, report=report)
        if not progress.ended:
            refuse(progress.sentence, for_good=True)
        return progress

    def ended(self, event: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the progress in a trigger's event if the plan has ended. Otherwise raise as `to_the_end` does."""
        progress: Mapping[str, Any] | None = event["progress"]
        if progress is None:
            refuse(event["sentence"], for_good=event.get("for_good", False))
        if not event["ended"]:
            refuse(event["sentence"], for_good=progress["status"] in ("stuck", "paused"))
        self.log.info("%s", event["sentence"])
        return progress

    def _wait(self, seconds: float) -> None:
        if self._killed.wait(seconds):
            raise AirflowException("The task was killed; the plan stays in the journal, and clearing the task goes on.")


def refuse(sentence: str, *, for_good: bool) -> NoReturn:
    """Fail the task; with `for_good`, without the remaining retries."""
    raise (AirflowFailException if for_good else AirflowException)(sentence)
