"""A tree in a dict, under the same contract suite as the real ones. The clock is the caller's."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace

from kafka_steward.errors import NodeExists, NodeMissing, VersionConflict
from kafka_steward.journal.paths import validate_path
from kafka_steward.journal.tree import Node, encode_data


class MemoryTree:
    """A `Documents` that lives as long as its process."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.now_ms = clock
        self._nodes: dict[str, Node] = {}
        self._ids = itertools.count(1)
        self._sequences: dict[str, itertools.count[int]] = {}
        self._lock = threading.RLock()

    def create(self, path: str, data: str) -> Node:
        encode_data(validate_path(path), data)
        with self._lock:
            if path in self._nodes:
                raise NodeExists(f"{path} already exists; read it before changing it.")
            number, now = next(self._ids), self.now_ms()
            self._nodes[path] = Node(path, data, 0, number, number, now, now)
            return self._nodes[path]

    def create_all(self, documents: Mapping[str, str]) -> list[str]:
        for path, data in documents.items():
            encode_data(validate_path(path), data)
        existing = [path for path in documents if path in self._nodes]
        for path, data in documents.items():
            with suppress(NodeExists):
                self.create(path, data)
        return existing

    def create_sequential(self, prefix: str, data: str) -> Node:
        encode_data(validate_path(f"{prefix}0"), data)
        with self._lock:
            number = next(self._sequences.setdefault(prefix, itertools.count()))
            return self.create(f"{prefix}{number:010d}", data)

    def get(self, path: str) -> Node | None:
        return self._nodes.get(validate_path(path))

    def set(self, path: str, data: str, *, version: int) -> Node:
        encode_data(validate_path(path), data)
        with self._lock:
            node = self._still(path, version)
            now, number = self.now_ms(), next(self._ids)
            changed = replace(node, data=data, version=version + 1, modified_id=number, modified_ms=now)
            self._nodes[path] = changed
            return changed

    def delete(self, path: str, *, version: int) -> None:
        with self._lock:
            self._still(validate_path(path), version)
            del self._nodes[path]

    def delete_all(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            with suppress(NodeMissing, VersionConflict):
                self.delete(node.path, version=node.version)

    def children(self, path: str) -> list[str]:
        below = "/" if path == "/" else f"{validate_path(path)}/"
        with self._lock:
            return sorted({found[len(below) :].partition("/")[0] for found in self._nodes if found.startswith(below)})

    def below(self, path: str) -> list[Node]:
        nodes = (self._nodes.get(f"{path}/{name}") for name in self.children(path))
        return [node for node in nodes if node is not None]

    def read(self, paths: Sequence[str]) -> list[Node | None]:
        return [self.get(path) for path in paths]

    def one_read(self) -> AbstractContextManager[None]:
        return nullcontext()

    def end_read(self) -> None:
        pass

    def created_ids(self, paths: Sequence[str]) -> list[int | None]:
        return [None if node is None else node.created_id for node in self.read(paths)]

    def subtree(self, path: str, most: int) -> list[Node]:
        with self._lock:
            found = [each for name, each in self._nodes.items() if name == path or name.startswith(f"{path}/")]
        return sorted(found, key=lambda node: -len(node.path))[:most]

    def discard(self, node: Node) -> bool:
        with self._lock:
            same = self._nodes.get(node.path)
            if same is None or same.version != node.version:
                return False
            del self._nodes[node.path]
        return True

    def close(self) -> None:
        pass

    def _still(self, path: str, version: int) -> Node:
        node = self._nodes.get(path)
        if node is None:
            raise NodeMissing(f"{path} no longer exists; read again before changing it.")
        if node.version != version:
            raise VersionConflict(f"{path} was changed since version {version} was read; read it again.")
        return node
