"""The mailbox: the small JSON documents of the KIPs, through which others and we talk. One interface for all backends.

Paths look like ZooKeeper's: `/admin/failed_brokers/3`. A parent need not be created first. A node's `version` counts
its changes from 0. `created_id` and `modified_id` come from one monotonic counter per mailbox, so that a re-created
node can be distinguished from the deleted one (ZooKeeper's czxid and mzxid). Times are by the backend's own clock.

Nodes of other clients may have any name that the backend accepts, and any size: `children` lists all of them, and no
read returns more of a text than one character beyond MAX_BYTES. `paths` validates names before they are used.

A document has no children. On ZooKeeper a parent may still be listed after its last child was deleted. Versions are
comparable only within one lifetime of a node: a re-created node starts at 0 again.

A node is changed or deleted only if it is unchanged since the caller read it. A concurrent change is never overwritten:
the method leaves the node out of what it returns, and the caller decides whether to read again, to leave it to the next
poll, or to report it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from kafka_steward.errors import DocumentError
from kafka_steward.escaping import printable
from kafka_steward.journal.paths import validate_path

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


class Mailbox(Protocol):
    """The documents of one cluster. Every method may raise JournalUnreachable; every change of a node is atomic.

    A change of several nodes is not one change: after an error, some of them may be changed. It takes as few requests
    as the backend allows.
    """

    def children(self, path: str) -> list[str]:
        """Return the names of the children of `path`, sorted; empty if it has none or does not exist."""

    def read(self, paths: Sequence[str]) -> list[Node | None]:
        """Return the documents at these paths, None for a missing one, in as few requests as the backend allows."""

    def put(self, texts: Mapping[str, str], seen: Collection[Node] = ()) -> dict[str, Node]:
        """Change the nodes that were `seen`, and create the others of `texts`; return those that were written.

        The others exist although they were not seen, or were changed or deleted since. Raises DocumentError, and writes
        nothing, if a text is larger than MAX_BYTES.
        """

    def append(self, prefix: str, text: str) -> Node:
        """Create a node named `prefix` + a ten-digit number that increases and is never reused, even after a delete.

        KIP-46 and KIP-236 order chunks and requests by these numbers, which other clients draw too: only the backend
        can draw a number that is never drawn again.
        """

    def delete(self, nodes: Sequence[Node]) -> list[Node]:
        """Delete those of the nodes that are unchanged since they were read; return them."""

    def one_read(self, *, again: bool = False) -> AbstractContextManager[None]:
        """Find out once what has changed: the reads of this thread in the block are then answered without requests.

        What others change meanwhile may be seen some seconds late, at the latest after this thread's first change.
        Blocks may be nested: the inner one has the answers of the outer one, unless it is to find out `again`.
        """


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


_log = logging.getLogger(__name__)


def read_one(mailbox: Mailbox, path: str) -> Node | None:
    """Return the document at `path`, or None if it does not exist."""
    return mailbox.read([validate_path(path)])[0]


def read_below(mailbox: Mailbox, path: str) -> list[Node]:
    """Return the documents directly below `path`, sorted by name."""
    nodes = mailbox.read([f"{path}/{name}" for name in mailbox.children(path)])
    return [node for node in nodes if node is not None]


def read_subtree(mailbox: Mailbox, path: str, most: int) -> list[Node]:
    """Return documents at and below the first `most` paths at and below `path`, each after all that are below it."""
    paths: list[str] = []
    pending = [(path, False)]  # each path is taken twice: to list its children, and to be found after them
    while pending and len(paths) < most:
        current, is_listed = pending.pop()
        if is_listed:
            paths.append(current)
            continue
        pending.append((current, True))
        pending += [(f"{current}/{name}", False) for name in reversed(mailbox.children(current))]
    return [node for node in mailbox.read(paths) if node is not None]


def put_one(mailbox: Mailbox, path: str, text: str, seen: Node | None = None) -> Node | None:
    """Create the node at `path`, or change it if it was `seen`; return None after a concurrent change of it."""
    return mailbox.put({path: text}, () if seen is None else (seen,)).get(path)


def delete_one(mailbox: Mailbox, node: Node) -> bool:
    """Delete a node that is unchanged since it was read; return False if it was changed or deleted."""
    if mailbox.delete([node]):
        return True
    _log.info("%s was changed or deleted concurrently; it is left unchanged.", printable(node.path))
    return False
