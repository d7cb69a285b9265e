"""Resolve the plan to cancel when the user gives no digest, or only a prefix of one."""

from __future__ import annotations

from kafka_steward.errors import PlanError
from kafka_steward.execution.cancelling import Scope
from kafka_steward.execution.undoing.undo import open_undos
from kafka_steward.journal.audit import Action, Who
from kafka_steward.journal.open import Journal
from kafka_steward.journal.records import ROLLS_BACK

__all__ = ["plan_to_undo"]

#: The number of latest plans that are searched for a digest prefix.
_PLANS = 1000


def plan_to_undo(journal: Journal, named: str | None, *, scope: Scope, who: Who) -> str:
    """Return the digest of the plan to cancel.

    The plan is, in this order:

    1. the plan `named` by its digest or a prefix of it;
    2. the plan that `who` requested before in the same run, so that a second attempt resolves to the same plan;
    3. the plan that holds the plan slot; with scope "plan", if that plan is a rollback, the plan that it takes back;
    4. a plan whose cancel or rollback has not ended.

    Raises PlanError when no plan is found, or not exactly one plan matches the prefix.
    """
    if named:
        return _by_beginning(journal, named)
    chosen = _asked_before(journal, who) or _owner(journal, scope) or next(iter(_unsteered(journal)), None)
    if chosen is None:
        raise PlanError(
            f"No plan has cluster {journal.cluster_id}, so nothing is to be cancelled; to undo one that ended, name it."
        )
    return chosen


def _by_beginning(journal: Journal, named: str) -> str:
    if journal.plans.get(named) is not None:
        return named
    found = [record.digest for record in journal.plans.latest(_PLANS) if record.digest.startswith(named)]
    if len(found) != 1:
        what = f"{len(found)} plans begin" if found else "no plan begins"
        raise PlanError(f"In the journal of cluster {journal.cluster_id}, {what} with {named[:64]}; name one of them.")
    return found[0]


def _asked_before(journal: Journal, who: Who) -> str | None:
    if who.run_id is None:
        return None
    run = who.dag_id, who.run_id, who.task_id
    rows = journal.audit.rows(action=Action.REQUEST)
    told = [row.entry for row in rows if (row.entry.who.dag_id, row.entry.who.run_id, row.entry.who.task_id) == run]
    return told[-1].plan or None if told else None


def _owner(journal: Journal, scope: Scope) -> str | None:
    owner = journal.slot.owner()
    record = None if owner is None else journal.plans.get(owner)
    undone = None if record is None else record.extra.get(ROLLS_BACK)
    return str(undone) if undone is not None and scope == "plan" else owner


def _unsteered(journal: Journal) -> list[str]:
    """Return the plans whose cancel or rollback was requested and has not ended, for example after a crash."""
    return [record.digest for record in open_undos(journal)]
