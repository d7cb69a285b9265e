"""Plans as the journal stores them: chunk documents, one row per partition, and one row for the plan itself.

Publishing writes the chunks first (KIP-46), and then all rows in one transaction. Chunks left over from a crash before
that belong to no plan and are never executed: the next publication of the same plan reuses them, and `purge` deletes
old chunks of this kind. Chunks are deleted once they are processed.

An approval is bound to one plan by its digest, and may come before the plan is published.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Unpack

from kafka_steward.assignment import Move, TopicPartition
from kafka_steward.errors import PlanError, VersionConflict
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Actor
from kafka_steward.journal.document import parse_valid_nodes
from kafka_steward.journal.kip_documents import Chunk, ChunkPartition
from kafka_steward.journal.locks import Fence
from kafka_steward.journal.mailbox import Mailbox, Node, delete_one, read_below
from kafka_steward.journal.observed import ApprovalState
from kafka_steward.journal.records import Approval, MoveChanges, MoveRow, MoveState, PlanRecord

if TYPE_CHECKING:
    from kafka_steward.journal.sql.moves import MoveTable
    from kafka_steward.journal.sql.plans import PlanTable


#: The limit on the chunks of one plan: its row names all of them.
MOST_CHUNKS = 20_000

#: Age in milliseconds at which a chunk that no plan names is considered left over from a crash.
ORPHAN_MS = 3_600_000


class ChunkNodes:
    """The chunk nodes of one mailbox."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox

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
                path = self._mailbox.append(paths.CHUNK_PREFIX, wanted.to_json()).path
            names.append(path.rpartition("/")[2])
        return tuple(names)

    def delete(self, names: Collection[str]) -> None:
        """Delete the nodes with these names that still exist."""
        if not names:
            return
        # Other clients may have created nodes of any name there.
        there = filter(paths.is_topic, self._mailbox.children(paths.REASSIGN_CHUNKS))
        nodes = self._mailbox.read([paths.chunk(name) for name in sorted(set(names) & set(there))])
        self._mailbox.delete([node for node in nodes if node is not None])

    def delete_stale(self, oldest_ms: int, is_done: Callable[[str], bool]) -> None:
        """Delete the chunks before `oldest_ms` of plans that have ended or are unknown; keep those of users."""
        for node, chunk in self._read_chunk_nodes():
            if chunk.plan is not None and node.modified_ms < oldest_ms and is_done(chunk.plan):
                delete_one(self._mailbox, node)

    def _read_chunk_nodes(self) -> list[tuple[Node, Chunk]]:
        return parse_valid_nodes(read_below(self._mailbox, paths.REASSIGN_CHUNKS), Chunk.from_node)


def _build_chunks(record: PlanRecord, moves: Sequence[Move]) -> list[Chunk]:
    ordered = sorted(moves, key=lambda move: (move.chunk, move.position))
    chunks = []
    for number, group in groupby(ordered, key=lambda move: move.chunk):
        partitions = tuple(
            ChunkPartition(move.topic, move.partition, move.after, move.before, move.topic_id) for move in group
        )
        chunks.append(Chunk(partitions, record.auto_generated, record.digest, number))
    return chunks


class Plans:
    """The plans of one cluster. Any method may raise JournalUnreachable.

    `now_ms`, `transaction` and `project` are those of `Journal`.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        moves: MoveTable,
        plans: PlanTable,
        cluster_id: str,
        *,
        now_ms: Callable[[], int],
        transaction: Callable[[], AbstractContextManager[object]],
        project: Callable[[Callable[[], None]], None],
    ) -> None:
        self._mailbox = mailbox
        self._chunks = ChunkNodes(mailbox)
        self._table = moves
        self._plans = plans
        self._cluster_id = cluster_id
        self._now_ms = now_ms
        self._transaction = transaction
        self._project = project
        #: What is read or written in one table alone.
        self.unfinished, self.latest, self.by_source = plans.unfinished, plans.latest, plans.by_source
        self.digests, self.ask, self.approval = plans.digests, plans.ask, plans.approval
        self.count_states, self.in_flight = moves.count_states, moves.in_flight
        #: The existing rows without comparing their number, for work that must continue if some are missing.
        self.existing_rows = moves.rows

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
        now_ms = self._now_ms()
        written = replace(
            record, chunks=names, partitions=len(moves), published_ms=now_ms, stepped_ms=now_ms, revision=0
        )
        with self._transaction():
            self._table.insert_missing(record.digest, moves)
            is_new = self._plans.insert(written)
        if is_new:
            return written
        # Another process has published the same plan meanwhile: its record names the chunks that count.
        known = self.get(record.digest)
        if known is None:
            raise PlanError(f"Plan {record.digest[:12]} was deleted while it was published; publish it again.")
        self._chunks.delete(tuple(set(names) - set(known.chunks)))
        return known

    def import_plan(self, source: Plans, digest: str) -> bool:
        """Import a plan unchanged from another journal of this cluster; return False if it exists here already.

        Only chunks with unfinished partitions are written. Rows that are missing here are added in any case. If the
        other journal has the same database, the chunks alone are new here. A plan that is only proposed is imported
        too, and is none yet.
        """
        record, values = source.get(digest), source._plans.values(digest)
        if values is None:
            return False  # it was deleted meanwhile
        if record is None:
            self._plans.import_values(values)
            return False
        rows = source.rows(digest, record)
        self._check_publishable(record, [row.move for row in rows])
        # The documents of settled chunks were deleted (KIP-46), and are not written again.
        open_chunks = {row.move.chunk for row in rows if not row.state.settled}
        known = self.get(digest)
        is_open = not record.status.finished and known in {None, record}
        names = self._chunks.write(record, [row.move for row in rows], only=open_chunks if is_open else ())
        with self._transaction():
            self._table.import_rows(digest, rows)
            if known is None:
                self._plans.import_values({**values, "chunks": names})
            elif is_open and known.chunks != names:
                self.update(known, chunks=names)
        return known is None

    def get(self, digest: str) -> PlanRecord | None:
        """Return the plan's record; None if there is no such plan."""
        return self._plans.get(digest) if paths.is_digest(digest) else None

    def approve(self, approval: Approval) -> None:
        """Store an approval, unless the plan has one."""
        self._plans.answer(
            approval.plan,
            ApprovalState.APPROVED,
            person=approval.person,
            reason=approval.reason,
            answered_ms=approval.answered_ms,
        )

    def reject(self, digest: str, *, person: str | None, reason: str) -> None:
        """Store that a plan was rejected, unless it is approved by another answer."""
        self._plans.answer(digest, ApprovalState.REJECTED, person=person, reason=reason, answered_ms=None)

    def update(self, record: PlanRecord, *, fence: Fence | None = None, **changes: Any) -> PlanRecord:
        """Change fields of a plan that is unchanged since `record` was read; return the new record.

        When the plan ends, its chunk documents are deleted (KIP-46).

        Raises VersionConflict if another process has changed it since, LockLost if the step lock was lost.
        """
        changed = replace(record, **changes, revision=record.revision + 1)
        with self._transaction():
            # In the transaction, which excludes other writers: nobody acquires the lock before the change is committed.
            if fence is not None:
                fence.check()
            if not self._plans.change(record.digest, record.revision, changes):
                raise VersionConflict(f"Plan {record.digest[:12]} was changed by another process; read it again.")
            # Where the documents are in ZooKeeper, after the commit: a plan that did not end must not lose its chunks.
            if changed.status.finished:
                self._project(lambda: self._chunks.delete(changed.chunks))
        return changed

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

    def submissions_by_others(
        self, digest: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, list[tuple[str, MoveRow]]]:
        """Return the submissions of these partitions by other plans: per partition, digests and rows, latest last."""
        submissions: dict[TopicPartition, list[tuple[str, MoveRow]]] = {}
        for plan, row in self._table.submissions_by_others(digest, partitions) if partitions else ():
            submissions.setdefault(row.topic_partition, []).append((plan, row))
        return submissions

    def set_move_states(
        self,
        digest: str,
        partitions: Collection[TopicPartition],
        state: MoveState,
        detail: str | Mapping[TopicPartition, str] = "",
        *,
        fence: Fence | None,
        action: Action | None = None,
        who: Actor | None = None,
        **changes: Unpack[MoveChanges],
    ) -> None:
        """Set the state of some partitions, with other `changes`.

        `detail` is one text for all partitions, or one per partition. With `action`, an audit row of each records the
        decision by `who`, with its detail as the reason. A chunk whose partitions are all settled is deleted (KIP-46).

        Raises PlanError for a partition that the plan does not move, LockLost if the step lock was lost.
        """
        if not partitions:
            return
        with self._transaction():
            # As in `update`: nobody acquires the lock before these states are committed.
            if fence is not None:
                fence.check()
            number = self._table.set_state(digest, partitions, state, detail, action=action, who=who, **changes)
            if number != len(set(partitions)):
                strangers = sorted(set(partitions) - {row.topic_partition for row in self._table.rows(digest)})
                raise PlanError(f"Plan {digest[:12]} does not move {strangers[0]}; nothing was marked.")
            if state.settled:
                self._delete_settled_chunks(digest)

    def withdraw(self, record: PlanRecord) -> None:
        """Delete a plan that was just published, unless another process has changed it since."""
        with self._transaction():
            if self._plans.change(record.digest, record.revision, {"status": record.status}):
                self._table.delete(record.digest)
                self._plans.delete(record.digest)
                self._project(lambda: self._chunks.delete(record.chunks))

    def purge(self, before_ms: int) -> list[str]:
        """Delete plans that ended before `before_ms` of the journal's clock, with their rows; return their digests.

        The audit trail and unfinished plans are kept. Old proposals, and chunks that no plan names any more, are
        deleted too.
        """
        gone = self._plans.ended(before_ms)
        for digest in gone:
            with self._transaction():
                self._table.delete(digest)
                self._plans.delete(digest)
        self._plans.delete_proposals(before_ms)
        self._chunks.delete_stale(self._now_ms() - ORPHAN_MS, self._is_plan_done)
        return gone

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

    def _delete_settled_chunks(self, digest: str) -> None:
        record = self.get(digest)
        if record is not None:
            unsettled = self._table.unsettled_chunks(digest)
            names = [name for chunk, name in enumerate(record.chunks) if chunk not in unsettled]
            self._project(lambda: self._chunks.delete(names))

    def _is_plan_done(self, digest: str) -> bool:
        record = self.get(digest)
        return record is None or record.status.finished
