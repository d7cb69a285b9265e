"""Approvals bound to a plan's digest: exemption, recording and verification."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from kafka_steward.assignment import Move
from kafka_steward.errors import DocumentError, NodeExists, PlanError
from kafka_steward.journal import paths
from kafka_steward.journal.approvals import Approval
from kafka_steward.journal.audit import Action, Actor, AuditRecord
from kafka_steward.journal.changes import remove
from kafka_steward.journal.open import Journal

__all__ = ["approval_of", "approve", "approval_exemption", "is_approved", "refuse_unapproved", "reject"]


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
    return f"a scheduled run moves {copied} bytes, and people are asked above {approve_above}"


def approve(journal: Journal, approval: Approval, who: Actor) -> Approval:
    """Store an approval and return the stored one. Raises JournalError.

    An existing approval is kept, unless it is unreadable or names another plan.
    """
    who = replace(who, person=approval.person)
    reason = f"approved{f': {approval.reason}' if approval.reason else ''}"
    journal.audit.record(AuditRecord(Action.APPROVE, reason, plan=approval.plan, after=approval.values(), who=who))
    path = paths.approval(approval.plan)
    there = journal.tree.get(path)
    if there is not None and approval_of(journal, approval.plan) is None:
        remove(journal.tree, there)
    with suppress(NodeExists):
        journal.tree.create(path, approval.to_json())
    return refuse_unapproved(journal, approval.plan)


def reject(journal: Journal, plan: str, who: Actor, *, person: str | None, reason: str) -> None:
    """Record that a plan was rejected, by a person or because nobody answered. Raises JournalError."""
    journal.audit.record(AuditRecord(Action.REJECT, f"rejected: {reason}", plan=plan, who=replace(who, person=person)))


def approval_of(journal: Journal, digest: str) -> Approval | None:
    """Return the approval of the plan with this digest, if the journal has one. Raises JournalError."""
    node = journal.tree.get(paths.approval(digest))
    if node is None:
        return None
    try:
        approval = Approval.from_node(node)
    except DocumentError:
        return None  # an unreadable document approves nothing
    return approval if approval.plan == digest else None


def is_approved(journal: Journal, digest: str) -> bool:
    """Return True if the journal has the approval of the plan with this digest. Raises JournalError."""
    return approval_of(journal, digest) is not None


def refuse_unapproved(journal: Journal, digest: str) -> Approval:
    """Return the approval of the plan with this digest. Raises PlanError if there is none."""
    approval = approval_of(journal, digest)
    if approval is None:
        raise PlanError(
            f"Plan {digest[:12]} was not submitted: nobody has approved it. Approve it in its run, or plan and approve "
            "anew; an approval holds for one digest only."
        )
    return approval
