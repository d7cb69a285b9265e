"""What an operator defers to goes on with the journal of its task."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from datetime import timedelta

import pytest
from airflow.sdk.exceptions import TaskDeferred

from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.publishing import publish_plan
from kafka_steward.execution.runner import PlanRunner
from kafka_steward.journal.identity import Identity
from kafka_steward.operators.base import StewardOperator
from kafka_steward.operators.cancel import CancelReassignmentOperator, RollbackReassignmentOperator
from kafka_steward.operators.gate import ClusterReadyOperator
from kafka_steward.operators.probe import ProbeWorkspaceOperator
from kafka_steward.operators.submit import SubmitReassignmentOperator
from kafka_steward.provider_info import get_provider_info
from kafka_steward.settings import Settings
from tests.airflow_home import context
from tests.operators.simulated import CONN_ID, Cluster, MakeCluster, make_cluster
from tests.simulated_plan import WHO, move, plan_of

__all__ = ["make_cluster"]

OURS = Identity("a-journal", "sqlite:////airflow/journal.db on the host worker-1", "zk-1:2181/kafka")
SETTINGS = Settings(throttle=0)
AT_ONCE = timedelta(0)


def published(cluster: Cluster) -> str:
    plan = plan_of(cluster, [move("orders-0", "123", "423", size=1000)], operation="apply")
    return publish_plan(ClusterContext(cluster, cluster.journal, SETTINGS, WHO), plan).digest


def submit(cluster: Cluster) -> StewardOperator:
    plan = {"uri": "/workspace/plan", "digest": published(cluster)}
    return SubmitReassignmentOperator(task_id="submit", conn_id=CONN_ID, plan=plan, defer_after=AT_ONCE)


def cancel(cluster: Cluster) -> StewardOperator:
    digest = published(cluster)
    PlanRunner(ClusterContext(cluster, cluster.journal, SETTINGS, WHO), digest).step()
    why = "wrong racks"
    return CancelReassignmentOperator(task_id="cancel", conn_id=CONN_ID, plan=digest, reason=why, defer_after=AT_ONCE)


def roll_back(cluster: Cluster) -> StewardOperator:
    digest = published(cluster)
    PlanRunner(ClusterContext(cluster, cluster.journal, SETTINGS, WHO), digest).step()
    why = "wrong racks"
    return RollbackReassignmentOperator(
        task_id="rollback", conn_id=CONN_ID, plan=digest, reason=why, defer_after=AT_ONCE
    )


def gate(cluster: Cluster) -> StewardOperator:
    cluster.kill(3)
    return ClusterReadyOperator(task_id="gate", conn_id=CONN_ID, when_busy="wait")


#: A new operator that defers is missing here until it is tried.
MAKE: dict[type[StewardOperator], Callable[[Cluster], StewardOperator]] = {
    SubmitReassignmentOperator: submit,
    CancelReassignmentOperator: cancel,
    RollbackReassignmentOperator: roll_back,
    ClusterReadyOperator: gate,
}
#: It opens neither the cluster nor the journal.
WITHOUT_A_JOURNAL = {ProbeWorkspaceOperator}


def deferring() -> list[type[StewardOperator]]:
    names = [name for entry in get_provider_info()["operators"] for name in entry["python-modules"]]
    found = {each for name in names for _, each in inspect.getmembers(importlib.import_module(name), inspect.isclass)}
    ours = {each for each in found if issubclass(each, StewardOperator) and each.__module__ in names}
    ours -= WITHOUT_A_JOURNAL
    defer = [each for each in ours if any("self.defer(" in inspect.getsource(of) for of in bases(each))]
    return sorted(defer, key=lambda each: each.__name__)


def bases(operator: type[StewardOperator]) -> list[type]:
    return [each for each in operator.__mro__ if issubclass(each, StewardOperator)]


@pytest.mark.parametrize("operator", deferring(), ids=lambda each: each.__name__)
def test_the_trigger_of_an_operator_has_the_tasks_journal(
    make_cluster: MakeCluster, operator: type[StewardOperator]
) -> None:
    cluster = make_cluster("1a 2b 3c 4a", "orders: 123")
    cluster.journal.identity = OURS
    task = MAKE[operator](cluster)
    with pytest.raises(TaskDeferred) as waits:
        task.execute(context(task_id=task.task_id))
    assert waits.value.trigger.serialize()[1]["journal"] == OURS.to_json()
