"""Compare-and-set on the tree: each verb changes a node only while it is as the caller has read it.

What somebody else changed in between is theirs: the verb then returns None or False, and the caller decides whether to
read again, to leave it to the next poll, or to say so. Only for documents: locks and records of plans have verbs of
their own, because there the conflict itself is an answer.
"""

from __future__ import annotations

import logging

from kafka_steward.errors import NodeExists, NodeMissing, VersionConflict
from kafka_steward.journal.tree import Node, Tree

__all__ = ["put", "put_new", "remove", "replace_text"]

_log = logging.getLogger(__name__)


def put_new(tree: Tree, path: str, text: str) -> Node | None:
    """Create a node; None when there is one."""
    try:
        return tree.create(path, text)
    except NodeExists:
        return None


def replace_text(tree: Tree, node: Node, text: str) -> Node | None:
    """Change a node that is still as it was read; None when it is not."""
    try:
        return tree.set(node.path, text, version=node.version)
    except (NodeMissing, VersionConflict):
        return None


def put(tree: Tree, path: str, known: Node | None, text: str) -> Node | None:
    """Create the node at `path`, or change it when it was `known`; None when it came, went or changed in between."""
    return put_new(tree, path, text) if known is None else replace_text(tree, known, text)


def remove(tree: Tree, node: Node) -> bool:
    """Delete a node that is still as it was read; False when it is not, or is gone already."""
    try:
        tree.delete(node.path, version=node.version)
    except (NodeMissing, VersionConflict):
        _log.info("%s was changed or deleted by someone else: left as it is.", node.path)
        return False
    return True
