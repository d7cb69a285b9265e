"""Leases of the watch's checks: of several watches of one cluster, in whatever processes, one makes each check for all.

A lease saves requests, and protects nothing: any number of watches may poll at once. A check whose event is listened to
needs its own settings and its own poll, so it polls whichever watch has the lease, and takes it; every other check
stands by while the lease is renewed. The owner renews it after successful polls only. So another watch takes over from
one that has died, stalled, or cannot reach Kafka, within the lease's time to live; at once from a process of this
machine that has ended, and from a watch that was stopped.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from kafka_steward.errors import DocumentError
from kafka_steward.journal.locks import is_dead_process
from kafka_steward.journal.records import WATCH_LEASES, WatchLease
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
    """Another watch makes the check. `is_made` is False as long as that watch has not made it successfully."""

    is_made: bool
    pause_s: float


def decide_standby(
    lease: WatchLease, renewed_ms: int, now_ms: int, *, owner: str, owner_died: bool = False
) -> Standby | None:
    """Return for how long the watch `owner` stands by; None if it makes the check itself. Pure."""
    left_ms = renewed_ms + lease.ttl_ms - now_ms
    # A longer time than the time to live means that the clock was set back: the lease counts as expired.
    if lease.owner == owner or owner_died or not 0 < left_ms <= 2 * lease.ttl_ms:
        return None
    return Standby(lease.polled, min(left_ms, lease.ttl_ms) / 1000 + _BEYOND_S)


class CheckLease:
    """The lease of one kind of check, for the watch `owner`; for one thread."""

    def __init__(self, kind: str, owner: str) -> None:
        self._path, self._owner = WATCH_LEASES.path(kind), owner
        self._node: Node | None = None
        self._lease: WatchLease | None = None

    def stand_by(self, journal: Journal, *, needed: bool) -> Standby | None:
        """Return for how long another watch makes the check; otherwise take the lease and return None.

        With `needed`, the check is made in any case, and the lease is taken by `renew`. Raises JournalUnreachable.
        """
        self._read(journal)
        if needed or (self._node is not None and self._lease is None):
            return None  # an unreadable lease, or one of a later release, is left to the sweep
        if self._node is not None and self._lease is not None:
            died = is_dead_process(self._lease.owner)
            now_ms, renewed_ms = journal.now_ms(), self._node.modified_ms
            standby = decide_standby(self._lease, renewed_ms, now_ms, owner=self._owner, owner_died=died)
            if standby is not None or self._lease.owner == self._owner:
                return standby
        taken = self._write(journal, TTL_MS, polled=False)
        return None if taken else Standby(is_made=False, pause_s=_SOON_S)

    def renew(self, journal: Journal, pause_s: float) -> None:
        """Renew or take the lease after a successful poll, unless it is young; `pause_s` is the time until the next."""
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
        self._node, self._lease = journal.tree.get(self._path), None
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
        node = put(journal.tree, self._path, self._node, lease.to_json())
        if node is not None:
            self._node, self._lease = node, lease
        return node is not None
