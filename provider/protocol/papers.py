"""Reading the documents by which anyone asks for reassignments: requests, in order, and the queue (KIP-236)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kafka_steward.errors import DocumentError
from kafka_steward.journal import paths
from kafka_steward.journal.requests import Request
from kafka_steward.journal.tree import MAX_BYTES, Node, Tree
from kafka_steward.protocol.asked_plans import source_of
from kafka_steward.protocol.asking import Asked

__all__ = ["BATCH", "Paper", "read_queue", "read_requests"]

#: Requests that are read at once: thousands are taken a batch at a time.
BATCH = 1000
_NUMBERED = re.compile(r"request_\d+")


@dataclass(frozen=True)
class Paper:
    """One document: its node, what it asks for, or why it cannot be read."""

    node: Node
    asked: Sequence[Asked]
    fault: str = ""

    @property
    def source(self) -> str:
        """Its name for good."""
        return source_of(self.node)


def read_requests(tree: Tree) -> list[Paper]:
    """The oldest requests, in the order in which they were made.

    Sequence numbers tell it. Who cannot count, such as one SQL insert, may give any name: by its created id, it comes
    after those that are numbered.
    """
    names = tree.children(paths.REASSIGNMENT_REQUESTS)
    numbered = [name for name in names if _NUMBERED.fullmatch(name)]
    first = sorted(numbered, key=lambda name: int(name.rpartition("_")[2]))[:BATCH]
    others = set(names) - set(numbered) if len(first) < BATCH else ()
    found = (tree.get(f"{paths.REASSIGNMENT_REQUESTS}/{name}") for name in first)
    named = [node for name in others if (node := tree.get(f"{paths.REASSIGNMENT_REQUESTS}/{name}")) is not None]
    named.sort(key=lambda node: (node.created_id, node.path))
    return [_paper(node) for node in (*(node for node in found if node is not None), *named)]


def read_queue(tree: Tree) -> Paper | None:
    """The queue; None when there is none."""
    node = tree.get(paths.REASSIGN_QUEUE)
    return None if node is None else _paper(node)


def _paper(node: Node) -> Paper:
    if len(node.data.encode(errors="replace")) > MAX_BYTES:
        return Paper(node, (), f"{node.path} has more than the {MAX_BYTES} bytes of a document; cut it into several.")
    try:
        request = Request.from_node(node)
    except DocumentError as error:
        return Paper(node, (), str(error))
    legacy = request.legacy
    asked = [Asked(each.topic_partition, each.replicas, node.path, legacy) for each in request.partitions]
    counts = Counter(each.partition for each in asked)
    twice = next((name for name, count in counts.items() if count > 1), None)
    return Paper(node, asked) if twice is None else Paper(node, (), f"{node.path} names {twice} twice; correct it.")
