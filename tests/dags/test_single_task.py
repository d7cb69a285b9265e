"""The DAGs whose work is one task, as they are parsed: cancel, controls, health, probe and throttle."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from airflow.sdk import DAG
from airflow.serialization.serialized_objects import DagSerialization

from kafka_steward import dags
from kafka_steward.cluster_tag import cluster_tag, tagged_conn_id, tagged_workflow, workflow_tag
from kafka_steward.dags import cancel, controls, health, probe, throttle
from kafka_steward.errors import SettingError
from kafka_steward.operators.documents import ControlClusterOperator
from kafka_steward.operators.plan_control import (
    CancelReassignmentOperator,
    ChangeThrottleOperator,
    RollbackReassignmentOperator,
)
from tests.dags.tasks import schedule_of, task_of

TAGGED = ("apply", "cancel", "controls", "expand", "fill", "heal", "health", "rebalance", "throttle")


def assert_ready(dag: DAG, *tasks: str) -> None:
    """The DAG of the production cluster can be started at any time, and waits for none of its other runs."""
    assert dag.dag_id == f"{tasks[0] if tasks[0] != 'control' else 'controls'}_kafka_production"
    assert (dag.is_paused_upon_creation, dag.catchup, schedule_of(dag)) == (False, False, None)
    assert [task.task_id for task in dag.topological_sort()] == list(tasks)


def test_each_is_ready_when_it_is_needed_and_never_waits_for_another_run() -> None:
    made = {make: make(conn_id="kafka_production") for make in (cancel, controls, throttle)}
    assert all(dag.max_active_runs > 1 for dag in made.values())
    assert_ready(made[cancel], "cancel", "elect_leaders")
    # What the second task takes of the first is one of several values.
    assert task_of(made[cancel], "cancel", CancelReassignmentOperator).multiple_outputs
    assert_ready(made[controls], "control")
    assert task_of(made[controls], "control", ControlClusterOperator).conn_id == "kafka_production"
    assert_ready(made[throttle], "throttle")
    changing = task_of(throttle(settings={"step_interval": 5}), "throttle", ChangeThrottleOperator)
    assert changing.settings == {"step_interval": 5}
    probing = probe(conn_id="kafka_production")
    assert_ready(probing, "probe")
    assert probing.get_task("probe").retries == 0


def test_the_health_is_reported_on_demand_or_on_a_schedule_of_the_authors() -> None:
    dag = health(conn_id="kafka_production")
    assert (dag.dag_id, [task.task_id for task in dag.tasks]) == ("health_kafka_production", ["health"])
    assert schedule_of(dag) is None
    assert schedule_of(health(schedule="@hourly")) == "@hourly"
    DagSerialization.from_dict(DagSerialization.to_dict(dag))


def test_what_becomes_of_an_unhealthy_cluster_is_a_field_of_the_form() -> None:
    field = health(when_unhealthy="fail").params.get_param("when_unhealthy")
    assert (field.value, field.schema["enum"]) == ("fail", ["report", "fail"])
    with pytest.raises(SettingError, match="it takes report or fail"):
        health(when_unhealthy="shout")


def test_plan_and_reason_of_a_throttle_are_the_same_fields_as_those_of_a_cancel() -> None:
    ours, theirs = throttle().params, cancel().params
    assert list(ours) == ["plan", "rate", "reason"]
    for name in ("plan", "reason"):
        assert ours.get_param(name).dump() == theirs.get_param(name).dump()


def test_a_rollback_is_the_cancel_of_a_whole_plan() -> None:
    undo = RollbackReassignmentOperator(task_id="undo", plan="3f2a", scope="pending")
    assert (undo.scope, undo.plan) == ("plan", "3f2a")


# the tags by which the page finds DAGs


@pytest.mark.parametrize("name", TAGGED)
def test_every_workflow_has_the_tags_of_its_cluster_and_of_itself(name: str) -> None:
    make: Callable[..., DAG] = partial(dags.rebalance, on_join=True) if name == "expand" else getattr(dags, name)
    dag = make(conn_id="kafka_production", dag_id="called_otherwise")
    assert set(dag.tags) == {"kafka-steward", "kafka-steward:kafka_production", f"kafka-steward-workflow:{name}"}
    own = make(conn_id="kafka_production", tags=["team-a"])
    assert set(own.tags) == {"team-a", "kafka-steward:kafka_production", f"kafka-steward-workflow:{name}"}


def test_a_long_connection_id_is_cut_and_stays_its_own() -> None:
    one, other = ("k" * 249 + last for last in "ab")
    assert cluster_tag(one) != cluster_tag(other)
    assert len(cluster_tag(one)) == 100
    assert controls(one, dag_id="x").tags >= {cluster_tag(one)}
    assert tagged_conn_id(cluster_tag(one)) is None


def test_a_tag_names_a_connection_or_a_workflow_and_not_both() -> None:
    assert tagged_conn_id(cluster_tag("kafka/a:b")) == "kafka/a:b"
    assert tagged_workflow(workflow_tag("cancel")) == "cancel"
    for other in ("kafka-steward", "kafka-steward:", "kafka-steward-workflow:", "mine"):
        assert (tagged_conn_id(other), tagged_workflow(other)) == (None, None)
    assert tagged_conn_id(workflow_tag("cancel")) is None
    assert tagged_workflow(cluster_tag("x")) is None
