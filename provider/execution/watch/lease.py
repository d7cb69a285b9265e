"""The lease of the watch: of several watches of one cluster, in whatever processes, one polls for all.

A lease saves requests, and protects nothing: any number of watches may poll at once. The others stand by while the
owner renews it, which it does after successful polls only. So another watch takes over from one that has died, stalled,
or cannot reach Kafka, within the lease's time to live; at once from a process of this machine that has ended, and from
a watch that was stopped.

The DAGs that an event starts may listen to a watch that stands by. That watch keeps a document for each event that it
listens to: the owner of the lease writes the event there, and the watch that stands by takes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kafka_steward.errors import DocumentError
from kafka_steward.escaping import utc_text
from kafka_steward.journal import paths
from kafka_steward.journal.locks import is_dead_process
from kafka_steward.journal.records import ListenedEvent, WatchLease
from kafka_steward.journal.store import Journal
from kafka_steward.journal.tree import Node, put, remove

#: Time to live of a lease beyond the owner's next poll, in milliseconds.
TTL_MS = 15_000
#: Age at which a lease is renewed, in milliseconds.
RENEWED_MS = 8_000
#: Seconds until a watch looks again after another one took the lease at the same time.
_SOON_S = 1.0
#: Seconds that a watch waits beyond the end of a lease.
_BEYOND_S = 0.1


@dataclass(frozen=True)
class Standby:
    """Another watch, `owner`, has the lease until `until_ms`, unless it renews it; look again after `pause_s`."""

    owner: str
    until_ms: int
    pause_s: float

    def sentence(self, conn_id: str) -> str:
        """Return who has the watch, for the log of the watch that stands by."""
        host, _, process = self.owner.partition(":")
        return (
            f"Another watch of {conn_id}, process {process.partition(':')[0]} on host {host}, has the watch until "
            f"{utc_text(self.until_ms)} UTC, and longer if it goes on; this one stands by, and takes over after that."
        )


def decide_standby(
    lease: WatchLease, renewed_ms: int, now_ms: int, *, owner: str, owner_died: bool = False
) -> Standby | None:
    """Return for how long the watch `owner` stands by; None if it polls itself. Pure."""
    left_ms = renewed_ms + lease.ttl_ms - now_ms
    # A longer time than the time to live means that the clock was set back: the lease counts as expired.
    if lease.owner == owner or owner_died or not 0 < left_ms <= 2 * lease.ttl_ms:
        return None
    left_ms = min(left_ms, lease.ttl_ms)
    return Standby(lease.owner, now_ms + left_ms, left_ms / 1000 + _BEYOND_S)


class ClusterLease:
    """The lease of the watch of one cluster, for the watch `owner`; for one thread."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._node: Node | None = None
        self._lease: WatchLease | None = None

    def stand_by(self, journal: Journal) -> Standby | None:
        """Return for how long another watch has the lease; otherwise take it and return None.

        Raises JournalUnreachable.
        """
        self._read(journal)
        if self._node is not None:
            if self._lease is None:
                return None  # an unreadable lease, or one of a later release, is left to the sweep
            died = is_dead_process(self._lease.owner)
            now_ms, renewed_ms = journal.now_ms(), self._node.modified_ms
            standby = decide_standby(self._lease, renewed_ms, now_ms, owner=self._owner, owner_died=died)
            if standby is not None or self._lease.owner == self._owner:
                return standby
        if self._write(journal, TTL_MS, polled=False):
            return None
        self._read(journal)
        other = self._owner if self._lease is None else self._lease.owner
        return Standby(other, journal.now_ms() + TTL_MS, _SOON_S)

    def renew(self, journal: Journal, pause_s: float) -> None:
        """Renew the lease after a successful poll, unless it is young; `pause_s` is the time until the next one."""
        ttl_ms = int(pause_s * 1000) + TTL_MS
        if self._node is not None and (self._lease is None or self._is_young(journal, ttl_ms)):
            return
        self._write(journal, ttl_ms, polled=True)

    def release(self, journal: Journal) -> None:
        """Delete the lease if this watch has it. Raises JournalUnreachable."""
        self._read(journal)
        if self._node is not None and self._lease is not None and self._lease.owner == self._owner:
            remove(journal.tree, self._node)

    def _read(self, journal: Journal) -> None:
        self._node, self._lease = journal.tree.get(paths.WATCH_LEASE), None
        if self._node is not None:
            with suppress(DocumentError):
                self._lease = WatchLease.from_node(self._node)

    def _is_young(self, journal: Journal, ttl_ms: int) -> bool:
        lease, node = self._lease, self._node
        if lease is None or node is None or (lease.owner, lease.polled) != (self._owner, True):
            return False
        # A lease of another length is written at once: the next poll is later, or sooner, than it says.
        return lease.ttl_ms >= ttl_ms and 0 <= journal.now_ms() - node.modified_ms < RENEWED_MS

    def _write(self, journal: Journal, ttl_ms: int, *, polled: bool) -> bool:
        lease = WatchLease(self._owner, ttl_ms, polled)
        node = put(journal.tree, paths.WATCH_LEASE, self._node, lease.to_json())
        if node is not None:
            self._node, self._lease = node, lease
        return node is not None


def list_listened_events(journal: Journal) -> frozenset[str]:
    """Return the events to which watches listen that stand by. Raises JournalUnreachable."""
    return frozenset(journal.tree.children(paths.WATCH)) - {paths.LEASE}


def listen_to_event(journal: Journal, event: str) -> None:
    """Let the owner of the lease know that this watch, which stands by, listens to an event."""
    if journal.tree.get(paths.watch_event(event)) is None:
        put(journal.tree, paths.watch_event(event), None, ListenedEvent().to_json())


def pass_event_on(journal: Journal, event: str, payload: Mapping[str, Any]) -> None:
    """Write an event for the watch that listens to it and stands by, if there is one."""
    node = journal.tree.get(paths.watch_event(event))
    if node is not None:
        found = ListenedEvent(payload["at_ms"], tuple(payload.get("brokers", ())), tuple(payload.get("alerts", ())))
        put(journal.tree, node.path, node, found.to_json())


def take_event(journal: Journal, event: str, *, goes_on: bool) -> ListenedEvent | None:
    """Return the event that was passed on to this watch, once; None if there is none.

    Its document is deleted unless this watch `goes_on` listening while it stands by. Raises JournalUnreachable.
    """
    node = journal.tree.get(paths.watch_event(event))
    if node is None:
        return None
    found: ListenedEvent | None = None
    with suppress(DocumentError):
        found = ListenedEvent.from_node(node)
    happened = found is not None and found.at_ms > 0
    if not goes_on:
        taken = remove(journal.tree, node)
    else:
        taken = not happened or put(journal.tree, node.path, node, ListenedEvent().to_json()) is not None
    return found if happened and taken else None
