"""Verbs that move replicas in the foreground: apply, resume. They use the Runner, journal and locks of the DAGs."""

from __future__ import annotations

import uuid
from typing import Any

from kafka_steward.assignment import Operation
from kafka_steward.cli import Exit
from kafka_steward.cli.cancel import execute_cancel
from kafka_steward.cli.foreground import Foreground, open_foreground, print_result
from kafka_steward.cli.verb import CommandContext, print_error
from kafka_steward.errors import SlotTaken
from kafka_steward.execution import lifecycle
from kafka_steward.execution.plan_resolution import resolve_plan
from kafka_steward.execution.plan_slot import refuse_taken_slot
from kafka_steward.execution.publishing import publish_plan
from kafka_steward.execution.rollback import is_cancel_unfinished
from kafka_steward.execution.snapshot import begun_moves, take_snapshot
from kafka_steward.journal.records import PlanRecord
from kafka_steward.planning.files.formats import PlanFolder, SnapshotFolder, read_snapshot
from kafka_steward.planning.files.reassignment import parse_reassignment, read_json
from kafka_steward.planning.local import plan_apply_locally


def apply_file(call: CommandContext) -> Exit:
    """Plan and execute the reassignment of a file."""
    document = read_json(call.arguments.file, "reassignment")
    partitions = parse_reassignment(document).keys()
    with open_foreground(call) as foreground:
        opened = foreground.opened
        wanted = PlanRecord("", opened.cluster.cluster_id, Operation.APPLY.value)
        try:
            # Before planning: the plan that has the partitions explains which of them are being reassigned.
            refuse_taken_slot(opened.journal, wanted, partitions, call.who, not_done="Nothing was changed")
        except SlotTaken as taken:
            return _report_slot_taken(call, taken)
        plan, snapshot = _create_plan(foreground, document)
        if not plan.moves:
            sentence = f"Every partition of {call.arguments.file} already has its target replicas; nothing was changed."
            call.out.print_facts({"digest": None, "status": "completed", "sentence": sentence}, [sentence])
            return Exit.DONE
        try:
            publish_plan(opened.context(call.who), plan, snapshot=snapshot)
        except SlotTaken as taken:
            return _report_slot_taken(call, taken)
        proof = plan.proof
        print_error(
            f"Plan {plan.digest[:12]}: {len(plan.moves)} partitions, {proof['replicas_moved']} replicas, "
            f"{proof['bytes_moved'] / 1e6:.1f} MB to copy."
        )
        return _execute_plan(foreground, plan.digest)


def resume(call: CommandContext) -> Exit:
    """Execute the rest of a plan, or of its cancel."""
    with open_foreground(call) as foreground:
        journal = foreground.opened.journal
        record = resolve_plan(journal, call.arguments.plan, "resume")
        if record.cancel is not None and is_cancel_unfinished(journal, record):
            return execute_cancel(foreground, record, record.cancel)
        lifecycle.resume_plan(journal, record.digest, call.who)
        return _execute_plan(foreground, record.digest)


def _report_slot_taken(call: CommandContext, taken: SlotTaken) -> Exit:
    print_error(f"{taken} To show it:", f"  {call.command_line(f'show {taken.owner[:12]}')}")
    return Exit.FAILED


def _create_plan(foreground: Foreground, document: Any) -> tuple[PlanFolder, SnapshotFolder]:
    """Create a snapshot and a plan from it, in a new folder; returns the plan and the snapshot. Raises PlanError."""
    opened = foreground.opened
    settings, now_ms = opened.settings, opened.journal.now_ms()
    folder = f"{opened.access.workspace}/{opened.cluster.cluster_id}/by-hand/{now_ms}-{uuid.uuid4().hex[:8]}"
    options = {
        "chunk_size": settings.heal_chunk_size,
        "max_in_per_broker": settings.max_in_per_broker,
        "max_out_per_broker": settings.max_out_per_broker,
        "throttle": settings.throttle,
    }
    try:
        begun = begun_moves(opened.journal)
        take_snapshot(opened.cluster, f"{folder}/snapshot", failed=(), now_ms=now_ms, begun=begun)
        snapshot = read_snapshot(f"{folder}/snapshot")
        plan = plan_apply_locally(snapshot, f"{folder}/plan", document, options)
        foreground.interrupt.wait(0)
    except KeyboardInterrupt:
        print_error("Interrupted before a plan was published; nothing was changed.")
        raise
    return plan, snapshot


def _execute_plan(foreground: Foreground, digest: str) -> Exit:
    call = foreground.call
    if call.arguments.throttle is not None:
        # Persist it: other processes that step the plan have other settings.
        lifecycle.change_plan_throttle(
            foreground.opened.journal, digest, call.arguments.throttle, call.who, "set on the command line"
        )
    progress = foreground.run_plan(digest)
    completed = progress.status.value == "completed" and not (progress.left or progress.dropped or progress.failed)
    return print_result(call, progress, done=completed)
