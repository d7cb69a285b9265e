"""Approval, bound to a plan's digest: when one is needed, how it is written down, and that it is there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kafka_steward.errors import DocumentError, NodeExists, PlanError
from kafka_steward.journal import paths
from kafka_steward.journal.approvals import Approval
from kafka_steward.journal.audit import Action, Entry, Who
from kafka_steward.journal.open import Journal

__all__ = ["approve", "goes_without", "refuse_unapproved", "reject"]


def goes_without(proof: Mapping[str, Any], *, scheduled: bool, approve_above: int | None) -> str:
    """Why a plan needs no person's approval; empty when it needs one. Pure.

    Only a scheduled run's plan may go without: when it moves at most `approve_above` bytes, and all sizes are known.
    None asks always.
    """
    moved = proof.get("bytes_moved")
    if not scheduled or approve_above is None or not isinstance(moved, int) or moved > approve_above:
        return ""
    if any("no known size" in str(note) for note in proof.get("notes", ())):
        return ""
    return f"a scheduled run moves {moved} bytes, and people are asked above {approve_above}"


def approve(journal: Journal, approval: Approval, who: Who) -> Approval:
    """Write an approval down, for good; the second time, what is there stays. Raises JournalError."""
    who = replace(who, person=approval.person)
    reason = f"approved{f': {approval.reason}' if approval.reason else ''}"
    journal.audit.note(Entry(Action.APPROVE, reason, plan=approval.plan, after=approval.values(), who=who))
    try:
        journal.tree.create(paths.approval(approval.plan), approval.to_json())
    except NodeExists:
        return _approval(journal, approval.plan) or approval
    return approval


def reject(journal: Journal, plan: str, who: Who, *, person: str | None, reason: str) -> None:
    """Write down that a plan was not approved: by a person, or by nobody who answered. Raises JournalError."""
    journal.audit.note(Entry(Action.REJECT, f"rejected: {reason}", plan=plan, who=replace(who, person=person)))


def refuse_unapproved(journal: Journal, digest: str) -> Approval:
    """The approval of the plan with this digest. Raises PlanError when nobody has given it."""
    approval = _approval(journal, digest)
    if approval is None or approval.plan != digest:
        raise PlanError(
            f"Plan {digest[:12]} was not submitted: nobody has approved it. Approve it in its run, or plan and approve "
            "anew; an approval holds for one digest only."
        )
    return approval


def _approval(journal: Journal, digest: str) -> Approval | None:
    node = journal.tree.get(paths.approval(digest))
    if node is None:
        return None
    try:
        return Approval.from_node(node)
    except DocumentError:
        return None  # what cannot be read approves nothing
