"""Verbs that move replicas in the foreground: apply, resume. They use the Runner, journal and locks of the DAGs."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from airflow.cli.cli_config import ActionCommand, Arg

from kafka_steward.cli.cancel import cancel_interrupted
from kafka_steward.cli.foreground import Interrupt, end_message, interruptible, run_in_foreground
from kafka_steward.cli.verb import PLAN_UNDER_WAY, THROTTLE, CommandContext, Exit, print_error, verb
from kafka_steward.errors import SlotTaken

if TYPE_CHECKING:
    from kafka_steward.execution.progress import Progress
    from kafka_steward.execution.runner import StepRunner
    from kafka_steward.hooks.steward import ClusterSession
    from kafka_steward.journal.store import Journal
    from kafka_steward.planning.files.formats import PlanFolder, SnapshotFolder


_APPLY = """\
FILE.json is what kafka-reassign-partitions executes: {"version": 1, "partitions": [{"topic": "orders",
"partition": 0, "replicas": [4, 2, 3]}, ...]}. It is checked against the cluster first, and then carried out
within the throttle and the connection's other settings, a few partitions at a time. Ctrl-C stops it, and so does
a kill: what is in flight then goes on in Kafka, and the plan can be resumed or cancelled by anyone."""
_RESUME = """\
It goes on where it stopped, also in the middle of a cancel. Beside a process that steps the plan already it does
no harm: the two take turns, and if one dies the other goes on."""

_ON = "--cluster kafka_production"


def verbs() -> tuple[ActionCommand, ...]:
    """Return the verbs of this module."""
    file = Arg(("file",), help="What kafka-reassign-partitions takes", metavar="FILE.json")
    given, waiting = (file, THROTTLE), (PLAN_UNDER_WAY, THROTTLE)
    applied, resumed = [f"apply reassignment.json --throttle 20M {_ON}"], [f"resume 3f2a91c0 {_ON}"]
    return (
        verb("apply", "Carry out a reassignment, watched over", _apply, given, examples=applied, details=_APPLY),
        verb(
            "resume",
            "Go on with a plan that nobody steps, or that is stuck",
            _resume,
            waiting,
            examples=resumed,
            details=_RESUME,
        ),
    )


def _apply(call: CommandContext) -> Exit:
    from kafka_steward.execution.context import ClusterContext
    from kafka_steward.execution.plan_slot import current_plan
    from kafka_steward.execution.publishing import publish_plan
    from kafka_steward.planning.files.reassignment import parse_reassignment, read_json

    document = read_json(call.arguments.file, "reassignment")
    parse_reassignment(document)
    with call.hook.open() as opened, interruptible() as interrupt:
        # Before planning: that plan explains which partitions are being reassigned.
        if (current := current_plan(opened.journal)) is not None:
            return _taken(call, current.digest)
        plan, snapshot = _planned(opened, document, interrupt)
        if not plan.moves:
            sentence = f"Every partition of {call.arguments.file} is where it should be; nothing was changed."
            call.out.facts({"digest": None, "status": "completed", "sentence": sentence}, [sentence])
            return Exit.DONE
        try:
            publish_plan(
                ClusterContext(opened.cluster, opened.journal, opened.settings, call.who), plan, snapshot=snapshot
            )
        except SlotTaken as taken:
            return _taken(call, taken.owner)
        _keep_throttle(call, opened.journal, plan.digest)
        proof = plan.proof
        print_error(
            f"Plan {plan.digest[:12]}: {len(plan.moves)} partitions, {proof['replicas_moved']} replicas, "
            f"{proof['bytes_moved'] / 1e6:.1f} MB to copy."
        )
        progress = run_in_foreground(call, _runner(opened, call, plan.digest), plan.digest, opened.settings, interrupt)
    return end_message(call, progress, done=_complete(progress))


def _taken(call: CommandContext, owner: str) -> Exit:
    print_error(
        f"T{SlotTaken.reason(owner)[1:]}, and nothing was changed; {SlotTaken.REMEDY} To look at it:",
        f"  {call.command(f'show {owner[:12]}')}",
    )
    return Exit.FAILED


def _planned(opened: ClusterSession, document: Any, interrupt: Interrupt) -> tuple[PlanFolder, SnapshotFolder]:
    """Create a snapshot and a plan from it, in a new folder; returns the plan and the snapshot. Raises PlanError."""
    from kafka_steward.execution.snapshot import begun_moves, take_snapshot
    from kafka_steward.planning.files.formats import read_snapshot
    from kafka_steward.planning.local_apply import plan_apply_locally

    settings, now_ms = opened.settings, opened.journal.now_ms()
    folder = f"{opened.access.workspace}/{opened.cluster.cluster_id}/by-hand/{now_ms}-{uuid.uuid4().hex[:8]}"
    options = {"chunk_size": settings.heal_chunk_size, "max_in_per_broker": settings.max_in_per_broker}
    options |= {"max_out_per_broker": settings.max_out_per_broker, "throttle": settings.throttle}
    try:
        begun = begun_moves(opened.journal)
        take_snapshot(opened.cluster, f"{folder}/snapshot", failed=(), now_ms=now_ms, begun=begun)
        snapshot = read_snapshot(f"{folder}/snapshot")
        plan = plan_apply_locally(snapshot, f"{folder}/plan", document, options)
        interrupt.wait(0)
    except KeyboardInterrupt:
        print_error("Interrupted before a plan was published; nothing was changed.")
        raise
    return plan, snapshot


def _resume(call: CommandContext) -> Exit:
    from kafka_steward.execution.lifecycle import resume_plan
    from kafka_steward.execution.resolve import resolve_plan
    from kafka_steward.execution.rollback import cancel_is_open

    with call.hook.open() as opened, interruptible() as interrupt:
        record = resolve_plan(opened.journal, call.arguments.plan, "resume")
        if record.cancel is not None and cancel_is_open(opened.journal, record):
            return cancel_interrupted(call, opened, record, record.cancel, interrupt)
        resume_plan(opened.journal, record.digest, call.who)
        _keep_throttle(call, opened.journal, record.digest)
        progress = run_in_foreground(
            call, _runner(opened, call, record.digest), record.digest, opened.settings, interrupt
        )
    return end_message(call, progress, done=_complete(progress))


def _keep_throttle(call: CommandContext, journal: Journal, digest: str) -> None:
    """Persist a throttle that was given on the command line: other processes that step the plan have other settings."""
    from kafka_steward.execution.lifecycle import change_throttle

    if call.arguments.throttle is not None:
        change_throttle(journal, digest, call.arguments.throttle, call.who, "given with the command")


def _runner(opened: ClusterSession, call: CommandContext, digest: str) -> StepRunner:
    from kafka_steward.execution.context import ClusterContext
    from kafka_steward.execution.runner import PlanRunner

    return PlanRunner(ClusterContext(opened.cluster, opened.journal, opened.settings, call.who), digest)


def _complete(progress: Progress) -> bool:
    """Return whether the plan completed, and no partition was left, dropped or failed."""
    return progress.status.value == "completed" and not (progress.left or progress.dropped or progress.failed)
