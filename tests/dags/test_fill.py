"""The fill DAG as it is parsed: with nothing to connect to."""

from __future__ import annotations

from itertools import pairwise

from airflow.sdk import Asset
from airflow.serialization.serialized_objects import DagSerialization

from kafka_steward.dags import broker_joined, fill
from kafka_steward.operators.pending_replicas import FindPendingReplicasOperator
from kafka_steward.operators.plan import PlanReassignmentOperator
from kafka_steward.operators.submit import SubmitReassignmentOperator
from kafka_steward.triggers.watch import WatchTrigger
from tests.dags.tasks import task_of

TASKS = ["find_pending", "plan", "submit", "report"]


def test_a_broker_that_joins_starts_it() -> None:
    dag = fill(conn_id="kafka_production")
    assert (dag.dag_id, dag.is_paused_upon_creation, dag.max_active_runs) == ("fill_kafka_production", True, 1)
    (asset,) = dag.schedule  # type: ignore[misc]  # of all that a schedule can be, it is a list of assets
    assert isinstance(asset, Asset)
    assert asset.name == "kafka-steward:kafka_production:broker-joined"
    (watcher,) = broker_joined("kafka_production", {"throttle": 7}).watchers
    assert isinstance(watcher.trigger, WatchTrigger)
    _, keywords = watcher.trigger.serialize()
    assert keywords == {"conn_id": "kafka_production", "overrides": {"throttle": 7}, "event": "broker-joined"}


def test_its_tasks_follow_each_other_and_it_is_serializable() -> None:
    dag = fill()
    assert [task.task_id for task in dag.topological_sort()] == TASKS
    for task, following in pairwise(TASKS):
        assert following in dag.get_task(task).downstream_task_ids
    assert task_of(dag, "find_pending", FindPendingReplicasOperator).takes_snapshot
    assert task_of(dag, "plan", PlanReassignmentOperator).operation == "fill"
    assert task_of(dag, "submit", SubmitReassignmentOperator).elect_leaders
    DagSerialization.from_dict(DagSerialization.to_dict(dag))


def test_schedule_settings_and_waiting_are_the_authors_choice() -> None:
    dag = fill(schedule="@daily", settings={"throttle": 1_000}, deferrable=False, dag_id="mine")
    assert (dag.dag_id, dag.params["throttle"]) == ("mine", 1_000)
    assert not task_of(dag, "submit", SubmitReassignmentOperator).deferrable
