"""What a cluster's health was: a row for each look of the watch, for plots, and for some days only."""

from __future__ import annotations

import json
from collections.abc import Mapping

import sqlalchemy as sa

from kafka_steward.journal.database import Database, insert_once, now_ms
from kafka_steward.journal.schema import tables

__all__ = ["HealthRows"]

_health = tables.health


class HealthRows:
    """The rows of one cluster. Times are the journal's, in milliseconds since 1970. May raise JournalUnreachable."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def keep(self, measures: Mapping[str, float], *, every_ms: int, retention_ms: int) -> None:
        """Add a row, unless another watch has added one in these `every_ms`; delete those older than `retention_ms`."""
        mine = _health.c.cluster_id == self._database.cluster_id
        with self._database.transaction() as connection:
            at_ms = connection.execute(sa.select(now_ms())).scalar_one()
            row = {
                "cluster_id": self._database.cluster_id,
                "at_ms": at_ms - at_ms % max(1, every_ms),
                "measures": json.dumps(dict(measures)),
            }
            connection.execute(insert_once(_health, connection.dialect.name), row)
            connection.execute(sa.delete(_health).where(mine & (_health.c.at_ms < at_ms - retention_ms)))

    def rows(self, *, since_ms: int = 0) -> list[tuple[int, dict[str, float]]]:
        """Time and measures, oldest first."""
        mine = (_health.c.cluster_id == self._database.cluster_id) & (_health.c.at_ms >= since_ms)
        query = sa.select(_health.c.at_ms, _health.c.measures).where(mine).order_by(_health.c.at_ms)
        with self._database.reading() as connection:
            return [(int(at_ms), json.loads(text)) for at_ms, text in connection.execute(query)]
