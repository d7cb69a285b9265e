"""External reassignments that start while reassignments are disabled (KIP-236): report or cancel, by the setting.

Reassignments that were in flight when the disable node (`/admin/reassign_cancel`) was first seen may complete,
regardless of who started them. They are persisted: a watch that restarts in between does not take them for new ones,
and reports each external reassignment once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.cluster.state import Partition, Snapshot
from kafka_steward.errors import DocumentError
from kafka_steward.execution.effects import AuditedCalls
from kafka_steward.execution.in_flight_records import list_in_flight
from kafka_steward.execution.move_recovery import cancel_forbidden_reason
from kafka_steward.execution.originals import ORDER_LOST, restore_originals
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.execution.readiness import disabled_reason
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Actor, AuditRecord
from kafka_steward.journal.document import Document, FieldReader
from kafka_steward.journal.store import Journal
from kafka_steward.journal.tree import Node, remove

_ROUNDS = 4
#: How long the replica order is checked after a cancel, in milliseconds. A broker that does not know of the cancel by
#: then is an exception.
_LATE_MS = 60_000


@dataclass(frozen=True)
class DisableObserved(Document):
    """`/steward/disable_observed`: the created id of the disable node that was seen, and the exempt reassignments."""

    created_id: Annotated[int, partial(FieldReader.integer, high=2**63 - 1)]
    known: tuple[str, ...] = ()


class ExternalReassignmentGuard:
    """Detects external reassignments while reassignments are disabled.

    Keep one per cluster: it remembers the order of replicas, which Kafka's cancel loses.
    """

    def __init__(self, cluster: ClusterPort, journal: Journal, who: Actor, *, cancel: bool) -> None:
        self._cluster, self._journal, self._who, self._cancels = cluster, journal, who, cancel
        self._at_rest: dict[TopicPartition, Assignment] = {}
        self._orders: dict[TopicPartition, Assignment] = {}
        self._orders_until_ms = 0

    @property
    def is_restoring(self) -> bool:
        """Return whether a cancelled partition's replica order is not confirmed as restored: poll again soon."""
        return bool(self._orders)

    def poll(self) -> list[str]:
        """Poll once; returns a message for each new external reassignment, and for each that cannot be restored whole.

        Raises ClusterError, JournalError, LockLost.
        """
        unrestored = self._restore_replica_orders()
        disabled, seen = self._journal.tree.get(paths.REASSIGN_CANCEL), self._journal.tree.get(paths.DISABLE_OBSERVED)
        if disabled is None:
            if seen is not None:
                remove(self._journal.tree, seen)
            self._at_rest = {}
            return unrestored
        snapshot = self._cluster.snapshot()
        known = _read_exemptions(disabled, seen)
        if known is None:
            self._store_exemptions(disabled, seen, {str(name) for name in snapshot.reassigning})
            self._remember_replica_orders(snapshot)
            return unrestored
        ours = {name for name, each in list_in_flight(self._journal.tree).items() if each.plan is not None}
        new = {name: each for name, each in snapshot.reassigning.items() if name not in ours and str(name) not in known}
        messages = unrestored + (self._report_or_cancel(new, snapshot) if new else [])
        if new and not self._cancels:
            self._store_exemptions(disabled, seen, known | {str(name) for name in new})
        self._remember_replica_orders(snapshot)
        return messages

    def _report_or_cancel(self, new: Mapping[TopicPartition, Partition], snapshot: Snapshot) -> list[str]:
        off = disabled_reason(self._journal.tree)
        rules = {
            name: cancel_forbidden_reason(_original_replicas(partition), partition, snapshot.live)
            for name, partition in new.items()
        }
        messages = []
        for name, rule in rules.items():
            done = "it is left alone" if not self._cancels else f"not cancelled: {rule}" if rule else "it is cancelled"
            messages.append(f"Someone reassigns {name} though reassignments are disabled {off}; {done}.")
            self._journal.audit.record(self._build_audit_record(Action.EXTERNAL, name, messages[-1]))
        if self._cancels:
            messages += self._cancel_reassignments([name for name, rule in rules.items() if not rule])
        return messages

    def _cancel_reassignments(self, names: Collection[TopicPartition]) -> list[str]:
        reason = "it was started while reassignments are disabled"
        self._orders |= {name: self._at_rest[name] for name in names if name in self._at_rest}
        self._orders_until_ms = self._journal.now_ms() + _LATE_MS
        with self._journal.step_lock() as fence:
            calls = AuditedCalls(self._journal.audit, fence)
            calls.execute(
                {name: [self._build_audit_record(Action.CANCEL, name, reason)] for name in names}, self._cluster.cancel
            )
        return self._restore_replica_orders()

    def _restore_replica_orders(self) -> list[str]:
        """Restore the replica order, which Kafka's cancel loses; return a message for each that cannot be.

        A broker that does not know of the cancel yet still shows the reassignment: such a partition is kept for later.
        """
        if self._orders and self._journal.now_ms() > self._orders_until_ms:
            self._orders = {}
        messages: list[str] = []
        for _ in range(_ROUNDS):
            if not self._orders:
                break
            snapshot = self._cluster.snapshot(sorted({name.topic for name in self._orders}))
            found = snapshot.partitions
            self._orders = {
                name: each
                for name, each in self._orders.items()
                if name.topic in snapshot.hidden or _is_order_unconfirmed(found.get(name), each)
            }
            lost = {
                name: each
                for name, each in self._orders.items()
                if name in found and _has_original_replicas(found[name], each)
            }
            if not lost:
                break
            with self._journal.step_lock() as fence:
                entries = {name: [self._build_audit_record(Action.REORDER, name, ORDER_LOST)] for name in lost}
                calls = AuditedCalls(self._journal.audit, fence)
                refused = restore_originals(self._cluster, calls, entries, lost, snapshot)
            messages += [f"The reassignment of {name} is cancelled, and {why}." for name, why in refused.items()]
            self._orders = {name: each for name, each in self._orders.items() if name not in refused}
        return messages

    def _remember_replica_orders(self, snapshot: Snapshot) -> None:
        resting = {name: each.replicas for name, each in snapshot.partitions.items() if not each.reassigning}
        self._at_rest = {**self._at_rest, **resting}

    def _store_exemptions(self, disabled: Node, seen: Node | None, known: Collection[str]) -> None:
        text = DisableObserved(disabled.created_id, tuple(sorted(known))).to_json()
        if seen is None:
            self._journal.tree.create(paths.DISABLE_OBSERVED, text)
        else:
            self._journal.tree.set(seen.path, text, version=seen.version)

    def _build_audit_record(self, action: Action, name: TopicPartition, reason: str) -> AuditRecord:
        return AuditRecord(action, reason, topic=name.topic, partition=name.partition, who=self._who)


def _read_exemptions(disabled: Node, seen: Node | None) -> set[str] | None:
    """Return the reassignments that are exempt for this disable node.

    None when the node is seen for the first time, or the persisted record is unreadable.
    """
    try:
        written = None if seen is None else DisableObserved.from_node(seen)
    except DocumentError:
        return None
    return None if written is None or written.created_id != disabled.created_id else set(written.known)


def _original_replicas(partition: Partition) -> Assignment:
    return tuple(broker for broker in partition.replicas if broker not in partition.adding)


def _is_order_unconfirmed(partition: Partition | None, before: Assignment) -> bool:
    """Return whether a cancelled reassignment is still shown, or the order of `before` is still lost."""
    if partition is None or not set(before) <= set(partition.replicas):
        return False  # the partition was deleted, or the reassignment had completed
    return partition.reassigning or partition.replicas != before


def _has_original_replicas(partition: Partition, before: Assignment) -> bool:
    """Return whether no reassignment is in flight and the replicas are those of `before`, in any order."""
    return not partition.reassigning and set(partition.replicas) == set(before)
