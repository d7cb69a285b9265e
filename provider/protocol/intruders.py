"""What others start although reassignments are switched off (KIP-236): told, or cancelled, as the setting says.

What was in flight when the switch was first seen is let finish, whoever began it. That is written down, so that a watch
that starts anew in between does not take it for an intruder, and tells of each intruder once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.cluster.state import Partition, Snapshot
from kafka_steward.errors import ClusterError, DocumentError
from kafka_steward.execution.decisions.reverse import why_not_cancelled
from kafka_steward.execution.deeds import Deeds
from kafka_steward.execution.inflight import flights
from kafka_steward.execution.owner import new_owner
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.execution.switch import why_off
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Entry, Who
from kafka_steward.journal.changes import remove
from kafka_steward.journal.document import Document
from kafka_steward.journal.fields import Fields
from kafka_steward.journal.open import Journal
from kafka_steward.journal.tree import Node

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Intruders", "SwitchSeen"]

_ROUNDS = 4
#: How long, in milliseconds, an order is looked after: a broker that does not know of a cancel by then is an exception.
_LATE_MS = 60_000


@dataclass(frozen=True)
class SwitchSeen(Document):
    """`/steward/switch`: which switch was seen (its node's created id), and what is not held against it."""

    switch: int
    known: tuple[str, ...] = ()

    @classmethod
    def read(cls, fields: Fields, source: str | None) -> Self:
        """From our own form, version 1."""
        fields.integer("version", low=1)
        return cls(fields.integer("switch", high=2**63 - 1), fields.texts("known"), extra=fields.rest(), source=source)

    def values(self) -> dict[str, Any]:
        """Both fields."""
        return {"version": self.VERSION, "switch": self.switch, "known": self.known}


class Intruders:
    """Looks out for them. Keep one per cluster: it remembers the order of replicas, which Kafka's cancel loses."""

    def __init__(self, cluster: ClusterPort, journal: Journal, who: Who, *, cancel: bool) -> None:
        self._cluster, self._journal, self._who, self._cancels = cluster, journal, who, cancel
        self._at_rest: dict[TopicPartition, Assignment] = {}
        self._orders: dict[TopicPartition, Assignment] = {}
        self._orders_until_ms = 0

    @property
    def restoring(self) -> bool:
        """Whether something was cancelled whose order is not seen to be as it was: look again soon."""
        return bool(self._orders)

    def look(self) -> list[str]:
        """Look once; returns a sentence for each that is new. Raises ClusterError, JournalError, LockLost."""
        self._restore()
        switch, seen = self._journal.tree.get(paths.REASSIGN_CANCEL), self._journal.tree.get(paths.SWITCH_SEEN)
        if switch is None:
            if seen is not None:
                remove(self._journal.tree, seen)
            self._at_rest = {}
            return []
        snapshot = self._cluster.snapshot()
        known = _known(switch, seen)
        if known is None:
            self._keep(switch, seen, {str(name) for name in snapshot.reassigning})
            self._remember(snapshot)
            return []
        ours = {name for name, each in flights(self._journal.tree).items() if each.plan is not None}
        new = {name: each for name, each in snapshot.reassigning.items() if name not in ours and str(name) not in known}
        told = self._act(new, snapshot) if new else []
        if new and not self._cancels:
            self._keep(switch, seen, known | {str(name) for name in new})
        self._remember(snapshot)
        return told

    def _act(self, new: Mapping[TopicPartition, Partition], snapshot: Snapshot) -> list[str]:
        off = why_off(self._journal.tree)
        told = []
        for name, partition in new.items():
            rule = why_not_cancelled(_originals(partition), partition, snapshot.live)
            done = "it is left alone" if not self._cancels else f"not cancelled: {rule}" if rule else "it is cancelled"
            told.append(f"Someone reassigns {name} though reassignments are switched off {off}; {done}.")
            entry = Entry(Action.FOREIGN, told[-1], topic=name.topic, partition=name.partition, who=self._who)
            self._journal.audit.note(entry)
        if self._cancels:
            able = {name: _originals(each) for name, each in new.items()}
            self._cancel([name for name in able if not why_not_cancelled(able[name], new[name], snapshot.live)])
        return told

    def _cancel(self, names: Collection[TopicPartition]) -> None:
        reason = "it was started while reassignments are switched off"
        self._orders |= {name: self._at_rest[name] for name in names if name in self._at_rest}
        self._orders_until_ms = self._journal.now_ms() + _LATE_MS
        with self._journal.step_lock(new_owner()) as fence:
            deeds = Deeds(self._journal.audit, fence)
            deeds.do({name: [self._entry(Action.CANCEL, name, reason)] for name in names}, self._cluster.cancel)
        self._restore()

    def _restore(self) -> None:
        """Kafka's cancel loses the order. A broker that does not know of its end yet shows the reassignment on."""
        if self._orders and self._journal.now_ms() > self._orders_until_ms:
            self._orders = {}
        for _ in range(_ROUNDS):
            if not self._orders:
                return
            found = self._cluster.snapshot(sorted({name.topic for name in self._orders})).partitions
            self._orders = {name: each for name, each in self._orders.items() if _may_return(found.get(name), each)}
            lost = {name: each for name, each in self._orders.items() if _is_back(found[name], each)}
            if not lost:
                return
            words = "the cancel lost the order of the replicas"
            with self._journal.step_lock(new_owner()) as fence:
                entries = {name: [self._entry(Action.REORDER, name, words)] for name in lost}
                Deeds(self._journal.audit, fence).do(entries, partial(self._alter, lost))

    def _alter(
        self, targets: Mapping[TopicPartition, Assignment], batch: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, ClusterError | None]:
        # The same replicas in another order.
        return self._cluster.alter({name: targets[name] for name in batch}, keep_factor=True)

    def _remember(self, snapshot: Snapshot) -> None:
        resting = {name: each.replicas for name, each in snapshot.partitions.items() if not each.reassigning}
        self._at_rest = {**self._at_rest, **resting}

    def _keep(self, switch: Node, seen: Node | None, known: Collection[str]) -> None:
        text = SwitchSeen(switch.created_id, tuple(sorted(known))).to_json()
        if seen is None:
            self._journal.tree.create(paths.SWITCH_SEEN, text)
        else:
            self._journal.tree.set(seen.path, text, version=seen.version)

    def _entry(self, action: Action, name: TopicPartition, reason: str) -> Entry:
        return Entry(action, reason, topic=name.topic, partition=name.partition, who=self._who)


def _known(switch: Node, seen: Node | None) -> set[str] | None:
    """What is not held against this switch; None when it is seen for the first time."""
    try:
        written = None if seen is None else SwitchSeen.from_node(seen)
    except DocumentError:
        return None
    return None if written is None or written.switch != switch.created_id else set(written.known)


def _originals(partition: Partition) -> Assignment:
    return tuple(broker for broker in partition.replicas if broker not in partition.adding)


def _may_return(partition: Partition | None, before: Assignment) -> bool:
    """Whether a cancelled reassignment is still shown, or the order of `before` is still lost."""
    if partition is None or not set(before) <= set(partition.replicas):
        return False  # deleted; or it had arrived
    return partition.reassigning or partition.replicas != before


def _is_back(partition: Partition, before: Assignment) -> bool:
    """Whether the replicas are those of `before`, in whatever order."""
    return not partition.reassigning and set(partition.replicas) == set(before)
