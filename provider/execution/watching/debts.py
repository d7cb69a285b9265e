"""What ended plans left behind: throttles of brokers that were dead, notes of what an abandoned plan had in flight."""

from __future__ import annotations

from kafka_steward.execution.borrowing import Borrowing
from kafka_steward.execution.decisions.need import NOTHING
from kafka_steward.execution.deeds import Deeds
from kafka_steward.execution.inflight import forget_in_flight, noted_in_flight
from kafka_steward.execution.owner import new_owner
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Who
from kafka_steward.journal.listing import borrowed_now
from kafka_steward.journal.open import Journal

__all__ = ["debtors", "give_back_debts", "sweep_notes"]


def debtors(journal: Journal) -> list[str]:
    """Digests of plans that have ended, or are unknown, and still have something borrowed; sorted."""
    plans = {plan for borrowed in borrowed_now(journal.tree) for plan in borrowed.entries}
    records = {plan: journal.plans.get(plan) for plan in sorted(plans)}
    return [plan for plan, record in records.items() if record is None or record.status.finished]


def give_back_debts(cluster: ClusterPort, journal: Journal, live: frozenset[int], who: Who) -> None:
    """Give back what can be. Raises ClusterError, and LockLost while a plan is being stepped: it is still owed then."""
    for plan in debtors(journal):
        attempts = {row.topic_partition: row.attempt for row in journal.plans.rows_found(plan)}
        with journal.step_lock(new_owner()) as fence:
            deeds = Deeds(journal.audit, fence)
            Borrowing(cluster, journal, deeds, plan, attempts=attempts, who=who).give_back(NOTHING, live)


def sweep_notes(journal: Journal) -> None:
    """Delete KIP-236's notes of moves in flight whose plan has ended: nobody else would."""
    noted = noted_in_flight(journal.tree)
    for plan in sorted({plan for plan in noted.values() if plan is not None}):
        if _is_over(journal, plan):
            forget_in_flight(journal.tree, plan, [name for name, by in noted.items() if by == plan])


def _is_over(journal: Journal, plan: str) -> bool:
    if plan.startswith("/"):
        # A document that is about to supersede it, and is there until its own plan is.
        return not paths.is_path(plan) or journal.tree.get(plan) is None
    record = journal.plans.get(plan)
    return record is None or record.status.finished
