"""What moves replicas, in the foreground: apply, resume, cancel. The same Runner, journal and locks as the DAGs use."""

from __future__ import annotations

import argparse
import re
import uuid
from typing import TYPE_CHECKING, Any

from airflow.cli.cli_config import ActionCommand, Arg

from kafka_steward.cli.decide import reason_of
from kafka_steward.cli.exits import Exit
from kafka_steward.cli.foreground import carry_out, ending
from kafka_steward.cli.interrupt import Interrupt, interruptible
from kafka_steward.cli.naming import plan_named, plan_under_way
from kafka_steward.cli.output import complain
from kafka_steward.cli.verb import Call, verb
from kafka_steward.errors import SlotTaken

if TYPE_CHECKING:
    from kafka_steward.execution.loop import Stepper
    from kafka_steward.execution.progress import Progress
    from kafka_steward.execution.undo import Scope, Undo
    from kafka_steward.hooks.steward import Opened
    from kafka_steward.journal.open import Journal
    from kafka_steward.journal.records import PlanRecord
    from kafka_steward.planning.formats import PlanFolder, SnapshotFolder

__all__ = ["verbs"]

_FACTORS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}
_ON = "--cluster kafka_production"


def verbs() -> tuple[ActionCommand, ...]:
    """The verbs of this module."""
    file = Arg(("file",), help="What kafka-reassign-partitions takes", metavar="FILE.json")
    throttle = Arg(
        ("--throttle",), help="Bytes per second into one broker: 50000000 or 50M; 0: none", type=_bytes, metavar="BYTES"
    )
    plan = Arg(
        ("plan",), help="Its digest, or the beginning of it; without: the plan under way", nargs="?", metavar="PLAN"
    )
    cancels = (
        plan,
        throttle,
        Arg(
            ("--scope",),
            help="pending: stop, and take back what is in flight. plan: take back all of it (default: pending)",
            choices=("pending", "plan"),
            default="pending",
        ),
        Arg(("--reason",), help="Why, for the audit trail", required=True),
        Arg(("--even-if-disabled",), help="Take a plan back although reassignments are disabled", action="store_true"),
    )
    cancelled = [f"cancel {_ON} --reason 'traffic peak'", f"cancel 3f2a91c0 --scope plan {_ON} --reason 'wrong racks'"]
    return (
        verb("apply", "Carry out a reassignment, watched over", _apply, (file, throttle), examples=[
            f"apply reassignment.json --throttle 20M {_ON}"
        ]),
        verb("resume", "Go on with a plan that nobody steps, or that is stuck", _resume, (plan, throttle), examples=[
            f"resume 3f2a91c0 {_ON}"
        ]),
        verb("cancel", "Stop a plan, or take all of it back", _cancel, cancels, examples=cancelled),
    )  # fmt: skip


def _apply(call: Call) -> Exit:
    from kafka_steward.execution.publishing import publish_plan  # noqa: PLC0415 - `airflow` starts without Kafka
    from kafka_steward.planning.reassignment import assignments, read_json  # noqa: PLC0415

    document = read_json(call.arguments.file, "reassignment")
    assignments(document)
    with call.hook.open() as opened, interruptible() as interrupt:
        if (owner := _owner(opened.journal)) is not None:
            return _taken(call, owner)
        plan, snapshot = _planned(opened, document, interrupt)
        if not plan.moves:
            sentence = f"Every partition of {call.arguments.file} is where it should be; nothing was changed."
            call.out.facts({"digest": None, "status": "completed", "sentence": sentence}, [sentence])
            return Exit.DONE
        try:
            publish_plan(
                opened.cluster, opened.journal, plan, settings=opened.settings, who=call.who, snapshot=snapshot
            )
        except SlotTaken as taken:
            return _taken(call, taken.owner)
        proof = plan.proof
        complain(
            f"Plan {plan.digest[:12]}: {len(plan.moves)} partitions, {proof['replicas_moved']} replicas, "
            f"{proof['bytes_moved'] / 1e6:.1f} MB to copy."
        )
        progress = carry_out(call, _runner(opened, call, plan.digest), plan.digest, opened.settings, interrupt)
    return ending(call, progress, done=_complete(progress))


def _owner(journal: Journal) -> str | None:
    """The plan that has the cluster: asked before there is one to compare with, because it explains what is moving."""
    owner = journal.slot.owner()
    record = None if owner is None else journal.plans.get(owner)
    return None if record is None or record.status.finished else owner


def _taken(call: Call, owner: str) -> Exit:
    complain(
        f"The cluster belongs to plan {owner[:12]} until that one ends, and nothing was changed; wait for it, cancel "
        f"it, or abandon it. To look at it:\n  {call.command(f'show {owner[:12]}')}"
    )
    return Exit.FAILED


def _planned(opened: Opened, document: Any, interrupt: Interrupt) -> tuple[PlanFolder, SnapshotFolder]:
    """The plan, and the snapshot that it was made from, in a folder of their own. Raises PlanError."""
    from kafka_steward.execution.snapshot import take_snapshot  # noqa: PLC0415 - `airflow` starts without Arrow
    from kafka_steward.planning.by_hand import apply_here  # noqa: PLC0415
    from kafka_steward.planning.formats import read_snapshot  # noqa: PLC0415

    settings, now_ms = opened.settings, opened.journal.now_ms()
    folder = f"{opened.access.workspace}/{opened.cluster.cluster_id}/by-hand/{now_ms}-{uuid.uuid4().hex[:8]}"
    options = {"chunk_size": settings.heal_chunk_size, "max_in_per_broker": settings.max_in_per_broker}
    options |= {"max_out_per_broker": settings.max_out_per_broker}
    options |= {"throttle": settings.throttle} if settings.throttle else {}
    try:
        take_snapshot(opened.cluster, f"{folder}/snapshot", failed=(), now_ms=now_ms)
        plan = apply_here(f"{folder}/snapshot", f"{folder}/plan", document, options)
        interrupt.wait(0)
    except KeyboardInterrupt:
        complain("Interrupted before a plan was published; nothing was changed.")
        raise
    return plan, read_snapshot(f"{folder}/snapshot")


def _resume(call: Call) -> Exit:
    from kafka_steward.execution.undo import open_undos  # noqa: PLC0415 - `airflow` starts without Kafka

    with call.hook.open() as opened, interruptible() as interrupt:
        undone = open_undos(opened.journal)
        if call.arguments.plan is None and not opened.journal.plans.unfinished() and undone:
            # Between the end of a cancel and its rollback, no plan is under way, and all the same something is to come.
            record = undone[0]
        else:
            record = _meant(call, opened, "resume")
        stepper = _resumed(call, opened, record, is_undone=record.digest in {each.digest for each in undone})
        progress = carry_out(call, stepper, record.digest, opened.settings, interrupt)
    cancelled = progress.status.value == "cancelled" and record.cancel is not None
    return ending(call, progress, done=cancelled or _complete(progress))


def _resumed(call: Call, opened: Opened, record: PlanRecord, *, is_undone: bool) -> Stepper:
    from kafka_steward.execution.intervening import resume_plan  # noqa: PLC0415 - `airflow` starts without SQL

    asked = record.cancel
    if is_undone and asked is not None:
        scope: Scope = "plan" if asked.scope == "plan" else "pending"
        reason, anyway = asked.reason or "someone asked for it", asked.even_if_disabled
        return _undo(call, opened, record, scope=scope, reason=reason, even_if_disabled=anyway)
    resume_plan(opened.journal, record.digest, call.who)
    return _runner(opened, call, record.digest)


def _undo(call: Call, opened: Opened, record: PlanRecord, **asked: Any) -> Undo:
    from kafka_steward.execution.undo import Undo  # noqa: PLC0415 - `airflow` starts without Kafka

    return Undo(opened.cluster, opened.journal, record.digest, opened.settings, call.who, **asked)


def _cancel(call: Call) -> Exit:
    given, reason = call.arguments, reason_of(call)
    with call.hook.open() as opened, interruptible() as interrupt:
        record = _meant(call, opened, "cancel")
        asked = {"scope": given.scope, "reason": reason, "even_if_disabled": given.even_if_disabled}
        undo = _undo(call, opened, record, **asked)
        progress = carry_out(call, undo, record.digest, opened.settings, interrupt)
        left_alone = undo.left_alone
    for one in left_alone:
        complain(f"{one.topic}-{one.partition} was left alone: {one.why}")
    return ending(call, progress, done=progress.ended and not left_alone and not progress.failed)


def _meant(call: Call, opened: Opened, to: str) -> PlanRecord:
    named = call.arguments.plan
    return plan_named(opened.journal, named) if named else plan_under_way(opened.journal, to)


def _runner(opened: Opened, call: Call, digest: str) -> Stepper:
    from kafka_steward.execution.runner import Runner  # noqa: PLC0415 - `airflow` starts without Kafka

    return Runner(opened.cluster, opened.journal, digest, opened.settings, call.who)


def _complete(progress: Progress) -> bool:
    """Whether all that the plan was to do is done."""
    return progress.status.value == "completed" and not (progress.left or progress.dropped or progress.failed)


def _bytes(text: str) -> int:
    found = re.fullmatch(r"(\d+)([kMG]?)", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of bytes per second, such as 50000000 or 50M")
    return int(found[1]) * _FACTORS[found[2]]
