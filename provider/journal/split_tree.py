"""The tree of a journal whose ZooKeeper is a mailbox: the KIPs' documents are there, our own state is in the database.

The paths of the KIPs are read and written by people and by other programs, in ZooKeeper. What is below `/steward` is
read by Kafka Steward alone: it is where the rows of plans and the audit trail are, so that one transaction can change
both. The only node of ours in ZooKeeper is the journal's id, which binds the mailbox to one database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TypeVar

from kafka_steward.journal.paths import is_mailed
from kafka_steward.journal.tree import Documents, Node, Tree

T = TypeVar("T")


class SplitTree:
    """A `Tree` over two: `mailbox` holds the documents of the KIPs, `state` our own.

    The clock is that of `state`. Ids and times of nodes are comparable only within one of both.
    """

    def __init__(self, state: Tree, mailbox: Documents) -> None:
        self._state, self._mailbox = state, mailbox

    def _at(self, path: str) -> Documents:
        return self._mailbox if is_mailed(path) else self._state

    def now_ms(self) -> int:
        """Return the time of the database's clock, which is the journal's clock."""
        return self._state.now_ms()

    def create(self, path: str, data: str) -> Node:
        """Create a node, as specified by `Tree.create`."""
        return self._at(path).create(path, data)

    def create_all(self, documents: Mapping[str, str]) -> list[str]:
        """Create the missing nodes, as specified by `Tree.create_all`."""
        existing = set()
        for tree, paths in self._split(list(documents)):
            existing |= set(tree.create_all({path: documents[path] for path in paths}))
        return [path for path in documents if path in existing]

    def create_sequential(self, prefix: str, data: str) -> Node:
        """Create a numbered node, as specified by `Tree.create_sequential`."""
        return self._at(prefix).create_sequential(prefix, data)

    def get(self, path: str) -> Node | None:
        """Return a node, as specified by `Tree.get`."""
        return self._at(path).get(path)

    def set(self, path: str, data: str, *, version: int) -> Node:
        """Change a node, as specified by `Tree.set`."""
        return self._at(path).set(path, data, version=version)

    def delete(self, path: str, *, version: int) -> None:
        """Delete a node, as specified by `Tree.delete`."""
        self._at(path).delete(path, version=version)

    def delete_all(self, nodes: Sequence[Node]) -> None:
        """Delete the unchanged nodes, as specified by `Tree.delete_all`."""
        for tree, paths in self._split([node.path for node in nodes]):
            here = set(paths)
            tree.delete_all([node for node in nodes if node.path in here])

    def children(self, path: str) -> list[str]:
        """Return the names of children, as specified by `Tree.children`."""
        return self._at(path).children(path)

    def below(self, path: str) -> list[Node]:
        """Return the documents directly below a path, as specified by `Tree.below`."""
        return self._at(path).below(path)

    def read(self, paths: Sequence[str]) -> list[Node | None]:
        """Return the documents at several paths, as specified by `Tree.read`."""
        return self._ask_both(paths, lambda tree, some: tree.read(some))

    def created_ids(self, paths: Sequence[str]) -> list[int | None]:
        """Return the created ids of several documents, as specified by `Tree.created_ids`."""
        return self._ask_both(paths, lambda tree, some: tree.created_ids(some))

    @contextmanager
    def one_read(self) -> Iterator[None]:
        """Answer the reads of a block from one read of each, as specified by `Tree.one_read`."""
        with ExitStack() as views:
            views.enter_context(self._mailbox.one_read())
            views.enter_context(self._state.one_read())
            yield

    def end_read(self) -> None:
        """Answer no further read from what was read, as specified by `Tree.end_read`."""
        self._mailbox.end_read()
        self._state.end_read()

    def subtree(self, path: str, most: int) -> list[Node]:
        """Return the documents at and below a path, as specified by `Tree.subtree`."""
        return self._at(path).subtree(path, most)

    def discard(self, node: Node) -> bool:
        """Delete a node of any name, as specified by `Tree.discard`."""
        return self._at(node.path).discard(node)

    def close(self) -> None:
        """Close the connections of both."""
        self._mailbox.close()
        self._state.close()

    def _ask_both(self, paths: Sequence[str], ask: Callable[[Documents, Sequence[str]], list[T]]) -> list[T]:
        """Return the answers of both in the order of the paths; a tree that has none of them is not asked."""
        found = {
            path: each for tree, some in self._split(paths) for path, each in zip(some, ask(tree, some), strict=True)
        }
        return [found[path] for path in paths]

    def _split(self, paths: Sequence[str]) -> Iterator[tuple[Documents, list[str]]]:
        for tree, here in ((self._state, False), (self._mailbox, True)):
            some = [path for path in paths if is_mailed(path) is here]
            if some:
                yield tree, some
