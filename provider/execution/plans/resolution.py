"""Resolve a plan from its digest, from a prefix of the digest, or without one: the plan that the user means."""

from __future__ import annotations

from typing import Literal

from kafka_steward.commands import command_line
from kafka_steward.errors import PlanError
from kafka_steward.execution.plans.lifecycle import Scope, find_plan_by_prefix, last_requested_plan
from kafka_steward.execution.plans.rollback import find_unfinished_cancels
from kafka_steward.execution.plans.slot import current_plans
from kafka_steward.journal.audit import Actor
from kafka_steward.journal.records import ACCEPTED_DOCUMENTS, PlanRecord
from kafka_steward.journal.store import Journal

#: The message, by verb, when no plan is named and none is meant.
_NO_PLAN = {
    "cancel": "No plan is in progress on cluster {}: there is no plan to cancel; to undo one that ended, name it.",
    "resume": "No plan is in progress on cluster {}: there is no plan to resume; see `{}`.",
    "throttle": "No plan holds the plan slot of cluster {}, so there is no throttle to change; name a waiting plan, "
    "or change the setting throttle for future plans.",
    "verify": "The journal of cluster {} holds no plan, so there is nothing to verify.",
}


def resolve_plan(
    journal: Journal,
    named: str | None,
    to: Verb,
    *,
    who: Actor | None = None,
    scope: Scope = "pending",
    after_signal: bool = False,
) -> PlanRecord:
    """Return the plan that the user wants `to` act on.

    The plan is, in this order:

    1. the plan `named` by its digest or a prefix of it;
    2. the plan that `who` requested before in the same run, so that a second attempt resolves to the same plan;
    3. with `after_signal`, the plan whose cancel the last cancel signal requested last, whether or not it has ended; a
       signal that requested none does not count;
    4. the plan that holds the plan slot, or else the only plan that has not ended; with scope "plan", if that plan is a
       rollback, the plan that it takes back;
    5. to cancel or resume, a plan whose cancel or rollback has not ended, for example after a crash; to verify, the
       plan that was published last.

    Raises PlanError when no plan is found, or more than one.
    """
    if named:
        return find_plan_by_prefix(journal, named)
    requested = None if who is None else last_requested_plan(journal, who)
    if requested is not None:
        return find_plan_by_prefix(journal, requested)
    signalled = _find_signalled_plan(journal) if after_signal else None
    record = signalled or _find_unfinished_plan(journal, to) or _find_ended_plan(journal, to)
    if record is None:
        raise PlanError(_NO_PLAN[to].format(journal.cluster_id, command_line("plans", journal.conn_id)))
    undone = record.rolls_back if scope == "plan" else None
    return (journal.plans.get(undone) if undone else None) or record


def _find_unfinished_plan(journal: Journal, to: Verb) -> PlanRecord | None:
    chosen = current_plans(journal) or journal.plans.unfinished()
    if len(chosen) > 1:
        names = ", ".join(record.digest[:12] for record in chosen)
        raise PlanError(f"Several plans of cluster {journal.cluster_id} have not ended: {names}; name the one to {to}.")
    return chosen[0] if chosen else None


def _find_ended_plan(journal: Journal, to: Verb) -> PlanRecord | None:
    if to == "throttle":
        return None
    return next(iter(journal.plans.latest(1) if to == "verify" else find_unfinished_cancels(journal)), None)


def _find_signalled_plan(journal: Journal) -> PlanRecord | None:
    """Return the plan whose cancel the last cancel signal requested last; None if it requested none."""
    row = journal.rows(ACCEPTED_DOCUMENTS).get("cancel")
    records = (journal.plans.get(digest) for digest in reversed(() if row is None else row.value.plans))
    return next((record for record in records if record is not None and record.cancel is not None), None)


Verb = Literal["cancel", "resume", "throttle", "verify"]
