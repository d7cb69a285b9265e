"""The lease of the watch: of several watches of one cluster, in whatever processes, one polls for all.

A lease saves requests, and protects nothing: any number of watches may poll at once. The others stand by while the
owner renews it, which it does after successful polls only. So another watch takes over from one that has died, stalled,
or cannot reach Kafka, within the lease's time to live; at once from a process of this machine that has ended, and from
a watch that was stopped.

The DAGs that an event starts may listen to a watch that stands by. That watch keeps a row for each event that it
listens to: the owner of the lease writes the event there, and the watch that stands by takes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka_steward.assignment import Assignment
from kafka_steward.escaping import utc_text
from kafka_steward.journal.locks import is_dead_process
from kafka_steward.journal.records import WATCH_LEASE, WatchLease
from kafka_steward.journal.state import ONLY, Noun, Row
from kafka_steward.journal.store import Journal

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
    # No longer than it lives: the clock may have been set back a little.
    left_ms = min(left_ms, lease.ttl_ms)
    return Standby(lease.owner, now_ms + left_ms, left_ms / 1000 + _BEYOND_S)


class ClusterLease:
    """The lease of the watch of one cluster, for the watch `owner`; for one thread."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._row: Row[str, WatchLease] | None = None

    def stand_by(self, journal: Journal) -> Standby | None:
        """Return for how long another watch has the lease; otherwise take it and return None.

        Raises JournalUnreachable.
        """
        row = self._read(journal)
        if row is not None:
            lease, died = row.value, is_dead_process(row.value.owner)
            standby = decide_standby(lease, row.at_ms, journal.now_ms(), owner=self._owner, owner_died=died)
            if standby is not None or lease.owner == self._owner:
                return standby
        if self._write(journal, TTL_MS, polled=False):
            return None
        # Another watch has taken it at the same moment.
        row = self._read(journal)
        owner = self._owner if row is None else row.value.owner
        return Standby(owner, journal.now_ms() + TTL_MS, _SOON_S)

    def renew(self, journal: Journal, pause_s: float) -> None:
        """Renew the lease after a successful poll, unless it is young; `pause_s` is the time until the next one."""
        ttl_ms = int(pause_s * 1000) + TTL_MS
        if not self._is_young(journal, ttl_ms):
            self._write(journal, ttl_ms, polled=True)

    def release(self, journal: Journal) -> None:
        """Delete the lease if this watch has it. Raises JournalUnreachable."""
        row = self._read(journal)
        if row is not None and row.value.owner == self._owner:
            journal.rows(WATCH_LEASE).delete(row)

    def _read(self, journal: Journal) -> Row[str, WatchLease] | None:
        self._row = journal.rows(WATCH_LEASE).get(ONLY)
        return self._row

    def _is_young(self, journal: Journal, ttl_ms: int) -> bool:
        row = self._row
        if row is None or (row.value.owner, row.value.polled) != (self._owner, True):
            return False
        # A lease of another length is written at once: the next poll is later, or sooner, than it says.
        return row.value.ttl_ms >= ttl_ms and 0 <= journal.now_ms() - row.at_ms < RENEWED_MS

    def _write(self, journal: Journal, ttl_ms: int, *, polled: bool) -> bool:
        row = journal.rows(WATCH_LEASE).put(ONLY, WatchLease(self._owner, ttl_ms, polled), self._row)
        self._row = row or self._row
        return row is not None


@dataclass(frozen=True)
class PassedEvent:
    """An event to which a watch listens that stands by, as the watch with the lease emits it.

    `at_ms` is its time, 0 as long as there is none; `brokers` and `alerts` are those that the event is about.
    """

    at_ms: int = 0
    brokers: Assignment = ()
    alerts: tuple[str, ...] = ()


PASSED_EVENTS: Noun[str, PassedEvent] = Noun("passed_events", PassedEvent)


def list_listened_events(journal: Journal) -> frozenset[str]:
    """Return the events to which watches listen that stand by. Raises JournalUnreachable."""
    return frozenset(row.key for row in journal.rows(PASSED_EVENTS).all())


def listen_to_event(journal: Journal, event: str) -> None:
    """Let the owner of the lease know that this watch, which stands by, listens to an event."""
    rows = journal.rows(PASSED_EVENTS)
    if rows.get(event) is None:
        rows.put(event, PassedEvent(), None)


def pass_event_on(journal: Journal, event: str, payload: Mapping[str, Any]) -> None:
    """Write an event for the watch that listens to it and stands by, if there is one."""
    rows = journal.rows(PASSED_EVENTS)
    row = rows.get(event)
    if row is not None:
        passed = PassedEvent(payload["at_ms"], tuple(payload.get("brokers", ())), tuple(payload.get("alerts", ())))
        rows.put(event, passed, row)


def take_event(journal: Journal, event: str, *, goes_on: bool) -> PassedEvent | None:
    """Return the event that was passed on to this watch, once; None if there is none.

    Its row is deleted unless this watch `goes_on` listening while it stands by. Raises JournalUnreachable.
    """
    rows = journal.rows(PASSED_EVENTS)
    row = rows.get(event)
    if row is None:
        return None
    happened = row.value.at_ms > 0
    if goes_on and not happened:
        return None
    taken = rows.put(event, PassedEvent(), row) if goes_on else rows.delete(row)
    return row.value if happened and taken else None
