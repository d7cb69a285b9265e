"""Verbs that move replicas in the foreground: apply, resume. They use the Runner, journal and locks of the DAGs."""

from __future__ import annotations

import json
import shlex
import uuid
from collections.abc import Collection
from typing import Any

from kafka_steward.assignment import Operation, TopicPartition, counted
from kafka_steward.cli import Exit
from kafka_steward.cli.cancel import execute_cancel
from kafka_steward.cli.foreground import Foreground, open_foreground, print_result
from kafka_steward.cli.verb import CommandContext, print_error
from kafka_steward.errors import PlanError, SlotTaken
from kafka_steward.execution.announcements import disabled_reason
from kafka_steward.execution.demotions import read_demotions
from kafka_steward.execution.load.look import known_rates
from kafka_steward.execution.moves.directories import check_directories
from kafka_steward.execution.plans import lifecycle
from kafka_steward.execution.plans.publishing import publish_plan
from kafka_steward.execution.plans.resolution import resolve_plan
from kafka_steward.execution.plans.rollback import is_cancel_unfinished
from kafka_steward.execution.plans.slot import refuse_taken_slot
from kafka_steward.execution.plans.snapshot import started_moves, take_snapshot
from kafka_steward.execution.plans.summary import bytes_to_copy_text, not_moved_lines
from kafka_steward.execution.throttles.rates import ineffective_message
from kafka_steward.journal.records import MoveState, PlanRecord
from kafka_steward.planning.files.formats import PlanFolder, SnapshotFolder, read_snapshot
from kafka_steward.planning.files.reassignment import parse_directories, read_assignment, read_reassignment
from kafka_steward.planning.local import plan_apply_locally

#: Seconds between two checks with `--wait`.
_WAIT_S = 5.0
#: Moves of a plan that has failed whose reasons are printed; `show` has all.
_NAMED = 5
_STAYS = "Ctrl-C stops, and nothing is changed."
_INTERRUPTED = "Interrupted before a plan was published; nothing was changed."


def apply_file(call: CommandContext) -> Exit:
    """Plan and execute the reassignment of a file."""
    document = read_assignment(call.arguments.file, "reassignment")
    partitions = read_reassignment(document)[0].keys()  # the faults are told with what the cluster says of the others
    with open_foreground(call) as foreground:
        return _apply_document(foreground, document, partitions)


def _apply_document(foreground: Foreground, document: Any, partitions: Collection[TopicPartition]) -> Exit:
    call, opened = foreground.call, foreground.opened
    while True:
        if (refused := _check_before_planning(foreground, partitions)) is not None:
            return refused
        plan, snapshot = _create_plan(foreground, document)
        if left := not_moved_lines(plan.proof, snapshot):
            print_error(*(f"Left as it is: {line}." for line in left))
        if not plan.moves and left:
            raise PlanError(f"Of {call.arguments.file} nothing else has to move; nothing was changed.")
        if not plan.moves:
            sentence = f"Every partition of {call.arguments.file} already has its target replicas; nothing was changed."
            call.out.print_facts({"digest": None, "status": "completed", "sentence": sentence}, [sentence])
            return Exit.DONE
        if not disabled_reason(opened.journal.mailbox):  # planning takes a while
            break
    try:
        publish_plan(opened.context(call.who), plan, snapshot=snapshot)
    except SlotTaken as taken:
        return _report_slot_taken(call, taken)
    proof = plan.proof
    print_error(
        f"Plan {plan.digest[:12]}: {counted(len(plan.moves), 'partition')}, "
        f"{counted(proof['replicas_moved'], 'replica')}, {bytes_to_copy_text(plan.moves, snapshot)}.",
        *(f"note: {note}" for note in proof["notes"]),
    )
    return _execute_plan(foreground, plan.digest)


def _check_before_planning(foreground: Foreground, partitions: Collection[TopicPartition]) -> Exit | None:
    """Return the exit code if a plan may not start now; None if it may. With `--wait`, wait until it may."""
    call, mailbox = foreground.call, foreground.opened.journal.mailbox
    printed = ""
    try:
        while True:
            disabled, taken = foreground.retry(
                lambda: (disabled_reason(mailbox), _find_taken_slot(foreground, partitions)), stays=_STAYS
            )
            if not disabled and taken is None:
                return None
            if not call.arguments.wait:
                # The plan that has the partitions also explains which of them are being reassigned.
                return _report_slot_taken(call, taken) if taken else _report_disabled(call, disabled)
            why = (
                SlotTaken.reason(taken.owner, shared=taken.shared)
                if taken
                else f"reassignments are disabled {disabled}"
            )
            if why != printed:
                print_error(f"Waiting, because {why}; {_STAYS}")
                printed = why
            foreground.interrupt.wait(_WAIT_S)
    except KeyboardInterrupt:
        print_error(_INTERRUPTED)
        raise


def _find_taken_slot(foreground: Foreground, partitions: Collection[TopicPartition]) -> SlotTaken | None:
    """Return the error that publishing a plan of these partitions would raise now; None if it would not."""
    opened = foreground.opened
    wanted = PlanRecord("", opened.cluster.cluster_id, Operation.APPLY.value)
    try:
        refuse_taken_slot(opened.journal, wanted, partitions, foreground.call.who, not_done="Nothing was changed")
    except SlotTaken as taken:
        return taken
    return None


def resume(call: CommandContext) -> Exit:
    """Execute the rest of a plan, or of its cancel."""
    with open_foreground(call) as foreground:
        journal = foreground.opened.journal
        record = resolve_plan(journal, call.arguments.plan, "resume")
        undone = journal.plans.get(record.rolls_back) if record.rolls_back and record.cancel is None else None
        if undone is not None and is_cancel_unfinished(journal, undone):
            record = undone  # its rollback is continued as the request for it
        if record.cancel is not None and is_cancel_unfinished(journal, record):
            return execute_cancel(foreground, record, record.cancel)
        lifecycle.resume_plan(journal, record.digest, call.who)
        return _execute_plan(foreground, record.digest)


def _report_disabled(call: CommandContext, disabled: str) -> Exit:
    print_error(
        f"Reassignments are disabled {disabled}, so nothing was changed; wait with --wait, or enable them:",
        f"  {call.command_line('enable')}",
    )
    return Exit.FAILED


def _help_with_others(foreground: Foreground, document: Any) -> str:
    """Return the commands for partitions of the document that somebody else moves; empty without any."""
    call, cluster = foreground.call, foreground.opened.cluster
    flights = cluster.reassignments()
    moving = min(flights.keys() & read_reassignment(document)[0].keys(), default=None)
    if moving is None:
        return ""
    entry = {"topic": moving.topic, "partition": moving.partition, "replicas": list(flights[moving].target)}
    file = shlex.quote(json.dumps({"version": 1, "partitions": [entry]}))
    # Without the last option, Kafka's tool also removes the throttles of our plans.
    cancel = "--cancel --reassignment-json-file cancel.json --preserve-throttles"
    return (
        f" To follow it: {call.command_line(f'partitions --reassigning-partitions --topic {moving.topic}')}; to cancel "
        f"{moving} alone: echo {file} > cancel.json && kafka-reassign-partitions.sh "
        f"{call.connection(cluster.live_brokers())} {cancel}; to cancel all that is in flight, of plans and of others: "
        f"{call.command_line('cancel --all')}."
    )


def _report_slot_taken(call: CommandContext, taken: SlotTaken) -> Exit:
    print_error(f"{taken} To show it:", f"  {call.command_line(f'show {taken.owner[:12]}')}")
    return Exit.FAILED


def _create_plan(foreground: Foreground, document: Any) -> tuple[PlanFolder, SnapshotFolder]:
    """Create a snapshot and a plan from it, in a new folder; returns the plan and the snapshot. Raises PlanError."""
    opened = foreground.opened
    settings, now_ms = opened.settings, opened.journal.now_ms()
    folder = f"{opened.access.workspace}/{opened.cluster.cluster_id}/by-hand/{now_ms}-{uuid.uuid4().hex[:8]}"
    options = settings.planner_options()
    try:
        begun = started_moves(opened.journal)
        take_snapshot(
            opened.cluster,
            f"{folder}/snapshot",
            failed=(),
            now_ms=now_ms,
            begun=begun,
            rates=known_rates(opened.journal),
            demotions=read_demotions(opened.journal),
            min_free=opened.settings.min_free,
        )
        snapshot = read_snapshot(f"{folder}/snapshot")
        plan = plan_apply_locally(snapshot, f"{folder}/plan", document, options)
        _check_directories(foreground, document)
        foreground.interrupt.wait(0)
    except KeyboardInterrupt:
        print_error(_INTERRUPTED)
        raise
    except PlanError as error:
        raise PlanError(f"{error}{_help_with_others(foreground, document)}") from error
    return plan, snapshot


def _check_directories(foreground: Foreground, document: Any) -> None:
    """Print which log directories the brokers choose. Raises PlanError for a move within a broker."""
    named = parse_directories(document)
    if not named:
        return
    cluster = foreground.opened.cluster
    note = check_directories(cluster, cluster.snapshot(sorted({name.topic for name, _ in named})), named)
    if note:
        print_error(note)


def _execute_plan(foreground: Foreground, digest: str) -> Exit:
    call = foreground.call
    if call.arguments.throttle is not None:
        # Persist it: other processes that step the plan have other settings.
        lifecycle.change_plan_throttle(
            foreground.opened.journal, digest, call.arguments.throttle, call.who, "set on the command line"
        )
        print_error(*filter(None, [ineffective_message(call.arguments.throttle)]))
    progress = foreground.run_plan(digest)
    completed = progress.status.value == "completed" and not (progress.left or progress.dropped or progress.failed)
    code = print_result(call, progress, done=completed)
    if code is Exit.FAILED:
        unmoved = [
            f"{row.topic_partition} was not moved: {row.detail.removeprefix(f'{row.topic_partition} was not moved: ')}"
            for row in foreground.opened.journal.plans.rows(digest)
            if row.state in {MoveState.DROPPED, MoveState.FAILED}
        ]
        more = [f"... and {len(unmoved) - _NAMED} more."] if len(unmoved) > _NAMED else []
        print_error(*unmoved[:_NAMED], *more, "To show it:", f"  {call.command_line(f'show {digest[:12]}')}")
    return code
