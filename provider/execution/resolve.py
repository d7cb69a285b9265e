"""Resolve a plan from its digest, from a prefix of the digest, or without one: the plan that the user means."""

from __future__ import annotations

from kafka_steward.errors import PlanError
from kafka_steward.execution.lifecycle import Scope
from kafka_steward.execution.plan_slot import current_plan
from kafka_steward.execution.rollback import unfinished_cancels
from kafka_steward.journal.audit import Action, Actor
from kafka_steward.journal.records import ROLLS_BACK, PlanRecord
from kafka_steward.journal.store import Journal

#: The number of latest plans that are searched for a digest prefix.
_PLANS = 1000


def resolve_plan_to_cancel(journal: Journal, named: str | None, *, scope: Scope, who: Actor) -> str:
    """Return the digest of the plan to cancel.

    The plan is, in this order:

    1. the plan `named` by its digest or a prefix of it;
    2. the plan that `who` requested before in the same run, so that a second attempt resolves to the same plan;
    3. the plan that holds the plan slot; with scope "plan", if that plan is a rollback, the plan that it takes back;
    4. a plan whose cancel or rollback has not ended.

    Raises PlanError when no plan is found, or not exactly one plan matches the prefix.
    """
    if named:
        return plan_by_prefix(journal, named).digest
    chosen = _requested_before(journal, who) or _owner(journal, scope) or next(iter(_orphaned_cancels(journal)), None)
    if chosen is None:
        raise PlanError(
            f"No plan has cluster {journal.cluster_id}, so nothing is to be cancelled; to undo one that ended, name it."
        )
    return chosen


def plan_to_throttle(journal: Journal, named: str | None, *, who: Actor) -> str:
    """Return the digest of the plan whose throttle is to be changed, chosen as in `resolve_plan_to_cancel`.

    Raises PlanError when no plan is found, or not exactly one plan matches the prefix.
    """
    if named:
        return plan_by_prefix(journal, named).digest
    chosen = _requested_before(journal, who) or journal.slot.owner()
    if chosen is None:
        raise PlanError(
            f"No plan has cluster {journal.cluster_id}, so there is no throttle to change; name a plan that waits, or "
            "change the setting throttle for those to come."
        )
    return chosen


def plan_by_prefix(journal: Journal, beginning: str) -> PlanRecord:
    """Return the plan whose digest is, or starts with, `beginning`. Raises PlanError for none or several."""
    known = journal.plans.get(beginning)
    if known is not None:
        return known
    found = [record for record in journal.plans.latest(_PLANS) if record.digest.startswith(beginning)]
    if len(found) == 1:
        return found[0]
    what = f"{len(found)} plans begin" if found else "no plan begins"
    raise PlanError(f"In the journal of cluster {journal.cluster_id}, {what} with {beginning[:64]}; see `plans`.")


def resolve_plan(journal: Journal, named: str | None, to: str) -> PlanRecord:
    """Return the plan `named` by a prefix of its digest, or else the unfinished plan; of several, the slot's holder.

    Raises PlanError for none, or for several of which none holds the slot; `to` is the verb that its text names.
    """
    if named:
        return plan_by_prefix(journal, named)
    unfinished = journal.plans.unfinished()
    if not unfinished:
        raise PlanError(f"Nothing is under way on cluster {journal.cluster_id}: there is no plan to {to}; see `plans`.")
    current = current_plan(journal)
    chosen = unfinished if current is None else [current]
    if len(chosen) > 1:
        named = ", ".join(record.digest[:12] for record in chosen)
        raise PlanError(f"Several plans of cluster {journal.cluster_id} have not ended: {named}; name the one to {to}.")
    return chosen[0]


def _requested_before(journal: Journal, who: Actor) -> str | None:
    if who.run_id is None:
        return None
    run = who.dag_id, who.run_id, who.task_id
    rows = journal.audit.rows(action=Action.REQUEST)
    entries = [row.entry for row in rows if (row.entry.who.dag_id, row.entry.who.run_id, row.entry.who.task_id) == run]
    return entries[-1].plan or None if entries else None


def _owner(journal: Journal, scope: Scope) -> str | None:
    owner = journal.slot.owner()
    record = None if owner is None else journal.plans.get(owner)
    undone = None if record is None else record.extra.get(ROLLS_BACK)
    return str(undone) if undone is not None and scope == "plan" else owner


def _orphaned_cancels(journal: Journal) -> list[str]:
    """Return the plans whose cancel or rollback was requested and has not ended, for example after a crash."""
    return [record.digest for record in unfinished_cancels(journal)]
