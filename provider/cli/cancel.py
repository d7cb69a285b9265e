"""The verb cancel: cancel or roll back one plan, or cancel everything; `resume` uses it for open cancels (KIP-236)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from kafka_steward.assignment import TopicPartition, counted, name_brokers
from kafka_steward.cli import Exit
from kafka_steward.cli.foreground import Foreground, exit_code, open_foreground, print_result
from kafka_steward.cli.verb import CommandContext, print_error
from kafka_steward.execution.announcements import disabled_reason
from kafka_steward.execution.moves.external import ExternalCancel
from kafka_steward.execution.moves.progress import Progress, progress_of
from kafka_steward.execution.moves.reversal_execution import find_externally_reordered, restore_externally_reordered
from kafka_steward.execution.moves.skips import SkippedPartition
from kafka_steward.execution.moves.states import DONE, filter_unsettled
from kafka_steward.execution.plans.cancel import cancel_everything, pending_plans
from kafka_steward.execution.plans.lifecycle import Scope, request_cancel
from kafka_steward.execution.plans.resolution import resolve_plan
from kafka_steward.execution.plans.rollback import (
    disabled_rollback_reason,
    find_unfinished_rollback,
    is_rollback_unfinished,
    nothing_to_revert_reason,
    preview_rollback,
)
from kafka_steward.execution.plans.undo_verification import UndoVerification, poll_until_undone, verify_undone
from kafka_steward.execution.throttles.leases import list_leased_rates
from kafka_steward.execution.throttles.rates import RELEASED_LATER
from kafka_steward.journal.kip_documents import CancelRequest
from kafka_steward.journal.records import MoveState, PlanRecord
from kafka_steward.journal.store import Journal

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
        if _refuse_while_disabled(foreground, record, request):
            return Exit.FAILED
        return execute_cancel(foreground, record, request)


def _refuse_while_disabled(foreground: Foreground, record: PlanRecord, request: CancelRequest) -> bool:
    """Print why a plan that has ended is not rolled back while reassignments are disabled; return whether that is so.

    A rollback that has been requested before is not refused: it may have moves in flight.
    """
    call, opened = foreground.call, foreground.opened
    disabled = disabled_reason(opened.journal.mailbox)
    ended = record.status.finished and not filter_unsettled(opened.journal.plans.rows(record.digest))
    if request.scope == "pending" or request.even_if_disabled or not (disabled and ended):
        return False
    context, stays = opened.context(call.who), "Ctrl-C stops, and nothing is changed."
    if is_rollback_unfinished(opened.journal, record) or not foreground.retry(
        lambda: preview_rollback(context, record.digest).moves, stays=stays
    ):
        return False
    refused = f"Reassignments are disabled {disabled}, so plan {record.digest[:12]} is not rolled back"
    print_error(
        f"{refused}, and nothing was changed; enable them first, or roll it back all the same:",
        f"  {call.command_line('enable')}",
        f"  {call.command_line(f'cancel {record.digest[:12]} --scope plan --even-if-disabled')}",
    )
    return True


def execute_cancel(foreground: Foreground, record: PlanRecord, request: CancelRequest) -> Exit:
    """Execute the cancel `request` to the end, verify it against Kafka, and print the result.

    A rollback that waits because reassignments are disabled is not waited for.
    """
    returned = _find_returned(foreground.opened.journal, record.digest)
    call, undone = foreground.call, _run_cancel(foreground, record, request, returned)
    undone.print_errors()
    if undone.waits:
        if call.out.form != "table":
            call.out.print_facts({**undone.progress.to_json(), **undone.facts}, ())
        print_error(*undone.waits)
        return Exit.UNFINISHED
    code = print_result(call, undone.progress, done=undone.done, lines=undone.lines, facts=undone.facts)
    hint = ""
    if undone.rolled_back and undone.verified is not None and undone.verified.may_return:
        hint = "What was left alone can be reverted later, once its reason is gone, by the same command:"
    elif not undone.rolled_back and undone.progress.completed and code is Exit.DONE:
        hint = "Completed moves stay. To roll them back too:"
    if hint:
        print_error(hint, f"  {call.command_line(f'cancel {record.digest[:12]} --scope plan')}")
    return code


@dataclass(frozen=True)
class _CancelResult:
    """The result of a cancel or rollback; `verified` is the verification against Kafka, None if it has not ended.

    `rolled_back` is True if completed moves were rolled back: another request may have asked for that. `before` are the
    partitions that had gone back before this command. `waits` says that the rollback waits, and how it continues.
    """

    progress: Progress
    verified: UndoVerification | None
    skipped: Sequence[SkippedPartition]
    leased_brokers: Sequence[int] = ()
    rolled_back: bool = False
    before: Collection[TopicPartition] = ()
    waits: tuple[str, ...] = ()

    @property
    def done(self) -> bool:
        """Return whether the verification succeeded and no partition was skipped, left alone or failed."""
        verified = self.verified
        return verified is not None and verified.ok and not (verified.skipped or self.skipped)

    @property
    def lines(self) -> list[str]:
        """A line of text for each partition that this command returned."""
        returned = self.verified.returned if self.verified else ()
        return [
            partition.sentence
            for partition in returned
            if TopicPartition(partition.topic, partition.partition) not in self.before
        ]

    @property
    def facts(self) -> Mapping[str, Any]:
        """The full verification result, as JSON values."""
        return {"found": self.verified.to_json() if self.verified else None}

    def print_errors(self) -> None:
        """Print the partitions that did not go back, with the reasons, and the throttles that are left."""
        for kind, partitions in (
            ("was left alone", self.skipped),
            ("was not cancelled", self.verified.skipped if self.verified else ()),
            ("has changed since it went back", self.verified.changed_since if self.verified else ()),
            ("is not as it was", self.verified.wrong if self.verified else ()),
        ):
            print_error(
                *(f"{partition.topic}-{partition.partition} {kind}: {partition.why}" for partition in partitions)
            )
        if self.verified is not None and self.verified.throttles:
            print_error(f"Throttles still set: {', '.join(self.verified.throttles)}.")
        if self.leased_brokers:
            print_error(f"The throttle of {name_brokers(self.leased_brokers)} is {RELEASED_LATER}.")


def _run_cancel(
    foreground: Foreground, record: PlanRecord, request: CancelRequest, before: Collection[TopicPartition]
) -> _CancelResult:
    call, cluster, journal = foreground.call, foreground.opened.cluster, foreground.opened.journal
    scope: Scope = "plan" if request.scope == "plan" else "pending"
    ask = partial(
        request_cancel, journal, record.digest, who=call.who, reason=request.reason or "a user requested it",
        scope=scope, even_if_disabled=request.even_if_disabled, number=call.request_number,
        throttle=call.arguments.throttle,
    )  # fmt: skip
    stays, nothing = "Ctrl-C stops, and the plan stays unchanged.", ""
    if scope == "plan" and record.status.finished and not is_rollback_unfinished(journal, record):
        context = foreground.opened.context(call.who)
        nothing = foreground.retry(lambda: nothing_to_revert_reason(context, record), stays=stays)
    if nothing:
        sentence = f"Plan {record.digest[:12]} was {nothing}."
        progress, rolled_back = progress_of(record, journal.plans.rows(record.digest), sentence=sentence), True
    else:
        foreground.retry(ask, stays=stays)
        waits = partial(foreground.retry, lambda: disabled_rollback_reason(journal, record.digest), stays=stays)
        progress = foreground.run_plan(record.digest, lambda now, _: now.in_flight > 0 or not waits())
        ended = journal.plans.get(record.digest)
        rolled_back = ended is not None and ended.rolled_back
        if ended is not None and rolled_back:
            progress = replace(progress, sentence=f"Plan {ended.digest[:12]} was {ended.reason}.")
    if not progress.ended:
        lines = () if progress.run_is_over else _waiting_lines(foreground, record.digest, progress)
        return _CancelResult(progress, None, (), waits=lines)
    left_alone = set() if rolled_back else _left_to_others(foreground, record.digest)
    look = partial(verify_undone, cluster, journal, record.digest)
    verified = poll_until_undone(
        lambda: foreground.retry(look, stays=_ENDED), foreground.interrupt.wait, say=print_error
    )
    leased = list_leased_rates(journal, [record.digest, *filter(None, [verified.rollback])])
    # What an earlier cancel had returned or left may have moved since: a rollback published now returned it again.
    if verified.rollback not in {None, record.rolled_back_by}:
        before = {*before} - {row.topic_partition for row in journal.plans.rows(str(verified.rollback))}
    return _CancelResult(
        progress,
        verified,
        sorted(left_alone | {*verified.left_alone}),
        sorted({broker for broker, _ in leased}),
        rolled_back=rolled_back,
        before=before,
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


def _waiting_lines(foreground: Foreground, digest: str, progress: Progress) -> tuple[str, ...]:
    """Return that the rollback of an ended plan waits, and how it continues; nothing if it need not wait."""
    call, journal = foreground.call, foreground.opened.journal
    disabled = disabled_rollback_reason(journal, digest)
    record = journal.plans.get(digest)
    if not disabled or record is None:
        return ()
    known = find_unfinished_rollback(journal, record)
    which = "" if known is None else f", plan {known.digest[:12]},"
    name, waiting = digest[:12], counted(progress.waiting, "partition")
    waits = f"Its rollback{which} of {waiting} waits: reassignments are disabled {disabled}."
    return (
        f"Plan {name} has ended. {waits} Enable them and resume it, or roll back all the same:",
        f"  {call.command_line('enable')}",
        f"  {call.command_line(f'resume {name}')}",
        f"  {call.command_line(f'cancel {name} --scope plan --even-if-disabled')}",
    )


def _find_returned(journal: Journal, digest: str) -> set[TopicPartition]:
    """Return the partitions that a cancel or rollback of the plan has returned, or left alone, so far."""
    record = journal.plans.get(digest)
    rollback = None if record is None else record.rolled_back_by
    rows = [row for row in journal.plans.rows(digest) if row.state.settled and row.state not in DONE]
    rows += [row for row in journal.plans.rows(rollback) if row.state in DONE] if rollback else []
    return {row.topic_partition for row in rows}


def _cancel_everything(foreground: Foreground, request: CancelRequest) -> Exit:
    call, journal = foreground.call, foreground.opened.journal
    returned = {digest: _find_returned(journal, digest) for digest in pending_plans(journal)}
    plans, external = _request_all_cancels(foreground, request)
    stay = [cancel for cancel in external if cancel.state.may_be_in_flight]
    print_error(*(cancel.sentence for cancel in stay))
    if call.out.form == "table":
        lines = [cancel.sentence for cancel in external if cancel not in stay]
        if not (plans or external):
            lines = ["No plan is in progress, so nothing was cancelled."]
        if lines:
            call.out.print_facts({}, lines)
    codes, facts = [Exit.FAILED if stay else Exit.DONE], []
    for record in filter(None, map(journal.plans.get, plans)):
        undone = _run_cancel(foreground, record, request, returned.get(record.digest, set()))
        undone.print_errors()
        if undone.waits:
            print_error(*undone.waits)
            codes.append(Exit.UNFINISHED)
            facts.append({**undone.progress.to_json(), **undone.facts})
        elif call.out.form == "table":
            codes.append(print_result(call, undone.progress, done=undone.done, lines=undone.lines))
        else:
            facts.append({**undone.progress.to_json(), **undone.facts})
            codes.append(exit_code(call, undone.progress, done=undone.done))
    if call.out.form != "table":
        call.out.print_facts({"plans": facts, "external": [cancel.to_json() for cancel in external]}, ())
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
        external |= {
            cancel.reassignment.partition: cancel
            for cancel in outcome.external
            if cancel.state.is_news or cancel.reassignment.partition in external
        }
        if not outcome.is_pending:
            break
        foreground.interrupt.wait(_POLL_S)
    return list(plans), list(external.values())
