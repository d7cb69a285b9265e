"""Clean-up after ended plans: throttle leases on brokers that were dead, and stale in-flight records."""

from __future__ import annotations

from kafka_steward.execution.borrowing import give_back_of
from kafka_steward.execution.inflight import forget_in_flight, noted_in_flight
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.execution.retracting import Retraction, orphans
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Who
from kafka_steward.journal.listing import borrowed_now
from kafka_steward.journal.open import Journal

__all__ = ["debtors", "give_back_debts", "sweep_notes"]


def debtors(journal: Journal) -> list[str]:
    """Return the digests of plans that have ended, or are unknown, and still have throttle leases; sorted."""
    plans = {plan for borrowed in borrowed_now(journal.tree) for plan in borrowed.entries}
    records = {plan: journal.plans.get(plan) for plan in sorted(plans)}
    return [plan for plan, record in records.items() if record is None or record.status.finished]


def give_back_debts(cluster: ClusterPort, journal: Journal, live: frozenset[int], who: Who) -> None:
    """Release the orphaned throttle leases of live brokers and topics.

    Raises ClusterError, and LockLost while a plan is being stepped: the leases that were not released stay recorded.
    """
    give_back_of(cluster, journal, debtors(journal), live, who)


def sweep_notes(cluster: ClusterPort, journal: Journal, who: Who) -> None:
    """Delete KIP-236's in-flight records whose plan has ended, which no other process deletes.

    If such a reassignment is in flight nevertheless, a stalled process submitted it after the plan had ended, and
    crashed before it cancelled it. It is cancelled here, except for an abandoned plan. Raises ClusterError.
    """
    noted = noted_in_flight(journal.tree)
    for plan in sorted({plan for plan in noted.values() if plan is not None}):
        if not _is_over(journal, plan):
            continue
        names = [name for name, by in noted.items() if by == plan]
        found = cluster.snapshot(sorted({name.topic for name in names})).partitions
        Retraction(cluster, journal, plan, who).take_back(orphans(journal, plan, found))
        forget_in_flight(journal.tree, plan, names)


def _is_over(journal: Journal, plan: str) -> bool:
    if plan.startswith("/"):
        # A request document that supersedes the reassignment: it exists until its own plan is published.
        return not paths.is_path(plan) or journal.tree.get(plan) is None
    record = journal.plans.get(plan)
    return record is None or record.status.finished
