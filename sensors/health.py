"""Sensor for the health of a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import Context

from kafka_steward.sensors.base import StewardSensor

__all__ = ["ClusterHealthSensor"]


class ClusterHealthSensor(StewardSensor):
    """Waits until no measure of the cluster exceeds its limit (KIP-352).

    `limits` are given by measure, such as `{"reassigning_partitions": 0, "reassignment_max_lag": 1000}`; the default is
    `AWAITED_LIMITS` of `execution.watch.health`. Replicas that a reassignment is adding do not make a partition
    under-replicated. Returns the measures.

    >>> ClusterHealthSensor(task_id="healthy", limits={"offline_partitions": 0}, timeout=3600)
    <Task(ClusterHealthSensor): healthy>
    """

    question = "healthy"
    template_fields: Sequence[str] = (*StewardSensor.template_fields, "limits")

    def __init__(self, *, limits: Mapping[str, float] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.limits = limits

    def arguments(self, context: Context) -> dict[str, Any]:  # noqa: ARG002 - for sensors that need it
        """Return the limits."""
        return {"limits": None if self.limits is None else dict(self.limits)}
