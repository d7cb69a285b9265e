"""The history of a cluster's health: one row per poll of the watch, for plots, which is kept for some days only."""

from __future__ import annotations

import json
from collections.abc import Mapping

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
