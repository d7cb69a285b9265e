"""Stepping a plan to its end, for whoever has a process to spare: a worker, a script, the command line."""

from __future__ import annotations

from collections.abc import Callable

from kafka_steward.execution.progress import Progress
from kafka_steward.execution.runner import Runner

__all__ = ["run_to_end"]


def _silent(_: Progress) -> None:
    """Tell nobody."""


def run_to_end(
    runner: Runner,
    wait: Callable[[float], None],
    *,
    interval_s: float,
    report: Callable[[Progress], None] = _silent,
) -> Progress:
    """Step until the plan has ended or waits for a person; `wait` in between, at most `interval_s`; `report` each step.

    `wait` may raise to stop the loop: the plan stays resumable. Raises what `Runner.step` raises.
    """
    while True:
        progress = runner.step()
        report(progress)
        if progress.ended or progress.waits_for_person:
            return progress
        wait(progress.pause_s(interval_s))
