"""Read request documents, by which anyone requests reassignments: requests, in order, and the queue (KIP-236)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kafka_steward.document_api.document_plans import source_of
from kafka_steward.document_api.request_rules import RequestedAssignment
from kafka_steward.errors import DocumentError
from kafka_steward.journal import paths
from kafka_steward.journal.codec import MAX_BYTES, REQUEST, request_number
from kafka_steward.journal.requests import Request
from kafka_steward.journal.tree import Node, Tree

__all__ = ["BATCH", "RequestDocument", "read_queue", "read_requests"]

#: Maximum number of requests per read: thousands are read in batches. A batch ends earlier at MAX_BYTES.
BATCH = 1000


@dataclass(frozen=True)
class RequestDocument:
    """One request document: its node, and the requested assignments or the parse error."""

    node: Node
    requested: Sequence[RequestedAssignment]
    parse_error: str = ""

    @property
    def document_id(self) -> str:
        """The permanent id of the document."""
        return source_of(self.node)


def read_requests(tree: Tree) -> tuple[list[RequestDocument], bool]:
    """Return the oldest requests, in the order in which they were created, and whether more requests wait.

    At most BATCH are read at once, and no further one once they have MAX_BYTES.

    Sequence numbers give the order. A writer without a sequence, such as one SQL insert, may choose any name: such
    requests come after the numbered ones, ordered by created id. Nodes with an invalid name are left to the sweep.
    """
    names = [name for name in tree.children(paths.REASSIGNMENT_REQUESTS) if REQUEST.parse(name) is not None]
    numbers = {name: number for name in names if (number := request_number(name)) is not None}
    numbered = [_path(name) for name in sorted(numbers, key=lambda name: numbers[name])]
    nodes = _read(tree, numbered, [])
    if len(nodes) == len(numbers):
        nodes = _read(tree, _oldest_first(tree, [_path(name) for name in names if name not in numbers]), nodes)
    return [_document(node) for node in nodes], bool(nodes) and len(nodes) < len(names)


def _path(name: str) -> str:
    return f"{paths.REASSIGNMENT_REQUESTS}/{name}"


def _oldest_first(tree: Tree, unnumbered: Sequence[str]) -> list[str]:
    known = zip(tree.created_ids(unnumbered), unnumbered, strict=True)
    return [path for _, path in sorted((number, path) for number, path in known if number is not None)]


def _read(tree: Tree, wanted: Sequence[str], before: Sequence[Node]) -> list[Node]:
    """Return the nodes `before` and then those at `wanted`, until they are BATCH or have MAX_BYTES."""
    found = list(before)
    size = sum(len(node.data) for node in found)
    for path in wanted[: BATCH - len(found)]:
        node = tree.read([path])[0] if size < MAX_BYTES else None
        if node is not None:
            found.append(node)
            size += len(node.data)
    return found


def read_queue(tree: Tree) -> RequestDocument | None:
    """Return the queue; None if there is none."""
    node = tree.get(paths.REASSIGN_QUEUE)
    return None if node is None else _document(node)


def _document(node: Node) -> RequestDocument:
    try:
        request = Request.from_node(node)
    except DocumentError as error:
        return RequestDocument(node, (), str(error))
    legacy = request.legacy
    asked = [RequestedAssignment(each.topic_partition, each.replicas, node.path, legacy) for each in request.partitions]
    counts = Counter(each.partition for each in asked)
    twice = next((name for name, count in counts.items() if count > 1), None)
    return (
        RequestDocument(node, asked)
        if twice is None
        else RequestDocument(node, (), f"{node.path} names {twice} twice; correct it.")
    )
