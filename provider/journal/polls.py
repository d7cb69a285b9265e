"""The time and host of the last poll of each watch of a cluster: rows that can be compared with the clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from kafka_steward.journal.database import Database, insert_once, now_ms
from kafka_steward.journal.schema import tables

__all__ = ["Looks"]

#: Minimum seconds between two updates for the same kind of poll: a watch polls more often than needs to be recorded.
_NOTED_EVERY_S = 5.0


@dataclass
class Looks:
    """The poll times of one cluster, as recorded by this process. Any method may raise JournalUnreachable."""

    database: Database
    clock: Callable[[], float] = time.monotonic
    _noted_s: dict[str, float] = field(default_factory=dict, init=False, repr=False)

    def note(self, kind: str) -> None:
        """Record that a poll of this `kind`, such as "failures", succeeded now, unless one was recorded recently."""
        if self.clock() - self._noted_s.get(kind, -_NOTED_EVERY_S) < _NOTED_EVERY_S:
            return
        look, host = tables.look, self.database.host
        mine = (look.c.cluster_id == self.database.cluster_id) & (look.c.kind == kind) & (look.c.host == host)
        row = {"cluster_id": self.database.cluster_id, "kind": kind, "host": host, "at_ms": now_ms()}
        with self.database.write_transaction() as connection:
            if connection.execute(sa.update(look).where(mine).values(at_ms=now_ms())).rowcount == 0:
                connection.execute(insert_once(look, connection.dialect.name).values(row))
        self._noted_s[kind] = self.clock()

    def rows(self) -> list[dict[str, Any]]:
        """Return `{"kind", "host", "at_ms", "age_ms"}` of each poll, the newest first, by the database's clock."""
        look = tables.look
        query = sa.select(look.c.kind, look.c.host, look.c.at_ms, (now_ms() - look.c.at_ms).label("age_ms"))
        query = query.where(look.c.cluster_id == self.database.cluster_id)
        with self.database.read_connection() as connection:
            found = connection.execute(query.order_by(look.c.at_ms.desc(), look.c.kind, look.c.host)).mappings()
            return [dict(row) for row in found]
