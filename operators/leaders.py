"""Election of the preferred leaders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kafka_steward.assignment import TopicPartition
from kafka_steward.escaping import printable
from kafka_steward.hooks.context import actor_of
from kafka_steward.operators.base import StewardOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_steward.hooks.steward import ClusterSession

__all__ = ["ElectLeadersOperator"]


class ElectLeadersOperator(StewardOperator):
    """Elects the preferred leaders of the partitions of a `plan` (its digest), or of the whole cluster without one.

    A partition whose preferred leader is not in the ISR keeps its current leader. Returns
    `{"elected": n, "refused": n, "sentence"}`.

    >>> ElectLeadersOperator(task_id="elect_leaders", conn_id="kafka_production")
    <Task(ElectLeadersOperator): elect_leaders>
    """

    template_fields: Sequence[str] = (*StewardOperator.template_fields, "plan")

    def __init__(self, *, plan: str | Any | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan = plan

    def execute(self, context: Context) -> dict[str, Any]:
        """Elect the leaders, and log each partition that keeps its leader."""
        from kafka_steward.execution.effects import elect_preferred_leaders

        with self.open(context) as opened:
            elected = elect_preferred_leaders(
                opened.cluster,
                opened.journal,
                who=actor_of(context),
                partitions=self._plan_partitions(opened),
                plan=self.plan or "",
            )
        self.log.info("%s", printable(elected.sentence))
        for partition, why in elected.refused.items():
            self.log.warning("%s keeps its leader: %s", printable(str(partition)), printable(why))
        return {"elected": len(elected.elected), "refused": len(elected.refused), "sentence": elected.sentence}

    def _plan_partitions(self, opened: ClusterSession) -> list[TopicPartition] | None:
        return [row.move.topic_partition for row in opened.journal.plans.rows(self.plan)] if self.plan else None
