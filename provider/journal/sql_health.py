"""The history of a cluster's health: one row per poll of the watch, for plots, kept for some days only."""

from __future__ import annotations

import json
from collections.abc import Mapping

import sqlalchemy as sa

from kafka_steward.journal.database import Database, insert_once, now_ms
from kafka_steward.journal.schema import tables

__all__ = ["HealthRows"]

_health = tables.health


class HealthRows:
    """The health rows of one cluster. Any method may raise JournalUnreachable.

    Times are by the journal's clock, in milliseconds since 1970.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def keep(self, measures: Mapping[str, float], *, every_ms: int, retention_ms: int) -> None:
        """Add a row unless there is one for this interval of `every_ms`; delete rows older than `retention_ms`."""
        mine = _health.c.cluster_id == self._database.cluster_id
        with self._database.write_transaction() as connection:
            at_ms = connection.execute(sa.select(now_ms())).scalar_one()
            row = {
                "cluster_id": self._database.cluster_id,
                "at_ms": at_ms - at_ms % max(1, every_ms),
                "measures": json.dumps(dict(measures)),
            }
            connection.execute(insert_once(_health, connection.dialect.name), row)
            connection.execute(sa.delete(_health).where(mine & (_health.c.at_ms < at_ms - retention_ms)))

    def rows(self, *, since_ms: int = 0) -> list[tuple[int, dict[str, float]]]:
        """Return time and measures of each row from `since_ms` on, oldest first."""
        mine = (_health.c.cluster_id == self._database.cluster_id) & (_health.c.at_ms >= since_ms)
        query = sa.select(_health.c.at_ms, _health.c.measures).where(mine).order_by(_health.c.at_ms)
        with self._database.read_connection() as connection:
            return [(int(at_ms), json.loads(text)) for at_ms, text in connection.execute(query)]
