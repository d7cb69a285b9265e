"""Loop that steps a plan to its end, for any process: a worker, a script, the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kafka_steward.execution.decisions.progress import Progress

__all__ = ["StepRunner", "run_to_end"]


class StepRunner(Protocol):
    """The interface of an object that can be stepped to an end: a `PlanRunner`, a `CancelRunner`."""

    def step(self) -> Progress:
        """Take one step and return the progress."""


def _ignore(_: Progress) -> None:
    """Ignore the progress."""


def run_to_end(
    stepper: StepRunner,
    wait: Callable[[float], None],
    *,
    interval_s: float,
    report: Callable[[Progress], None] = _ignore,
) -> Progress:
    """Step until the plan has ended or needs a person; return the last progress.

    `report` is called after each step. Between steps, `wait` is called with at most `interval_s` seconds. `wait` may
    raise to stop the loop: the plan stays resumable. Raises the errors of `step`.
    """
    while True:
        progress = stepper.step()
        report(progress)
        if progress.ended or progress.waits_for_person:
            return progress
        wait(progress.pause_s(interval_s))
