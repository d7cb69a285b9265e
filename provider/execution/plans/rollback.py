"""The plan that rolls another plan's completed partitions back to their original replicas (KIP-236).

The request is stored in the record of the plan that is rolled back. Between the end of its cancel and the publication
of the rollback, only that record says that a rollback is to follow: `find_unfinished_cancels` finds such plans.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace

from kafka_steward.assignment import Operation, TopicPartition, counted
from kafka_steward.errors import ClusterError, PlanError
from kafka_steward.execution.announcements import disabled_reason
from kafka_steward.execution.cluster_queries import with_hidden_topics
from kafka_steward.execution.moves.progress import cancel_outcome_message
from kafka_steward.execution.moves.recovery import RollbackMoves, left_failed_dirs, plan_rollback_moves
from kafka_steward.execution.moves.skips import SkippedPartition, read_skips, record_skips
from kafka_steward.execution.moves.states import DONE, filter_unsettled, final_status
from kafka_steward.execution.plans.slot import claim_slot, refuse_taken_slot, release_slot
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.journal.audit import Action, Actor, AuditRecord, Code
from kafka_steward.journal.records import REVERTED_IN_PART, Cause, MoveRow, MoveState, PlanRecord, PlanStatus
from kafka_steward.journal.store import Journal


def publish_rollback(
    context: ClusterContext, digest: str, *, even_if_disabled: bool = False
) -> tuple[PlanRecord, RollbackMoves] | None:
    """Publish the plan that rolls back everything a plan has completed; a `PlanRunner` executes it.

    If there is nothing to revert or to leave alone, no plan is published: that is recorded, and None is returned.

    Pending moves must have been cancelled before; `PlanRunner` does both. Skipped partitions and reasons are returned
    and in the audit trail. If an unfinished rollback exists already, that one is returned. To be called by one process
    at a time: under the step lock.

    Raises PlanError for an unknown plan or one that has not ended, SlotTaken while a plan beside which it may not run
    holds the plan slot.
    """
    journal, who = context.journal, context.actor
    undone = journal.plans.get(digest)
    if undone is None or not undone.status.finished:
        why = "there is no such plan" if undone is None else "it has not ended: cancel it first"
        raise PlanError(f"Plan {digest[:12]} cannot be rolled back: {why}.")
    release_slot(journal, digest, who)  # a process that crashed right after the end has not done that
    known = find_unfinished_rollback(journal, undone)
    if known is not None:
        _link_rollback(journal, undone, known)
        return known, RollbackMoves(tuple(row.move for row in journal.plans.rows(known.digest)), ())
    back = preview_rollback(context, digest)
    if undone.rolled_back_by is None and not (back.moves or back.skipped):
        _record_nothing_to_revert(journal, undone)
        return None
    record = _build_rollback_record(undone, back, who, even_if_disabled=even_if_disabled)
    # Without a move, the plan slot is not needed.
    if back.moves:
        partitions = {move.topic_partition for move in back.moves}
        refuse_taken_slot(journal, record, partitions, who, not_done=f"Plan {digest[:12]} is not rolled back yet")
    _audit_rollback(journal, record, back, who)
    published = journal.plans.publish(record, back.moves)
    # Linked before it has the slot: after a crash in between, the rollback's own steps claim it.
    _link_rollback(journal, undone, published)
    if back.moves:
        claim_slot(journal, published, who)
    return published, back


def preview_rollback(context: ClusterContext, digest: str) -> RollbackMoves:
    """Return the moves that a rollback of the plan would make now, and the rows that it would skip.

    Raises ClusterError.
    """
    plans, cluster = context.journal.plans, context.cluster
    rows = plans.rows(digest)
    submissions = plans.submissions_by_others(digest, [row.topic_partition for row in rows])
    snapshot = with_hidden_topics(cluster, cluster.snapshot(), {row.move.topic for row in rows})
    failed_dirs = dict[int, tuple[str, ...]]()
    with suppress(ClusterError):  # without the right to read log directories, moves that do not end say so
        answers = cluster.directories(sorted(left_failed_dirs(rows) & snapshot.live))
        failed_dirs = {broker: dirs.failed_paths for broker, dirs in answers.items() if dirs.failed_paths}
    size = context.settings.heal_chunk_size
    return plan_rollback_moves(rows, snapshot, chunk_size=size, others=submissions, failed_dirs=failed_dirs)


def find_unfinished_rollback(journal: Journal, undone: PlanRecord) -> PlanRecord | None:
    """Return the unfinished rollback of a plan; None if there is none."""
    rollbacks = (record for record in journal.plans.unfinished() if record.rolls_back == undone.digest)
    return next(rollbacks, None)


def mark_rolled_back(journal: Journal, record: PlanRecord) -> None:
    """Record the end of a rollback in the plan that it rolled back. Harmless for any other plan.

    That plan counts as rolled back when no partition was skipped. Otherwise it keeps its status and records the number
    of skipped partitions.
    """
    undone = None if record.rolls_back is None else journal.plans.get(record.rolls_back)
    if undone is None or not undone.status.finished or undone.rolled_back_by not in {None, record.digest}:
        return  # another rollback was published since
    if not record.status.ended_by_itself:
        _link_rollback(journal, undone, record)
        return
    if undone.rolled_back_by == record.digest and undone.not_rolled_back is not None:
        return
    alone, rows = find_left_alone(journal, record.digest), journal.plans.rows(undone.digest)
    names = {(skip.topic, skip.partition) for skip in alone}
    went_back = any(row.state in DONE for row in journal.plans.rows(record.digest)) or any(
        row.may_have_started and row.cause is Cause.REQUESTED and row.topic_partition not in names for row in rows
    )
    before = _status_without_rollback(journal, undone)
    # A plan that had failed before anything of it was to be reverted has failed still.
    whole = not alone and (went_back or before is not PlanStatus.FAILED)
    by = f"by plan {record.digest[:12]}"
    part = f"{REVERTED_IN_PART} {by}, {counted(len(alone), 'partition')} left alone"
    journal.plans.try_update(  # Another process that finds it ended does this too.
        undone,
        status=PlanStatus.ROLLED_BACK if whole else before,
        reason=f"rolled back {by}" if whole else part if went_back else _not_reverted_reason(rows, before, alone),
        rolled_back_by=record.digest,
        not_rolled_back=len(alone),
    )


def _record_nothing_to_revert(journal: Journal, undone: PlanRecord) -> None:
    """Record that the requested rollback of a plan has ended without a plan of its own."""
    status, reason = PlanStatus.ROLLED_BACK, "rolled back, with nothing left to revert"
    if undone.status is not PlanStatus.CANCELLED:
        status, reason = undone.status, _not_reverted_reason(journal.plans.rows(undone.digest), undone.status, ())
    journal.plans.update(undone, status=status, reason=reason, not_rolled_back=0)


def nothing_to_revert_reason(context: ClusterContext, record: PlanRecord) -> str:
    """Return why a plan that has ended need not be rolled back, as the end of `Plan X was ...`; empty if it must be.

    A plan whose rollback was requested before is not looked at: the request has to be executed. Raises ClusterError.
    """
    journal = context.journal
    rows = journal.plans.rows(record.digest)
    requested = record.cancel is not None and record.cancel.scope == "plan"
    if not record.status.finished or requested or filter_unsettled(rows):
        return ""
    back = preview_rollback(context, record.digest)
    return "" if back.moves or back.skipped else _not_reverted_reason(rows, record.status, ())


def disabled_rollback_reason(journal: Journal, digest: str) -> str:
    """Return by whom reassignments are disabled, if the requested rollback of a plan that has ended waits for that."""
    record = journal.plans.get(digest)
    if record is None or record.cancel is None or not is_rollback_unfinished(journal, record):
        return ""
    return "" if record.cancel.even_if_disabled else disabled_reason(journal.mailbox)


def _not_reverted_reason(rows: Sequence[MoveRow], before: PlanStatus, alone: Collection[SkippedPartition]) -> str:
    """Return why nothing of a plan went back, and what had become of it `before`, as the end of `Plan X was ...`."""
    all_of_it = f"all {counted(len(alone), 'partition', 'was', 'were')}" if len(alone) > 1 else "its partition was"
    why = f"{all_of_it} left alone" if alone else "there was nothing to revert"
    if before is PlanStatus.FAILED:
        return f"not reverted: {why}, and it had failed: 0 of {counted(len(rows), 'partition')} moved"
    return f"not reverted: {why}{'' if any(row.state in DONE for row in rows) else ', and it had moved none'}"


def find_left_alone(journal: Journal, rollback: str | None) -> tuple[SkippedPartition, ...]:
    """Return the partitions that a rollback skips, and why: never part of its plan, or changed before their turn.

    Whatever says how much of a plan was rolled back counts these.
    """
    if rollback is None:
        return ()
    skips = read_skips(journal, rollback, Code.LEFT_ALONE)
    lost = (row for row in journal.plans.rows(rollback) if row.state in {MoveState.DROPPED, MoveState.FAILED})
    skips += (SkippedPartition(row.move.topic, row.move.partition, row.detail) for row in lost)
    return tuple(sorted({(skip.topic, skip.partition): skip for skip in skips}.values()))


def mark_taken_back(journal: Journal, record: PlanRecord, rows: Sequence[MoveRow]) -> list[MoveRow]:
    """Return the moves of a plan, where each that a rollback took back says so, though the rollback did not end."""
    done = [row.topic_partition for row in rows if row.state in DONE] if record.rolled_back_by else []
    takers = dict[TopicPartition, str]()
    for name, moves in journal.plans.submissions_by_others(record.digest, done).items():
        digest, last = moves[-1]
        plan = journal.plans.get(digest) if last.state in DONE else None
        if plan is not None and plan.rolls_back == record.digest:
            takers[name] = digest
    return [
        replace(row, detail=f"taken back by plan {takers[row.topic_partition][:12]}")
        if row.topic_partition in takers
        else row
        for row in rows
    ]


def find_unsuccessful_rollback(journal: Journal, digest: str) -> PlanRecord | None:
    """Return the rollback of a plan if it was itself cancelled or abandoned, otherwise None."""
    record = journal.plans.get(digest)
    rollback = None if record is None or record.rolled_back_by is None else journal.plans.get(record.rolled_back_by)
    if rollback is None or not rollback.status.finished or rollback.status.ended_by_itself:
        return None
    return rollback


def describe_cancel_outcome(journal: Journal, record: PlanRecord, rows: Sequence[MoveRow] | None = None) -> str:
    """Return what became of a plan, as `cancel_outcome_message` does; its `rows` are read unless they are given."""
    moves = journal.plans.rows(record.digest) if rows is None else rows
    return cancel_outcome_message(record, moves, find_unsuccessful_rollback(journal, record.digest))


def find_unfinished_cancels(journal: Journal) -> list[PlanRecord]:
    """Return plans whose requested cancel or rollback has not ended; any process may resume one."""
    records = journal.plans.unfinished(or_cancelled=True)[::-1]
    return [record for record in records if is_cancel_unfinished(journal, record)]


def is_cancel_unfinished(journal: Journal, record: PlanRecord) -> bool:
    """Return whether a requested cancel or rollback of this plan has not ended."""
    return record.cancel is not None and (not record.status.finished or is_rollback_unfinished(journal, record))


def is_rollback_unfinished(journal: Journal, record: PlanRecord) -> bool:
    """Return whether the requested rollback of a plan that has ended is still to be published, or has not ended."""
    if record.cancel is None or record.cancel.scope != "plan" or not record.status.finished:
        return False
    if record.rolled_back_by is None:
        return record.not_rolled_back is None
    if record.rolled_back_by == record.earlier_rollback:
        return True
    rollback = journal.plans.get(str(record.rolled_back_by))
    if rollback is None or rollback.status.ended_by_itself:
        # A process that crashed may not have recorded its end.
        return not record.rolled_back
    return not rollback.status.finished


def _status_without_rollback(journal: Journal, undone: PlanRecord) -> PlanStatus:
    """Return the status with which a plan ended by itself, also when an earlier rollback reverted all of it."""
    if undone.status is not PlanStatus.ROLLED_BACK:
        return undone.status
    return final_status(journal.plans.rows(undone.digest))


def _link_rollback(journal: Journal, undone: PlanRecord, record: PlanRecord) -> None:
    if undone.rolled_back_by != record.digest:
        journal.plans.update(undone, rolled_back_by=record.digest, not_rolled_back=None)


def _build_rollback_record(
    undone: PlanRecord, back: RollbackMoves, who: Actor, *, even_if_disabled: bool
) -> PlanRecord:
    # Only a rollback that is published needs Arrow, which is slow to import.
    from kafka_steward.planning.files.formats import plan_digest, plan_table  # noqa: PLC0415

    # A rollback that follows a cancelled rollback may have the same moves, but is another plan.
    options = {"after": undone.rolled_back_by} if undone.rolled_back_by else {}
    operation = Operation.ROLLBACK.value
    return PlanRecord(
        plan_digest(undone.cluster_id, undone.digest, operation, options, plan_table(back.moves)),
        undone.cluster_id,
        operation,
        reason=f"rolls back plan {undone.digest[:12]}",
        who=who,
        left=len(back.skipped),
        even_if_disabled=even_if_disabled,
        throttle=undone.throttle,
        rolls_back=undone.digest,
    )


def _audit_rollback(journal: Journal, record: PlanRecord, back: RollbackMoves, who: Actor) -> None:
    """Audit the rollback before it is published.

    A process that finds it published then need not check that this was done.
    """
    entries = [
        AuditRecord(
            Action.SKIP,
            why,
            plan=record.digest,
            topic=row.move.topic,
            partition=row.move.partition,
            before=list(row.move.after),
            after=list(row.move.before),
            who=who,
            code=Code.LEFT_ALONE,
        )
        for row, why in back.skipped
    ]
    record_skips(journal, record.digest, Code.LEFT_ALONE, entries)
    what = counted(len(back.moves), "partition") if back.moves else "nothing"
    reason = f"{record.reason}: {what} to revert, {len(back.skipped)} left alone"
    facts = {
        "operation": record.operation,
        "partitions": len(back.moves),
        "rolls_back": record.rolls_back,
        "left": record.left,
    }
    journal.audit.record(AuditRecord(Action.PUBLISH, reason, plan=record.digest, after=facts, who=who))
