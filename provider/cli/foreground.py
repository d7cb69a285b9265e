"""Step a plan in the foreground to its end, shared by `apply`, `resume` and `cancel`.

Progress goes to standard error: a bar on a terminal, periodic lines elsewhere. After Ctrl-C the current step is
finished, then the loop stops; a second Ctrl-C stops at once.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from time import sleep
from types import FrameType
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bars

from kafka_steward.assignment import counted
from kafka_steward.cli import Exit
from kafka_steward.cli.verb import CommandContext, print_error
from kafka_steward.errors import ClusterError, JournalError, StewardError
from kafka_steward.escaping import printable
from kafka_steward.execution.moves.progress import Progress
from kafka_steward.execution.plans.drive import DrivePolicy, Patience, call_with_patience, run_to_end
from kafka_steward.execution.plans.rollback import find_unfinished_rollback, is_rollback_unfinished
from kafka_steward.execution.plans.runner import PlanRunner
from kafka_steward.hooks.session import ClusterSession
from kafka_steward.journal.records import MoveState
from kafka_steward.journal.store import Journal
from kafka_steward.triggers.reporting import ProgressLog, duration_text, transferred_text


class Interrupt:
    """Handles signals and provides the `wait` of a loop. Only for the main thread, where Python handles signals."""

    def __init__(self) -> None:
        self._signalled = self._waiting = False

    def wait(self, seconds: float) -> None:
        """Sleep. Raises KeyboardInterrupt if a signal arrived before, or arrives during the sleep."""
        self._waiting = True
        try:
            if self._signalled:
                raise KeyboardInterrupt
            sleep(seconds)
        finally:
            self._waiting = False

    def handle_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - what Python calls a handler with
        """Handle a signal. Raises KeyboardInterrupt during `wait`, and for a second signal at any point."""
        if self._waiting or self._signalled:
            raise KeyboardInterrupt
        self._signalled = True
        print_error("Stopping after this step; press Ctrl-C again to stop at once.")


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Handle SIGINT and SIGTERM by an Interrupt inside the block."""
    interrupt = Interrupt()
    before = {number: signal.signal(number, interrupt.handle_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


Report = Callable[[Progress], None]


@contextmanager
def open_progress_bar() -> Iterator[Report]:
    """Yield a function to call with each step's progress."""
    if not sys.stderr.isatty():
        log = ProgressLog(lambda line: print_error(*filter(None, [line.rstrip()])), time.monotonic)
        # What the plan has come to is said once, by the result.
        yield lambda progress: log.report(replace(progress, sentence="") if progress.run_is_over else progress)
        return
    columns = (BarColumn(bar_width=30), TextColumn("{task.fields[text]}", markup=False))
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("plan", total=1.0, text="")
        yield lambda progress: bars.update(task, completed=_completed_fraction(progress), text=bar_text(progress))


def _completed_fraction(progress: Progress) -> float:
    """Return the completed fraction, from 0 to 1: by bytes if there are any, because partitions differ in size."""
    if progress.bytes_total:
        return progress.bytes_done / progress.bytes_total
    return progress.share


def bar_text(progress: Progress) -> str:
    """Return the text beside the bar: `12 of 60 partitions, 1.2 of 8.0 GB at 48.1 MB/s, 2 min 21 s left. ...`."""
    if not progress.partitions_total:
        return printable(progress.sentence)
    parts = [f"{progress.completed + progress.satisfied} of {counted(progress.partitions_total, 'partition')}"]
    if progress.bytes_total:
        parts.append(transferred_text(progress))
    if progress.eta_s is not None:
        parts.append(f"{duration_text(progress.eta_s)} left")
    message = f"{', '.join(parts)}."
    waits = progress.held or progress.busy or progress.status.waits or not progress.in_flight
    notable = waits or progress.stalled or progress.external_rates
    return f"{message} {printable(progress.sentence)}" if notable else message


T = TypeVar("T")

#: While the journal or Kafka does not answer: seconds between attempts, and the maximum number of attempts.
_RETRY_S = 5.0

_ATTEMPTS = 24


def patient(stays: str, say: Callable[[str], None] = print_error) -> Patience:
    """Return the patience of a verb: about two minutes. `stays` shows the user the options meanwhile.

    A database restart must not end a plan that runs in the foreground.
    """

    def report(error: StewardError, failures: int) -> None:
        if failures == 1 and error.retriable:
            say(f"{error} Trying again; {stays}")

    return Patience((_RETRY_S,) * (_ATTEMPTS - 1), report)


@dataclass(frozen=True)
class Foreground:
    """A verb that is executed in the foreground on the cluster of `opened`, until a signal."""

    call: CommandContext
    opened: ClusterSession
    interrupt: Interrupt

    def retry(self, act: Callable[[], T], *, stays: str) -> T:
        """Call `act`, and retry while the journal or Kafka does not answer. Raises permanent errors at once."""
        return call_with_patience(act, self.interrupt.wait, patient(stays))

    def run_plan(self, digest: str, goes_on: Callable[[Progress, float], bool] = lambda _, __: True) -> Progress:
        """Step a plan until it has ended, has stalled, or needs operator action, or until `goes_on` returns False.

        On a signal, or an error of the cluster or the journal, print how to continue, and re-raise.
        """
        opened, wait = self.opened, self.interrupt.wait
        runner = PlanRunner(opened.context(self.call.who), digest)
        try:
            with open_progress_bar() as report:
                patience = patient("Ctrl-C stops, and the plan stays unchanged.")
                policy = DrivePolicy(lambda: opened.settings.step_interval, report, goes_on, patience)
                return run_to_end(runner.step, wait, policy)
        except (KeyboardInterrupt, ClusterError, JournalError):
            hint = _resume_hint(self.call, digest, in_flight=1)  # if the journal does not say what has ended
            with suppress(JournalError):
                hint = _interrupted_hint(self.call, opened.journal, digest)
            print_error(*hint)
            raise


@contextmanager
def open_foreground(call: CommandContext) -> Iterator[Foreground]:
    """Open the cluster, and handle signals inside the block."""
    with call.hook.open() as opened, interruptible() as interrupt:
        yield Foreground(call, opened, interrupt)


def _interrupted_hint(call: CommandContext, journal: Journal, digest: str) -> tuple[str, ...]:
    """Return what has not ended, the plan or its rollback, and how to continue; nothing if both have ended."""
    record = journal.plans.get(digest)
    if record is None or not record.status.finished:
        return _resume_hint(call, digest, in_flight=_count_in_flight(journal, digest))
    if not is_rollback_unfinished(journal, record):
        return (f"Plan {digest[:12]} has ended.",)
    rollback = find_unfinished_rollback(journal, record)
    if rollback is None:
        begin = f"Plan {digest[:12]} has ended, and its rollback has not begun. Continue it:"
        return (begin, f"  {call.command_line(f'resume {digest[:12]}')}")
    in_flight = _count_in_flight(journal, rollback.digest)
    return _resume_hint(call, rollback.digest, in_flight=in_flight, undone=digest)


def _count_in_flight(journal: Journal, digest: str) -> int:
    return sum(row.state is MoveState.SUBMITTED for row in journal.plans.unsettled_rows(digest)[1])


def _resume_hint(call: CommandContext, digest: str, *, in_flight: int, undone: str = "") -> tuple[str, ...]:
    """Return how to continue a plan that has not ended; `undone` is the plan that it rolls back, if it does."""
    ended = f"Plan {undone[:12]} has ended; its rollback, plan {digest[:12]}," if undone else f"Plan {digest[:12]}"
    moving = " Moves in flight continue in Kafka." if in_flight else ""
    return (
        f"{ended} has not ended.{moving} Resume {'the rollback' if undone else 'the plan'}, or cancel it:",
        f"  {call.command_line(f'resume {(undone or digest)[:12]}')}",
        f"  {call.command_line(f'cancel {digest[:12]}')}",
    )


def print_result(
    call: CommandContext,
    progress: Progress,
    *,
    done: bool,
    lines: Sequence[str] = (),
    facts: Mapping[str, Any] | None = None,
) -> Exit:
    """Print the result and return the exit code. `done` says whether the request was completed.

    If it was not, the message goes to standard error. `lines` are printed before the message, and `facts` are added to
    those of the progress.
    """
    if done or lines or call.out.form != "table":
        shown = [*lines, progress.sentence] if done else lines
        call.out.print_facts({**progress.to_json(), **(facts or {})}, shown)
    return exit_code(call, progress, done=done)


def exit_code(call: CommandContext, progress: Progress, *, done: bool) -> Exit:
    """Return the exit code; if the request was not completed, print the message to standard error.

    If the plan has stalled or needs operator action, print how to continue, too.
    """
    if done:
        return Exit.DONE
    print_error(progress.sentence)
    if progress.waits_for_person or progress.stops:
        print_error(*_resume_hint(call, progress.digest, in_flight=progress.in_flight))
        return Exit.UNFINISHED
    return Exit.FAILED
