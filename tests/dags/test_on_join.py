"""The rebalance DAG that a joining broker starts, as it is parsed."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk import Asset
from airflow.serialization.serialized_objects import DagSerialization

from kafka_steward.dags import empty_broker_joined, rebalance
from kafka_steward.errors import SettingError
from kafka_steward.triggers.watch import WatchTrigger

FIRST = ["find_joined", "gate", "snapshot", "plan", "show_plan", "approve", "submit"]


def test_with_on_join_a_new_broker_starts_an_expand_that_waits_for_a_quiet_cluster() -> None:
    dag = rebalance("kafka_production", on_join=True, settings={"throttle": 7})
    assert (dag.dag_id, dag.is_paused_upon_creation, dag.max_active_runs) == ("expand_kafka_production", True, 1)
    schedule: Any = dag.schedule
    (asset,) = schedule
    assert isinstance(asset, Asset)
    assert asset.name == "kafka-steward:kafka_production:broker-new"
    (watcher,) = empty_broker_joined("kafka_production", {"throttle": 7}).watchers
    assert isinstance(watcher.trigger, WatchTrigger)
    _, keywords = watcher.trigger.serialize()
    assert keywords == {"conn_id": "kafka_production", "overrides": {"throttle": 7}, "event": "broker-new"}
    assert [task.task_id for task in dag.topological_sort()][: len(FIRST)] == FIRST
    assert (dag.params["operation"], dag.params["when_busy"]) == ("expand", "wait")
    assert dag.get_task("plan").upstream_task_ids == {"snapshot"}
    DagSerialization.from_dict(DagSerialization.to_dict(dag))
    assert "find_joined" not in rebalance().task_ids


def test_on_join_leaves_the_form_and_the_name_to_the_author() -> None:
    dag = rebalance(on_join=True, dag_id="mine", fields={"when_busy": "skip", "max_bytes": 10**9})
    assert (dag.dag_id, dag.params["when_busy"], dag.params["max_bytes"]) == ("mine", "skip", 10**9)


def test_it_has_no_other_schedule() -> None:
    with pytest.raises(SettingError, match="has on_join or a schedule, not both"):
        rebalance(on_join=True, schedule="@daily")
