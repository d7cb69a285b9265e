"""Plans as the journal keeps them: chunk documents, one row per partition, and a record that ties them together.

Publishing writes the chunks first, the rows second, and the record last: a plan exists once its record does. What a
crash leaves behind before that belongs to nobody and is never carried out: the next publication of the same plan uses
it, and `purge` sweeps it once it is old. On one SQL database all of it is one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kafka_steward.assignment import Move, TopicPartition
from kafka_steward.errors import PlanError, VersionConflict
from kafka_steward.journal import paths
from kafka_steward.journal.changes import put_new, remove
from kafka_steward.journal.chunks import Chunks
from kafka_steward.journal.document import readable
from kafka_steward.journal.locks import Fence
from kafka_steward.journal.moves import Cause, MoveRow, MoveState, Phase
from kafka_steward.journal.records import ENDED, PlanRecord, PlanStatus
from kafka_steward.journal.tree import Node, Tree

if TYPE_CHECKING:
    from kafka_steward.journal.sql_ended import EndedPlans
    from kafka_steward.journal.sql_moves import MoveTable

__all__ = ["MoveRow", "MoveState", "PlanRecord", "PlanStatus", "Plans"]


class Plans:
    """The plans of one cluster. Any method may raise JournalUnreachable.

    `together` begins one transaction over tree and rows where both are one database, and nothing elsewhere; then
    `rows_together` begins one over the rows alone.
    """

    def __init__(
        self,
        tree: Tree,
        table: MoveTable,
        ended: EndedPlans,
        cluster_id: str,
        together: Callable[[], AbstractContextManager[object]],
        *,
        rows_together: Callable[[], AbstractContextManager[object]] | None = None,
    ) -> None:
        self._tree = tree
        self._chunks = Chunks(tree)
        self._table = table
        self._ended = ended
        self._cluster_id = cluster_id
        self._together = together
        self._rows_together = rows_together or together

    def publish(self, record: PlanRecord, moves: Sequence[Move]) -> PlanRecord:
        """Write a plan down; a plan of the same digest that exists is returned as it stands.

        Raises PlanError for another cluster's plan, or one that names a partition twice.
        """
        self._check(record, moves)
        with self._together():
            known = self.get(record.digest)
            if known is not None:
                return known
            names = self._chunks.write(record, moves)
            self._table.insert_missing(record.digest, moves)
            return self._write_record(record, moves, names)

    def adopt(self, record: PlanRecord, rows: Sequence[MoveRow]) -> bool:
        """Take a plan over from another journal of this cluster, as it stands; False when it is known here already.

        Only chunks that are still to be done are written. Rows that are missing here are added in any case: the other
        journal may have the same tree.
        """
        moves = [row.move for row in rows]
        self._check(record, moves)
        with self._together():
            self._table.adopt(record.digest, rows)
            if self.get(record.digest) is not None:
                return False
            if record.revision == ENDED:
                self._ended.put(record, record.stepped_ms)
                return True
            open_chunks = set() if record.status.finished else {row.move.chunk for row in rows if not row.state.settled}
            names = self._chunks.write(record, moves, only=open_chunks)
            self._tree.create(paths.plan(record.digest), replace(record, chunks=names).to_json())
        return True

    def get(self, digest: str) -> PlanRecord | None:
        """The plan's record; None when there is no such plan. Raises DocumentError when it cannot be read."""
        node = self._tree.get(paths.plan(digest)) if paths.is_digest(digest) else None
        if node is not None:
            return _record(node)
        return self._ended.get(digest) if paths.is_digest(digest) else None

    def recent(self) -> list[PlanRecord]:
        """Plans that have not ended, and those that ended lately or are still needed, the oldest first."""
        return [record for _, record in self._all()]

    def unfinished(self) -> list[PlanRecord]:
        """Plans that have not ended, the oldest first."""
        return [record for record in self.recent() if not record.status.finished]

    def latest(self, n: int) -> list[PlanRecord]:
        """The `n` plans that were published last, the newest first."""
        recent = self.recent()[::-1]
        digests = {record.digest for record in recent}
        archived = [record for record in self._ended.latest(n) if record.digest not in digests]
        return sorted([*recent, *archived], key=lambda record: -record.published_ms)[:n]

    def digests(self) -> list[str]:
        """The digests of all plans whose records can be read."""
        return sorted({*(record.digest for record in self.recent()), *self._ended.digests()})

    def update(self, record: PlanRecord, *, fence: Fence | None = None, **changes: Any) -> PlanRecord:
        """Change fields of a plan that is still as `record` has it. When it ends, its chunk documents go (KIP-46).

        One that is among the ended plans is among those that each look reads from then on.

        Raises VersionConflict when someone else changed it since, LockLost when the fence fell.
        """
        changed = replace(record, **changes)
        with self._together():
            if fence is not None:
                fence.check()
            node = self._written(record, changed)
            if changed.status.finished:
                self._chunks.delete(changed.chunks)
        return replace(changed, revision=node.version)

    def try_update(self, record: PlanRecord, **changes: Any) -> PlanRecord | None:
        """Change fields of a plan that is still as `record` has it; None when a step, or someone else, changed it."""
        try:
            return self.update(record, **changes)
        except VersionConflict:
            return None

    def tidy(self, digest: str) -> None:
        """Delete the chunk documents of a plan that has ended, if a process that died at its end left any."""
        record = self.get(digest)
        if record is not None and record.status.finished:
            self._chunks.delete(record.chunks)

    def rows(self, digest: str) -> list[MoveRow]:
        """What the plan moves and how far each partition is, in plan order; empty for an unknown plan.

        Raises PlanError when they are not as many as the plan's record counts: a part of it is elsewhere, or lost.
        """
        rows, record = self._table.rows(digest), self.get(digest)
        if record is not None and len(rows) != record.partitions:
            raise PlanError(
                f"Plan {digest[:12]} moves {record.partitions} partitions, and the journal at {self._table.place} has "
                f"{len(rows)} rows of it; nothing more is done for it until that database has them again: restore it, "
                "or give the setting journal the database in which the plan was published."
            )
        return rows

    def rows_found(self, digest: str) -> list[MoveRow]:
        """The rows that there are, whatever the record says: for what must go on although some are missing."""
        return self._table.rows(digest)

    def in_flight(self) -> list[str]:
        """Return the digests of the plans, ended or not, of which a partition is submitted."""
        return self._table.in_flight()

    def by_others(
        self, digest: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, list[tuple[str, MoveRow]]]:
        """Return what other plans have submitted of these partitions: for each, digests and rows, the latest last."""
        found: dict[TopicPartition, list[tuple[str, MoveRow]]] = {}
        for plan, row in self._table.by_others(digest, partitions) if partitions else ():
            found.setdefault(row.topic_partition, []).append((plan, row))
        return found

    def mark(
        self,
        digest: str,
        partitions: Collection[TopicPartition],
        state: MoveState,
        detail: str | Mapping[TopicPartition, str] = "",
        *,
        fence: Fence | None,
        attempt: int | None = None,
        isr_seen: bool | None = None,
        phase: Phase | None = None,
        stage: int = 0,
        cause: Cause | None = None,
        unacknowledged: bool | None = None,
    ) -> None:
        """Set how far some partitions are; `attempt`, `isr_seen` and `unacknowledged` stay where None is given.

        `detail` is the same for all, or one for each. A chunk whose partitions are all settled is deleted (KIP-46).

        Raises PlanError for a partition that the plan does not move, LockLost when the fence fell.
        """
        if not partitions:
            return
        with self._together():
            with self._rows_together():
                if fence is not None:
                    fence.check()
                kept: dict[str, Any] = {"attempt": attempt, "isr_seen": isr_seen, "unacknowledged": unacknowledged}
                kept |= {"phase": phase, "stage": stage, "cause": cause}
                if self._table.mark(digest, partitions, state, detail, **kept) != len(set(partitions)):
                    raise self._stranger(digest, partitions)
            if state.settled:
                self._delete_settled(digest)

    def archive(self, before_ms: int, *, is_needed: Callable[[PlanRecord], bool], most: int) -> list[str]:
        """Move at most `most` plans that ended before a moment out of what each look reads; returns their digests.

        Those that `is_needed` names stay.
        """
        gone: list[str] = []
        for node, record in self._all():
            over = record.status.finished and node.modified_ms < before_ms
            if over and len(gone) < most and not is_needed(record):
                with self._together():
                    # A process that dies in between leaves both; then the one in the tree counts.
                    self._ended.put(record, node.modified_ms)
                    remove(self._tree, node)
                gone.append(record.digest)
        return gone

    def purge(self, before_ms: int) -> list[str]:
        """Delete plans that ended before a moment of the journal's clock, with their rows; returns their digests.

        The audit trail stays, and so do unfinished plans. Chunks that no plan names any more are swept.
        """
        gone = []
        for node, record in self._all():
            if record.status.finished and node.modified_ms < before_ms:
                self._table.forget(record.digest)
                remove(self._tree, node)
                gone.append(record.digest)
        for digest in self._ended.digests(ended_before_ms=before_ms):
            # A process that died while the plan came back to the tree left this: its rows are still needed.
            if self._tree.get(paths.plan(digest)) is None:
                self._table.forget(digest)
                gone.append(digest)
            self._ended.forget(digest)
        self._chunks.sweep(self._is_done)
        return gone

    def _check(self, record: PlanRecord, moves: Sequence[Move]) -> None:
        if record.cluster_id != self._cluster_id:
            raise PlanError(
                f"Plan {record.digest[:12]} was made for cluster {record.cluster_id}, and this is {self._cluster_id}; "
                "make a plan from a snapshot of this cluster."
            )
        if len({move.topic_partition for move in moves}) < len(moves):
            raise PlanError(f"Plan {record.digest[:12]} names a partition twice; make it anew.")

    def _write_record(self, record: PlanRecord, moves: Sequence[Move], names: tuple[str, ...]) -> PlanRecord:
        now_ms = self._tree.now_ms()
        written = replace(
            record, chunks=names, partitions=len(moves), published_ms=now_ms, stepped_ms=now_ms, revision=0
        )
        if put_new(self._tree, paths.plan(record.digest), written.to_json()) is None:
            return self._published_meanwhile(record.digest, names)
        return written

    def _written(self, record: PlanRecord, changed: PlanRecord) -> Node:
        path = paths.plan(record.digest)
        if record.revision != ENDED:
            return self._tree.set(path, changed.to_json(), version=record.revision)
        node = put_new(self._tree, path, changed.to_json())
        if node is None:
            raise VersionConflict(f"Plan {record.digest[:12]} was changed by someone else; read it again.")
        self._ended.forget(record.digest)
        return node

    def _published_meanwhile(self, digest: str, names: tuple[str, ...]) -> PlanRecord:
        known = self.get(digest)
        if known is None:
            raise PlanError(f"Plan {digest[:12]} came and went while it was published; publish it again.")
        self._chunks.delete(tuple(set(names) - set(known.chunks)))
        return known

    def _stranger(self, digest: str, partitions: Collection[TopicPartition]) -> PlanError:
        strangers = sorted(set(partitions) - {row.topic_partition for row in self._table.rows(digest)})
        return PlanError(f"Plan {digest[:12]} does not move {strangers[0]}; nothing was marked.")

    def _delete_settled(self, digest: str) -> None:
        record = self.get(digest)
        if record is not None:
            unsettled = self._table.unsettled_chunks(digest)
            self._chunks.delete([name for chunk, name in enumerate(record.chunks) if chunk not in unsettled])

    def _is_done(self, digest: str) -> bool:
        record = self.get(digest)
        return record is None or record.status.finished

    def _all(self) -> list[tuple[Node, PlanRecord]]:
        found = readable(self._tree.below(paths.PLANS), _record)
        return sorted(found, key=lambda each: (each[1].published_ms, each[0].created_id))


def _record(node: Node) -> PlanRecord:
    return replace(PlanRecord.from_node(node), revision=node.version)
