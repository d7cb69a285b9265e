"""The quarantine: an unreadable document is moved there with the reason, instead of being deleted.

A corrupt document would stop every process that reads it. Its text is kept under `/steward/quarantine`, so that users
can inspect it and find out which client wrote it. Then a readable document replaces it. A document of a newer release
is not corrupt: it is left unchanged, and the message says that an upgrade is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from kafka_steward.errors import DocumentError
from kafka_steward.escaping import printable
from kafka_steward.journal.codec import MAX_BYTES, newer_version
from kafka_steward.journal.document import Document, Fields
from kafka_steward.journal.tree import Node, Tree, remove, replace_text

#: The nodes per document: `doc_<n>`, a QuarantinedDocument, and below it the original text, up to a million characters,
#: in as many of `text`, `text_2`, `text_3`, `text_4` as it needs. A longer text, possible in a database, is truncated.
QUARANTINE = "/steward/quarantine"
#: Characters per node: a character has at most 4 bytes.
_PIECE = MAX_BYTES // 4
#: Characters that are kept of the path, and of the reason.
_PATH, _REASON = 2_000, 4_000


@dataclass(frozen=True)
class QuarantinedDocument(Document):
    """`/steward/quarantine/doc_<n>`: the original path of a document, the time, and the reason why it is unreadable."""

    path: Annotated[str, partial(Fields.words, most=_PATH)]
    reason: Annotated[str, partial(Fields.words, most=_REASON)]
    at_ms: int


def is_newer(text: str) -> bool:
    """Return whether a document's version shows that a later release wrote it."""
    return newer_version(text, Document.VERSION)


def quarantine_document(tree: Tree, node: Node, reason: str, replacement: str | None) -> str | None:
    """Copy the text of `node` to the quarantine, then replace the node by `replacement`, or delete it if that is None.

    The name of `node` may be invalid, because the copy is named by a number. Returns the path of the copy. Returns None
    if the node was changed in between, so that it has to be read again, or if it cannot be deleted; the copy is then
    deleted. If the process is killed in between, the text is later copied a second time.
    """
    document = QuarantinedDocument(printable(node.path[:_PATH]), reason, tree.now_ms())
    kept = tree.create_sequential(f"{QUARANTINE}/doc_", document.to_json()).path
    whole = node.data.replace("\x00", "\ufffd")  # NUL is invalid in a document, and only SQLite stores it
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


def delete_or_quarantine(tree: Tree, node: Node, read: Callable[[Node], object]) -> None:
    """Delete a node whose request was processed; if `read` fails to parse its text, move it to quarantine."""
    try:
        read(node)
    except DocumentError as error:
        quarantine_document(tree, node, str(error), None)
    else:
        remove(tree, node)
