"""Election of the preferred leaders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from kafka_steward.escaping import printable
from kafka_steward.hooks.context import actor_of
from kafka_steward.operators.base import StewardOperator
from kafka_steward.operators.links import LinkedToPlan

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_steward.hooks.session import ClusterSession

__all__ = ["ElectLeadersOperator", "elect_leaders"]


class ElectLeadersOperator(LinkedToPlan, StewardOperator):
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
        with self.open(context) as opened:
            return elect_leaders(self, opened, context, self.plan)


def elect_leaders(task: BaseOperator, opened: ClusterSession, context: Context, plan: str | None) -> dict[str, Any]:
    """Elect the preferred leaders for a task, as ElectLeadersOperator does; return its result."""
    from kafka_steward.execution.effects import elect_preferred_leaders

    partitions = [row.move.topic_partition for row in opened.journal.plans.rows(plan)] if plan else None
    elected = elect_preferred_leaders(
        opened.cluster, opened.journal, who=actor_of(context), partitions=partitions, plan=plan or ""
    )
    task.log.info("%s", printable(elected.sentence))
    for partition, why in elected.refused.items():
        task.log.warning("%s keeps its leader: %s", printable(str(partition)), printable(why))
    return {"elected": len(elected.elected), "refused": len(elected.refused), "sentence": elected.sentence}
