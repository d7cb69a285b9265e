"""The verb cancel: cancel or roll back one plan, or cancel everything; `resume` uses it for open cancels (KIP-236)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.cli.cli_config import ActionCommand, Arg

from kafka_steward.cli.foreground import (
    Interrupt,
    end_message,
    exit_code,
    interruptible,
    run_in_foreground,
    with_retries,
)
from kafka_steward.cli.verb import PLAN_UNDER_WAY, REASON, THROTTLE, CommandContext, Exit, print_error, verb

if TYPE_CHECKING:
    from kafka_steward.assignment import TopicPartition
    from kafka_steward.execution.external import ExternalCancel
    from kafka_steward.execution.lifecycle import Scope
    from kafka_steward.execution.progress import Progress
    from kafka_steward.execution.rollback import SkippedPartition
    from kafka_steward.execution.verification import Verified
    from kafka_steward.hooks.steward import ClusterSession
    from kafka_steward.journal.audit import Actor
    from kafka_steward.journal.kip_documents import CancelRequest
    from kafka_steward.journal.records import PlanRecord


_CANCEL = """\
What is in flight goes back to its original replicas, in their order, and its throttles are given back; what has
arrived stays. With --scope plan what has arrived goes back too, within the throttle, as a plan of its own; that
may be request of a plan that has ended. What someone else has changed since is left alone and listed. Works whoever
began the plan, a DAG or a terminal, and whether or not that process still lives. Interrupted, it is resumed or
simply repeated.

With --all, everything that is pending is cancelled: every plan that has not ended, and what others have in flight,
as by kafka-reassign-partitions or Cruise Control. Those go back to their replicas less the ones being added.

At the end it is looked up in Kafka whether everything is as it was. Each partition that went back is named, from
what to what; each that did not, with the reason, and then the exit code is 1."""
#: With --all, the maximum number of polls until Kafka shows the end of each cancel, and the seconds between two polls.
_LOOKS, _SOON_S = 30, 1.0
_ENDED = "the plan has ended."
_STAYS = "Ctrl-C stops; the cancels that were asked for by then go on."


def verbs() -> tuple[ActionCommand, ...]:
    """Return the verbs of this module."""
    scope = Arg(
        ("--scope",),
        help="pending: stop, and take back what is in flight. plan: take back all of it (default: pending)",
        choices=("pending", "plan"),
        default="pending",
    )
    everything = Arg(
        ("--all",), help="Cancel all that is pending, also what others have in flight", action="store_true"
    )
    anyway = Arg(
        ("--even-if-disabled",), help="Take a plan back although reassignments are disabled", action="store_true"
    )
    order = Arg(
        ("--restore-order",), help="Restore the order of replicas that someone else's cancel lost", action="store_true"
    )
    on = "--cluster kafka_production"
    examples = [
        f"cancel {on} --reason 'traffic peak'",
        f"cancel 3f2a91c0 --scope plan {on} --reason 'wrong racks'",
        f"cancel --all {on} --reason 'a broker is on fire'",
    ]
    args = (PLAN_UNDER_WAY, everything, scope, REASON, anyway, order, THROTTLE)
    return (verb("cancel", "Stop a plan, or take all of it back", _cancel, args, examples=examples, details=_CANCEL),)


def reason_of(call: CommandContext) -> str:
    """Return the given reason, or a text that says that none was given."""
    reason: str = call.arguments.reason.strip()
    return reason or "no reason was given"


def _cancel(call: CommandContext) -> Exit:
    from kafka_steward.execution.resolve import resolve_plan
    from kafka_steward.journal.kip_documents import CancelRequest

    given, reason = call.arguments, reason_of(call)
    if given.all and given.plan is not None:
        print_error("Name a plan, or say --all; not both.")
        return Exit.USAGE
    request = CancelRequest(
        person=call.who.person, scope=given.scope, reason=reason, even_if_disabled=given.even_if_disabled
    )
    with call.hook.open() as opened, interruptible() as interrupt:
        if given.all:
            return _cancel_everything(call, opened, request, interrupt)
        record = resolve_plan(opened.journal, given.plan, "cancel", scope=given.scope)
        return cancel_interrupted(call, opened, record, request, interrupt)


def cancel_interrupted(
    call: CommandContext, opened: ClusterSession, record: PlanRecord, request: CancelRequest, interrupt: Interrupt
) -> Exit:
    """Execute the cancel `request` to the end, verify it against Kafka, and print the result."""
    undone = _run_cancel(call, opened, record, request, interrupt)
    undone.print_errors()
    code = end_message(call, undone.progress, done=undone.done, lines=undone.lines, facts=undone.facts)
    if request.scope != "plan" and undone.progress.completed and code is Exit.DONE:
        print_error(
            "What had arrived stays where it is. To take that back too:",
            f"  {call.command(f'cancel {record.digest[:12]} --scope plan')}",
        )
    return code


@dataclass(frozen=True)
class _CancelResult:
    """The result of a cancel or rollback; `found` is the verification against Kafka, None if it has not ended."""

    progress: Progress
    found: Verified | None
    skipped: Sequence[SkippedPartition]
    leased_brokers: Sequence[int] = ()

    @property
    def done(self) -> bool:
        """Return whether the verification succeeded and no partition was skipped, left alone or failed."""
        found = self.found
        return found is not None and found.ok and not (found.skipped or self.skipped or self.progress.failed)

    @property
    def lines(self) -> list[str]:
        """A line of text for each partition that went back."""
        return [each.sentence for each in self.found.returned] if self.found else []

    @property
    def facts(self) -> Mapping[str, Any]:
        """The full verification result, as JSON values."""
        return {"found": self.found.to_json() if self.found else None}

    def print_errors(self) -> None:
        """Print the partitions that did not go back, with the reasons, and the throttles that are left."""
        for kind, several in (
            ("was left alone", self.skipped),
            ("was not cancelled", self.found.skipped if self.found else ()),
            ("is not as it was", self.found.wrong if self.found else ()),
        ):
            print_error(*(f"{each.topic}-{each.partition} {kind}: {each.why}" for each in several))
        if self.found is not None and self.found.throttles:
            print_error(f"Still there: {', '.join(self.found.throttles)}.")
        if self.leased_brokers:
            print_error(
                f"The throttle of broker {', '.join(map(str, self.leased_brokers))} is given back when it returns."
            )


def _run_cancel(
    call: CommandContext, opened: ClusterSession, record: PlanRecord, request: CancelRequest, interrupt: Interrupt
) -> _CancelResult:
    from kafka_steward.execution.context import ClusterContext
    from kafka_steward.execution.lifecycle import request_cancel
    from kafka_steward.execution.runner import PlanRunner
    from kafka_steward.execution.throttles import leased_rates
    from kafka_steward.execution.verification import until_undone, verify_undone

    scope: Scope = "plan" if request.scope == "plan" else "pending"
    ask = partial(
        request_cancel, opened.journal, record.digest, who=call.who, reason=request.reason or "someone asked for it",
        scope=scope, even_if_disabled=request.even_if_disabled,
    )  # fmt: skip
    with_retries(ask, interrupt.wait, stays="Ctrl-C stops, and the plan stays as it is.")
    runner = PlanRunner(ClusterContext(opened.cluster, opened.journal, opened.settings, call.who), record.digest)
    progress = run_in_foreground(call, runner, record.digest, opened.settings, interrupt)
    ended = opened.journal.plans.get(record.digest)
    if ended is not None and (ended.status.value == "rolled_back" or ended.not_taken_back is not None):
        progress = replace(progress, sentence=f"Plan {ended.digest[:12]} was {ended.reason}.")
    if not progress.ended:
        return _CancelResult(progress, None, ())
    left_alone: set[SkippedPartition] = set()
    if scope == "pending":
        restoring = getattr(call.arguments, "restore_order", False)
        left_alone = _disordered(opened, record.digest, call.who, interrupt, restoring=restoring)
    look = partial(verify_undone, opened.cluster, opened.journal, record.digest)
    found = until_undone(lambda: with_retries(look, interrupt.wait, stays=_ENDED), interrupt.wait)
    leased = leased_rates(opened.journal, [record.digest, *filter(None, [found.rollback])])
    return _CancelResult(
        progress, found, sorted(left_alone | {*found.left_alone}), sorted({broker for broker, _ in leased})
    )


def _disordered(
    opened: ClusterSession, digest: str, who: Actor, interrupt: Interrupt, *, restoring: bool
) -> set[SkippedPartition]:
    """Return the partitions whose replica order an external cancel lost; with `restoring`, restore it before."""
    from kafka_steward.execution.restoration import reordered_by_others, restore_orders
    from kafka_steward.execution.rollback import SkippedPartition

    cluster, journal = opened.cluster, opened.journal
    if restoring:
        with_retries(lambda: restore_orders(cluster, journal, digest, who), interrupt.wait, stays=_ENDED)
    rows = with_retries(lambda: reordered_by_others(cluster, journal, digest), interrupt.wait, stays=_ENDED)
    return {SkippedPartition(row.move.topic, row.move.partition, row.detail) for row in rows}


def _cancel_everything(
    call: CommandContext, opened: ClusterSession, request: CancelRequest, interrupt: Interrupt
) -> Exit:
    plans, external = _ask_everything(call, opened, request, interrupt)
    stay = [each for each in external if each.state.stays]
    print_error(*(each.sentence for each in stay))
    if call.out.form == "table":
        went = [each.sentence for each in external if each not in stay]
        call.out.facts({}, went if plans or external else ["Nothing is under way, so nothing was cancelled."])
    codes, facts = [Exit.FAILED if stay else Exit.DONE], []
    for record in filter(None, map(opened.journal.plans.get, plans)):
        undone = _run_cancel(call, opened, record, request, interrupt)
        undone.print_errors()
        if call.out.form == "table":
            codes.append(end_message(call, undone.progress, done=undone.done, lines=undone.lines))
        else:
            facts.append({**undone.progress.to_json(), **undone.facts})
            codes.append(exit_code(call, undone.progress, done=undone.done))
    if call.out.form != "table":
        call.out.facts({"plans": facts, "external": [each.to_json() for each in external]}, ())
    return max(codes)


def _ask_everything(
    call: CommandContext, opened: ClusterSession, request: CancelRequest, interrupt: Interrupt
) -> tuple[list[str], list[ExternalCancel]]:
    """Request the cancel of each plan and cancel external reassignments; repeat until Kafka shows their end."""
    from kafka_steward.execution.cancel_signal import cancel_everything

    ask = partial(cancel_everything, opened.cluster, opened.journal, request, call.who)
    plans: dict[str, None] = {}
    external: dict[TopicPartition, ExternalCancel] = {}
    for _ in range(_LOOKS):
        outcome = with_retries(ask, interrupt.wait, stays=_STAYS)
        plans |= dict.fromkeys(outcome.plans)
        external |= {each.reassignment.partition: each for each in outcome.external}
        if not outcome.pending:
            break
        interrupt.wait(_SOON_S)
    return list(plans), list(external.values())
