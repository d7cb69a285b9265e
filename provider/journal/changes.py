"""Compare-and-set on the tree: each function changes a node only if it is unchanged since the caller read it.

A concurrent change is never overwritten: the function then returns None or False, and the caller decides whether to
read again, to leave it to the next poll, or to report it. These functions are for documents only. Locks and plan
records have functions of their own, because there a conflict is a result in itself.
"""

from __future__ import annotations

import logging

from kafka_steward.errors import NodeExists, NodeMissing, VersionConflict
from kafka_steward.escaping import printable
from kafka_steward.journal.tree import Node, Tree

__all__ = ["put", "put_new", "remove", "replace_text"]

_log = logging.getLogger(__name__)


def put_new(tree: Tree, path: str, text: str) -> Node | None:
    """Create a node and return it; return None if it exists already."""
    try:
        return tree.create(path, text)
    except NodeExists:
        return None


def replace_text(tree: Tree, node: Node, text: str) -> Node | None:
    """Change a node that is unchanged since it was read; return None if it was changed or deleted."""
    try:
        return tree.set(node.path, text, version=node.version)
    except (NodeMissing, VersionConflict):
        return None


def put(tree: Tree, path: str, known: Node | None, text: str) -> Node | None:
    """Create the node at `path`, or change it if it is `known`; return None after a concurrent change of it."""
    return put_new(tree, path, text) if known is None else replace_text(tree, known, text)


def remove(tree: Tree, node: Node) -> bool:
    """Delete a node that is unchanged since it was read; return False if it was changed or deleted."""
    try:
        tree.delete(node.path, version=node.version)
    except (NodeMissing, VersionConflict):
        _log.info("%s was changed or deleted by someone else: left as it is.", printable(node.path))
        return False
    return True
