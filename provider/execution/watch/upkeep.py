"""The chores of the watch: upkeep of plans that no process steps, and cleaning up after plans that have ended.

A plan becomes idle when its task has finally failed, the scheduler is gone, or the command line was killed; its
reassignments may still be in flight. The plan stays in the journal, and any retry resumes it. Until then the watch, in
each of its ticks, starts no new moves but settles completed ones, so that throttles are released as soon as they are
not needed.

After a plan has ended: throttle leases and cordons on brokers that were dead, and stale in-flight records, are removed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from kafka_steward.errors import ClusterError, DocumentError, LockLost
from kafka_steward.escaping import printable
from kafka_steward.execution.cordons import lift_orphaned_cordons
from kafka_steward.execution.failures.rules import is_plan_idle
from kafka_steward.execution.moves.in_flight import (
    delete_in_flight,
    disown_in_flight,
    is_unknown_plan,
    list_in_flight_plans,
)
from kafka_steward.execution.moves.reversal_execution import LateRetraction, find_orphaned_moves
from kafka_steward.execution.plans.runner import PlanRunner
from kafka_steward.execution.ports import ClusterContext, ClusterPort
from kafka_steward.execution.throttles.leases import release_leases_of_plans
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Actor, AuditRecord, event_number
from kafka_steward.journal.mailbox import read_one
from kafka_steward.journal.records import THROTTLE_LEASES, MoveState, PlanRecord, PlanStatus
from kafka_steward.journal.store import Journal
from kafka_steward.settings import Settings

_log = logging.getLogger(__name__)

_LIVELY = {PlanStatus.PUBLISHED, PlanStatus.RUNNING}


def run_chores(context: ClusterContext) -> list[str]:
    """Mark or step idle plans, and clean up after ended ones; return a message for each newly idle plan.

    A chore that Kafka, a lock or an unreadable document prevents does not prevent the others. Raises
    JournalUnreachable.
    """
    messages = list[str]()
    cluster, journal, who = context.cluster, context.journal, context.actor
    chores: tuple[Callable[[], object], ...] = (
        lambda: messages.extend(pause_idle_plans(cluster, journal, context.settings, who)),
        lambda: delete_stale_in_flight_records(cluster, journal, who),
        lambda: release_orphaned_throttles(cluster, journal, who),
        lambda: lift_orphaned_cordons(cluster, journal, who),
    )
    for chore in chores:
        try:
            chore()
        except (ClusterError, LockLost, DocumentError) as error:
            # An unreadable document is for example one of a later release.
            _log.info("Throttles or records of ended plans could not be removed: %s", printable(str(error)))
    return messages


def pause_idle_plans(cluster: ClusterPort, journal: Journal, settings: Settings, who: Actor) -> list[str]:
    """Mark or step plans that no process has stepped for `abandoned_after`; returns a message for each newly idle plan.

    A published or running plan becomes idle, once, with a row in the audit trail; any process that steps it again
    resumes it. A plan in another status is stepped while it has submitted moves, a cancel request or throttle leases.

    Raises ClusterError: the next poll handles the remaining plans.
    """
    messages = []
    for record in journal.plans.unfinished():
        if not is_plan_idle(record, journal.now_ms(), settings):
            continue
        if record.status in _LIVELY:
            messages += _mark_idle(journal, record, settings, who)
        elif _needs_settling(journal, record):
            PlanRunner(ClusterContext(cluster, journal, settings, who), record.digest, settle_only=True).step()
    return messages


def _mark_idle(journal: Journal, record: PlanRecord, settings: Settings, who: Actor) -> list[str]:
    """Mark the plan as idle; returns its message, or nothing when the record changed concurrently.

    Only the next poll steps the plan: a step that was about to start has updated the record by then.
    """
    sentence = (
        f"Plan {record.digest[:12]} is idle: no process has stepped it for {settings.abandoned_after:.0f} s. Moves "
        "in flight continue in Kafka; to continue with the rest, clear or retry its task, or resume the plan; or "
        "cancel it."
    )
    if journal.plans.try_update(record, status=PlanStatus.IDLE, reason=sentence) is None:
        return []  # another process steps it now
    journal.audit.record(AuditRecord(Action.PAUSE, sentence, plan=record.digest, attempt=event_number(), who=who))
    return [sentence]


def _needs_settling(journal: Journal, record: PlanRecord) -> bool:
    """Return whether moves of the plan may be in flight, it has a cancel request, or it has throttle leases."""
    in_flight = any(row.state is MoveState.SUBMITTED for row in journal.plans.existing_rows(record.digest))
    return (
        in_flight
        or record.cancel is not None
        or any(record.digest in row.value.entries for row in journal.rows(THROTTLE_LEASES).all())
    )


def ended_plans_with_leases(journal: Journal) -> list[str]:
    """Return the digests of plans that have ended, or are unknown, and still have throttle leases; sorted."""
    plans = {plan for row in journal.rows(THROTTLE_LEASES).all() for plan in row.value.entries}
    records = {plan: journal.plans.get(plan) for plan in sorted(plans)}
    return [plan for plan, record in records.items() if record is None or record.status.finished]


def release_orphaned_throttles(cluster: ClusterPort, journal: Journal, who: Actor) -> None:
    """Release the orphaned throttle leases of live brokers and topics.

    Raises ClusterError, and LockLost while a plan is being stepped: the leases that were not released stay recorded.
    """
    ended = ended_plans_with_leases(journal)
    if ended:
        release_leases_of_plans(cluster, journal, ended, frozenset(cluster.live_brokers()), who)


def delete_stale_in_flight_records(cluster: ClusterPort, journal: Journal, who: Actor) -> None:
    """Delete KIP-236's in-flight records whose plan has ended, which no other process deletes.

    If such a reassignment is in flight nevertheless, a stalled process submitted it after the plan had ended, and
    crashed before it cancelled it. It is cancelled here, except for an abandoned plan. A record stays as long as its
    topic may not be described. Raises ClusterError.
    """
    owners = list_in_flight_plans(journal.mailbox)
    for plan in sorted({plan for plan in owners.values() if plan is not None}):
        if not _has_owner_ended(journal, plan):
            continue
        names = [name for name, owner in owners.items() if owner == plan]
        snapshot = cluster.snapshot(sorted({name.topic for name in names}))
        # An older copy of the database was restored: what it does not know is taken for an external reassignment.
        if is_unknown_plan(journal, plan):
            disown_in_flight(journal.mailbox, plan, snapshot.reassigning.keys())
        late = find_orphaned_moves(journal, plan, snapshot)
        LateRetraction(cluster, journal, plan, who).cancel_and_restore(late)
        kept = {reversal.partition for reversal in late}  # what is taken back is recorded until it is
        stale = [name for name in names if name.topic not in snapshot.hidden and name not in kept]
        delete_in_flight(journal.mailbox, plan, stale)


def _has_owner_ended(journal: Journal, plan: str) -> bool:
    if plan.startswith("/"):
        # A request document that supersedes the reassignment: it exists until its own plan is published.
        return not paths.is_path(plan) or read_one(journal.mailbox, plan) is None
    record = journal.plans.get(plan)
    return record is None or record.status.finished
