"""Clean-up after ended plans: throttle leases on brokers that were dead, and stale in-flight records."""

from __future__ import annotations

from kafka_steward.execution.in_flight_records import delete_in_flight, recorded_in_flight
from kafka_steward.execution.late_submissions import Retraction, orphans
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.execution.throttles import release_leases_of
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Actor
from kafka_steward.journal.listing import throttle_leases
from kafka_steward.journal.open import Journal

__all__ = ["plans_with_leases", "release_orphaned_throttles", "delete_stale_in_flight_records"]


def plans_with_leases(journal: Journal) -> list[str]:
    """Return the digests of plans that have ended, or are unknown, and still have throttle leases; sorted."""
    plans = {plan for borrowed in throttle_leases(journal.tree) for plan in borrowed.entries}
    records = {plan: journal.plans.get(plan) for plan in sorted(plans)}
    return [plan for plan, record in records.items() if record is None or record.status.finished]


def release_orphaned_throttles(cluster: ClusterPort, journal: Journal, live: frozenset[int], who: Actor) -> None:
    """Release the orphaned throttle leases of live brokers and topics.

    Raises ClusterError, and LockLost while a plan is being stepped: the leases that were not released stay recorded.
    """
    release_leases_of(cluster, journal, plans_with_leases(journal), live, who)


def delete_stale_in_flight_records(cluster: ClusterPort, journal: Journal, who: Actor) -> None:
    """Delete KIP-236's in-flight records whose plan has ended, which no other process deletes.

    If such a reassignment is in flight nevertheless, a stalled process submitted it after the plan had ended, and
    crashed before it cancelled it. It is cancelled here, except for an abandoned plan. Raises ClusterError.
    """
    noted = recorded_in_flight(journal.tree)
    for plan in sorted({plan for plan in noted.values() if plan is not None}):
        if not _is_over(journal, plan):
            continue
        names = [name for name, by in noted.items() if by == plan]
        found = cluster.snapshot(sorted({name.topic for name in names})).partitions
        Retraction(cluster, journal, plan, who).take_back(orphans(journal, plan, found))
        delete_in_flight(journal.tree, plan, names)


def _is_over(journal: Journal, plan: str) -> bool:
    if plan.startswith("/"):
        # A request document that supersedes the reassignment: it exists until its own plan is published.
        return not paths.is_path(plan) or journal.tree.get(plan) is None
    record = journal.plans.get(plan)
    return record is None or record.status.finished
