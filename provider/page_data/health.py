"""The health of a cluster over time, from the rows of the watch, thinned out to what a chart can show."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import sqlalchemy as sa

from kafka_steward.journal.schema import tables
from kafka_steward.page_data.reader import JournalReader

#: The measures that a chart shows, as docs/metrics.md names them; the others are by broker.
MEASURES = (
    "under_replicated_partitions",
    "under_min_isr_partitions",
    "offline_partitions",
    "reassigning_partitions",
    "rack_violations",
    "failed_brokers",
    "failed_log_dirs",
    "cordoned_brokers",
    "pending_replicas",
    "replica_imbalance",
    "leader_imbalance",
)


@dataclass(frozen=True, slots=True)
class HealthSeries:
    """The times of health checks, in milliseconds, and for each measure a value for each time; None if unknown."""

    at_ms: tuple[int, ...] = ()
    values: Mapping[str, Sequence[float | None]] = field(default_factory=dict)


def health_series(reader: JournalReader, cluster_id: str, *, since_ms: int, points: int = 400) -> HealthSeries:
    """Return the health since a time, at most about `points` checks: of each span of time, the last check.

    A peak between two points is not shown.
    """
    health = tables.health
    mine = (health.c.cluster_id == cluster_id) & (health.c.at_ms >= since_ms)
    bounds = sa.select(sa.func.min(health.c.at_ms), sa.func.max(health.c.at_ms)).where(mine)
    with reader.connection() as opened:
        first, last = opened.execute(bounds).one()
        if first is None:
            return HealthSeries()
        span_ms = max(1, -(-(int(last) - int(first) + 1) // max(1, points)))
        span = (health.c.at_ms - int(first)) // span_ms
        latest = sa.select(sa.func.max(health.c.at_ms)).where(mine).group_by(span)
        query = sa.select(health.c.at_ms, health.c.measures).where(mine & health.c.at_ms.in_(latest))
        rows = opened.execute(query.order_by(health.c.at_ms)).all()
    measures = [json.loads(text) for _, text in rows]
    return HealthSeries(
        tuple(int(at_ms) for at_ms, _ in rows),
        {name: tuple(each.get(name) for each in measures) for name in MEASURES},
    )
