"""Approval, bound to a plan's digest: when one is needed, how it is written down, and that it is there."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from kafka_steward.errors import DocumentError, NodeExists, PlanError
from kafka_steward.journal import paths
from kafka_steward.journal.approvals import Approval
from kafka_steward.journal.audit import Action, Entry, Who
from kafka_steward.journal.document import delete_as_read
from kafka_steward.journal.open import Journal

__all__ = ["approve", "goes_without", "is_approved", "refuse_unapproved", "reject"]


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
    """Write an approval down, for good; the second time, what is there stays unless it approves nothing.

    Raises JournalError.
    """
    who = replace(who, person=approval.person)
    reason = f"approved{f': {approval.reason}' if approval.reason else ''}"
    journal.audit.note(Entry(Action.APPROVE, reason, plan=approval.plan, after=approval.values(), who=who))
    path = paths.approval(approval.plan)
    there = journal.tree.get(path)
    if there is not None and _approval(journal, approval.plan) is None:
        delete_as_read(journal.tree, there)
    with suppress(NodeExists):
        journal.tree.create(path, approval.to_json())
    return refuse_unapproved(journal, approval.plan)


def reject(journal: Journal, plan: str, who: Who, *, person: str | None, reason: str) -> None:
    """Write down that a plan was not approved: by a person, or by nobody who answered. Raises JournalError."""
    journal.audit.note(Entry(Action.REJECT, f"rejected: {reason}", plan=plan, who=replace(who, person=person)))


def is_approved(journal: Journal, digest: str) -> bool:
    """Whether the journal holds the approval of the plan with this digest. Raises JournalError."""
    return _approval(journal, digest) is not None


def refuse_unapproved(journal: Journal, digest: str) -> Approval:
    """The approval of the plan with this digest. Raises PlanError when nobody has given it."""
    approval = _approval(journal, digest)
    if approval is None:
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
        approval = Approval.from_node(node)
    except DocumentError:
        return None  # what cannot be read approves nothing
    return approval if approval.plan == digest else None
