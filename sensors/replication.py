"""Sensor for replicas that catch up with their leader."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from airflow.sdk import Context

from kafka_steward.errors import RequestError
from kafka_steward.sensors.base import StewardSensor

__all__ = ["IsrCatchUpSensor"]


class IsrCatchUpSensor(StewardSensor):
    """Waits until every replica is in the ISR: of `partitions` (`"orders-7"`), of a `plan` (its digest), or of all.

    A plan's replicas on brokers that are not live are not waited for: the heal of that failure replaces them. Of all
    partitions, those that the gate leaves out, as ClusterReadyOperator does, are not waited for. The log states how
    many replicas of how many partitions are missing. Returns `{"partitions": n, "missing": m}`, where the
    `m` partitions have such replicas only.

    >>> IsrCatchUpSensor(task_id="catch_up", partitions=["orders-7"])
    <Task(IsrCatchUpSensor): catch_up>
    """

    question = "caught_up"
    template_fields: Sequence[str] = (*StewardSensor.template_fields, "partitions", "plan")

    def __init__(
        self, *, partitions: Collection[str] | None = None, plan: str | Any | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.partitions = partitions
        self.plan = plan

    def arguments(self, context: Context) -> dict[str, Any]:  # noqa: ARG002 - for sensors that need it
        """Return the partitions or the plan. Raises RequestError if both are given, or for an invalid name."""
        if self.partitions is None:
            return {"plan": self.plan}
        if self.plan:
            raise RequestError("Give IsrCatchUpSensor either partitions or a plan, not both.")
        return {"partitions": [_parse_partition(name) for name in self.partitions]}


def _parse_partition(name: str) -> list[Any]:
    topic, dash, number = name.rpartition("-")
    if not (dash and topic and number.isdecimal()):
        raise RequestError(f"{name!r} is not a partition; write topic-number, such as orders-7.")
    return [topic, int(number)]
