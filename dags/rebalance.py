"""The rebalance workflow: balances brokers, fills new ones, drains others, or changes replication factors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from airflow.sdk import DAG, Asset, BaseOperator

from kafka_steward.dags.builder import DEFAULT_CONN_ID, SNAPSHOT_DOC, Workflow, watch_asset
from kafka_steward.dags.earlier import EarlierResult
from kafka_steward.dags.params import rebalance_params
from kafka_steward.errors import SettingError
from kafka_steward.operators.approve import Approvers
from kafka_steward.operators.base import Notifiers
from kafka_steward.operators.checks import ClusterReadyOperator
from kafka_steward.operators.rebalance import (
    ClaimEmptyBrokersOperator,
    PlanRebalanceOperator,
    refuse_wrong_form,
)
from kafka_steward.operators.snapshot import SnapshotClusterOperator
from kafka_steward.rebalance_request import REQUEST_FIELDS

__all__ = ["broker_imbalanced", "demoted_leads", "disk_full", "empty_broker_joined", "rebalance"]

_DOC = """
Balances the brokers of a Kafka cluster (*rebalance*), moves replicas to new ones (*expand*), empties others (*drain*),
moves off what full disks hold above a threshold (*relieve*), changes the replication factor of topics
(*set-replication-factor*), or makes leaders even without copying (*leaders*), with the fewest changes.

It starts only on a fully replicated, idle cluster, shows its plan with a proof, waits for a user to approve exactly
that plan, and executes it in throttled chunks, within `maintenance_window` if one is set. With `dry_run` it stops
after the plan. The last task, `report`, lists the moves that were made, the moves that were held and why, and what
remains.
"""

_GATE_DOC = """
Lets the run go on once the cluster is fully replicated and idle; changes nothing. Its log says what is missing. With
`when_busy` *skip* the run ends there, with *wait* it waits.
"""
_JOINED_DOC = """
Finds the brokers that joined empty. If there is none, or a fill comes first, the task is skipped, and its log and its
XCom `sentence` say why.
"""


def empty_broker_joined(conn_id: str = DEFAULT_CONN_ID) -> Asset:
    """Return the asset whose events report that an empty broker has joined; any DAG may be scheduled on it.

    Its watch emits the event again every `heal_retry_interval` until a ClaimEmptyBrokersOperator claims the broker.
    """
    return watch_asset(conn_id, "broker-new")


def broker_imbalanced(conn_id: str = DEFAULT_CONN_ID) -> Asset:
    """Return the asset whose events report brokers that lead far more than the others; any DAG may be scheduled on it.

    The threshold is the connection's setting `imbalance_above`. What lasts is reported again after a day.
    """
    return watch_asset(conn_id, "broker-imbalanced")


def disk_full(conn_id: str = DEFAULT_CONN_ID) -> Asset:
    """Return the asset whose events report volumes used above `disk_above`, as `broker_imbalanced` does."""
    return watch_asset(conn_id, "disk-full")


def demoted_leads(conn_id: str = DEFAULT_CONN_ID) -> Asset:
    """Return the asset whose events report demoted brokers that are to lead again, as `broker_imbalanced` does."""
    return watch_asset(conn_id, "demoted-leads")


def rebalance(
    conn_id: str = DEFAULT_CONN_ID,
    *,
    schedule: Any = None,
    on_join: bool = False,
    on_imbalance: bool = False,
    on_full_disk: bool = False,
    on_demoted_leader: bool = False,
    fields: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    spark_conn_id: str | None = None,
    deferrable: bool = True,
    approval_timeout: timedelta = timedelta(days=1),
    approve_above: int | None = None,
    approvers: Approvers = None,
    self_approval: bool = True,
    on_kill: str = "nothing",
    on_approval_asked: Notifiers = None,
    on_done: Notifiers = None,
    notify: Notifiers = None,
    **options: Any,
) -> DAG:
    """Return a DAG that rebalances, expands, drains, or sets the replication factor of the cluster behind `conn_id`.

    Without a `schedule` it is triggered manually. A scheduled run moves at most a tenth of the cluster's bytes unless
    its `fields`, values of the form's fields, set another budget. With `on_join` it is `expand`, and starts when empty
    brokers join; with `on_imbalance` it is `leaders`, and starts when a broker leads far more than the others, or with
    `fields` of operation rebalance and balance load moves replicas then; with `on_full_disk` it is `relieve`, and
    starts when a disk is full; with `on_demoted_leader` it is `demote`, and starts when a demoted broker is to lead a
    new topic.

    A run's own parameters override the `settings`, but not the approval: `approve_above`, `approvers`, `self_approval`
    and `approval_timeout`, as in ApprovePlanOperator. All else is as in every workflow: see kafka_steward.dags.
    """
    event = _event_that_starts(
        schedule,
        on_join=on_join,
        on_imbalance=on_imbalance,
        on_full_disk=on_full_disk,
        on_demoted_leader=on_demoted_leader,
    )
    workflow = Workflow(
        conn_id, settings, spark_conn_id=spark_conn_id, deferrable=deferrable, on_kill=on_kill, notify=notify
    )
    given = workflow.settings
    with workflow.create_dag(
        event.operation if event else "rebalance",
        _DOC,
        rebalance_params({**(event.fields if event else {}), **(fields or {})}, given),
        [event.asset(conn_id)] if event else schedule,
        **{"max_active_runs": 1, **options},
    ) as dag:
        snapshot, plan = _add_planning_tasks(workflow, dag, on_join=on_join)
        workflow.add_approved_execution(
            snapshot,
            plan,
            approve_above=approve_above,
            approvers=approvers,
            self_approval=self_approval,
            response_timeout=approval_timeout,
            on_approval_asked=on_approval_asked,
            on_done=on_done,
            draining_brokers=dag.param("brokers"),
        )
    return dag


class _StartingEvent(NamedTuple):
    """An event that starts a rebalance: the argument that asks for it, its asset, and the operation."""

    argument: str
    asset: Callable[[str], Asset]
    operation: str

    @property
    def fields(self) -> dict[str, Any]:
        """Initial values of the form."""
        return {"operation": self.operation, "when_busy": "wait"}


_EVENTS = (
    _StartingEvent("on_join", empty_broker_joined, "expand"),
    _StartingEvent("on_imbalance", broker_imbalanced, "leaders"),
    _StartingEvent("on_full_disk", disk_full, "relieve"),
    _StartingEvent("on_demoted_leader", demoted_leads, "demote"),
)


def _event_that_starts(schedule: Any, **asked: bool) -> _StartingEvent | None:
    events = [event for event in _EVENTS if asked[event.argument]]
    if len(events) + (schedule is not None) > 1:
        names = [*(event.argument for event in events), *(["a schedule"] if schedule is not None else [])]
        raise SettingError(f"A rebalance has {' or '.join(names)}, not several; call rebalance() once for each.")
    return events[0] if events else None


def _add_planning_tasks(workflow: Workflow, dag: DAG, *, on_join: bool) -> tuple[BaseOperator, BaseOperator]:
    shared = workflow.shared
    request: dict[str, Any] = {name: dag.param(name) for name in REQUEST_FIELDS}
    gate = ClusterReadyOperator(
        task_id="gate",
        doc_md=_GATE_DOC,
        when_busy=dag.param("when_busy"),
        deferrable=workflow.deferrable,
        pre_execute=None if on_join else refuse_wrong_form,
        **shared,
    )
    if on_join:
        joined = ClaimEmptyBrokersOperator(
            task_id="find_joined",
            doc_md=_JOINED_DOC,
            operation=request["operation"],
            pre_execute=refuse_wrong_form,
            **shared,
        )
        request["operation"] = EarlierResult(joined, "operation")
        joined >> gate
    snapshot = SnapshotClusterOperator(
        task_id="snapshot",
        doc_md=SNAPSHOT_DOC,
        draining_brokers=dag.param("brokers"),
        operation=dag.param("operation"),
        **shared,
    )
    plan = workflow.add_plan_task(snapshot, PlanRebalanceOperator, request=request)
    gate >> snapshot >> plan
    return snapshot, plan
