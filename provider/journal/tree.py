"""The tree of small JSON documents that hold the state of the KIPs: one interface for all backends.

Paths look like ZooKeeper's: `/admin/failed_brokers/3`. A parent need not be created first. A node's `version` counts
its changes from 0. `created_id` and `modified_id` come from one monotonic counter per tree, so that a re-created node
can be distinguished from the deleted one (ZooKeeper's czxid and mzxid). Times are by the backend's own clock.

Nodes of other clients may have any name that the backend accepts, and any size: `children` lists all of them, and no
read returns more of a text than one character beyond MAX_BYTES. `paths` validates names before they are used.

A document has no children. On ZooKeeper a parent may still be listed after its last child was deleted. Versions are
comparable only within one lifetime of a node: a re-created node starts at 0 again.

`put_new`, `replace_text`, `put` and `remove` change a node only if it is unchanged since the caller read it. A
concurrent change is never overwritten: the function then returns None or False, and the caller decides whether to read
again, to leave it to the next poll, or to report it. These functions are for documents only. Locks have
functions of their own, because there a conflict is a result in itself.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Protocol

from kafka_steward.errors import DocumentError, NodeExists, NodeMissing, VersionConflict
from kafka_steward.escaping import printable

#: The largest document that every backend accepts, in bytes: ZooKeeper's jute.maxbuffer less room for the request.
MAX_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class Node:
    """A document with its version, ids and times. `created_ms` and `modified_ms` are milliseconds since 1970."""

    path: str
    data: str
    version: int
    created_id: int
    modified_id: int
    created_ms: int
    modified_ms: int


class Documents(Protocol):
    """A store for documents. Every method may raise JournalUnreachable; every change is atomic and durable."""

    def create(self, path: str, data: str) -> Node:
        """Create a node. Raises NodeExists; DocumentError if `data` is larger than MAX_BYTES."""

    def create_all(self, documents: Mapping[str, str]) -> list[str]:
        """Create the nodes of `documents`, texts by path, that do not exist yet, in as few requests as possible.

        Existing nodes are left unchanged; their paths are returned, in the order of `documents`. It is not one change:
        after an error, some of the nodes may exist.
        """

    def create_sequential(self, prefix: str, data: str) -> Node:
        """Create a node named `prefix` + a ten-digit number that increases and is never reused, even after a delete."""

    def get(self, path: str) -> Node | None:
        """Return the node, or None if it does not exist."""

    def set(self, path: str, data: str, *, version: int) -> Node:
        """Change a node that still has `version`, which may be 0; return it. Raises VersionConflict, NodeMissing."""

    def delete(self, path: str, *, version: int) -> None:
        """Delete a node that still has `version`. Raises VersionConflict, NodeMissing."""

    def delete_all(self, nodes: Sequence[Node]) -> None:
        """Delete those of the nodes that still have their version, in as few requests as possible.

        Nodes that were changed or deleted are left as they are. It is not one change, as in `create_all`.
        """

    def children(self, path: str) -> list[str]:
        """Return the names of the children of `path`, sorted; empty if it has none or does not exist."""

    def below(self, path: str) -> list[Node]:
        """Return the documents directly below `path`, sorted by name, in as few requests as the backend allows."""

    def read(self, paths: Sequence[str]) -> list[Node | None]:
        """Return the documents at these paths, None for a missing one, in as few requests as the backend allows."""

    def one_read(self) -> AbstractContextManager[None]:
        """Let the reads of this thread in the block be answered by one request, where the backend allows that.

        What others change meanwhile may be seen some seconds late, at the latest after this thread's first change or
        `end_read`. Blocks may be nested: the inner one then has the answers of the outer one.
        """

    def end_read(self) -> None:
        """Answer no further read from what `one_read` has read."""

    def created_ids(self, paths: Sequence[str]) -> list[int | None]:
        """Return the created ids of the documents at these paths, None for a missing one, without reading them."""

    def subtree(self, path: str, most: int) -> list[Node]:
        """Return at most `most` of the documents at `path` and below it, each one after all that are below it.

        Unlike in other methods, the last name of `path` may be any that `children` lists, even an invalid one.
        """

    def discard(self, node: Node) -> bool:
        """Delete a node that `subtree` returned, whatever its name; return False if it was changed or deleted."""

    def close(self) -> None:
        """Close the connections of the tree. Harmless when called twice."""


def encode_data(path: str, data: str) -> bytes:
    """Return the document as bytes. Raises DocumentError if some backend could not store it unchanged."""
    try:
        encoded = data.encode()
    except UnicodeEncodeError as error:
        raise DocumentError(f"The text to write to {path} is not valid Unicode; correct the text.") from error
    if b"\x00" in encoded:
        raise DocumentError(f"The text to write to {path} contains a NUL character; correct the text.")
    if len(encoded) > MAX_BYTES:
        raise DocumentError(
            f"The text to write to {path} has {len(encoded)} bytes, more than the {MAX_BYTES} that a journal "
            "document may have; split it into smaller parts (a plan: with a smaller chunk_size, or heal_chunk_size)."
        )
    return encoded


def node_exists_error(path: str) -> NodeExists:
    """Return the error for a node that was to be created."""
    return NodeExists(f"{path} already exists; read it before changing it.")


def node_missing_error(path: str) -> NodeMissing:
    """Return the error for a node that does not exist any more."""
    return NodeMissing(f"{path} no longer exists; read again before changing it.")


def version_conflict_error(path: str, version: int) -> VersionConflict:
    """Return the error for a node that another client has changed."""
    return VersionConflict(f"{path} was changed since version {version} was read; read it again.")


_log = logging.getLogger(__name__)


def put_new(tree: Documents, path: str, text: str) -> Node | None:
    """Create a node and return it; return None if it exists already."""
    try:
        return tree.create(path, text)
    except NodeExists:
        return None


def replace_text(tree: Documents, node: Node, text: str) -> Node | None:
    """Change a node that is unchanged since it was read; return None if it was changed or deleted."""
    with suppress(NodeMissing, VersionConflict):
        return tree.set(node.path, text, version=node.version)
    return None


def put(tree: Documents, path: str, known: Node | None, text: str) -> Node | None:
    """Create the node at `path`, or change it if it is `known`; return None after a concurrent change of it."""
    return put_new(tree, path, text) if known is None else replace_text(tree, known, text)


def remove(tree: Documents, node: Node) -> bool:
    """Delete a node that is unchanged since it was read; return False if it was changed or deleted."""
    with suppress(NodeMissing, VersionConflict):
        tree.delete(node.path, version=node.version)
        return True
    _log.info("%s was changed or deleted concurrently; it is left unchanged.", printable(node.path))
    return False
