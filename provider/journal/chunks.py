"""The chunk documents of plans (KIP-46): written before the plan record, deleted once they are processed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import groupby

from kafka_steward.assignment import Move
from kafka_steward.errors import PlanError
from kafka_steward.journal import codec, paths
from kafka_steward.journal.changes import remove
from kafka_steward.journal.document import parse_valid
from kafka_steward.journal.documents import Chunk, ChunkPartition
from kafka_steward.journal.records import PlanRecord
from kafka_steward.journal.tree import Node, Tree

__all__ = ["MOST_CHUNKS", "ORPHAN_MS", "Chunks"]

#: The limit on the chunks of one plan: its record is one document and names all of them.
MOST_CHUNKS = 20_000

#: Age in milliseconds at which a chunk that no plan names is considered left over from a crash.
ORPHAN_MS = 3_600_000


class Chunks:
    """The chunk nodes of one tree."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def write(self, record: PlanRecord, moves: Sequence[Move], only: Collection[int] | None = None) -> tuple[str, ...]:
        """Write a plan's chunks, or only those numbered in `only`; nodes of an earlier attempt are reused.

        Returns the names of their nodes, in order; the name is empty for a chunk that is not written. Raises PlanError
        if there are more than `MOST_CHUNKS`.
        """
        wanted_chunks = _chunks(record, moves)
        if len(wanted_chunks) > MOST_CHUNKS:
            raise PlanError(
                f"Plan {record.digest[:12]} has {len(wanted_chunks)} chunks, and a plan may have {MOST_CHUNKS}; make "
                "it anew with a larger chunk_size (heal_chunk_size for a heal)."
            )
        left_behind = {chunk: node.path for node, chunk in self._nodes() if chunk.plan == record.digest}
        names = []
        for wanted in wanted_chunks:
            path = left_behind.get(wanted, "")
            if not path and (only is None or wanted.chunk in only):
                path = self._tree.create_sequential(paths.CHUNK_PREFIX, wanted.to_json()).path
            names.append(path.rpartition("/")[2])
        return tuple(names)

    def delete(self, names: Collection[str]) -> None:
        """Delete the nodes with these names that still exist."""
        if not names:
            return
        there = filter(codec.is_topic, self._tree.children(paths.REASSIGN_CHUNKS))
        for name in sorted(set(names) & set(there)):
            node = self._tree.get(paths.chunk(name))
            if node is not None:
                remove(self._tree, node)

    def sweep(self, is_done: Callable[[str], bool]) -> None:
        """Delete old chunks of plans that have ended or were never published; keep chunks that a user wrote."""
        oldest_ms = self._tree.now_ms() - ORPHAN_MS
        for node, chunk in self._nodes():
            if chunk.plan is not None and node.modified_ms < oldest_ms and is_done(chunk.plan):
                remove(self._tree, node)

    def _nodes(self) -> list[tuple[Node, Chunk]]:
        return parse_valid(self._tree.below(paths.REASSIGN_CHUNKS), Chunk.from_node)


def _chunks(record: PlanRecord, moves: Sequence[Move]) -> list[Chunk]:
    ordered = sorted(moves, key=lambda move: (move.chunk, move.position))
    return [
        Chunk(tuple(_partition(move) for move in group), record.auto_generated, record.digest, number)
        for number, group in groupby(ordered, key=lambda move: move.chunk)
    ]


def _partition(move: Move) -> ChunkPartition:
    return ChunkPartition(move.topic, move.partition, move.after, move.before, move.topic_id)
