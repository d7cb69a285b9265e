"""Requests for a cancel (KIP-236), and for the rollback of a whole plan. The steps of the `PlanRunner` execute them.

A request is stored in the record of its plan. The cancel of one plan therefore never waits for the cancel of another,
and the request ends with the plan in one write. `cancel_signal.py` reads KIP-236's signal, by which other tools request
a cancel.
"""

from __future__ import annotations

from typing import Literal

from kafka_steward.errors import PlanError
from kafka_steward.execution.decisions.moves import unsettled
from kafka_steward.journal.audit import Action, Actor, AuditRecord
from kafka_steward.journal.open import Journal
from kafka_steward.journal.plans import PlanRecord, PlanStatus
from kafka_steward.journal.requests import CancelRequest

__all__ = ["Scope", "request_cancel"]

#: The scope of a request: cancel the pending moves of a plan (KIP-236), or also roll back its completed moves.
Scope = Literal["pending", "plan"]
#: Attempts to write a request while a step changes the same record.
_TRIES = 20


def request_cancel(
    journal: Journal,
    digest: str,
    *,
    who: Actor,
    reason: str,
    scope: Scope = "pending",
    even_if_disabled: bool = False,
) -> PlanRecord:
    """Request that the pending moves of a plan are cancelled; return the plan's record with the request.

    The next step of the plan executes the request, whether or not the plan holds the plan slot. Scope "plan" also
    requests the rollback of the completed moves, which `CancelRunner` makes; the plan may have ended. A repeated
    request can extend an earlier one, but never narrows it. Moves that an abandoned plan left in flight are pending
    too.

    Raises PlanError for an unknown plan, for one that has ended if only pending moves are to be cancelled, and if
    others keep changing the record.
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
        journal.audit.record(AuditRecord(Action.REQUEST, f"{words}: {reason}", plan=digest, attempt=now_s, who=who))
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
    """Return RUNNING for an abandoned plan with unsettled moves, otherwise the status of the plan.

    An abandoned plan may still have reassignments in flight. To cancel them, the plan runs again.
    """
    if record.status is PlanStatus.ABANDONED and unsettled(journal.plans.rows(record.digest)):
        return PlanStatus.RUNNING
    return record.status
