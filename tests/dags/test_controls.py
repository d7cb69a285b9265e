"""The controls DAG as it is parsed: with nothing to connect to; and the tags by which the page finds DAGs."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from kafka_steward import dags
from kafka_steward.cluster_tag import cluster_tag, tagged_conn_id, tagged_workflow, workflow_tag
from kafka_steward.dags import controls, rebalance
from kafka_steward.operators.control import ControlClusterOperator
from tests.dags.tasks import schedule_of, task_of

WORKFLOWS = ("apply", "cancel", "controls", "fill", "heal", "health", "rebalance", "throttle")


def test_it_is_ready_when_it_is_needed_and_never_waits_for_another_run() -> None:
    dag = controls("kafka_production")
    assert (dag.dag_id, dag.is_paused_upon_creation) == ("controls_kafka_production", False)
    assert schedule_of(dag) is None
    assert dag.max_active_runs > 1
    assert task_of(dag, "control", ControlClusterOperator).conn_id == "kafka_production"


@pytest.mark.parametrize(
    "conf",
    [{"action": "disable"}, {"action": "enable"}, {"broker": 0}, {"broker": None}, {"minutes": 30}, {"reason": "x"}],
)
def test_the_form_accepts(conf: dict[str, Any]) -> None:
    for name, value in conf.items():
        jsonschema.validate(value, controls().params.get_param(name).schema)


@pytest.mark.parametrize(
    "conf", [{"action": "explode"}, {"action": None}, {"broker": -1}, {"minutes": 0}, {"reason": None}]
)
def test_the_form_refuses(conf: dict[str, Any]) -> None:
    for name, value in conf.items():
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(value, controls().params.get_param(name).schema)


@pytest.mark.parametrize("name", WORKFLOWS)
def test_every_workflow_has_the_tags_of_its_cluster_and_of_itself(name: str) -> None:
    dag = getattr(dags, name)(conn_id="kafka_production", dag_id="called_otherwise")
    assert set(dag.tags) == {"kafka-steward", "kafka-steward:kafka_production", f"kafka-steward-workflow:{name}"}
    own = getattr(dags, name)(conn_id="kafka_production", tags=["team-a"])
    assert set(own.tags) == {"team-a", "kafka-steward:kafka_production", f"kafka-steward-workflow:{name}"}


def test_a_rebalance_that_starts_when_a_broker_joins_is_tagged_expand() -> None:
    assert rebalance("kafka_production", on_join=True).tags >= {workflow_tag("expand"), cluster_tag("kafka_production")}


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
