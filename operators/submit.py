"""Execution of a plan to its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from kafka_steward.escaping import printable
from kafka_steward.hooks.context import actor_fields, actor_of
from kafka_steward.operators.base import fail_without_retry
from kafka_steward.operators.execution import PlanExecutionOperator
from kafka_steward.operators.plan_folders import parse_uri_and_digest, read_task_plan, read_task_snapshot
from kafka_steward.triggers.run_plan import is_task_over, request_cancel_and_step
from kafka_steward.value_parsing import require_choice

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_steward.execution.runner import StepRunner
    from kafka_steward.hooks.steward import ClusterSession
    from kafka_steward.journal.records import PlanRecord
    from kafka_steward.triggers.base import FreshConnections

__all__ = ["SubmitReassignmentOperator"]


class SubmitReassignmentOperator(PlanExecutionOperator):
    """Executes a plan in throttled chunks, and ends when every move is submitted and complete.

    `plan` is the result of PlanReassignmentOperator, or a plan folder's URI. If `snapshot` is given, the plan is
    checked against it. The plan is written into the journal first; from then on a retry, a second run or another
    process resumes it, and a plan that has ended is recognised and not executed again. When deferred, the steps run in
    the triggerer (RunPlanTrigger); with `deferrable=False`, in the worker.

    Killing the task cancels nothing: reassignments in flight continue in Kafka, and clearing the task resumes the plan.
    With `on_kill="cancel"` the plan is cancelled when Airflow reports the task as failed, success or skipped, that is,
    when a user marked it so, and not when a user cleared it. A process that is killed at once cannot do that; use the
    cancel DAG then. With `require_approval`, a plan is rejected without a retry unless the journal holds the approval
    of its digest, which ApprovePlanOperator writes. If the plan is cancelled externally the task ends: at once, or
    after the rollback if one was requested. Returns `{"digest", "status", "sentence", "partitions", "left"}`. Fails
    when the plan stalls (a retry resumes it), and without a retry when it is blocked and needs operator action.

    >>> SubmitReassignmentOperator(task_id="submit", plan="/workspace/plan", require_approval=True)
    <Task(SubmitReassignmentOperator): submit>
    """

    template_fields: Sequence[str] = (*PlanExecutionOperator.template_fields, "plan", "snapshot")

    def __init__(
        self,
        *,
        plan: Mapping[str, Any] | str | Any,
        snapshot: Mapping[str, Any] | str | Any | None = None,
        require_approval: bool = False,
        on_kill: str = "nothing",
        **kwargs: Any,
    ) -> None:
        super().__init__(**{"multiple_outputs": True, **kwargs})
        self.plan = plan
        self.snapshot = snapshot
        self.require_approval = require_approval
        self.when_killed = require_choice("on_kill", on_kill, "nothing", "cancel")

    def execute(self, context: Context) -> dict[str, Any]:
        """Publish the plan unless the journal has it; then execute it, or defer to the trigger that does."""
        from kafka_steward.execution.rollback import is_cancel_unfinished

        with self.open_connections(context) as connections:
            opened = connections.current()
            with fail_without_retry() if self.require_approval else nullcontext():
                record = self._publish_plan(opened, context)
            if record.status.finished and not is_cancel_unfinished(opened.journal, record):
                self.log.info("Nothing is left to do: %s", printable(record.reason))
                return _execution_result(
                    record.digest, record.status.value, record.reason, record.partitions, record.left
                )
            if self.deferrable:
                self.defer_to_trigger(
                    opened, record.digest, context, when_killed=self.when_killed, map_index=_map_index(context)
                )
            return self._run_plan(connections, record.digest, context)

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - Airflow's
        """Return the result from the trigger's event. Raises as `progress_from_event` does."""
        progress = self.progress_from_event(event)
        total, left = progress["partitions_total"], progress["left"]
        return _execution_result(progress["digest"], progress["status"], event["sentence"], total, left)

    def _publish_plan(self, opened: ClusterSession, context: Context) -> PlanRecord:
        from kafka_steward.execution.publishing import publish_plan, refuse_unapproved

        _, digest = parse_uri_and_digest(self.plan)
        if digest and self.require_approval:
            refuse_unapproved(opened.journal, digest)
        if digest and (known := opened.journal.plans.get(digest)):
            return known
        return publish_plan(
            opened.context(actor_of(context)),
            read_task_plan(self.plan),
            snapshot=None if self.snapshot is None else read_task_snapshot(self.snapshot),
            require_approval=self.require_approval,
        )

    def _run_plan(self, connections: FreshConnections, digest: str, context: Context) -> dict[str, Any]:
        def killed(opened: ClusterSession, runner: StepRunner) -> None:
            if self.when_killed == "cancel" and is_task_over(actor_fields(context), _map_index(context)):
                self.log.info("%s", printable(request_cancel_and_step(opened, digest, actor_fields(context), runner)))

        progress = self.run_to_completion(connections, digest, context, killed=killed)
        status, total = progress.status.value, progress.partitions_total
        return _execution_result(digest, status, progress.sentence, total, progress.left)


def _map_index(context: Context) -> int:
    return int(getattr(context["ti"], "map_index", -1))


def _execution_result(digest: str, status: str, sentence: str, partitions: int, left: int) -> dict[str, Any]:
    return {"digest": digest, "status": status, "sentence": sentence, "partitions": partitions, "left": left}
