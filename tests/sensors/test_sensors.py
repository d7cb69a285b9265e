"""What the sensors ask, and what they do with the answers; the questions on real clusters are in tests/operators."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferred

from kafka_steward.errors import ClusterUnreachable, RequestError
from kafka_steward.hooks.steward import StewardHook
from kafka_steward.sensors.brokers import BrokerFailureSensor
from kafka_steward.sensors.replication import IsrCatchUpSensor
from kafka_steward.triggers.wait import WaitTrigger
from tests.airflow_home import Connect, context


def test_partitions_are_named_as_kafka_prints_them() -> None:
    sensor = IsrCatchUpSensor(task_id="wait", partitions=["orders-7", "my-topic-0"])
    assert sensor.arguments(context()) == {"partitions": [["orders", 7], ["my-topic", 0]]}


@pytest.mark.parametrize("name", ["orders", "orders-x", "-7", "orders-"])
def test_what_is_no_partition_is_named(name: str) -> None:
    with pytest.raises(RequestError, match=r"is not a partition; write topic-number, such as orders-7"):
        IsrCatchUpSensor(task_id="wait", partitions=[name]).arguments(context())


def test_a_plan_or_partitions_but_not_both() -> None:
    with pytest.raises(RequestError, match="either partitions or a plan, not both"):
        IsrCatchUpSensor(task_id="wait", partitions=["orders-7"], plan="digest").arguments(context())


@pytest.mark.process
def test_a_cluster_that_does_not_answer_is_waited_for(connect: Connect) -> None:
    connect()
    sensor = IsrCatchUpSensor(task_id="wait", conn_id="kafka_test", deferrable=False)
    assert sensor.poke(context()).is_done is False
    with pytest.raises(TaskDeferred) as waits:
        IsrCatchUpSensor(task_id="wait", conn_id="kafka_test", timeout=90).execute(context())
    assert waits.value.timeout == timedelta(seconds=90)


@pytest.mark.parametrize("deferrable", [True, False])
def test_no_such_connection_is_not_waited_for(deferrable: bool) -> None:
    with pytest.raises(AirflowFailException, match="There is no Airflow connection nowhere"):
        BrokerFailureSensor(task_id="wait", conn_id="nowhere", deferrable=deferrable).execute(context())


def test_the_trigger_carries_the_question_and_this_runs_settings(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_: StewardHook) -> Any:
        raise ClusterUnreachable("Nobody answers.")

    connect()
    monkeypatch.setattr(StewardHook, "open", away)
    sensor = BrokerFailureSensor(task_id="wait", conn_id="kafka_test", brokers=[3], poke_interval=7)
    with pytest.raises(TaskDeferred) as waits:
        sensor.execute(context(params={"max_failed_brokers": 2}, person="ann"))
    trigger = waits.value.trigger
    assert isinstance(trigger, WaitTrigger)
    assert (trigger.question, trigger.interval_s, trigger.overrides) == ("brokers_failed", 7, {"max_failed_brokers": 2})
    assert trigger.arguments["brokers"] == [3]
    assert trigger.arguments["who"]["person"] == "ann"


def test_the_triggers_answer_is_the_sensors() -> None:
    sensor = BrokerFailureSensor(task_id="wait")
    assert sensor.execute_complete(context(), {"done": True, "sentence": "Broker 3 failed.", "value": [3]}) == [3]
    with pytest.raises(AirflowException, match="Authentication failed"):
        sensor.execute_complete(context(), {"done": False, "sentence": "Authentication failed.", "value": None})
