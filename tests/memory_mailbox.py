"""A mailbox in a dict, under the same contract suite as the real ones. The clock is the caller's."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from kafka_steward.journal.mailbox import Node, encode_data
from kafka_steward.journal.paths import validate_path


class MemoryMailbox:
    """A `Mailbox` that lives as long as its process."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.now_ms = clock
        self._nodes: dict[str, Node] = {}
        self._ids = itertools.count(1)
        self._sequences: dict[str, itertools.count[int]] = {}
        self._lock = threading.RLock()

    def children(self, path: str) -> list[str]:
        below = "/" if path == "/" else f"{path}/"
        with self._lock:
            return sorted({found[len(below) :].partition("/")[0] for found in self._nodes if found.startswith(below)})

    def read(self, paths: Sequence[str]) -> list[Node | None]:
        return [self._nodes.get(path) for path in paths]

    def put(self, texts: Mapping[str, str], seen: Collection[Node] = ()) -> dict[str, Node]:
        for path, text in texts.items():
            encode_data(validate_path(path), text)
        known: Mapping[str, Node | None] = dict.fromkeys(texts) | {node.path: node for node in seen}
        with self._lock:
            same = [path for path, node in known.items() if self._is_as(path, node)]
            self._nodes |= {path: self._written(known[path], path, texts[path]) for path in same}
            return {path: self._nodes[path] for path in same}

    def append(self, prefix: str, text: str) -> Node:
        encode_data(validate_path(f"{prefix}0"), text)
        with self._lock:
            path = f"{prefix}{next(self._sequences.setdefault(prefix, itertools.count())):010d}"
            return self.put({path: text})[path]

    def delete(self, nodes: Sequence[Node]) -> list[Node]:
        with self._lock:
            same = [node for node in nodes if self._is_as(node.path, node)]
            for node in same:
                del self._nodes[node.path]
        return same

    def one_read(self, *, again: bool = False) -> AbstractContextManager[None]:
        del again  # nothing is kept
        return nullcontext()

    def _is_as(self, path: str, seen: Node | None) -> bool:
        found = self._nodes.get(path)
        return found is None if seen is None else found is not None and found.version == seen.version

    def _written(self, known: Node | None, path: str, text: str) -> Node:
        number, now = next(self._ids), self.now_ms()
        if known is None:
            return Node(path, text, 0, number, number, now, now)
        return replace(known, data=text, version=known.version + 1, modified_id=number, modified_ms=now)
