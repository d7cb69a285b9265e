"""A plan is stepped in the foreground, to its end, by whatever steps it: what `apply`, `resume` and `cancel` share."""

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

#: While the journal or Kafka does not answer: seconds between attempts, and how many there are.
_RETRY_S = 5.0
_ATTEMPTS = 24


@dataclass(frozen=True)
class Patient:
    """Steps, and waits out what passes: a database that is restarted must not end what a person watches."""

    stepper: Stepper
    wait: Callable[[float], None]
    say: Callable[[str], None] = complain

    def step(self) -> Progress:
        """One step. Raises what does not pass at once, and what passes after some two minutes."""
        stays = "Ctrl-C stops, and the plan stays as it is."
        return _going_on(patiently(self.stepper.step, self.wait, stays=stays, say=self.say))


def patiently(
    act: Callable[[], T], wait: Callable[[float], None], *, stays: str, say: Callable[[str], None] = complain
) -> T:
    """Do `act`, again while the journal or Kafka does not answer; `stays` says what a person may do meanwhile.

    Raises what does not pass at once, and what passes after some two minutes.
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
    """A heal goes first and gives the cluster back: who waits in the foreground can wait for that too."""
    from kafka_steward.journal.records import PlanStatus

    paused = progress.status is PlanStatus.PAUSED
    return replace(progress, status=PlanStatus.RUNNING, busy=True) if paused else progress


def carry_out(call: Call, stepper: Stepper, digest: str, settings: Settings, interrupt: Interrupt) -> Progress:
    """Step until the plan has ended or waits for a person.

    When it is stopped, by a signal or because something does not answer, it says how to go on and raises what stopped
    it.
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
    """Print how it ended; `done` says whether that is what was asked for. If not, standard error has the sentence.

    `lines` go before the sentence, and `facts` beside those of the progress.
    """
    if done or lines or call.out.form != "table":
        shown = [*lines, progress.sentence] if done else lines
        call.out.facts({**progress.to_json(), **(facts or {})}, shown)
    return judged(call, progress, done=done)


def judged(call: Call, progress: Progress, *, done: bool) -> Exit:
    """Return the exit code; what is not done is said on standard error, with how to go on."""
    if done:
        return Exit.DONE
    complain(progress.sentence)
    if progress.waits_for_person:
        complain(*_how_to_go_on(call, progress.digest))
        return Exit.UNFINISHED
    return Exit.FAILED
