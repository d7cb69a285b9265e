"""Execution of a plan to its end."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from kafka_steward.arrow import leave_out_pandas
from kafka_steward.assignment import counted
from kafka_steward.errors import StewardError
from kafka_steward.escaping import printable
from kafka_steward.hooks.context import actor_fields, actor_of, merge_overrides
from kafka_steward.operators.base import Notifiers, fail_without_retry, notify, to_notifier_list
from kafka_steward.operators.execution import PlanExecutionOperator, fail_task
from kafka_steward.operators.leaders import elect_leaders
from kafka_steward.operators.plan_folders import parse_uri_and_digest, read_task_plan, read_task_snapshot
from kafka_steward.triggers.run_plan import is_task_over, request_cancel_and_step
from kafka_steward.triggers.wait import CheckResult, WaitTrigger, evaluate_check
from kafka_steward.value_parsing import parse_broker_ids, require_choice

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_steward.execution.plans.drive import StepRunner
    from kafka_steward.hooks.session import ClusterSession
    from kafka_steward.journal.records import PlanRecord
    from kafka_steward.triggers.base import FreshConnections

__all__ = ["SubmitReassignmentOperator"]

#: Seconds between two checks of whether a plan's replicas are in sync.
_CATCH_UP_POLL_S = 10.0


class SubmitReassignmentOperator(PlanExecutionOperator):
    """Executes a plan in throttled chunks, and ends when every move is submitted and complete.

    `plan` is the result of PlanReassignmentOperator, or a plan folder's URI. If `snapshot` is given, the plan is
    checked against it. The plan is written into the journal first; from then on a retry, a second run or another
    process resumes it, and a plan that has ended is recognised and not executed again. The steps run in the worker, and
    with `deferrable` in the triggerer (RunPlanTrigger) after `defer_after`; at once if no watch has polled the journal
    lately, because the triggerer might have another one.

    Killing the task cancels nothing: reassignments in flight continue in Kafka, and clearing the task resumes the plan.
    With `on_kill="cancel"` the plan is cancelled when Airflow reports the task as failed, success or skipped, that is,
    when a user marked it so, and not when a user cleared it. A process that is killed at once cannot do that; use the
    cancel DAG then. With `require_approval`, a plan is rejected without a retry unless the journal holds the approval
    of its digest, which ApprovePlanOperator writes. `named_brokers` are the `brokers` of FindFailuresOperator, which a
    heal takes although so many have failed that it is an outage. If the plan is cancelled externally the task ends: at
    once, or after the rollback if one was requested. Returns `{"digest", "status", "sentence", "partitions", "left"}`,
    where `partitions` are the planned ones; for the status `failed`, which a plan has of which nothing moved, it is
    ReportPlanOperator that fails. Fails when the plan stalls (a retry resumes it), and without a retry when it is
    blocked and needs operator action.
    `on_started` is notified when the plan begins (event `started`), `on_problem` before such a failure.

    With `elect_leaders`, the task then waits until the plan's replicas are in the ISR, as IsrCatchUpSensor does, for at
    most `catch_up_timeout`, and elects the preferred leaders of its partitions, as ElectLeadersOperator does.
    A retry after `catch_up_timeout` waits again. The result also has `elected` and `refused`, which count partitions.

    >>> SubmitReassignmentOperator(task_id="submit", plan="/workspace/plan", require_approval=True)
    <Task(SubmitReassignmentOperator): submit>
    """

    template_fields: Sequence[str] = (*PlanExecutionOperator.template_fields, "plan", "snapshot", "named_brokers")

    def __init__(
        self,
        *,
        plan: Mapping[str, Any] | str | Any,
        snapshot: Mapping[str, Any] | str | Any | None = None,
        require_approval: bool = False,
        named_brokers: Collection[int] | Any | None = None,
        on_kill: str = "nothing",
        elect_leaders: bool = False,
        catch_up_timeout: timedelta = timedelta(days=1),
        on_started: Notifiers = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**{"multiple_outputs": True, **kwargs})
        self.plan = plan
        self.snapshot = snapshot
        self.require_approval = require_approval
        self.named_brokers = named_brokers
        self.on_started = to_notifier_list(on_started)
        self.when_killed = require_choice("on_kill", on_kill, "nothing", "cancel")
        self.elect_leaders = elect_leaders
        self.catch_up_timeout = catch_up_timeout

    def execute(self, context: Context) -> dict[str, Any]:
        """Publish the plan unless the journal has it; then execute it, or defer to the trigger that does."""
        leave_out_pandas()
        with self.open_connections(context) as connections:
            opened = connections.current()
            with fail_without_retry() if self.require_approval else nullcontext():
                record = self._publish_plan(opened, context)
            self.linked_plan = record.digest
            # Not before: it imports Arrow, for which the first snapshot has waited by now.
            from kafka_steward.execution.plans.rollback import is_cancel_unfinished

            if record.status.finished and not is_cancel_unfinished(opened.journal, record):
                self.log.info("Nothing is left to do: %s", printable(record.reason))
                result = _execution_result(
                    record.digest, record.status.value, record.reason, record.partitions, record.left
                )
            else:
                self._notify_start(record, context)
                result = self._run_plan(connections, record.digest, context)
            return self._finish(connections, result, context)

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """Finish after the trigger has executed the plan. Raises as `progress_from_event` does."""
        progress = self.progress_from_event(event, context)
        total, left = progress["partitions_total"], progress["left"]
        result = _execution_result(progress["digest"], progress["status"], event["sentence"], total, left)
        if not self.elect_leaders:
            return result
        with self.open_connections(context) as connections:
            return self._finish(connections, result, context)

    def elect_complete(self, context: Context, event: Mapping[str, Any], result: dict[str, Any]) -> dict[str, Any]:
        """Elect the leaders after the trigger has seen the plan's replicas in sync."""
        self.linked_plan = result["digest"]
        if not event["done"]:
            fail_task(event["sentence"], for_good=True)  # waiting would not resolve it
        self.log.info("%s", printable(event["sentence"]))
        with self.open(context) as opened:
            return self._elect(opened, result, context)

    def _finish(self, connections: FreshConnections, result: dict[str, Any], context: Context) -> dict[str, Any]:
        """Return the result; with `elect_leaders`, after the replicas are in sync and the leaders are elected."""
        if not self.elect_leaders:
            return result
        arguments, began_s = {"plan": result["digest"]}, time.monotonic()
        origin = connections.current().origin
        while not (answer := _check_caught_up(connections, arguments)).met:
            self.log.info("%s", printable(answer.sentence))
            waited_s = time.monotonic() - began_s
            if self.deferrable and waited_s >= _CATCH_UP_POLL_S:
                self._defer_until_caught_up(origin, arguments, result, context)
            if waited_s >= self.catch_up_timeout.total_seconds():
                fail_task(f"Not in sync within {self.catch_up_timeout}. {answer.sentence}", for_good=False)
            # The broker that is asked may hear of the end of a move a moment later than the controller.
            self._wait_unless_killed(1.0 if waited_s < _CATCH_UP_POLL_S else _CATCH_UP_POLL_S)
        self.log.info("%s", printable(answer.sentence))
        return self._elect(connections.current(), result, context)

    def _defer_until_caught_up(
        self, journal: Mapping[str, Any] | None, arguments: Mapping[str, Any], result: dict[str, Any], context: Context
    ) -> NoReturn:
        overrides = merge_overrides(self.settings, context)
        trigger = WaitTrigger(self.conn_id, "caught_up", arguments, _CATCH_UP_POLL_S, overrides, journal=journal)
        kwargs = {"result": result}
        self.defer(trigger=trigger, method_name="elect_complete", kwargs=kwargs, timeout=self.catch_up_timeout)

    def _elect(self, opened: ClusterSession, result: dict[str, Any], context: Context) -> dict[str, Any]:
        elected = elect_leaders(self, opened, context, result["digest"])
        return {**result, "elected": elected["elected"], "refused": elected["refused"]}

    def _notify_start(self, record: PlanRecord, context: Context) -> None:
        if record.status.value != "published":
            return  # a retry resumes it
        facts = {"digest": record.digest, "partitions": record.partitions, "brokers": list(record.failed_brokers)}
        moved = f"{counted(record.partitions, 'partition', 'is', 'are')} moved"
        moved = moved if record.partitions else "it has nothing to move"
        sentence = f"Plan {record.digest[:12]} ({record.operation}) begins: {moved}."
        notify(self.on_started, context, "started", {"sentence": sentence, **facts})

    def _publish_plan(self, opened: ClusterSession, context: Context) -> PlanRecord:
        _, digest = parse_uri_and_digest(self.plan)
        # The first snapshot waits half a second after the first list; what reads the plan is imported meanwhile.
        opened.cluster.reassignments()
        from kafka_steward.execution.plans.approval import refuse_unapproved
        from kafka_steward.execution.plans.publishing import publish_plan

        if digest and self.require_approval:
            refuse_unapproved(opened.journal, digest)
        if digest and (known := opened.journal.plans.get(digest)):
            return known
        return publish_plan(
            opened.context(actor_of(context)),
            read_task_plan(self.plan),
            snapshot=None if self.snapshot is None else read_task_snapshot(self.snapshot),
            require_approval=self.require_approval,
            named=parse_broker_ids(self.named_brokers),
        )

    def _run_plan(self, connections: FreshConnections, digest: str, context: Context) -> dict[str, Any]:
        from kafka_steward.execution.topics.creation import unwatched_reason

        def killed(opened: ClusterSession, runner: StepRunner) -> None:
            if self.when_killed == "cancel" and is_task_over(actor_fields(context), _map_index(context)):
                self.log.info("%s", printable(request_cancel_and_step(opened, digest, actor_fields(context), runner)))

        options: dict[str, Any] = {"when_killed": self.when_killed, "map_index": _map_index(context)}
        opened = connections.current()
        if self.deferrable and unwatched_reason(opened.journal):
            # The triggerer may have another journal, and would refuse the plan: then nothing of it should be in flight.
            self.defer_to_trigger(opened, digest, context, **options)
        progress = self.run_or_defer(connections, digest, context, killed=killed, **options)
        status, total = progress.status.value, progress.partitions_total
        return _execution_result(digest, status, progress.sentence, total, progress.left)


def _check_caught_up(connections: FreshConnections, arguments: Mapping[str, Any]) -> CheckResult:
    """Return the result of the check; not met while cluster or journal are unreachable, to which it connects again.

    Raises AirflowFailException for an error that waiting cannot resolve.
    """
    try:
        return evaluate_check("caught_up", connections.current(), arguments)
    except StewardError as error:
        connections.close()
        if not error.retriable:
            fail_task(str(error), for_good=True)
        return CheckResult(False, f"{error} Retrying.")


def _map_index(context: Context) -> int:
    return int(getattr(context["ti"], "map_index", -1))


def _execution_result(digest: str, status: str, sentence: str, partitions: int, left: int) -> dict[str, Any]:
    return {"digest": digest, "status": status, "sentence": sentence, "partitions": partitions, "left": left}
