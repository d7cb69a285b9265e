"""What a sensor defers to goes on with the journal of its task."""

from __future__ import annotations

import importlib
import inspect

import pytest
from airflow.sdk.exceptions import TaskDeferred

from kafka_steward.journal.identity import Identity
from kafka_steward.provider_info import get_provider_info
from kafka_steward.sensors import base
from kafka_steward.sensors.base import StewardSensor
from kafka_steward.triggers.wait import CheckResult
from tests.airflow_home import context
from tests.operators.simulated import CONN_ID, MakeCluster, make_cluster

__all__ = ["make_cluster"]

OURS = Identity("a-journal", "sqlite:////airflow/journal.db on the host worker-1", "zk-1:2181/kafka")


def sensors() -> list[type[StewardSensor]]:
    names = [name for entry in get_provider_info()["sensors"] for name in entry["python-modules"]]
    found = {each for name in names for _, each in inspect.getmembers(importlib.import_module(name), inspect.isclass)}
    ours = {each for each in found if issubclass(each, StewardSensor) and hasattr(each, "question")}
    assert len(ours) >= 4
    return sorted(ours, key=lambda each: each.__name__)


@pytest.mark.parametrize("sensor", sensors(), ids=lambda each: each.__name__)
def test_the_trigger_of_a_sensor_has_the_tasks_journal(
    make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch, sensor: type[StewardSensor]
) -> None:
    monkeypatch.setattr(base, "evaluate_check", lambda *_: CheckResult(False, "Not yet."))
    make_cluster("1a 2b 3c", "orders: 123").journal.identity = OURS
    with pytest.raises(TaskDeferred) as waits:
        sensor(task_id="wait", conn_id=CONN_ID).execute(context(task_id="wait"))
    assert waits.value.trigger.serialize()[1]["journal"] == OURS.to_json()
