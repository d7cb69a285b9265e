"""Stopping a plan, and taking all of it back: cancel, and what `resume` goes on with of it (KIP-236)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airflow.cli.cli_config import ActionCommand, Arg

from kafka_steward.cli.arguments import PLAN_UNDER_WAY, REASON, THROTTLE
from kafka_steward.cli.exits import Exit
from kafka_steward.cli.foreground import carry_out, ending
from kafka_steward.cli.interrupt import Interrupt, interruptible
from kafka_steward.cli.naming import plan_meant
from kafka_steward.cli.output import complain
from kafka_steward.cli.verb import Call, verb

if TYPE_CHECKING:
    from kafka_steward.execution.undoing.undo import Scope
    from kafka_steward.hooks.steward import Opened
    from kafka_steward.journal.records import PlanRecord
    from kafka_steward.journal.requests import CancelRequest

__all__ = ["reason_of", "take_back", "verbs"]

_CANCEL = """\
What is in flight goes back to its original replicas, in their order, and its throttles are given back; what has
arrived stays. With --scope plan what has arrived goes back too, within the throttle, as a plan of its own; that
may be asked of a plan that has ended. What someone else has changed since is left alone and listed. Works whoever
began the plan, a DAG or a terminal, and whether or not that process still lives. Interrupted, it is resumed or
simply repeated."""


def verbs() -> tuple[ActionCommand, ...]:
    """The verbs of this module."""
    scope = Arg(
        ("--scope",),
        help="pending: stop, and take back what is in flight. plan: take back all of it (default: pending)",
        choices=("pending", "plan"),
        default="pending",
    )
    anyway = Arg(
        ("--even-if-disabled",), help="Take a plan back although reassignments are disabled", action="store_true"
    )
    order = Arg(
        ("--restore-order",), help="Restore the order of replicas that someone else's cancel lost", action="store_true"
    )
    on = "--cluster kafka_production"
    examples = [f"cancel {on} --reason 'traffic peak'", f"cancel 3f2a91c0 --scope plan {on} --reason 'wrong racks'"]
    args = (PLAN_UNDER_WAY, scope, REASON, anyway, order, THROTTLE)
    return (verb("cancel", "Stop a plan, or take all of it back", _cancel, args, examples=examples, details=_CANCEL),)


def reason_of(call: Call) -> str:
    """The reason that was given, or words that say that none was."""
    reason: str = call.arguments.reason.strip()
    return reason or "no reason was given"


def _cancel(call: Call) -> Exit:
    from kafka_steward.journal.requests import CancelRequest

    given, reason = call.arguments, reason_of(call)
    asked = CancelRequest(scope=given.scope, reason=reason, even_if_disabled=given.even_if_disabled)
    with call.hook.open() as opened, interruptible() as interrupt:
        record = plan_meant(call, opened.journal, "cancel")
        if given.plan is None and given.scope == "plan":
            record = _first(opened, record)
        return take_back(call, opened, record, asked, interrupt)


def _first(opened: Opened, record: PlanRecord) -> PlanRecord:
    """Who repeats the command after an interruption wants the first plan taken back, not its rollback."""
    from kafka_steward.journal.records import ROLLS_BACK

    return opened.journal.plans.get(str(record.extra.get(ROLLS_BACK) or "none")) or record


def take_back(call: Call, opened: Opened, record: PlanRecord, asked: CancelRequest, interrupt: Interrupt) -> Exit:
    """Do what `asked` says, to the end, and print how it ended."""
    from kafka_steward.execution.undoing.undo import Undo

    scope: Scope = "plan" if asked.scope == "plan" else "pending"
    undo = Undo(
        opened.cluster, opened.journal, record.digest, opened.settings, call.who,
        scope=scope, reason=asked.reason or "someone asked for it", even_if_disabled=asked.even_if_disabled,
        restore_order=getattr(call.arguments, "restore_order", False),
    )  # fmt: skip
    progress = carry_out(call, undo, record.digest, opened.settings, interrupt)
    left_alone, ended = undo.left_alone, opened.journal.plans.get(record.digest)
    if ended is not None and (ended.status.value == "rolled_back" or ended.not_taken_back is not None):
        progress = replace(progress, sentence=f"Plan {ended.digest[:12]} was {ended.reason}.")
    for one in left_alone:
        complain(f"{one.topic}-{one.partition} was left alone: {one.why}")
    if progress.ended and (owing := undo.owing):
        complain(f"The throttle of broker {', '.join(map(str, owing))} is given back when it returns.")
    code = ending(call, progress, done=progress.ended and not left_alone and not progress.failed)
    if scope == "pending" and progress.completed and code is Exit.DONE:
        complain(
            "What had arrived stays where it is. To take that back too:",
            f"  {call.command(f'cancel {record.digest[:12]} --scope plan')}",
        )
    return code
