"""Step a plan in the foreground to its end, with any `Stepper`: shared by `apply`, `resume` and `cancel`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from kafka_steward.cli.exits import Exit
from kafka_steward.cli.following import followed
from kafka_steward.cli.output import complain
from kafka_steward.errors import ClusterError, JournalError, StewardError

if TYPE_CHECKING:
    from kafka_steward.cli.interrupt import Interrupt
    from kafka_steward.cli.verb import Call
    from kafka_steward.execution.decisions.progress import Progress
    from kafka_steward.execution.loop import Stepper
    from kafka_steward.settings import Settings

__all__ = ["Patient", "carry_out", "ending", "judged", "patiently"]

T = TypeVar("T")

#: While the journal or Kafka does not answer: seconds between attempts, and the maximum number of attempts.
_RETRY_S = 5.0
_ATTEMPTS = 24


@dataclass(frozen=True)
class Patient:
    """Steps a plan and retries transient errors: a database restart must not end a plan that runs in the foreground."""

    stepper: Stepper
    wait: Callable[[float], None]
    say: Callable[[str], None] = complain

    def step(self) -> Progress:
        """Take one step. Raises permanent errors at once, and transient errors after about two minutes."""
        stays = "Ctrl-C stops, and the plan stays as it is."
        return _going_on(patiently(self.stepper.step, self.wait, stays=stays, say=self.say))


def patiently(
    act: Callable[[], T], wait: Callable[[float], None], *, stays: str, say: Callable[[str], None] = complain
) -> T:
    """Call `act`, and retry while the journal or Kafka does not answer; `stays` tells the user the options meanwhile.

    Raises permanent errors at once, and transient errors after about two minutes.
    """
    from kafka_steward.triggers.questions import passes

    for attempt in range(1, _ATTEMPTS):
        try:
            return act()
        except StewardError as error:
            if not passes(error):
                raise
            if attempt == 1:
                say(f"{error} Trying again; {stays}")
        wait(_RETRY_S)
    return act()


def _going_on(progress: Progress) -> Progress:
    """Report a paused plan as running and busy: a heal preempts the slot and releases it, so the loop waits for it."""
    from kafka_steward.journal.records import PlanStatus

    paused = progress.status is PlanStatus.PAUSED
    return replace(progress, status=PlanStatus.RUNNING, busy=True) if paused else progress


def carry_out(call: Call, stepper: Stepper, digest: str, settings: Settings, interrupt: Interrupt) -> Progress:
    """Step until the plan has ended or needs operator action.

    On a signal, or an error of the cluster or the journal, print how to continue, and re-raise.
    """
    from kafka_steward.execution.loop import run_to_end

    patient = Patient(stepper, interrupt.wait)
    try:
        with followed() as report:
            return run_to_end(patient, interrupt.wait, interval_s=settings.step_interval, report=report)
    except (KeyboardInterrupt, ClusterError, JournalError):
        complain(*_how_to_go_on(call, digest))
        raise


def _how_to_go_on(call: Call, digest: str) -> tuple[str, ...]:
    name = digest[:12]
    return (
        f"Plan {name} has not ended. What is in flight goes on in Kafka; go on with the rest, or stop it all:",
        f"  {call.command(f'resume {name}')}",
        f"  {call.command(f'cancel {name}')}",
    )


def ending(
    call: Call,
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
    return judged(call, progress, done=done)


def judged(call: Call, progress: Progress, *, done: bool) -> Exit:
    """Return the exit code; if the request was not completed, print the message to standard error.

    If the plan needs operator action, print how to continue, too.
    """
    if done:
        return Exit.DONE
    complain(progress.sentence)
    if progress.waits_for_person:
        complain(*_how_to_go_on(call, progress.digest))
        return Exit.UNFINISHED
    return Exit.FAILED
