"""What cannot be read is moved aside, with the reason, and never deleted.

A garbled document would stop every process that meets it. Its text is kept under `/steward/quarantine`, for people and
for whoever finds out what wrote it; then something readable takes its place. A document of a newer release is not
garbled: it is left alone, and the sentence says that an upgrade is due.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafka_steward.errors import DocumentError
from kafka_steward.escaping import printable
from kafka_steward.journal.changes import remove, replace_text
from kafka_steward.journal.codec import MAX_BYTES, newer_version
from kafka_steward.journal.document import Document
from kafka_steward.journal.fields import Fields
from kafka_steward.journal.tree import Node, Tree

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["QUARANTINE", "MovedAside", "delete_as_heard", "is_newer", "move_aside"]

#: One pair of nodes for each: `doc_<n>`, a MovedAside, and below it `text`, what was found: up to a million characters,
#: in as many of `text`, `text_2`, `text_3`, `text_4` as they take. What is longer, in a database, is cut.
QUARANTINE = "/steward/quarantine"
#: A character has at most 4 bytes.
_PIECE = MAX_BYTES // 4
#: Characters that are kept of the path, and of the reason.
_PATH, _REASON = 2_000, 4_000


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
        path, reason, at_ms = fields.words("path", _PATH), fields.words("reason", _REASON), fields.integer("at_ms")
        return cls(path, reason, at_ms, extra=fields.rest(), source=source)

    def values(self) -> dict[str, Any]:
        """All three fields."""
        return {"version": self.VERSION, "path": self.path, "reason": self.reason, "at_ms": self.at_ms}


def is_newer(text: str) -> bool:
    """Whether a document says that a later release wrote it."""
    return newer_version(text, Document.VERSION)


def move_aside(tree: Tree, node: Node, reason: str, replacement: str | None) -> str | None:
    """Keep the text of `node` in the quarantine, then put `replacement` in its place, or nothing.

    The name of `node` may be any: where it is kept is named by a number. Returns that place; None when someone changed
    the node meanwhile, which is theirs to be read then, or it cannot be deleted. Killed in between, it is kept twice.
    """
    document = MovedAside(printable(node.path[:_PATH]), reason, tree.now_ms())
    kept = tree.create_sequential(f"{QUARANTINE}/doc_", document.to_json()).path
    whole = node.data.replace("\x00", "\ufffd")  # which no document may hold, and only SQLite keeps
    text = whole if len(whole) <= MAX_BYTES else f"{whole[: MAX_BYTES - 1]}…"
    pieces = [
        tree.create(f"{kept}/text" + (f"_{number}" if number > 1 else ""), text[at : at + _PIECE])
        for number, at in enumerate(range(0, max(len(text), 1), _PIECE), 1)
    ]
    if _replaced(tree, node, replacement):
        return kept
    for each in (*pieces, *filter(None, [tree.get(kept)])):
        tree.discard(each)
    return None


def _replaced(tree: Tree, node: Node, replacement: str | None) -> bool:
    if replacement is None:
        return tree.discard(node)
    return replace_text(tree, node, replacement) is not None


def delete_as_heard(tree: Tree, node: Node, read: Callable[[Node], object]) -> None:
    """Delete a node that has done what it was for; a text that `read` refuses is kept in the quarantine."""
    try:
        read(node)
    except DocumentError as error:
        move_aside(tree, node, str(error), None)
    else:
        remove(tree, node)
