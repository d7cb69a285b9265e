"""Asking for a cancel (KIP-236), and for the rollback of a whole plan. The Runner's steps do the work.

A request is kept in the record of the plan that it is for, so that one plan's cancel never waits for another's, and so
that it ends with the plan in one write. KIP-236's signal, by which others ask, is read in cancel_signal.py.
"""

from __future__ import annotations

from typing import Literal

from kafka_steward.errors import PlanError
from kafka_steward.execution.decisions.moves import unsettled
from kafka_steward.journal.audit import Action, Entry, Who
from kafka_steward.journal.open import Journal
from kafka_steward.journal.plans import PlanRecord, PlanStatus
from kafka_steward.journal.requests import CancelRequest

__all__ = ["Scope", "request_cancel"]

#: What is asked for: to cancel what is pending of a plan (KIP-236), or to take all of it back.
Scope = Literal["pending", "plan"]
#: How often a request is written again when a step changes the same record.
_TRIES = 20


def request_cancel(
    journal: Journal,
    digest: str,
    *,
    who: Who,
    reason: str,
    scope: Scope = "pending",
    even_if_disabled: bool = False,
) -> PlanRecord:
    """Ask that what is pending of a plan be cancelled. Whoever steps the plan next does it; slots play no part.

    With scope "plan", also that what it has completed be taken back: `Undo` does that, and a plan that has ended may be
    asked for it. Asked again, a request is widened and never narrowed. What an abandoned plan left in flight is pending
    too. Returns the plan's record as it is then.

    Raises PlanError for an unknown plan, or one that has ended when only what is pending is asked for.
    """
    for _ in range(_TRIES):
        record = _judged(journal, digest, scope)
        wanted = CancelRequest(None, scope, who.person, reason, even_if_disabled)
        both = wanted if record.cancel is None else record.cancel.with_(wanted)
        status = _reopened(journal, record)
        if both == record.cancel and status is record.status:
            return record
        now_s = journal.now_ms() // 1000
        words = "cancel" if scope == "pending" else "cancel, and take back what is complete"
        journal.audit.note(Entry(Action.REQUEST, f"{words}: {reason}", plan=digest, attempt=now_s, who=who))
        updated = journal.plans.try_update(record, cancel=both, status=status)
        if updated is not None:
            return updated
    raise PlanError(f"Plan {digest[:12]} is changed by others all the time, and was not cancelled; try again.")


def _judged(journal: Journal, digest: str, scope: Scope) -> PlanRecord:
    record = journal.plans.get(digest)
    if record is None:
        raise PlanError(f"Plan {digest[:12]} cannot be cancelled: there is no such plan.")
    ended = record.status.finished and _reopened(journal, record) is record.status
    if ended and scope == "pending" and record.cancel is None:
        raise PlanError(f"Plan {digest[:12]} cannot be cancelled: it has ended already.")
    return record


def _reopened(journal: Journal, record: PlanRecord) -> PlanStatus:
    """What a person gave up may still fly under Kafka: to cancel that, the plan runs again."""
    if record.status is PlanStatus.ABANDONED and unsettled(journal.plans.rows(record.digest)):
        return PlanStatus.RUNNING
    return record.status
