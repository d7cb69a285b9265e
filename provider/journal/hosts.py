"""The hosts that use the journal of a cluster: when each opened it, and when a watch there polled last."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kafka_steward.journal.state import Noun, Row, Rows, State

#: The minimum interval between two records of the same host, which may open the journal very often.
_OPENED_EVERY_MS = 60_000
#: Minimum seconds between two records of the same kind of poll: a watch polls more often than needs to be recorded.
_POLLED_EVERY_S = 10.0


@dataclass(frozen=True)
class HostOpening:
    """The first opening of the journal by a host; the time of the last one is that of the row."""

    first_ms: int


@dataclass(frozen=True)
class Poll:
    """A kind of poll, such as "failures", by a watch on a host; the time of the last one is that of the row."""

    kind: str
    host: str


#: By the host.
OPENINGS: Noun[str, HostOpening] = Noun("openings", HostOpening)
#: By the kind and the host.
POLLS: Noun[str, Poll] = Noun("polls", Poll)


@dataclass
class HostActivity:
    """What the hosts do with a journal, as this process records it for `host`. Raises JournalUnreachable."""

    state: State
    host: str
    #: Whether only one host may use the database.
    is_local: bool
    clock: Callable[[], float] = time.monotonic
    _recorded: dict[str, tuple[float, Row[str, Poll]]] = field(default_factory=dict, init=False, repr=False)

    def record_opening(self) -> None:
        """Record that the host opened the journal now, unless an opening was recorded within the last 60 s."""
        rows, now_ms = Rows(self.state, OPENINGS), self.state.now_ms()
        row = rows.get(self.host)
        if row is None:
            rows.put(self.host, HostOpening(now_ms), None)
        elif row.at_ms <= now_ms - _OPENED_EVERY_MS:
            rows.renew(row)

    def record_polls(self, *kinds: str) -> None:
        """Record that polls of these `kinds`, such as "failures", succeeded now, unless they were recorded recently."""
        rows = Rows(self.state, POLLS)
        for kind in kinds:
            at_s, known = self._recorded.get(kind, (-_POLLED_EVERY_S, None))
            if self.clock() - at_s < _POLLED_EVERY_S:
                continue
            key = f"{kind}/{self.host}"
            row = rows.renew(known) if known else None
            if row is None:
                row = rows.get(key)
                row = rows.put(key, Poll(kind, self.host), None) if row is None else rows.renew(row)
            if row is not None:
                self._recorded[kind] = (self.clock(), row)

    def openings(self) -> list[dict[str, Any]]:
        """Return `{"host", "first_ms", "last_ms"}` of each host, the most recent first, by the database's clock."""
        rows = sorted(Rows(self.state, OPENINGS).all(), key=lambda row: (-row.at_ms, row.key))
        return [{"host": row.key, "first_ms": row.value.first_ms, "last_ms": row.at_ms} for row in rows]

    def polls(self) -> list[dict[str, Any]]:
        """Return `{"kind", "host", "at_ms", "age_ms"}` of each poll, the newest first, by the database's clock."""
        rows = sorted(Rows(self.state, POLLS).all(), key=lambda row: (-row.at_ms, row.key))
        now_ms = self.state.now_ms() if rows else 0
        return [
            {"kind": row.value.kind, "host": row.value.host, "at_ms": row.at_ms, "age_ms": now_ms - row.at_ms}
            for row in rows
        ]

    def count_hosts_of_local_database(self, within_ms: int) -> int:
        """Return how many hosts opened a database that one host may use, lately; 0 for one that hosts share."""
        since_ms = self.state.now_ms() - within_ms if self.is_local else 0
        return sum(row.at_ms > since_ms for row in Rows(self.state, OPENINGS).all()) if self.is_local else 0
