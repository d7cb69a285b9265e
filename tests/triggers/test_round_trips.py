"""A trigger is rebuilt from what it serializes, in another process, perhaps by another version."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

import pytest
from airflow.sdk import AssetWatcher
from airflow.serialization.encoders import encode_trigger
from airflow.triggers.base import BaseEventTrigger, BaseTrigger

from kafka_steward.triggers.run_plan import RunPlanTrigger
from kafka_steward.triggers.wait import WaitTrigger
from kafka_steward.triggers.watch import WatchTrigger

TRIGGERS: list[BaseTrigger] = [
    RunPlanTrigger("kafka", "digest", {"throttle": 1, "window": "chunk"}, {"dag_id": "heal", "try_number": 2}),
    RunPlanTrigger("kafka", "digest", when_killed="cancel", map_index=3),
    WaitTrigger("kafka", "caught_up", {"partitions": [["orders", 7]]}, 5.0, {"throttle": 1}),
    WatchTrigger("kafka", {"heal_failure_interval": 10}),
]


def rebuilt(trigger: BaseTrigger, **more: Any) -> BaseTrigger:
    path, keywords = trigger.serialize()
    module, _, name = path.rpartition(".")
    built = getattr(import_module(module), name)(**json.loads(json.dumps(keywords)), **more)
    assert isinstance(built, BaseTrigger)
    return built


@pytest.mark.parametrize("trigger", TRIGGERS, ids=lambda trigger: type(trigger).__name__)
def test_the_round_trip_changes_nothing(trigger: BaseTrigger) -> None:
    assert rebuilt(trigger).serialize() == trigger.serialize()


@pytest.mark.parametrize("trigger", TRIGGERS, ids=lambda trigger: type(trigger).__name__)
def test_keywords_of_another_version_are_accepted(trigger: BaseTrigger) -> None:
    assert rebuilt(trigger, from_a_later_release=1).serialize() == trigger.serialize()


def test_the_watch_is_an_event_trigger_with_a_stable_identity() -> None:
    watch = WatchTrigger("kafka", {"b": 1, "a": 2})
    AssetWatcher(name="watch", trigger=watch)
    same = rebuilt(watch)
    assert BaseEventTrigger.hash(*watch.serialize()) == BaseEventTrigger.hash(*same.serialize())
    assert encode_trigger(watch)["classpath"] == "kafka_steward.triggers.watch.WatchTrigger"
