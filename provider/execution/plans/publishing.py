"""Publication of a plan: validate it, check its approval, write it to the journal, and acquire the plan slot."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from kafka_steward.assignment import Operation, counted
from kafka_steward.commands import command_line
from kafka_steward.errors import PlanError, SlotTaken
from kafka_steward.execution.cordons import record_drain
from kafka_steward.execution.demotions import record_plan_of_demotions
from kafka_steward.execution.failures.records import LATEST_PLANS, delete_entry, read_failures, read_log_dir_failures
from kafka_steward.execution.failures.rules import build_view
from kafka_steward.execution.plans.approval import refuse_unapproved
from kafka_steward.execution.plans.lifecycle import abandon_plan
from kafka_steward.execution.plans.progress_rows import report_publication
from kafka_steward.execution.plans.slot import claim_slot, refuse_taken_slot
from kafka_steward.execution.plans.summary import partitions_in_need
from kafka_steward.execution.ports import ClusterContext, ClusterPort
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Actor, AuditRecord
from kafka_steward.journal.mailbox import delete_one, read_one
from kafka_steward.journal.records import MoveState, PlanRecord
from kafka_steward.journal.store import Journal
from kafka_steward.planning.checker.check import check
from kafka_steward.planning.files.formats import PlanFolder, SnapshotFolder


def publish_plan(
    context: ClusterContext,
    plan: PlanFolder,
    *,
    snapshot: SnapshotFolder | None = None,
    require_approval: bool = False,
    named: Collection[int] = (),
) -> PlanRecord:
    """Write a plan into the journal and give it the plan slot; return its record, the second time as it stands.

    If the `snapshot` that the plan was made from is given, the plan is checked against it, independently of the
    planner: that it is valid, for the brokers that had failed, with the sums of its moves. It is not checked again that
    it moves least. With `require_approval`, the journal must contain the approval of this plan, by its digest, now and
    whenever a move of it begins. A heal preempts any plan that a person requested: that plan is preempted, and gets the
    slot back when the heal ends. Publishing a heal deletes the entries of its failed brokers (KIP-46), because the plan
    replaces them.

    Raises PlanError for a plan that is of another cluster, not valid, not approved, heals more brokers than
    `max_failed_brokers` beside those that a person `named`, or heals a broker whose entry an operator deleted, which
    calls its heal off. Raises SlotTaken while another plan, which it may neither preempt nor run beside, holds the plan
    slot; nothing is written then. An older heal that no process has stepped for `abandoned_after` is abandoned for the
    new one.
    """
    journal, who = context.journal, context.actor
    _refuse_wrong_plan(context, plan, snapshot)
    _refuse_too_many_brokers(context, plan, named)
    if require_approval:
        refuse_unapproved(journal, plan.digest)
    wanted = replace(_build_initial_record(context, plan, snapshot), needs_approval=require_approval)
    known = journal.plans.get(plan.digest)
    if known is not None and known.status.finished:
        return known
    if known is None and wanted.auto_generated:
        _refuse_called_off(journal, plan)
    not_done = f"Plan {wanted.digest[:12]} was not published"
    partitions = {move.topic_partition for move in plan.moves}
    stale = refuse_taken_slot(journal, wanted, partitions, who, not_done=not_done, settings=context.settings)
    if stale is not None:
        why = f"no process stepped it any longer; heal {wanted.digest[:12]} runs instead"
        abandon_plan(journal, stale.digest, who, why)
    record = _publish_with_slot(context, plan, wanted, is_new=known is None)
    record_plan_of_demotions(journal, plan, who)
    record_drain(journal, plan)
    if known is None:
        report_publication(context, plan, snapshot)
        reason = f"{counted(len(plan.moves), 'partition') if plan.moves else 'nothing'} to move"
        journal.audit.record(
            AuditRecord(Action.PUBLISH, reason, plan=plan.digest, after=_publication_facts(plan, wanted), who=who)
        )
    if record.auto_generated:
        _delete_failure_entries(journal, record, plan.proof.get("brokers_failed", ()), who)
    return record


def _publish_with_slot(context: ClusterContext, plan: PlanFolder, wanted: PlanRecord, *, is_new: bool) -> PlanRecord:
    journal = context.journal
    record = journal.plans.publish(wanted, plan.moves)
    try:
        claim_slot(journal, record, context.actor)
    except SlotTaken:
        # Another plan was published in between. Nobody would step this one, which counts as not published.
        if is_new:
            journal.plans.withdraw(record)
        raise
    return record


def _refuse_wrong_plan(context: ClusterContext, plan: PlanFolder, snapshot: SnapshotFolder | None) -> None:
    made_for, this, name = plan.proof.get("cluster_id"), context.cluster.cluster_id, plan.digest[:12]
    if not made_for == this == context.journal.cluster_id:
        raise PlanError(
            f"Plan {name} was made for cluster {made_for}, and this is {this}; make a plan from a snapshot of this "
            "cluster."
        )
    if snapshot is not None:
        refuse_invalid_plan(plan, snapshot)


def _refuse_too_many_brokers(context: ClusterContext, plan: PlanFolder, named: Collection[int]) -> None:
    """Raise PlanError for a heal of more brokers than `max_failed_brokers`.

    As for an outage, brokers do not count that a person reported or named, whose log directories a person reported,
    that a heal has dealt with before, or none of whose partitions has a live replica.
    """
    healed, most = _healed_brokers(plan), context.settings.max_failed_brokers
    if len(healed) <= most:
        return
    view = build_view(context.cluster.snapshot(), frozenset(healed), {})
    counted = set(healed).difference(named, view.hopeless.intersection(view.replica_counts))
    for read in (read_failures(context.journal), read_log_dir_failures(context.journal)):
        counted -= read.reported
        counted.difference_update(broker for broker, failure in read.failures.items() if failure.healed is not None)
    if len(counted) > most:
        raise PlanError(
            f"Plan {plan.digest[:12]} heals {len(counted)} brokers at once, and max_failed_brokers is {most}; bring "
            "some of them back, run the DAG heal with a higher max_failed_brokers, or report those that will not "
            f"return: {command_line(f'failed {min(counted)}', context.journal.conn_id)}."
        )


def _refuse_called_off(journal: Journal, plan: PlanFolder) -> None:
    called_off = read_failures(journal).called_off
    broker = next((failed for failed in plan.proof.get("brokers_failed", ()) if failed in called_off), None)
    if broker is not None:
        raise PlanError(
            f"Plan {plan.digest[:12]} was not published: the heal of broker {broker} was called off, because "
            f"{paths.failed_broker(broker)} was deleted; to heal it, report it: "
            f"{command_line(f'failed {broker}', journal.conn_id)}."
        )


def refuse_invalid_plan(plan: PlanFolder, snapshot: SnapshotFolder) -> None:
    """Raise PlanError for a plan that the checker finds invalid for the snapshot that it was made from."""
    verdict = check(snapshot, plan, proven=False)
    if not verdict.ok:
        raise PlanError(f"Plan {plan.digest[:12]} does not match its snapshot: {verdict.problems[0]} Make a new plan.")


def _build_initial_record(context: ClusterContext, plan: PlanFolder, snapshot: SnapshotFolder | None) -> PlanRecord:
    """Return the initial record. `live_brokers` are the brokers that the planner could use."""
    operation = str(plan.proof["operation"])
    listed = [*plan.proof.get("unplaced", ()), *plan.proof.get("pinned", ())]
    return PlanRecord(
        plan.digest,
        context.cluster.cluster_id,
        operation,
        failed_brokers=_healed_brokers(plan) if operation == Operation.HEAL.value else (),
        auto_generated=operation == Operation.HEAL.value,
        reason="published",
        who=context.actor,
        left=len(partitions_in_need(listed, plan.proof, snapshot)),
        live_brokers=_usable_brokers(context.cluster, snapshot),
        postponed=_postponed_brokers(plan, snapshot),
        repeats=_count_repeats(context.journal, plan) if operation == Operation.HEAL.value else 0,
        lacks_room=any(row.get("reason") == "no_room" for row in listed),
    )


def _postponed_brokers(plan: PlanFolder, snapshot: SnapshotFolder | None) -> tuple[int, ...]:
    """Return the healed brokers of which somebody else reassigns a partition; all of them without a snapshot."""
    healed = _healed_brokers(plan)
    moving = {(row["topic"], row["partition"]) for row in plan.proof.get("pinned", ()) if row["reason"] == "in_flight"}
    if not moving or snapshot is None:
        return healed if moving else ()
    topics = pa.array(sorted({topic for topic, _ in moving}))
    rows = snapshot.partitions.filter(pc.is_in(snapshot.partitions["topic"], topics)).to_pylist()
    held = {broker for row in rows if (row["topic"], row["partition"]) in moving for broker in row["replicas"]}
    return tuple(broker for broker in healed if broker in held)


def _count_repeats(journal: Journal, plan: PlanFolder) -> int:
    """Return how many heals in a row, up to the last one of these brokers, left all moves of `plan` undone."""
    failed = frozenset(_healed_brokers(plan))
    heals = (record for record in journal.plans.latest(LATEST_PLANS) if failed.intersection(record.failed_brokers))
    last = next(heals, None) if plan.moves else None
    if last is None or not last.status.ended_by_itself:
        return 0
    left = {
        (row.topic_partition, row.move.after)
        for row in journal.plans.rows(last.digest, last)
        if row.state is MoveState.DROPPED
    }
    is_same = left.issuperset((move.topic_partition, move.after) for move in plan.moves)
    return last.repeats + 1 if is_same else 0


def _healed_brokers(plan: PlanFolder) -> tuple[int, ...]:
    """Return the brokers whose replicas a heal replaces: failed ones, and live ones with failed log directories."""
    return tuple(sorted({*plan.proof.get("brokers_failed", ()), *plan.proof.get("log_dirs_failed", ())}))


def _usable_brokers(cluster: ClusterPort, snapshot: SnapshotFolder | None) -> tuple[int, ...]:
    if snapshot is None:
        return tuple(sorted(cluster.live_brokers()))
    rows = snapshot.brokers.to_pylist()
    return tuple(sorted(row["broker"] for row in rows if row["state"] in {"live", "new"}))


def _delete_failure_entries(journal: Journal, record: PlanRecord, brokers: Sequence[int], who: Actor) -> None:
    """Delete the entries and announcements of the failed brokers, once the plan is persisted (KIP-46)."""
    for broker in brokers:
        bounce = read_one(journal.mailbox, paths.rolling_bounce(broker))
        if bounce is not None:
            delete_one(journal.mailbox, bounce)
        if not delete_entry(journal, broker):
            continue  # a poll deleted or changed it in between: the next poll decides
        reason = f"broker {broker} is being healed by plan {record.digest[:12]}"
        journal.audit.record(AuditRecord(Action.CLEAR, reason, plan=record.digest, broker=broker, who=who))


def _publication_facts(plan: PlanFolder, record: PlanRecord) -> dict[str, object]:
    names = ("operation", "snapshot_digest", "brokers_failed", "replicas_moved", "bytes_moved", "lower_bound")
    proven = {name: plan.proof.get(name) for name in names}
    return {**proven, "partitions": len(plan.moves), "needs_approval": record.needs_approval}
