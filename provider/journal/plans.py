"""Plans as the journal stores them: chunk documents, one row per partition, and a record that references both.

Publishing writes the chunks first (KIP-46), the rows second, and the record last: a plan exists once its record exists.
Chunks and rows left over from a crash before that belong to no plan and are never executed: the next publication of the
same plan reuses them, and `purge` deletes old chunks of this kind. Chunks are deleted once they are processed. If tree
and rows are in one SQL database, publishing is one transaction.

An approval is bound to one plan by its digest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from kafka_steward.assignment import Move, TopicPartition
from kafka_steward.errors import PlanError, VersionConflict
from kafka_steward.journal import paths
from kafka_steward.journal.document import Digest, Document, FieldPresence, Words, parse_valid_nodes
from kafka_steward.journal.kip_documents import Chunk, ChunkPartition
from kafka_steward.journal.locks import Fence
from kafka_steward.journal.records import ENDED, Cause, MoveRow, MoveState, Phase, PlanRecord
from kafka_steward.journal.tree import Node, Tree, put_new, remove

if TYPE_CHECKING:
    from kafka_steward.journal.sql.history import EndedPlans
    from kafka_steward.journal.sql.moves import MoveTable
    from kafka_steward.journal.sql.plan_reports import PlanReports


@dataclass(frozen=True)
class Approval(Document):
    """`/steward/approvals/<digest>`: the plan with this digest, and no other, may be executed.

    `person` is the user who approved it. It is None if a rule approved the plan; `reason` then names the rule.
    `answered_ms` is the time of the approval by Airflow's clock, in milliseconds since 1970.
    """

    VERSION_IS = FieldPresence.OPTIONAL

    plan: Digest
    person: Words | None = None
    reason: Words | None = None
    answered_ms: int | None = None


#: The limit on the chunks of one plan: its record is one document and names all of them.
MOST_CHUNKS = 20_000

#: Age in milliseconds at which a chunk that no plan names is considered left over from a crash.
ORPHAN_MS = 3_600_000


class ChunkNodes:
    """The chunk nodes of one tree."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def write(self, record: PlanRecord, moves: Sequence[Move], only: Collection[int] | None = None) -> tuple[str, ...]:
        """Write a plan's chunks, or only those numbered in `only`; nodes of an earlier attempt are reused.

        Returns the names of their nodes, in order; the name is empty for a chunk that is not written. Raises PlanError
        if there are more than `MOST_CHUNKS`.
        """
        wanted_chunks = _build_chunks(record, moves)
        if len(wanted_chunks) > MOST_CHUNKS:
            raise PlanError(
                f"Plan {record.digest[:12]} has {len(wanted_chunks)} chunks, and a plan may have {MOST_CHUNKS}; make "
                "a new plan with a larger chunk_size (heal_chunk_size for a heal)."
            )
        left_behind = {chunk: node.path for node, chunk in self._read_chunk_nodes() if chunk.plan == record.digest}
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
        there = filter(paths.is_topic, self._tree.children(paths.REASSIGN_CHUNKS))
        nodes = self._tree.read([paths.chunk(name) for name in sorted(set(names) & set(there))])
        self._tree.delete_all([node for node in nodes if node is not None])

    def delete_stale(self, is_done: Callable[[str], bool]) -> None:
        """Delete old chunks of plans that have ended or were never published; keep chunks that a user wrote."""
        oldest_ms = self._tree.now_ms() - ORPHAN_MS
        for node, chunk in self._read_chunk_nodes():
            if chunk.plan is not None and node.modified_ms < oldest_ms and is_done(chunk.plan):
                remove(self._tree, node)

    def _read_chunk_nodes(self) -> list[tuple[Node, Chunk]]:
        return parse_valid_nodes(self._tree.below(paths.REASSIGN_CHUNKS), Chunk.from_node)


def _build_chunks(record: PlanRecord, moves: Sequence[Move]) -> list[Chunk]:
    ordered = sorted(moves, key=lambda move: (move.chunk, move.position))
    return [
        Chunk(tuple(_chunk_partition(move) for move in group), record.auto_generated, record.digest, number)
        for number, group in groupby(ordered, key=lambda move: move.chunk)
    ]


def _chunk_partition(move: Move) -> ChunkPartition:
    return ChunkPartition(move.topic, move.partition, move.after, move.before, move.topic_id)


class Plans:
    """The plans of one cluster. Any method may raise JournalUnreachable.

    `transaction` and `project` are those of `Journal`. `reports` repeat the records for the page, which does not read
    the tree; without them, nothing is repeated.
    """

    def __init__(
        self,
        tree: Tree,
        table: MoveTable,
        ended: EndedPlans,
        cluster_id: str,
        *,
        transaction: Callable[[], AbstractContextManager[object]],
        project: Callable[[Callable[[], None]], None],
        reports: PlanReports | None = None,
    ) -> None:
        self._reports = reports
        self._tree = tree
        self._chunks = ChunkNodes(tree)
        self._table = table
        self._ended = ended
        self._cluster_id = cluster_id
        self._transaction = transaction
        self._project = project

    def publish(self, record: PlanRecord, moves: Sequence[Move]) -> PlanRecord:
        """Publish a plan and return its record; an existing plan with the same digest is returned unchanged.

        Raises PlanError for another cluster's plan, or one that names a partition twice.
        """
        self._check_publishable(record, moves)
        known = self.get(record.digest)
        if known is not None:
            return known
        # The record names the nodes of the chunks. Without a record, they are reused by the next attempt, or deleted.
        names = self._chunks.write(record, moves)
        with self._transaction():
            self._table.insert_missing(record.digest, moves)
            written = self._write_record(record, moves, names)
            if self._reports is not None:
                self._reports.put_record(written)
        return written

    def import_plan(self, record: PlanRecord, rows: Sequence[MoveRow]) -> bool:
        """Import a plan unchanged from another journal of this cluster; return False if it exists here already.

        Only chunks with unfinished partitions are written. Rows that are missing here are added in any case: the other
        journal may have the same ZooKeeper. If it has the same database, the chunks alone are new here.
        """
        moves = [row.move for row in rows]
        self._check_publishable(record, moves)
        open_chunks = {row.move.chunk for row in rows if not row.state.settled}
        is_open = not record.status.finished and self.get(record.digest) in {None, record}
        names = self._chunks.write(record, moves, only=open_chunks if is_open else ())
        with self._transaction():
            self._table.import_rows(record.digest, rows)
            known = self.get(record.digest)
            if known is not None:
                if is_open and known == record and known.chunks != names:
                    self._write_change(known, replace(known, chunks=names))
                return False
            if self._reports is not None:
                self._reports.correct([record])
            if record.revision == ENDED:
                self._ended.put(record, record.stepped_ms)
            else:
                self._tree.create(paths.plan(record.digest), replace(record, chunks=names).to_json())
        return True

    def get(self, digest: str) -> PlanRecord | None:
        """Return the plan's record; None if there is no such plan. Raises DocumentError if the record is corrupt."""
        return self.record_from_node(self._tree.get(paths.plan(digest)), digest) if paths.is_digest(digest) else None

    def record_from_node(self, node: Node | None, digest: str) -> PlanRecord | None:
        """Return the record in the plan's node; without a node, the record of an archived plan, or None."""
        return self._ended.get(digest) if node is None else _parse_record(node)

    def recent(self) -> list[PlanRecord]:
        """Return the plans that have not ended, ended recently, or are still needed, the oldest first."""
        return [record for _, record in self._all_records()]

    def unfinished(self) -> list[PlanRecord]:
        """Return the plans that have not ended, the oldest first."""
        return [record for record in self.recent() if not record.status.finished]

    def latest(self, n: int) -> list[PlanRecord]:
        """Return the `n` most recently published plans, the newest first."""
        recent = self.recent()[::-1]
        digests = {record.digest for record in recent}
        archived = [record for record in self._ended.latest(n) if record.digest not in digests]
        return sorted([*recent, *archived], key=lambda record: -record.published_ms)[:n]

    def digests(self) -> list[str]:
        """Return the digests of all plans whose records are readable, and of all archived plans, sorted."""
        return sorted({*(record.digest for record in self.recent()), *self._ended.digests()})

    def update(self, record: PlanRecord, *, fence: Fence | None = None, **changes: Any) -> PlanRecord:
        """Change fields of a plan that is unchanged since `record` was read; return the new record.

        When the plan ends, its chunk documents are deleted (KIP-46). A record from the table of ended plans is moved
        back to the tree, where each poll reads it.

        Raises VersionConflict if another process has changed it since, LockLost if the step lock was lost.
        """
        changed = replace(record, **changes)
        with self._transaction():
            if fence is not None:
                fence.check()
            node = self._write_change(record, changed)
            if changed.status.finished:
                self._project(lambda: self._chunks.delete(changed.chunks))
            self._report_change(record, changed)
        return replace(changed, revision=node.version)

    def try_update(self, record: PlanRecord, **changes: Any) -> PlanRecord | None:
        """Change fields of a plan that is unchanged since `record` was read; return None after a concurrent change."""
        try:
            return self.update(record, **changes)
        except VersionConflict:
            return None

    def delete_leftover_chunks(self, digest: str) -> None:
        """Delete the chunk documents that an ended plan still has because a process crashed when the plan ended."""
        record = self.get(digest)
        if record is not None and record.status.finished:
            self._chunks.delete(record.chunks)

    def rows(self, digest: str, record: PlanRecord | None = None) -> list[MoveRow]:
        """Return the plan's moves with their states, in plan order; empty for an unknown plan.

        Raises PlanError if their number differs from the one in the plan's record, which is read unless it is given:
        some are elsewhere, or lost.
        """
        rows = self._table.rows(digest)
        self._check_row_count(digest, len(rows), record or self.get(digest))
        return rows

    def unsettled_rows(self, digest: str, record: PlanRecord | None = None) -> tuple[int, list[MoveRow]]:
        """Return the number of a plan's moves, and those that are not settled with their states, in plan order.

        Raises PlanError as `rows` does.
        """
        number, unsettled = self._table.unsettled_rows(digest)
        self._check_row_count(digest, number, record or self.get(digest))
        return number, unsettled

    def count_states(self, digest: str) -> Counter[MoveState]:
        """Return the numbers of a plan's moves by state."""
        return self._table.count_states(digest)

    def rows_of(self, digest: str, partitions: Collection[TopicPartition]) -> list[MoveRow]:
        """Return the moves of some partitions; partitions that the plan does not move are left out."""
        return self._table.rows_of(digest, partitions) if partitions else []

    def unsettled_partitions(self, digest: str, record: PlanRecord | None = None) -> set[TopicPartition]:
        """Return the partitions that a plan moves now, or may still move; no other column of its rows is read.

        Raises PlanError as `rows` does.
        """
        number, unsettled = self._table.unsettled_partitions(digest)
        self._check_row_count(digest, number, record or self.get(digest))
        return unsettled

    def existing_rows(self, digest: str) -> list[MoveRow]:
        """Return the existing rows without comparing their number, for work that must continue if some are missing."""
        return self._table.rows(digest)

    def in_flight(self) -> list[str]:
        """Return the digests of the plans, ended or not, that have a partition in state SUBMITTED."""
        return self._table.in_flight()

    def submissions_by_others(
        self, digest: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, list[tuple[str, MoveRow]]]:
        """Return the submissions of these partitions by other plans: per partition, digests and rows, latest last."""
        found: dict[TopicPartition, list[tuple[str, MoveRow]]] = {}
        for plan, row in self._table.submissions_by_others(digest, partitions) if partitions else ():
            found.setdefault(row.topic_partition, []).append((plan, row))
        return found

    def set_move_states(
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
        stage: int | None = None,
        cause: Cause | None = None,
        unacknowledged: bool | None = None,
    ) -> None:
        """Set the state of some partitions; `attempt`, `isr_seen`, `stage` and `unacknowledged` are kept if None.

        `detail` is one text for all partitions, or one per partition. A chunk whose partitions are all settled is
        deleted (KIP-46).

        Raises PlanError for a partition that the plan does not move, LockLost if the step lock was lost.
        """
        if not partitions:
            return
        with self._transaction():
            if fence is not None:
                fence.check()
            kept: dict[str, Any] = {"attempt": attempt, "isr_seen": isr_seen, "unacknowledged": unacknowledged}
            kept |= {"phase": phase, "stage": stage, "cause": cause}
            if self._table.set_state(digest, partitions, state, detail, **kept) != len(set(partitions)):
                raise self._unknown_partition_error(digest, partitions)
            if state.settled:
                self._delete_settled_chunks(digest)

    def archive(self, before_ms: int, *, is_needed: Callable[[PlanRecord], bool], most: int) -> list[str]:
        """Move plans that ended before `before_ms` to the table of ended plans, which polls do not read.

        Returns the digests of the moved plans, at most `most`. Plans for which `is_needed` is true are not moved.
        """
        gone: list[str] = []
        for node, record in self._all_records():
            over = record.status.finished and node.modified_ms < before_ms
            if over and len(gone) < most and not is_needed(record):
                with self._transaction():
                    self._ended.put(record, node.modified_ms)
                    remove(self._tree, node)
                gone.append(record.digest)
        return gone

    def purge(self, before_ms: int) -> list[str]:
        """Delete plans that ended before `before_ms` of the journal's clock, with their rows; return their digests.

        The audit trail and unfinished plans are kept. Orphaned chunks, which no plan names any more, are deleted.
        """
        gone = []
        for node, record in self._all_records():
            if record.status.finished and node.modified_ms < before_ms:
                self._table.delete(record.digest)
                remove(self._tree, node)
                gone.append(record.digest)
        for digest in self._ended.digests(ended_before_ms=before_ms):
            # A process crashed while it moved the plan back to the tree: the plan's rows are still needed.
            if self._tree.get(paths.plan(digest)) is None:
                self._table.delete(digest)
                gone.append(digest)
            self._ended.delete(digest)
        self._chunks.delete_stale(self._is_plan_done)
        if self._reports is not None:
            self._reports.delete(gone, ended_before_ms=before_ms)
        return gone

    def _report_change(self, before: PlanRecord, after: PlanRecord) -> None:
        if self._reports is not None and self._reports.shows_change(before, after):
            self._reports.put_record(after)

    def _check_row_count(self, digest: str, number: int, record: PlanRecord | None) -> None:
        if record is not None and number != record.partitions:
            raise PlanError(
                f"Plan {digest[:12]} moves {record.partitions} partitions, and the journal at {self._table.place} "
                f"has {number} rows of it; the plan does not continue until that database has them again: restore "
                "it, or set the setting journal to the database in which the plan was published."
            )

    def _check_publishable(self, record: PlanRecord, moves: Sequence[Move]) -> None:
        if record.cluster_id != self._cluster_id:
            raise PlanError(
                f"Plan {record.digest[:12]} was made for cluster {record.cluster_id}, and this is {self._cluster_id}; "
                "make a plan from a snapshot of this cluster."
            )
        if len({move.topic_partition for move in moves}) < len(moves):
            raise PlanError(f"Plan {record.digest[:12]} names a partition twice; make a new plan.")

    def _write_record(self, record: PlanRecord, moves: Sequence[Move], names: tuple[str, ...]) -> PlanRecord:
        now_ms = self._tree.now_ms()
        written = replace(
            record, chunks=names, partitions=len(moves), published_ms=now_ms, stepped_ms=now_ms, revision=0
        )
        if put_new(self._tree, paths.plan(record.digest), written.to_json()) is None:
            return self._use_concurrent_record(record.digest, names)
        return written

    def _write_change(self, record: PlanRecord, changed: PlanRecord) -> Node:
        path = paths.plan(record.digest)
        if record.revision != ENDED:
            return self._tree.set(path, changed.to_json(), version=record.revision)
        node = put_new(self._tree, path, changed.to_json())
        if node is None:
            raise VersionConflict(f"Plan {record.digest[:12]} was changed by another process; read it again.")
        self._ended.delete(record.digest)
        return node

    def _use_concurrent_record(self, digest: str, names: tuple[str, ...]) -> PlanRecord:
        known = self.get(digest)
        if known is None:
            raise PlanError(f"Plan {digest[:12]} was deleted while it was published; publish it again.")
        self._chunks.delete(tuple(set(names) - set(known.chunks)))
        return known

    def _unknown_partition_error(self, digest: str, partitions: Collection[TopicPartition]) -> PlanError:
        strangers = sorted(set(partitions) - {row.topic_partition for row in self._table.rows(digest)})
        return PlanError(f"Plan {digest[:12]} does not move {strangers[0]}; nothing was marked.")

    def _delete_settled_chunks(self, digest: str) -> None:
        record = self.get(digest)
        if record is not None:
            unsettled = self._table.unsettled_chunks(digest)
            names = [name for chunk, name in enumerate(record.chunks) if chunk not in unsettled]
            self._project(lambda: self._chunks.delete(names))

    def _is_plan_done(self, digest: str) -> bool:
        record = self.get(digest)
        return record is None or record.status.finished

    def _all_records(self) -> list[tuple[Node, PlanRecord]]:
        found = parse_valid_nodes(self._tree.below(paths.PLANS), _parse_record)
        return sorted(found, key=lambda each: (each[1].published_ms, each[0].created_id))


def _parse_record(node: Node) -> PlanRecord:
    return replace(PlanRecord.from_node(node), revision=node.version)
