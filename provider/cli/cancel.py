"""The verb cancel: cancel or roll back one plan, or cancel everything; `resume` uses it for open cancels (KIP-236)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from kafka_steward.assignment import TopicPartition, name_brokers
from kafka_steward.cli import Exit
from kafka_steward.cli.foreground import Foreground, exit_code, open_foreground, print_result
from kafka_steward.cli.verb import CommandContext, print_error
from kafka_steward.execution.moves.external import ExternalCancel
from kafka_steward.execution.moves.progress import Progress
from kafka_steward.execution.moves.reversing import find_externally_reordered, restore_externally_reordered
from kafka_steward.execution.moves.skips import SkippedPartition
from kafka_steward.execution.plans.cancel import cancel_everything
from kafka_steward.execution.plans.lifecycle import Scope, request_cancel
from kafka_steward.execution.plans.resolution import resolve_plan
from kafka_steward.execution.plans.undo_verification import UndoVerification, poll_until_undone, verify_undone
from kafka_steward.execution.throttles.leases import list_leased_rates
from kafka_steward.execution.throttles.rates import RELEASED_LATER
from kafka_steward.journal.kip_documents import CancelRequest
from kafka_steward.journal.records import MoveState, PlanRecord

#: With --all, the maximum number of polls until Kafka shows the end of each cancel, and the seconds between two polls.
_POLLS, _POLL_S = 30, 1.0
_ENDED = "the plan has ended."
_STAYS = "Ctrl-C stops; cancels that were requested before continue."


def cancel(call: CommandContext) -> Exit:
    """Cancel or roll back a plan, or cancel everything."""
    given = call.arguments
    if given.all and given.plan is not None:
        print_error("Name a plan, or give --all; not both.")
        return Exit.USAGE
    request = CancelRequest(
        person=call.who.person, scope=given.scope, reason=call.reason, even_if_disabled=given.even_if_disabled
    )
    with open_foreground(call) as foreground:
        if given.all:
            return _cancel_everything(foreground, request)
        record = resolve_plan(foreground.opened.journal, given.plan, "cancel", scope=given.scope)
        return execute_cancel(foreground, record, request)


def execute_cancel(foreground: Foreground, record: PlanRecord, request: CancelRequest) -> Exit:
    """Execute the cancel `request` to the end, verify it against Kafka, and print the result."""
    call, undone = foreground.call, _run_cancel(foreground, record, request)
    undone.print_errors()
    code = print_result(call, undone.progress, done=undone.done, lines=undone.lines, facts=undone.facts)
    hint = ""
    if undone.rolled_back and undone.found is not None and undone.found.may_return:
        hint = "What was left alone can be reverted later, once its reason is gone, by the same command:"
    elif not undone.rolled_back and undone.progress.completed and code is Exit.DONE:
        hint = "Completed moves stay. To roll them back too:"
    if hint:
        print_error(hint, f"  {call.command_line(f'cancel {record.digest[:12]} --scope plan')}")
    return code


@dataclass(frozen=True)
class _CancelResult:
    """The result of a cancel or rollback; `found` is the verification against Kafka, None if it has not ended.

    `rolled_back` is True if completed moves were rolled back: another request may have asked for that.
    """

    progress: Progress
    found: UndoVerification | None
    skipped: Sequence[SkippedPartition]
    leased_brokers: Sequence[int] = ()
    rolled_back: bool = False

    @property
    def done(self) -> bool:
        """Return whether the verification succeeded and no partition was skipped, left alone or failed."""
        found = self.found
        return found is not None and found.ok and not (found.skipped or self.skipped)

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
            ("has changed since it went back", self.found.changed_since if self.found else ()),
            ("is not as it was", self.found.wrong if self.found else ()),
        ):
            print_error(*(f"{each.topic}-{each.partition} {kind}: {each.why}" for each in several))
        if self.found is not None and self.found.throttles:
            print_error(f"Throttles still set: {', '.join(self.found.throttles)}.")
        if self.leased_brokers:
            print_error(f"The throttle of {name_brokers(self.leased_brokers)} is {RELEASED_LATER}.")


def _run_cancel(foreground: Foreground, record: PlanRecord, request: CancelRequest) -> _CancelResult:
    call, cluster, journal = foreground.call, foreground.opened.cluster, foreground.opened.journal
    scope: Scope = "plan" if request.scope == "plan" else "pending"
    ask = partial(
        request_cancel, journal, record.digest, who=call.who, reason=request.reason or "a user requested it",
        scope=scope, even_if_disabled=request.even_if_disabled, number=call.request_number,
        throttle=call.arguments.throttle,
    )  # fmt: skip
    foreground.retry(ask, stays="Ctrl-C stops, and the plan stays unchanged.")
    progress = foreground.run_plan(record.digest)
    ended = journal.plans.get(record.digest)
    rolled_back = ended is not None and (ended.status.value == "rolled_back" or ended.not_rolled_back is not None)
    if ended is not None and rolled_back:
        progress = replace(progress, sentence=f"Plan {ended.digest[:12]} was {ended.reason}.")
    if not progress.ended:
        return _CancelResult(progress, None, ())
    left_alone = set() if rolled_back else _left_to_others(foreground, record.digest)
    look = partial(verify_undone, cluster, journal, record.digest)
    found = poll_until_undone(lambda: foreground.retry(look, stays=_ENDED), foreground.interrupt.wait, say=print_error)
    leased = list_leased_rates(journal, [record.digest, *filter(None, [found.rollback])])
    return _CancelResult(
        progress,
        found,
        sorted(left_alone | {*found.left_alone}),
        sorted({broker for broker, _ in leased}),
        rolled_back=rolled_back,
    )


def _left_to_others(foreground: Foreground, digest: str) -> set[SkippedPartition]:
    """Return the partitions that other reassignments took over, and those whose order an external cancel lost.

    The order is restored before, if that was requested.
    """
    call, cluster, journal = foreground.call, foreground.opened.cluster, foreground.opened.journal
    refused: dict[TopicPartition, str] = {}
    if getattr(call.arguments, "restore_order", False):
        refused = foreground.retry(
            lambda: restore_externally_reordered(cluster, journal, digest, call.who), stays=_ENDED
        )
    rows = foreground.retry(lambda: find_externally_reordered(cluster, journal, digest), stays=_ENDED)
    rows = [*rows, *(row for row in journal.plans.rows(digest) if row.state is MoveState.FAILED)]
    return {
        SkippedPartition(row.move.topic, row.move.partition, refused.get(row.topic_partition, row.detail))
        for row in rows
    }


def _cancel_everything(foreground: Foreground, request: CancelRequest) -> Exit:
    call = foreground.call
    plans, external = _request_all_cancels(foreground, request)
    stay = [each for each in external if each.state.may_be_in_flight]
    print_error(*(each.sentence for each in stay))
    if call.out.form == "table":
        lines = [each.sentence for each in external if each not in stay]
        if not (plans or external):
            lines = ["No plan is in progress, so nothing was cancelled."]
        if lines:
            call.out.print_facts({}, lines)
    codes, facts = [Exit.FAILED if stay else Exit.DONE], []
    for record in filter(None, map(foreground.opened.journal.plans.get, plans)):
        undone = _run_cancel(foreground, record, request)
        undone.print_errors()
        if call.out.form == "table":
            codes.append(print_result(call, undone.progress, done=undone.done, lines=undone.lines))
        else:
            facts.append({**undone.progress.to_json(), **undone.facts})
            codes.append(exit_code(call, undone.progress, done=undone.done))
    if call.out.form != "table":
        call.out.print_facts({"plans": facts, "external": [each.to_json() for each in external]}, ())
    return max(codes)


def _request_all_cancels(foreground: Foreground, request: CancelRequest) -> tuple[list[str], list[ExternalCancel]]:
    """Request the cancel of each plan and cancel external reassignments; repeat until Kafka shows their end."""
    call, opened = foreground.call, foreground.opened
    ask = partial(
        cancel_everything, opened.cluster, opened.journal, request, call.who, number=call.request_number,
        throttle=call.arguments.throttle,
    )  # fmt: skip
    plans: dict[str, None] = {}
    external: dict[TopicPartition, ExternalCancel] = {}
    for _ in range(_POLLS):
        outcome = foreground.retry(ask, stays=_STAYS)
        plans |= dict.fromkeys(outcome.plans)
        external |= {each.reassignment.partition: each for each in outcome.external}
        if not outcome.is_pending:
            break
        foreground.interrupt.wait(_POLL_S)
    return list(plans), list(external.values())
