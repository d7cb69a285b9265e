"""Tables that no step reads: the history of a cluster's health, and the last poll of each watch.

The history has one row per poll of the watch, for plots, and is kept for some days only. The time and host of the last
poll of each watch can be compared with the clock.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from kafka_steward.journal.schema import tables
from kafka_steward.journal.sql.database import Database
from kafka_steward.journal.sql.dialect import now_ms

_health = tables.health


class HealthHistory:
    """The health rows of one cluster. Any method may raise JournalUnreachable.

    Times are by the journal's clock, in milliseconds since 1970.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def add_measures(self, measures: Mapping[str, float], *, every_ms: int, retention_ms: int) -> None:
        """Add a row unless there is one for this interval of `every_ms`; delete rows older than `retention_ms`."""
        mine = self._database.cluster_condition(_health)
        with self._database.write_transaction() as connection:
            at_ms = connection.execute(sa.select(now_ms())).scalar_one()
            row = {
                "cluster_id": self._database.cluster_id,
                "at_ms": at_ms - at_ms % max(1, every_ms),
                "measures": json.dumps(dict(measures)),
            }
            connection.execute(self._database.dialect.insert_or_ignore(_health), row)
            connection.execute(sa.delete(_health).where(mine & (_health.c.at_ms < at_ms - retention_ms)))

    def rows(self, *, since_ms: int = 0) -> list[tuple[int, dict[str, float]]]:
        """Return time and measures of each row from `since_ms` on, oldest first."""
        mine = self._database.cluster_condition(_health) & (_health.c.at_ms >= since_ms)
        query = sa.select(_health.c.at_ms, _health.c.measures).where(mine).order_by(_health.c.at_ms)
        with self._database.read_connection() as connection:
            return [(int(at_ms), json.loads(text)) for at_ms, text in connection.execute(query)]


#: Minimum seconds between two updates for the same kind of poll: a watch polls more often than needs to be recorded.
_NOTED_EVERY_S = 10.0


@dataclass
class PollTimes:
    """The poll times of one cluster, as recorded by this process. Any method may raise JournalUnreachable."""

    database: Database
    clock: Callable[[], float] = time.monotonic
    _noted_s: dict[str, float] = field(default_factory=dict, init=False, repr=False)

    def record(self, *kinds: str) -> None:
        """Record that polls of these `kinds`, such as "failures", succeeded now, unless they were recorded recently."""
        due = [each for each in kinds if self.clock() - self._noted_s.get(each, -_NOTED_EVERY_S) >= _NOTED_EVERY_S]
        if not due:
            return
        poll, host = tables.poll, self.database.host
        mine = self.database.cluster_condition(poll) & poll.c.kind.in_(due) & (poll.c.host == host)
        row = {"cluster_id": self.database.cluster_id, "host": host, "at_ms": now_ms()}
        with self.database.write_transaction() as connection:
            if connection.execute(sa.update(poll).where(mine).values(at_ms=now_ms())).rowcount < len(due):
                for kind in due:
                    connection.execute(self.database.dialect.insert_or_ignore(poll).values(row | {"kind": kind}))
        self._noted_s.update(dict.fromkeys(due, self.clock()))

    def rows(self) -> list[dict[str, Any]]:
        """Return `{"kind", "host", "at_ms", "age_ms"}` of each poll, the newest first, by the database's clock."""
        poll = tables.poll
        query = sa.select(poll.c.kind, poll.c.host, poll.c.at_ms, (now_ms() - poll.c.at_ms).label("age_ms"))
        query = query.where(self.database.cluster_condition(poll))
        with self.database.read_connection() as connection:
            found = connection.execute(query.order_by(poll.c.at_ms.desc(), poll.c.kind, poll.c.host)).mappings()
            return [dict(row) for row in found]
