"""Step a plan in the foreground to its end, with any `StepRunner`: shared by `apply`, `resume` and `cancel`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from kafka_steward.cli.exits import Exit
from kafka_steward.cli.following import followed
from kafka_steward.cli.output import print_error
from kafka_steward.errors import ClusterError, JournalError, StewardError

if TYPE_CHECKING:
    from kafka_steward.cli.interrupt import Interrupt
    from kafka_steward.cli.verb import CommandContext
    from kafka_steward.execution.decisions.progress import Progress
    from kafka_steward.execution.loop import StepRunner
    from kafka_steward.settings import Settings

__all__ = ["RetryingRunner", "run_in_foreground", "end_message", "exit_code", "with_retries"]

T = TypeVar("T")

#: While the journal or Kafka does not answer: seconds between attempts, and the maximum number of attempts.
_RETRY_S = 5.0
_ATTEMPTS = 24


@dataclass(frozen=True)
class RetryingRunner:
    """Steps a plan and retries transient errors: a database restart must not end a plan that runs in the foreground."""

    stepper: StepRunner
    wait: Callable[[float], None]
    say: Callable[[str], None] = print_error

    def step(self) -> Progress:
        """Take one step. Raises permanent errors at once, and transient errors after about two minutes."""
        stays = "Ctrl-C stops, and the plan stays as it is."
        return _resumed(with_retries(self.stepper.step, self.wait, stays=stays, say=self.say))


def with_retries(
    act: Callable[[], T], wait: Callable[[float], None], *, stays: str, say: Callable[[str], None] = print_error
) -> T:
    """Call `act`, and retry while the journal or Kafka does not answer; `stays` tells the user the options meanwhile.

    Raises permanent errors at once, and transient errors after about two minutes.
    """
    from kafka_steward.triggers.checks import is_retriable

    for attempt in range(1, _ATTEMPTS):
        try:
            return act()
        except StewardError as error:
            if not is_retriable(error):
                raise
            if attempt == 1:
                say(f"{error} Trying again; {stays}")
        wait(_RETRY_S)
    return act()


def _resumed(progress: Progress) -> Progress:
    """Report a paused plan as running and busy: a heal preempts the slot and releases it, so the loop waits for it."""
    from kafka_steward.journal.records import PlanStatus

    paused = progress.status is PlanStatus.PAUSED
    return replace(progress, status=PlanStatus.RUNNING, busy=True) if paused else progress


def run_in_foreground(
    call: CommandContext, stepper: StepRunner, digest: str, settings: Settings, interrupt: Interrupt
) -> Progress:
    """Step until the plan has ended or needs operator action.

    On a signal, or an error of the cluster or the journal, print how to continue, and re-raise.
    """
    from kafka_steward.execution.loop import run_to_end

    patient = RetryingRunner(stepper, interrupt.wait)
    try:
        with followed() as report:
            return run_to_end(patient, interrupt.wait, interval_s=settings.step_interval, report=report)
    except (KeyboardInterrupt, ClusterError, JournalError):
        print_error(*_how_to_resume(call, digest))
        raise


def _how_to_resume(call: CommandContext, digest: str) -> tuple[str, ...]:
    name = digest[:12]
    return (
        f"Plan {name} has not ended. What is in flight goes on in Kafka; go on with the rest, or stop it all:",
        f"  {call.command(f'resume {name}')}",
        f"  {call.command(f'cancel {name}')}",
    )


def end_message(
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
        call.out.facts({**progress.to_json(), **(facts or {})}, shown)
    return exit_code(call, progress, done=done)


def exit_code(call: CommandContext, progress: Progress, *, done: bool) -> Exit:
    """Return the exit code; if the request was not completed, print the message to standard error.

    If the plan needs operator action, print how to continue, too.
    """
    if done:
        return Exit.DONE
    print_error(progress.sentence)
    if progress.waits_for_person:
        print_error(*_how_to_resume(call, progress.digest))
        return Exit.UNFINISHED
    return Exit.FAILED
