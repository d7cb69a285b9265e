"""The tasks of the DAG `rebalance`: the claim of brokers that joined empty, and the plan from the fields of a form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kafka_steward.escaping import printable
from kafka_steward.hooks.context import hook_of, is_scheduled
from kafka_steward.operators.base import StewardOperator, fail_without_retry, refuse_unknown_keys, skip_downstream
from kafka_steward.operators.plan import PlanReassignmentOperator
from kafka_steward.rebalance_request import REQUEST_FIELDS, RebalanceRequest

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["ClaimEmptyBrokersOperator", "PlanRebalanceOperator", "refuse_wrong_form"]


class ClaimEmptyBrokersOperator(StewardOperator):
    """Claims the brokers that joined empty, and returns the operation that moves replicas to them.

    The event that started the run is not read: Airflow may duplicate or drop trigger events. Without an empty broker,
    or while a fill has to place pending replicas first (KIP-409), the task and its downstream tasks are skipped; the
    watch emits the event again after the fill. A run that a user started claims no broker, and returns the `operation`
    of its form. Returns `{"operation", "brokers", "sentence"}`: `expand`, or `rebalance` once a fill has placed some
    replicas on each of the brokers.

    >>> ClaimEmptyBrokersOperator(task_id="claim", conn_id="kafka_production")
    <Task(ClaimEmptyBrokersOperator): claim>
    """

    template_fields: Sequence[str] = (*StewardOperator.template_fields, "operation")

    def __init__(self, *, operation: str | Any = "expand", **kwargs: Any) -> None:
        super().__init__(**{"multiple_outputs": True, **kwargs})
        self.operation = operation

    def execute(self, context: Context) -> dict[str, Any]:
        """Claim the empty brokers; skip the downstream tasks when there are none."""
        from kafka_steward.execution.watch.broker_joins import claim_empty_brokers

        if not is_scheduled(context):
            return {"operation": self.operation, "brokers": [], "sentence": "A user started this run."}
        with self.open(context) as opened:
            run = f"{context['ti'].dag_id}/{context['ti'].run_id}"
            claimed = claim_empty_brokers(opened.cluster, opened.journal, opened.settings, run)
        if not claimed.brokers:
            skip_downstream(self, context, claimed.sentence)
        self.log.info("%s", printable(claimed.sentence))
        operation = "expand" if claimed.empty else "rebalance"
        return {"operation": operation, "brokers": list(claimed.brokers), "sentence": claimed.sentence}


class PlanRebalanceOperator(PlanReassignmentOperator):
    """Plans the operation that `request` describes, from a snapshot; does not change or connect to the cluster.

    `request` holds fields of the form of the DAG `rebalance`, by name: the `operation` (rebalance, expand, drain,
    relieve, set-replication-factor, leaders, demote, promote), the `brokers` that it is about, and any of its filters,
    goals and budgets, such as `topics` and `exclude_brokers`. A scheduled run without a budget moves at most a tenth of
    the cluster's bytes. All else is as in PlanReassignmentOperator.

    If the snapshot alone shows that there is nothing to do, no job is run, and `uri` and `digest` are None. Returns the
    result of PlanReassignmentOperator plus `operation`; `nothing` is the reason why there is nothing to do, or empty.

    >>> PlanRebalanceOperator(
    ...     task_id="plan", snapshot={"uri": "/snapshot"}, request={"operation": "drain", "brokers": [4]}
    ... )
    <Task(PlanRebalanceOperator): plan>
    """

    template_fields: Sequence[str] = (*PlanReassignmentOperator.template_fields, "request")

    def __init__(self, *, request: Mapping[str, Any] | Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.request = request

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]  # as its base, SparkSubmit's
        """Derive the planner's options, and plan unless there is nothing to do."""
        from kafka_steward.execution.plans.requests import no_op_reason, planner_options

        self._require_snapshot()
        with fail_without_retry():
            request, snapshot = RebalanceRequest.of(self.request), self._read_snapshot()
            service_topics = hook_of(self, context).settings.service_topic_patterns
            options = planner_options(request, snapshot, scheduled=is_scheduled(context), service_topics=service_topics)
        nothing = no_op_reason(request, snapshot)
        if nothing:
            self.log.info("%s", printable(nothing))
            return {**_NO_PLAN, "operation": request.operation, "nothing": nothing}
        self.operation, self.options = request.operation, {**options, **self.options}
        of_brokers = bool(request.brokers) and request.operation in ("demote", "promote")
        return {
            **self._plan_snapshot(lambda: snapshot, context),
            "operation": request.operation,
            "of_brokers": of_brokers,
        }


def refuse_wrong_form(context: Context) -> None:
    """Fail the task without a retry when the run's conf has unknown keys, or fields of its form contradict each other.

    Meant as the `pre_execute` of the first task of the DAG `rebalance`: it calls neither Kafka nor the journal.
    """
    refuse_unknown_keys(context)
    params = context["params"]
    with fail_without_retry():
        RebalanceRequest.of({name: params[name] for name in REQUEST_FIELDS}).validate()


_NO_PLAN = {
    "uri": None,
    "digest": None,
    "replicas_moved": 0,
    "bytes_moved": 0,
    "lower_bound": 0,
    "partitions": 0,
    "unplaced": 0,
    "page_digest": None,
}
