"""The loop that steps a plan to its end: it waits between the steps, and waits out errors that may pass.

There is one loop, a coroutine: the triggerer awaits its steps and its waits. In a worker, in a script and on the
command line both block instead, and `run_to_end` runs the loop without an event loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from kafka_steward.errors import StewardError

if TYPE_CHECKING:
    from kafka_steward.execution.moves.progress import Progress

P = ParamSpec("P")
T = TypeVar("T")


class StepRunner(Protocol):
    """The interface of an object that can be stepped to an end, such as a `PlanRunner`."""

    def step(self) -> Progress:
        """Take one step and return the progress."""


@dataclass(frozen=True)
class Patience:
    """The seconds to wait after the first failure of a call, after the second one, and so on: then it is called again.

    Only errors that may pass are waited out. `say` is called after each failure, with the error and the number of
    failures in a row.
    """

    pauses_s: Sequence[float] = ()
    say: Callable[[StewardError, int], None] = lambda _, __: None


@dataclass(frozen=True)
class DrivePolicy:
    """How a plan is driven: at most `interval_s()` seconds pass between two steps, and `report` is called after each.

    `goes_on` is called before each wait between two steps, with the progress and the seconds to wait. If it returns
    False, the loop ends before the plan.
    """

    interval_s: Callable[[], float]
    report: Callable[[Progress], None] = lambda _: None
    goes_on: Callable[[Progress, float], bool] = lambda _, __: True
    patience: Patience = Patience()


async def drive(
    step: Callable[[], Awaitable[Progress]], wait: Callable[[float], Awaitable[None]], policy: DrivePolicy
) -> Progress:
    """Step until the run is over (`Progress.run_is_over`); return the last progress.

    `wait` may raise to stop the loop: the plan stays resumable. Raises the errors of `step` that do not pass.
    """
    while True:
        progress = await _call_with_patience(step, wait, policy.patience)
        policy.report(progress)
        pause_s = progress.pause_s(policy.interval_s())
        if progress.run_is_over or not policy.goes_on(progress, pause_s):
            return progress
        await wait(pause_s)


async def _call_with_patience(
    act: Callable[[], Awaitable[T]], wait: Callable[[float], Awaitable[None]], patience: Patience
) -> T:
    failures = 0
    while True:
        try:
            return await act()
        except StewardError as error:
            failures += 1
            patience.say(error, failures)
            if failures > len(patience.pauses_s) or not error.retriable:
                raise
        await wait(patience.pauses_s[failures - 1])


def run_to_end(step: Callable[[], Progress], wait: Callable[[float], None], policy: DrivePolicy) -> Progress:
    """Do as `drive` does, with a step and a wait that block."""
    return _run_without_loop(drive(_as_coroutine(step), _as_coroutine(wait), policy))


def call_with_patience(act: Callable[[], T], wait: Callable[[float], None], patience: Patience) -> T:
    """Call `act`, and again after an error that may pass; return its result. Raises the errors that do not pass."""
    return _run_without_loop(_call_with_patience(_as_coroutine(act), _as_coroutine(wait), patience))


def _as_coroutine(call: Callable[P, T]) -> Callable[P, Awaitable[T]]:
    async def called(*args: P.args, **kwargs: P.kwargs) -> T:
        return call(*args, **kwargs)

    return called


def _run_without_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, because everything that it awaits blocks."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise RuntimeError("A step or a wait of run_to_end did not block.")
