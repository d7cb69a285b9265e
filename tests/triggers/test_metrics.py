"""The metrics reach a real StatsD, by the names that docs/metrics.md lists."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from airflow.sdk.observability import stats

from kafka_steward.assignment import TopicPartition
from kafka_steward.journal.records import PlanStatus
from kafka_steward.triggers.metrics import emit_progress
from tests.eventually import eventually
from tests.statsd import StatsD
from tests.triggers.progress_values import progress

#: As the trigger and the watch emit them, in a process of Airflow's with this StatsD.
EMITTING = """
from kafka_steward.triggers.metrics import emit_progress
from kafka_steward.triggers.watch import WatchTrigger
from kafka_steward.journal.records import PlanStatus
from tests.triggers.progress_values import progress
WatchTrigger("kafka_test")._complain(ConnectionError("away"))
emit_progress("kafka_test", progress(1, in_flight=2, bytes_total=100, bytes_done=40))
emit_progress("kafka_test", progress(4, status=PlanStatus.COMPLETED))
"""


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    values: dict[str, float] = {}
    monkeypatch.setattr(stats, "gauge", lambda name, value, **_: values.update({name: value}))
    monkeypatch.setattr(stats, "incr", lambda name, **_: values.update({name: values.get(name, 0) + 1}))
    return values


def test_what_is_left_of_a_plan_is_told_at_each_step(told: dict[str, float]) -> None:
    emit_progress("kafka", progress(1, in_flight=2, bytes_total=100, bytes_done=40, stalled=(TopicPartition("t", 0),)))
    assert told == {
        "kafka_steward.plan.partitions_left": 3,
        "kafka_steward.plan.in_flight": 2,
        "kafka_steward.plan.held": 0,
        "kafka_steward.plan.stalled": 1,
        "kafka_steward.plan.bytes_left": 60,
    }


@pytest.mark.parametrize("status", [PlanStatus.COMPLETED, PlanStatus.CANCELLED, PlanStatus.STUCK])
def test_its_end_is_counted_by_how_it_ended(told: dict[str, float], status: PlanStatus) -> None:
    emit_progress("kafka", progress(4, status=status))
    assert told[f"kafka_steward.plan.ended.{status.value}"] == 1


def test_a_step_that_did_nothing_tells_nothing(told: dict[str, float]) -> None:
    emit_progress("kafka", progress(1, busy=True))
    assert told == {}


@pytest.mark.process
def test_a_real_statsd_hears_each_by_its_name() -> None:
    with StatsD() as statsd:
        environment = {**os.environ, **statsd.environment, "PYTHONPATH": str(Path(__file__).parents[2])}
        subprocess.run([sys.executable, "-c", EMITTING], env=environment, check=True, timeout=300, capture_output=True)
        eventually(lambda: _assert_heard(statsd, "airflow.kafka_steward.plan.ended.completed:1|c"))
    _assert_heard(statsd, "airflow.kafka_steward.watch.failing:1|g", "airflow.kafka_steward.plan.bytes_left:60|g")
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    listed = set(re.findall(r"`(kafka_steward\.[a-z_.]+)`", page))
    assert {line.split(":")[0].removeprefix("airflow.") for line in statsd.heard} - {
        "kafka_steward.plan.ended.completed"
    } < listed


def _assert_heard(statsd: StatsD, *lines: str) -> None:
    assert set(lines) <= set(statsd.heard), statsd.heard
