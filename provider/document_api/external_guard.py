"""External reassignments that start while reassignments are disabled (KIP-236): report or cancel, by the setting.

Reassignments that were in flight when the disable node (`/admin/reassign_cancel`) was first seen may complete,
regardless of who started them. They are persisted: a watch that restarts in between does not take them for new ones,
and reports each external reassignment once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.cluster.state import Partition, Snapshot
from kafka_steward.execution.announcements import disabled_reason
from kafka_steward.execution.moves.external import (
    ExternalCancelState,
    ExternalReassignment,
    cancel_external_reassignments,
)
from kafka_steward.execution.moves.in_flight import list_in_flight
from kafka_steward.execution.moves.reversal_execution import judge
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Actor, AuditRecord
from kafka_steward.journal.mailbox import Node, read_one
from kafka_steward.journal.state import ONLY, Noun, Row
from kafka_steward.journal.store import Journal

_REASON = "it was started while reassignments are disabled"
#: How long the replica order is checked after a cancel, in milliseconds. A broker that does not know of the cancel by
#: then is an exception.
_LATE_MS = 60_000


@dataclass(frozen=True)
class DisableObserved:
    """The created id of the disable node that was seen, and the exempt reassignments."""

    created_id: int
    known: tuple[str, ...] = ()


DISABLE_OBSERVED: Noun[str, DisableObserved] = Noun("disable_observed", DisableObserved)


class ExternalReassignmentGuard:
    """Detects external reassignments while reassignments are disabled.

    Keep one per cluster: it remembers the order of replicas, which Kafka's cancel loses, and the cancels whose end
    Kafka does not show yet.
    """

    def __init__(self, cluster: ClusterPort, journal: Journal, who: Actor, *, cancel: bool) -> None:
        self._cluster, self._journal, self._who, self._cancels = cluster, journal, who, cancel
        self._at_rest: dict[TopicPartition, Assignment] = {}
        self._pending: list[ExternalReassignment] = []
        self._pending_until_ms = 0

    @property
    def is_restoring(self) -> bool:
        """Return whether a cancelled partition's replica order is not confirmed as restored: poll again soon."""
        return bool(self._pending)

    def poll(self) -> list[str]:
        """Poll once; returns a message for each new external reassignment, and for each that cannot be restored whole.

        Raises ClusterError, JournalError, LockLost.
        """
        unrestored = self._cancel(self._pending if self._journal.now_ms() <= self._pending_until_ms else [])
        rows = self._journal.rows(DISABLE_OBSERVED)
        disabled, seen = read_one(self._journal.mailbox, paths.REASSIGN_CANCEL), rows.get(ONLY)
        if disabled is None:
            if seen is not None:
                rows.delete(seen)
            self._at_rest = {}
            return unrestored
        snapshot = self._cluster.snapshot()
        # A disable node that was created again exempts what is in flight then.
        known = None if seen is None or seen.value.created_id != disabled.created_id else set(seen.value.known)
        if known is None:
            self._store_exemptions(disabled, seen, {str(name) for name in snapshot.reassigning})
            self._remember_replica_orders(snapshot)
            return unrestored
        ours = {name for name, document in list_in_flight(self._journal.mailbox).items() if document.plan is not None}
        new = {
            name: partition
            for name, partition in snapshot.reassigning.items()
            if name not in ours and str(name) not in known
        }
        messages = unrestored + (self._report_or_cancel(new, snapshot) if new else [])
        # What is left alone is reported once.
        if new and not self._cancels:
            self._store_exemptions(disabled, seen, known | {str(name) for name in new})
        self._remember_replica_orders(snapshot)
        return messages

    def _report_or_cancel(self, new: Mapping[TopicPartition, Partition], snapshot: Snapshot) -> list[str]:
        off = disabled_reason(self._journal.mailbox)
        reassignments = [self._reassignment_of(name, partition) for name, partition in new.items()]
        verdicts = judge([reassignment.reversal("") for reassignment in reassignments], snapshot)
        messages = []
        for reassignment in reassignments:
            rule = verdicts[reassignment.partition].why
            done = "it is left alone" if not self._cancels else f"not cancelled: {rule}" if rule else "it is cancelled"
            messages.append(
                f"Someone reassigns {reassignment.partition} though reassignments are disabled {off}; {done}."
            )
            topic, partition = reassignment.partition
            entry = AuditRecord(Action.EXTERNAL, messages[-1], topic=topic, partition=partition, who=self._who)
            self._journal.audit.record(entry)
        if self._cancels:
            self._pending_until_ms = self._journal.now_ms() + _LATE_MS
            earlier = [reassignment for reassignment in self._pending if reassignment.partition not in new]
            messages += self._cancel(
                [
                    *earlier,
                    *(reassignment for reassignment in reassignments if not verdicts[reassignment.partition].why),
                ]
            )
        return messages

    def _reassignment_of(self, name: TopicPartition, partition: Partition) -> ExternalReassignment:
        """Return the reassignment in flight, with the originals in the order in which they were last seen at rest."""
        known = self._at_rest.get(name, ())
        originals = known if frozenset(known) == frozenset(partition.original) else partition.original
        return ExternalReassignment(name, partition.target, originals)

    def _cancel(self, reassignments: Sequence[ExternalReassignment]) -> list[str]:
        """Cancel these, and remember those whose end Kafka does not show; return what cannot be restored whole."""
        self._pending = list(reassignments)
        if not reassignments:
            return []
        with self._journal.step_lock() as fence:
            results = cancel_external_reassignments(
                self._cluster, self._journal, reassignments, reason=_REASON, who=self._who, fence=fence
            )
        unseen = {ExternalCancelState.PENDING, ExternalCancelState.HIDDEN}
        # Not to be cancelled again: what somebody starts once reassignments are enabled may go on.
        self._pending = [replace(result.reassignment, cancelled=True) for result in results if result.state in unseen]
        return [
            f"The reassignment of {result.reassignment.partition} is cancelled, and {result.why}."
            for result in results
            if result.state is ExternalCancelState.CANCELLED and result.why
        ]

    def _remember_replica_orders(self, snapshot: Snapshot) -> None:
        resting = {
            name: partition.replicas for name, partition in snapshot.partitions.items() if not partition.reassigning
        }
        self._at_rest = {**self._at_rest, **resting}

    def _store_exemptions(self, disabled: Node, seen: Row[str, DisableObserved] | None, known: Collection[str]) -> None:
        value = DisableObserved(disabled.created_id, tuple(sorted(known)))
        known_rows = {} if seen is None else {ONLY: seen}
        self._journal.rows(DISABLE_OBSERVED).put_all({ONLY: value}, known_rows)
