"""Steps a plan or its undoing on a real cluster: to its end, or until it has come to a point."""

from __future__ import annotations

import time
from collections.abc import Callable

from kafka_steward.execution.moves.progress import Progress
from kafka_steward.execution.plans.drive import DrivePolicy, StepRunner, run_to_end
from tests.eventually import eventually
from tests.pace import Deadline

__all__ = ["step_until", "to_the_end"]


def to_the_end(stepper: StepRunner, *, within_s: float = 60) -> Progress:
    """Step until it has ended or waits for a person."""
    deadline = Deadline(within_s)

    def wait(seconds: float) -> None:
        assert not deadline.passed(), "the plan did not end in time"
        time.sleep(seconds)

    return run_to_end(stepper.step, wait, DrivePolicy(interval_s=lambda: 0.3))


def step_until(stepper: StepRunner, reached: Callable[[Progress], bool], *, within: float = 60) -> Progress:
    """Step until `reached` says so."""

    def stepped() -> Progress:
        progress = stepper.step()
        assert reached(progress), progress
        return progress

    return eventually(stepped, within=within)
