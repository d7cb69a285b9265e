"""The plan that rolls another plan's completed partitions back to their original replicas (KIP-236)."""

from __future__ import annotations

from kafka_steward.assignment import Operation, TopicPartition
from kafka_steward.errors import PlanError, SlotTaken
from kafka_steward.execution.lifecycle import current_slot_owner, release_slot
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.execution.recovery import RollbackMoves, plan_rollback
from kafka_steward.execution.visibility import with_hidden
from kafka_steward.journal.audit import Action, Actor, AuditRecord, Code
from kafka_steward.journal.moves import Cause, MoveState
from kafka_steward.journal.records import ROLLS_BACK, PlanRecord, PlanStatus
from kafka_steward.journal.store import Journal
from kafka_steward.planning.files.digest import plan_digest
from kafka_steward.planning.files.formats import plan_table
from kafka_steward.settings import Settings


def publish_rollback(
    cluster: ClusterPort,
    journal: Journal,
    digest: str,
    *,
    settings: Settings,
    who: Actor,
    even_if_disabled: bool = False,
) -> tuple[PlanRecord, RollbackMoves]:
    """Publish the plan that rolls back everything a plan has completed; a `PlanRunner` executes it.

    Pending moves must have been cancelled before; `CancelRunner` does both. Skipped partitions and reasons are returned
    and in the audit trail. If an unfinished rollback exists already, that one is returned. To be called by one process
    at a time: under the step lock.

    Raises PlanError for an unknown plan or one that has not ended, SlotTaken while another plan holds the plan slot.
    """
    undone = journal.plans.get(digest)
    if undone is None or not undone.status.finished:
        why = "there is no such plan" if undone is None else "it has not ended: cancel it first"
        raise PlanError(f"Plan {digest[:12]} cannot be rolled back: {why}.")
    release_slot(journal, digest, who)  # a process that crashed right after the end has not done that
    known = rollback_of(journal, undone)
    if known is not None:
        _note_rollback(journal, undone, known)
        return known, RollbackMoves(tuple(row.move for row in journal.plans.rows(known.digest)), ())
    back = what_goes_back(cluster, journal, digest, settings)
    record = _record(undone, back, who, even_if_disabled=even_if_disabled)
    # Without a move, the plan slot is not needed.
    if back.moves:
        _make_room(journal, undone, who)
    _record_skipped(journal, record, back, who)
    published = journal.plans.publish(record, back.moves)
    _note_rollback(journal, undone, published)
    if back.moves:
        journal.slot.take(record.digest)
    return published, back


def what_goes_back(cluster: ClusterPort, journal: Journal, digest: str, settings: Settings) -> RollbackMoves:
    """Return the moves that a rollback of the plan would make now, and the rows that it would skip.

    Raises ClusterError.
    """
    rows = journal.plans.rows(digest)
    others = journal.plans.by_others(digest, [row.topic_partition for row in rows])
    snapshot = with_hidden(cluster, cluster.snapshot(), {row.move.topic for row in rows})
    return plan_rollback(rows, snapshot, chunk_size=settings.heal_chunk_size, others=others)


def rollback_of(journal: Journal, undone: PlanRecord) -> PlanRecord | None:
    """Return the unfinished rollback of a plan; None if there is none."""
    found = (each for each in journal.plans.unfinished() if each.extra.get(ROLLS_BACK) == undone.digest)
    return next(found, None)


def mark_rolled_back(journal: Journal, record: PlanRecord) -> None:
    """Record the end of a rollback in the plan that it rolled back. Harmless for any other plan.

    That plan counts as rolled back when no partition was skipped. Otherwise it keeps its status and records the number
    of skipped partitions.
    """
    undone = journal.plans.get(str(record.extra.get(ROLLS_BACK) or "none"))
    if undone is None or not undone.status.finished or undone.rolled_back_by not in {None, record.digest}:
        return  # another rollback was published since
    if record.status is not PlanStatus.COMPLETED:
        _note_rollback(journal, undone, record)
        return
    if undone.rolled_back_by == record.digest and undone.not_taken_back is not None:
        return
    alone = len(_left_alone(journal, record.digest))
    status = _without_rollback(journal, undone) if alone else PlanStatus.ROLLED_BACK
    told = f"taken back in part by plan {record.digest[:12]}, {alone} partitions left alone"
    reason = told if alone else f"rolled back by plan {record.digest[:12]}"
    # Another process that finds it ended does this too.
    journal.plans.try_update(undone, status=status, reason=reason, rolled_back_by=record.digest, not_taken_back=alone)


def _without_rollback(journal: Journal, undone: PlanRecord) -> PlanStatus:
    """Return the status with which a plan ended by itself, also when an earlier rollback reverted all of it."""
    if undone.status is not PlanStatus.ROLLED_BACK:
        return undone.status
    cancelled = any(row.cause is Cause.REQUESTED for row in journal.plans.rows(undone.digest))
    return PlanStatus.CANCELLED if cancelled else PlanStatus.COMPLETED


def _left_alone(journal: Journal, rollback: str) -> set[TopicPartition]:
    """Return the partitions that a rollback skipped in its plan, and those that were changed before their turn."""
    told = [row.entry for row in journal.audit.rows(plan=rollback, action=Action.SKIP)]
    named = {
        TopicPartition(entry.topic, entry.partition)
        for entry in told
        if entry.topic is not None and entry.partition is not None and entry.code is Code.LEFT_ALONE
    }
    lost = {MoveState.DROPPED, MoveState.FAILED}
    return named | {row.topic_partition for row in journal.plans.rows(rollback) if row.state in lost}


def _make_room(journal: Journal, undone: PlanRecord, who: Actor) -> None:
    owner = current_slot_owner(journal, who)
    if owner is not None:
        raise SlotTaken(
            owner,
            f"Plan {undone.digest[:12]} is not rolled back yet: the cluster belongs to plan {owner[:12]} until that "
            "one ends.",
        )


def _note_rollback(journal: Journal, undone: PlanRecord, record: PlanRecord) -> None:
    if undone.rolled_back_by != record.digest:
        journal.plans.update(undone, rolled_back_by=record.digest, not_taken_back=None)


def _record(undone: PlanRecord, back: RollbackMoves, who: Actor, *, even_if_disabled: bool) -> PlanRecord:
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
        extra={ROLLS_BACK: undone.digest},
    )


def _record_skipped(journal: Journal, record: PlanRecord, back: RollbackMoves, who: Actor) -> None:
    """Audit the rollback before it is published.

    A process that finds it published then need not check that this was done.
    """
    for row, why in back.skipped:
        name = row.topic_partition
        journal.audit.record(
            AuditRecord(
                Action.SKIP,
                why,
                plan=record.digest,
                topic=name.topic,
                partition=name.partition,
                before=list(row.move.after),
                after=list(row.move.before),
                who=who,
                code=Code.LEFT_ALONE,
            )
        )
    reason = f"{record.reason}: {len(back.moves)} partitions to take back, {len(back.skipped)} left alone"
    told = {
        "operation": record.operation,
        "partitions": len(back.moves),
        ROLLS_BACK: record.extra[ROLLS_BACK],
        "left": record.left,
    }
    journal.audit.record(AuditRecord(Action.PUBLISH, reason, plan=record.digest, after=told, who=who))
