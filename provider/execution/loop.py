"""Stepping a plan to its end, for whoever has a process to spare: a worker, a script, the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kafka_steward.execution.decisions.progress import Progress

__all__ = ["Stepper", "run_to_end"]


class Stepper(Protocol):
    """What can be stepped to an end: a `Runner`, an `Undo`."""

    def step(self) -> Progress:
        """Take one step, and say how far it is."""


def _silent(_: Progress) -> None:
    """Tell nobody."""


def run_to_end(
    stepper: Stepper,
    wait: Callable[[float], None],
    *,
    interval_s: float,
    report: Callable[[Progress], None] = _silent,
) -> Progress:
    """Step until the plan has ended or waits for a person; `wait` in between, at most `interval_s`; `report` each step.

    `wait` may raise to stop the loop: the plan stays resumable. Raises what its `step` raises.
    """
    while True:
        progress = stepper.step()
        report(progress)
        if progress.ended or progress.waits_for_person:
            return progress
        wait(progress.pause_s(interval_s))
