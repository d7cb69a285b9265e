"""The link from a task to its plan on the page of Kafka Steward, which Airflow shows as a button of the task."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseOperatorLink

from kafka_steward.airflow_versions import conf
from kafka_steward.page_address import is_digest, plan_path

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

__all__ = ["LinkedToPlan", "PlanLink"]


class PlanLink(BaseOperatorLink):
    """Leads to the task's plan on the page of Kafka Steward; to nothing while the task has no plan.

    Airflow computes it in the task's process whenever that ends, also when it defers or waits for an answer, and stores
    it as an XCom.
    """

    name = "Plan"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002 - Airflow's
        """Return the path of the page about the plan."""
        digest = getattr(operator, "linked_plan", "") or _digest_of(getattr(operator, "plan", None))
        return plan_path(str(getattr(operator, "conn_id", "")), digest, conf.get("api", "base_url", fallback=None))


class LinkedToPlan:
    """An operator with a link to its plan: `linked_plan`, or without it the plan that its argument `plan` names."""

    operator_extra_links: ClassVar[Collection[BaseOperatorLink]] = (PlanLink(),)

    #: The digest of the plan that the task has made or found.
    linked_plan: str = ""


def _digest_of(plan: Any) -> str:
    """Return the digest in a task's result, or the digest itself; empty for a folder's URI, and for anything else."""
    digest = plan.get("digest") if isinstance(plan, Mapping) else plan
    return str(digest) if is_digest(digest) else ""
