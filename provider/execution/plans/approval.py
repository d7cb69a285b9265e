"""Approvals of plans: which plans need none, how an answer is stored, and the refusal of a plan without one.

An approval is bound to the plan's digest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

from kafka_steward.assignment import Move
from kafka_steward.errors import PlanError
from kafka_steward.execution.plans.lifecycle import record_request
from kafka_steward.journal.audit import Action, Actor, AuditRecord, event_number
from kafka_steward.journal.records import Approval
from kafka_steward.journal.store import Journal


def approval_exemption(moves: Sequence[Move], *, unattended: bool, approve_above: int | None) -> str:
    """Return the reason why a plan needs no manual approval; empty when it needs one. Pure.

    Only the plan of an unattended run may be exempt. Its moves must copy at most `approve_above` bytes, and the size of
    each move that copies data must be known. If `approve_above` is None, approval is always required.
    """
    if not unattended or approve_above is None:
        return ""
    sizes = [move.size_bytes for move in moves for _ in move.adding]
    copied = sum(size or 0 for size in sizes)
    if None in sizes or copied > approve_above:
        return ""
    return f"a scheduled run moves {copied} bytes; approval is required above {approve_above}"


def approve_plan(journal: Journal, approval: Approval, who: Actor) -> Approval:
    """Store an approval, unless the plan has one, and return the stored one. Raises JournalError."""
    who = replace(who, person=approval.person)
    reason = f"approved{f': {approval.reason}' if approval.reason else ''}"
    _record_answer(journal, AuditRecord(Action.APPROVE, reason, plan=approval.plan, after=asdict(approval), who=who))
    journal.plans.approve(approval)
    return refuse_unapproved(journal, approval.plan)


def reject_plan(journal: Journal, plan: str, who: Actor, *, person: str | None, reason: str) -> None:
    """Record that a plan was rejected, by a person or because nobody answered. Raises JournalError."""
    who = replace(who, person=person)
    _record_answer(journal, AuditRecord(Action.REJECT, f"rejected: {reason}", plan=plan, who=who))
    journal.plans.reject(plan, person=person, reason=reason)


def _record_answer(journal: Journal, entry: AuditRecord) -> None:
    # A task that repeats an answer repeats the same answer of the same person, whatever it still has to write.
    record_request(journal, replace(entry, attempt=event_number()), has_effect=False)


def refuse_unapproved(journal: Journal, digest: str) -> Approval:
    """Return the approval of the plan with this digest. Raises PlanError if there is none."""
    approval = journal.plans.approval(digest)
    if approval is None:
        raise PlanError(
            f"Plan {digest[:12]} was not submitted: it is not approved. Approve it in its run, or make and approve a "
            "new plan; an approval applies to one digest only."
        )
    return approval
