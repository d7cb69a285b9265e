"""Read request documents, by which anyone requests reassignments: requests, in order, and the queue (KIP-236)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kafka_steward.errors import DocumentError
from kafka_steward.journal import paths
from kafka_steward.journal.codec import MAX_BYTES, REQUEST, request_number
from kafka_steward.journal.requests import Request
from kafka_steward.journal.tree import Node, Tree
from kafka_steward.protocol.asked_plans import source_of
from kafka_steward.protocol.asking import Asked

__all__ = ["BATCH", "Paper", "read_queue", "read_requests"]

#: Maximum number of requests per read: thousands are read in batches. A batch ends earlier at MAX_BYTES.
BATCH = 1000


@dataclass(frozen=True)
class Paper:
    """One request document: its node, and the requested assignments or the parse error."""

    node: Node
    asked: Sequence[Asked]
    fault: str = ""

    @property
    def source(self) -> str:
        """The permanent id of the document."""
        return source_of(self.node)


def read_requests(tree: Tree) -> tuple[list[Paper], bool]:
    """Return the oldest requests, in the order in which they were created, and whether more requests wait.

    At most BATCH are read at once, and no further one once they have MAX_BYTES.

    Sequence numbers give the order. A writer without a sequence, such as one SQL insert, may choose any name: such
    requests come after the numbered ones, ordered by created id. Nodes with an invalid name are left to the sweep.
    """
    names = [name for name in tree.children(paths.REASSIGNMENT_REQUESTS) if REQUEST.parse(name) is not None]
    numbers = {name: number for name in names if (number := request_number(name)) is not None}
    nodes = _read(tree, sorted(numbers, key=lambda name: numbers[name])[:BATCH])
    if len(nodes) == len(numbers):
        others = _read(tree, [name for name in names if name not in numbers][: BATCH - len(nodes)])
        nodes += sorted(others, key=lambda node: (node.created_id, node.path))
    return [_paper(node) for node in nodes], bool(nodes) and len(nodes) < len(names)


def _read(tree: Tree, names: Sequence[str]) -> list[Node]:
    """Return the nodes with these names, until they have MAX_BYTES; at least one is read."""
    found: list[Node] = []
    size = 0
    for name in names:
        node = tree.read([f"{paths.REASSIGNMENT_REQUESTS}/{name}"])[0] if size < MAX_BYTES else None
        if node is not None:
            found.append(node)
            size += len(node.data)
    return found


def read_queue(tree: Tree) -> Paper | None:
    """Return the queue; None if there is none."""
    node = tree.get(paths.REASSIGN_QUEUE)
    return None if node is None else _paper(node)


def _paper(node: Node) -> Paper:
    try:
        request = Request.from_node(node)
    except DocumentError as error:
        return Paper(node, (), str(error))
    legacy = request.legacy
    asked = [Asked(each.topic_partition, each.replicas, node.path, legacy) for each in request.partitions]
    counts = Counter(each.partition for each in asked)
    twice = next((name for name, count in counts.items() if count > 1), None)
    return Paper(node, asked) if twice is None else Paper(node, (), f"{node.path} names {twice} twice; correct it.")
