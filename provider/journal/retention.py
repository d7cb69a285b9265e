"""Retention of data that is not read any more: approvals of deleted plans, and quarantined documents."""

from __future__ import annotations

import re
from collections.abc import Callable

from kafka_steward.journal import paths
from kafka_steward.journal.quarantine import QUARANTINE
from kafka_steward.journal.tree import Node, Tree

__all__ = ["delete_old"]

_MOVED_ASIDE = re.compile(re.escape(QUARANTINE) + r"/doc_\d{1,19}")
#: The maximum number of nodes of each kind that are deleted per call.
_MOST = 1000


def delete_old(tree: Tree, before_ms: int, *, is_known: Callable[[str], bool]) -> None:
    """Delete old approvals and old quarantined documents.

    Only nodes that were modified before `before_ms` of the journal's clock are deleted: approvals of plans for which
    `is_known` is false, and quarantined documents with their texts.
    """
    for node in _older(tree, paths.APPROVALS, before_ms):
        if not is_known(node.path.rpartition("/")[2]):
            tree.discard(node)
    for node in _older(tree, QUARANTINE, before_ms):
        if _MOVED_ASIDE.fullmatch(node.path):  # a node with another name was not written by Kafka Steward
            for text in tree.below(node.path):
                tree.discard(text)
            tree.discard(node)


def _older(tree: Tree, parent: str, before_ms: int) -> list[Node]:
    return [node for node in tree.below(parent) if node.modified_ms < before_ms][:_MOST]
