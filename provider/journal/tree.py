"""The tree of small JSON documents in which the KIPs keep their state: the one interface, whatever keeps it.

Paths look like ZooKeeper's: `/admin/failed_brokers/3`. A parent need not be created first. A node's `version` counts
its changes from 0; `created_id` and `modified_id` come from one counter per tree that only grows, so that a node
deleted and created anew is told apart (ZooKeeper's czxid and mzxid). Times are the backend's own clock.

What others wrote may be named by anything that the backend takes, and be of any size: `children` lists all of it, and
no read returns more of a text than one character beyond MAX_BYTES. Names are judged by `codec` before they are used.

A document has nothing below it. On ZooKeeper a parent may still be listed when its last child is gone. Versions compare
for as long as a node lives: created anew it begins at 0 again, so whatever must not be hit by a late writer, such as a
lock, is never deleted, only changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from kafka_steward.errors import DocumentError
from kafka_steward.journal.codec import MAX_BYTES

__all__ = ["MAX_BYTES", "Node", "Tree", "checked_data"]


@dataclass(frozen=True, slots=True)
class Node:
    """A document and its place in time. `created_ms` and `modified_ms` are milliseconds since 1970."""

    path: str
    data: str
    version: int
    created_id: int
    modified_id: int
    created_ms: int
    modified_ms: int


class Tree(Protocol):
    """Where documents live. Every method may raise JournalUnreachable; every change is atomic and durable."""

    def now_ms(self) -> int:
        """The backend's clock: the journal's time."""

    def create(self, path: str, data: str) -> Node:
        """Create a node. Raises NodeExists; DocumentError if `data` is larger than MAX_BYTES."""

    def create_sequential(self, prefix: str, data: str) -> Node:
        """Create `prefix` + a ten-digit number that grows and is never used again, not even after a delete."""

    def get(self, path: str) -> Node | None:
        """The node, or None."""

    def set(self, path: str, data: str, *, version: int) -> Node:
        """Change a node that still has `version`, which may be 0. Raises VersionConflict, NodeMissing."""

    def delete(self, path: str, *, version: int) -> None:
        """Delete a node that still has `version`. Raises VersionConflict, NodeMissing."""

    def children(self, path: str) -> list[str]:
        """Names below `path`, sorted; empty when there are none, or no such path."""

    def below(self, path: str) -> list[Node]:
        """The documents directly below `path`, by name, in as few requests as the backend can do it."""

    def read(self, paths: Sequence[str]) -> list[Node | None]:
        """The documents at these paths, in as few requests as the backend can do it; None for one that is gone."""

    def subtree(self, path: str, most: int) -> list[Node]:
        """At most `most` of the documents at `path` and below it, the deepest first.

        Unlike elsewhere the last name of `path` may be any that `children` lists, also one that nothing could create.
        """

    def discard(self, node: Node) -> bool:
        """Delete a node that `subtree` gave, whatever its name, if it is still as it was. False when it is not."""

    def close(self) -> None:
        """Give back what the tree holds open. Harmless when called twice."""


def checked_data(path: str, data: str) -> bytes:
    """The document as bytes. Raises DocumentError if no backend could keep it whole."""
    try:
        encoded = data.encode()
    except UnicodeEncodeError as error:
        raise DocumentError(f"What was to be written to {path} is not valid Unicode; mend the text.") from error
    if b"\x00" in encoded:
        raise DocumentError(f"What was to be written to {path} holds a NUL character; mend the text.")
    if len(encoded) > MAX_BYTES:
        raise DocumentError(
            f"What was to be written to {path} has {len(encoded)} bytes, more than the {MAX_BYTES} that a journal "
            "document may have; cut it into smaller parts (a plan: by a smaller chunk_size, or heal_chunk_size)."
        )
    return encoded
