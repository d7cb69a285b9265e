"""Airflow metrics of plan progress and cluster health, for dashboards and alerts.

`docs/metrics.md` lists them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from airflow.sdk.observability import stats

if TYPE_CHECKING:
    from kafka_steward.execution.decisions.progress import Progress

__all__ = ["emit_health", "emit_progress"]


def emit_progress(conn_id: str, progress: Progress) -> None:
    """Emit gauges of the plan's remaining work, with the tag `conn_id`, and a count of its end. Bytes; never raises.

    Emits nothing for a step that found the plan locked by another process: that process emits the metrics.
    """
    if progress.busy:
        return
    tags = {"conn_id": conn_id}
    gauges = {
        "partitions_left": progress.partitions_total - progress.partitions_settled,
        "in_flight": progress.in_flight,
        "held": len(progress.held),
        "stalled": len(progress.stalled),
        "bytes_left": progress.bytes_total - progress.bytes_done,
    }
    for name, value in gauges.items():
        stats.gauge(f"kafka_steward.plan.{name}", value, tags=tags)
    if progress.ended or progress.waits_for_person:
        # The status is part of the name, because plain StatsD has no tags.
        stats.incr(f"kafka_steward.plan.ended.{progress.status.value}", tags=tags)


def emit_health(conn_id: str, measures: Mapping[str, float]) -> None:
    """Emit gauges of a cluster, with the tag `conn_id`; named after KIP-352's metrics. Never raises."""
    for name, value in measures.items():
        stats.gauge(f"kafka_steward.cluster.{name}", value, tags={"conn_id": conn_id})
