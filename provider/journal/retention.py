"""How long the journal keeps what nothing reads any more: approvals of forgotten plans, and what was moved aside."""

from __future__ import annotations

import re
from collections.abc import Callable

from kafka_steward.journal import paths
from kafka_steward.journal.quarantine import QUARANTINE
from kafka_steward.journal.tree import Node, Tree

__all__ = ["forget_old"]

_MOVED_ASIDE = re.compile(re.escape(QUARANTINE) + r"/doc_\d{1,19}")
#: Nodes of each kind that are deleted at once.
_MOST = 1000


def forget_old(tree: Tree, before_ms: int, *, is_known: Callable[[str], bool]) -> None:
    """Delete what was written before a moment of the journal's clock: approvals of plans that `is_known` does not know.

    And what was moved aside, with its texts.
    """
    for node in _older(tree, paths.APPROVALS, before_ms):
        if not is_known(node.path.rpartition("/")[2]):
            tree.discard(node)
    for node in _older(tree, QUARANTINE, before_ms):
        if _MOVED_ASIDE.fullmatch(node.path):  # else somebody else's, whatever it is named
            for text in tree.below(node.path):
                tree.discard(text)
            tree.discard(node)


def _older(tree: Tree, parent: str, before_ms: int) -> list[Node]:
    return [node for node in tree.below(parent) if node.modified_ms < before_ms][:_MOST]
