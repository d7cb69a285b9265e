"""Resolve a plan by its digest, by a prefix of the digest, or as the unfinished plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_steward.errors import PlanError

if TYPE_CHECKING:
    from kafka_steward.cli.verb import CommandContext
    from kafka_steward.journal.records import PlanRecord
    from kafka_steward.journal.store import Journal


#: The number of latest plans that are searched for a digest prefix.
_REMEMBERED = 1000


def resolve_plan(call: CommandContext, journal: Journal, to: str) -> PlanRecord:
    """Return the plan that the call names, or else the unfinished one.

    Raises PlanError; `to` is the verb that its text names.
    """
    return plan_by_prefix(journal, call.arguments.plan) if call.arguments.plan else _under_way(journal, to)


def plan_by_prefix(journal: Journal, beginning: str) -> PlanRecord:
    """Return the plan whose digest is, or starts with, `beginning`. Raises PlanError for none or several."""
    known = journal.plans.get(beginning)
    if known is not None:
        return known
    found = [record for record in journal.plans.latest(_REMEMBERED) if record.digest.startswith(beginning)]
    if len(found) == 1:
        return found[0]
    what = f"{len(found)} plans begin" if found else "no plan begins"
    raise PlanError(f"In the journal of cluster {journal.cluster_id}, {what} with {beginning}; see `plans`.")


def _under_way(journal: Journal, to: str) -> PlanRecord:
    """Return the unfinished plan; of several, the one that holds the plan slot.

    Raises PlanError for none, or for several of which none holds the slot.
    """
    unfinished = journal.plans.unfinished()
    if not unfinished:
        raise PlanError(f"Nothing is under way on cluster {journal.cluster_id}: there is no plan to {to}; see `plans`.")
    owner = journal.slot.owner()
    chosen = [record for record in unfinished if record.digest == owner] or unfinished
    if len(chosen) > 1:
        named = ", ".join(record.digest[:12] for record in chosen)
        raise PlanError(f"Several plans of cluster {journal.cluster_id} have not ended: {named}; name the one to {to}.")
    return chosen[0]
