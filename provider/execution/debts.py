"""Throttles that plans left owing when they ended, because a broker was dead: given back once it is there again."""

from __future__ import annotations

from kafka_steward.execution.borrowing import Borrowing
from kafka_steward.execution.deeds import Deeds
from kafka_steward.execution.need import NOTHING
from kafka_steward.execution.owner import new_owner
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Who
from kafka_steward.journal.open import Journal
from kafka_steward.journal.records import Borrowed

__all__ = ["debtors", "give_back_debts"]


def debtors(journal: Journal) -> list[str]:
    """Digests of plans that have ended, or are unknown, and still have something borrowed; sorted."""
    plans = {plan for node in _documents(journal) for plan in Borrowed.from_json(node).entries}
    records = {plan: journal.plans.get(plan) for plan in sorted(plans)}
    return [plan for plan, record in records.items() if record is None or record.status.finished]


def give_back_debts(cluster: ClusterPort, journal: Journal, live: frozenset[int], who: Who) -> None:
    """Give back what can be. Raises ClusterError, and LockLost while a plan is being stepped: it is still owed then."""
    for plan in debtors(journal):
        attempts = {row.topic_partition: row.attempt for row in journal.plans.rows(plan)}
        with journal.step_lock(new_owner()) as fence:
            deeds = Deeds(journal.audit, fence)
            Borrowing(cluster, journal, deeds, plan, attempts=attempts, who=who).give_back(NOTHING, live)


def _documents(journal: Journal) -> list[str]:
    found = []
    for kind in ("broker", "topic"):
        below = paths.borrowed_below(kind)
        for name in journal.tree.children(below):
            nodes = (journal.tree.get(f"{below}/{name}/{key}") for key in journal.tree.children(f"{below}/{name}"))
            found += [node.data for node in nodes if node is not None]
    return found
