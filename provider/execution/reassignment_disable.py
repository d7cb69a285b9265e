"""KIP-236's kill switch: while `/admin/reassign_cancel` exists, no reassignment starts, and those in flight complete.

Anyone may disable reassignments by creating that node, empty or not, with any tool. Our own node states by whom and
why.
"""

from __future__ import annotations

from kafka_steward.errors import DocumentError, RequestError
from kafka_steward.escaping import utc
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Actor, AuditRecord
from kafka_steward.journal.changes import put_new, remove
from kafka_steward.journal.open import Journal
from kafka_steward.journal.requests import SwitchedOff
from kafka_steward.journal.tree import Node, Tree

__all__ = ["disable_reassignment", "enable_reassignment", "disabled_reason"]


def disabled_reason(tree: Tree) -> str:
    """Return by whom, since when and why reassignments are disabled, as a clause; empty when they are enabled."""
    node = tree.get(paths.REASSIGN_CANCEL)
    return "" if node is None else _told(node)


def disable_reassignment(journal: Journal, *, who: Actor, reason: str) -> str:
    """Disable new reassignments; return the message. If they are disabled already, the node is not changed.

    Reassignments in flight complete, and a cancel still works. Raises RequestError without a reason.
    """
    if not reason.strip():
        raise RequestError("Say why reassignments are switched off: whoever is held up by it will want to know.")
    node = put_new(journal.tree, paths.REASSIGN_CANCEL, SwitchedOff(who.person, reason).to_json())
    if node is None:
        return f"Reassignments are switched off already, {disabled_reason(journal.tree)}."
    journal.audit.record(AuditRecord(Action.REQUEST, f"switched off: {reason}", after="disabled", who=who))
    return f"Reassignments are switched off {_told(node)}; what is in flight is let finish."


def enable_reassignment(journal: Journal, *, who: Actor, reason: str = "") -> str:
    """Enable reassignments again; return the message. Harmless when they are enabled already."""
    node = journal.tree.get(paths.REASSIGN_CANCEL)
    if node is None:
        return "Reassignments are allowed already."
    remove(journal.tree, node)
    words = f"switched on again: {reason}" if reason else "switched on again"
    journal.audit.record(AuditRecord(Action.REQUEST, words, before=_told(node), after="enabled", who=who))
    return f"Reassignments are allowed again; they were switched off {_told(node)}."


def _told(node: Node) -> str:
    since = f"{utc(node.created_ms)} UTC"
    try:
        written = SwitchedOff.from_node(node)
    except DocumentError:
        written = SwitchedOff()  # its author wants them disabled: the KIP's own node is empty
    why = f" ({written.reason})" if written.reason else ""
    return f"by {written.person or 'someone unnamed'} since {since}{why}"
