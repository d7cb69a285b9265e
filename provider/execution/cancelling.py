"""Asking for a cancel (KIP-236), and for the rollback of a whole plan. The Runner's steps do the work."""

from __future__ import annotations

from kafka_steward.assignment import Operation
from kafka_steward.errors import DocumentError, NodeExists, NodeMissing, PlanError, SlotTaken, VersionConflict
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.execution.reverse import Reversal, reversal
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Entry, Who
from kafka_steward.journal.open import Journal
from kafka_steward.journal.plans import PlanRecord, PlanStatus
from kafka_steward.journal.requests import CancelRequest
from kafka_steward.journal.tree import Tree
from kafka_steward.planning.digest import plan_digest
from kafka_steward.planning.formats import plan_table
from kafka_steward.settings import Settings

__all__ = ["ROLLS_BACK", "cancel_request", "forget_cancel", "mark_rolled_back", "publish_rollback", "request_cancel"]

#: In the record of a rollback, the digest of the plan that it undoes.
ROLLS_BACK = "rolls_back"


def request_cancel(journal: Journal, digest: str, *, who: Who, reason: str) -> None:
    """Ask that what is pending of a plan be cancelled. Whoever steps the plan next does it; slots play no part.

    Raises PlanError for an unknown plan or one that has ended, and when the cancel of another plan is pending.
    """
    record = journal.plans.get(digest)
    if record is None or record.status.finished:
        why = "there is no such plan" if record is None else "it has ended already"
        raise PlanError(f"Plan {digest[:12]} cannot be cancelled: {why}.")
    text = CancelRequest(plan=digest, person=who.person, reason=reason).to_json()
    try:
        journal.tree.create(paths.CANCEL_IN_PROGRESS, text)
    except NodeExists:
        if cancel_request(journal, digest) is None:
            raise PlanError(
                f"Plan {digest[:12]} cannot be cancelled yet: the cancel of another plan is under way; try again."
            ) from None
        return
    journal.audit.note(Entry(Action.REQUEST, f"cancel: {reason}", plan=digest, attempt=_second(journal), who=who))


def cancel_request(journal: Journal, digest: str) -> CancelRequest | None:
    """The request to cancel this plan, if there is one. A request that names no plan means the one with the cluster."""
    node = journal.tree.get(paths.CANCEL_IN_PROGRESS)
    if node is None:
        return None
    try:
        request = CancelRequest.from_node(node)
    except DocumentError:
        request = CancelRequest()  # whoever wrote it wants a cancel: the KIP's own node is empty
    meant = request.plan or journal.slot.owner()
    return request if meant == digest else None


def forget_cancel(tree: Tree) -> None:
    """Delete the request: it was done."""
    node = tree.get(paths.CANCEL_IN_PROGRESS)
    if node is None:
        return
    try:
        tree.delete(node.path, version=node.version)
    except (NodeMissing, VersionConflict):
        return  # someone asks anew


def publish_rollback(
    cluster: ClusterPort, journal: Journal, digest: str, *, settings: Settings, who: Who
) -> tuple[PlanRecord, Reversal]:
    """Publish the plan that takes everything a plan has completed back to its originals; a Runner carries it out.

    What is pending must have been cancelled before. What is left alone, and why, is returned and in the audit trail.
    Raises PlanError for an unknown plan or one that has not ended, SlotTaken while another plan has the cluster.
    """
    undone = journal.plans.get(digest)
    if undone is None or not undone.status.finished:
        why = "there is no such plan" if undone is None else "it has not ended: cancel it first"
        raise PlanError(f"Plan {digest[:12]} cannot be rolled back: {why}.")
    back = reversal(journal.plans.rows(digest), cluster.snapshot(), chunk_size=settings.heal_chunk_size)
    record = _rollback_record(cluster.cluster_id, digest, back, who)
    owner = journal.slot.owner()
    if owner not in {None, record.digest}:
        raise SlotTaken(
            str(owner), f"Plan {digest[:12]} was not rolled back: the cluster belongs to plan {str(owner)[:12]}; wait."
        )
    published = journal.plans.publish(record, back.moves)
    journal.slot.take(record.digest)
    for row, why in back.left_alone:
        reason, name = f"not rolled back: {why}", row.topic_partition
        entry = Entry(Action.SKIP, reason, plan=record.digest, topic=name.topic, partition=name.partition, who=who)
        journal.audit.note(entry)
    return published, back


def _rollback_record(cluster_id: str, digest: str, back: Reversal, who: Who) -> PlanRecord:
    return PlanRecord(
        plan_digest(cluster_id, digest, Operation.ROLLBACK.value, {}, plan_table(back.moves)),
        cluster_id,
        Operation.ROLLBACK.value,
        reason=f"rolls back plan {digest[:12]}",
        who=who,
        left=len(back.left_alone),
        extra={ROLLS_BACK: digest},
    )


def mark_rolled_back(journal: Journal, record: PlanRecord) -> None:
    """When a rollback has ended, the plan that it undid counts as rolled back."""
    undone = journal.plans.get(str(record.extra.get(ROLLS_BACK, "")) or "none")
    if undone is not None and undone.status.finished and undone.status is not PlanStatus.ROLLED_BACK:
        journal.plans.update(undone, status=PlanStatus.ROLLED_BACK, reason=f"rolled back by {record.digest[:12]}")


def _second(journal: Journal) -> int:
    return journal.now_ms() // 1000
