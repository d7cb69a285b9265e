"""Which plan is to be undone, when a person does not say, or says only the beginning of its digest."""

from __future__ import annotations

from kafka_steward.errors import PlanError
from kafka_steward.execution.cancelling import Scope
from kafka_steward.execution.undoing.undo import open_undos
from kafka_steward.journal.audit import Action, Who
from kafka_steward.journal.open import Journal
from kafka_steward.journal.records import ROLLS_BACK

__all__ = ["plan_to_undo"]

#: How far back the beginning of a digest is looked for.
_PLANS = 1000


def plan_to_undo(journal: Journal, named: str | None, *, scope: Scope, who: Who) -> str:
    """The digest of the plan that is meant.

    That is the one `named` by its digest or the beginning of it; else what `who` asked for before in the same run, so
    that a second try means the same plan; else the one that has the cluster; else one whose undoing was begun. When a
    rollback has the cluster, scope "plan" means the plan that it takes back. Raises PlanError.
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
    """Plans whose undoing was begun and whose process died."""
    return [record.digest for record in open_undos(journal)]
