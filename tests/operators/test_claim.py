"""The first task of an expand that a joining broker starts, and the plan that comes of it."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowSkipException

from kafka_steward.assignment import TopicPartition
from kafka_steward.execution.broker_joins import poll_empty_brokers
from kafka_steward.operators.rebalance import ClaimEmptyBrokersOperator
from tests.operators.test_workflow import Desk, desk, run_of

__all__ = ["desk"]


def find(run_type: str = "asset_triggered", **more: Any) -> dict[str, Any]:
    return ClaimEmptyBrokersOperator(task_id="find_joined", conn_id="kafka_test", **more).execute(run_of(run_type))


def with_a_new_broker(desk: Desk) -> None:
    desk.simulator.racks[5] = "b"
    desk.simulator.broker_settings[5] = {}
    desk.simulator.alive.add(5)
    assert poll_empty_brokers(desk.simulator, desk.journal, desk.settings).due == (5,)


def test_a_broker_that_joined_is_taken_up_and_the_plan_gives_it_replicas(desk: Desk) -> None:
    with pytest.raises(AirflowSkipException, match=r"No broker that joined is waiting\."):
        find()
    with_a_new_broker(desk)
    found = find()
    assert found == {"operation": "expand", "brokers": [5], "sentence": "Broker 5 has joined."}
    made = desk.plan(desk.snapshot(), operation=found["operation"], run_type="asset_triggered")
    assert (made["nothing"], made["replicas_moved"] > 0) == ("", True)
    assert find()["brokers"] == [5], "a retry of the same run goes on"


def test_once_it_holds_something_a_rebalance_does_what_an_expand_would(desk: Desk) -> None:
    with_a_new_broker(desk)
    desk.simulator.alter({TopicPartition("orders", 0): (5, 2, 3)})
    desk.simulator.run()
    assert (find()["operation"], find()["brokers"]) == ("rebalance", [5])


def test_a_run_that_a_person_started_does_what_its_form_says_and_takes_up_nobody(desk: Desk) -> None:
    with_a_new_broker(desk)
    assert find("manual", operation="drain")["operation"] == "drain"
    assert find()["brokers"] == [5]
