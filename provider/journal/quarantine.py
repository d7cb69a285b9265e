"""What cannot be read is moved aside, whole and with the reason, and never deleted.

A garbled document would stop every process that meets it. Its text is kept under `/steward/quarantine`, for people and
for whoever finds out what wrote it; then something readable takes its place. A document of a newer release is not
garbled: it is left alone, and the sentence says that an upgrade is due.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafka_steward.errors import DocumentError, NodeMissing, VersionConflict
from kafka_steward.journal.document import Document, delete_as_read
from kafka_steward.journal.fields import Fields
from kafka_steward.journal.tree import MAX_BYTES, Node, Tree

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["QUARANTINE", "MovedAside", "delete_as_heard", "is_newer", "move_aside"]

#: One pair of nodes for each: `doc_<n>`, a MovedAside, and below it `text`, what was found. What someone wrote into a
#: database that is larger than a document may be is cut into `text`, `text_2`, `text_3`.
QUARANTINE = "/steward/quarantine"
#: A character has at most 4 bytes.
_PIECE = MAX_BYTES // 4


@dataclass(frozen=True)
class MovedAside(Document):
    """`/steward/quarantine/doc_<n>`: where a document was found, when that was, and why it could not be read."""

    path: str
    reason: str
    at_ms: int

    @classmethod
    def read(cls, fields: Fields, source: str | None) -> Self:
        """From our own form, version 1."""
        fields.integer("version", low=1)
        path, reason, at_ms = fields.text("path"), fields.text("reason"), fields.integer("at_ms")
        return cls(path, reason, at_ms, extra=fields.rest(), source=source)

    def values(self) -> dict[str, Any]:
        """All three fields."""
        return {"version": self.VERSION, "path": self.path, "reason": self.reason, "at_ms": self.at_ms}


def is_newer(text: str) -> bool:
    """Whether a document says that a later release wrote it."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    version = value.get("version") if isinstance(value, dict) else None
    return isinstance(version, int) and version > Document.VERSION


def move_aside(tree: Tree, node: Node, error: DocumentError, replacement: str | None) -> str | None:
    """Keep the text of `node` in the quarantine, then put `replacement` in its place, or nothing.

    Returns where it is kept; None when someone changed the node meanwhile: then it is theirs to be read. Killed in
    between, it is kept twice.
    """
    document = MovedAside(node.path, str(error), tree.now_ms())
    kept = tree.create_sequential(f"{QUARANTINE}/doc_", document.to_json()).path
    for number, at in enumerate(range(0, max(len(node.data), 1), _PIECE), 1):
        tree.create(f"{kept}/text" + (f"_{number}" if number > 1 else ""), node.data[at : at + _PIECE])
    try:
        if replacement is None:
            tree.delete(node.path, version=node.version)
        else:
            tree.set(node.path, replacement, version=node.version)
    except (NodeMissing, VersionConflict):
        return None
    return kept


def delete_as_heard(tree: Tree, node: Node, read: Callable[[Node], object]) -> None:
    """Delete a node that has done what it was for; a text that `read` refuses is kept in the quarantine."""
    try:
        read(node)
    except DocumentError as error:
        move_aside(tree, node, error, None)
    else:
        delete_as_read(tree, node)
