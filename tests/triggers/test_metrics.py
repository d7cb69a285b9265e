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
from kafka_steward.triggers.reporting import emit_progress
from tests.eventually import eventually
from tests.statsd import StatsD
from tests.triggers.progress_values import progress

#: As the trigger and the watch emit them, in a process of Airflow's with this StatsD; in the end, what says that this
#: was all.
EMITTING = """
from types import SimpleNamespace
from airflow.sdk.observability import stats
from airflow.sdk.observability.metrics import stats_utils
from kafka_steward.assignment import TopicPartition
from kafka_steward.journal.records import PlanStatus
from kafka_steward.settings import Settings
from kafka_steward.triggers.reporting import emit_health, emit_progress
from kafka_steward.triggers.periodic import ClusterHealthCheck
from kafka_steward.triggers.base import ClusterWorker
from kafka_steward.triggers.watch import WatchTrigger
from tests.simulator import Simulator
from tests.triggers.progress_values import progress
from tests.simulated_plan import memory_journal

stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=True)  # as the triggerer does
WatchTrigger("kafka_test")._watch.failures.reporter.report_error(ConnectionError("away"))
emit_progress("kafka_test", progress(1, in_flight=2, bytes_total=100, bytes_done=40))

emit_health("kafka_test", {"offline_partitions": 17, "replica_imbalance": 0.25})

simulator = Simulator.of("1a 2b 3c 4a", "t: 123 231", bandwidth=10)
simulator.alter({TopicPartition("t", 0): (1, 2, 4)})
opened = SimpleNamespace(cluster=simulator, journal=memory_journal(simulator), settings=Settings())
measuring = ClusterHealthCheck("kafka_test", ClusterWorker("kafka_test", {}), print)
measuring.poll(opened)
simulator.tick()
simulator.kill(3)
measuring.poll(opened)

emit_progress("kafka_test", progress(4, status=PlanStatus.COMPLETED))
"""
LAST = "airflow.kafka_steward.plan.ended.completed:1|c"
PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


@pytest.fixture(scope="module")
def received() -> list[str]:
    """The lines that a StatsD has received from a process with Airflow's own configuration."""
    with StatsD() as statsd:
        environment = {**os.environ, **statsd.environment, "PYTHONPATH": str(Path(__file__).parents[2])}
        subprocess.run([sys.executable, "-c", EMITTING], env=environment, check=True, timeout=300, capture_output=True)
        eventually(lambda: _assert_received(statsd.heard, LAST))
        return statsd.heard


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
def test_a_real_statsd_receives_each_by_the_name_that_the_page_lists(received: list[str]) -> None:
    _assert_received(received, "airflow.kafka_steward.watch.failing:1|g", "airflow.kafka_steward.plan.bytes_left:60|g")
    plans = {"kafka_steward.plan.ended.completed", *re.findall(r"`(kafka_steward\.[a-z_.]+)`", PAGE.read_text())}
    by_measure = ("kafka_steward.cluster.", "kafka_steward.broker.")
    assert {name for name in _names(received) if not name.startswith(by_measure)} < plans


@pytest.mark.process
def test_a_real_statsd_receives_each_measure_of_a_broker_by_both_names(received: list[str]) -> None:
    names = _names(received)
    legacy = {
        re.sub(r"\.\d+$", "", name.removeprefix("kafka_steward.cluster."))
        for name in names
        if re.fullmatch(r"kafka_steward\.cluster\.\w+\.\d+", name)
    }
    tagged = {name.removeprefix("kafka_steward.broker.") for name in names if name.startswith("kafka_steward.broker.")}
    assert tagged == legacy != set()
    assert "`kafka_steward.broker.<measure>`" in PAGE.read_text()


@pytest.mark.process
def test_a_real_statsd_receives_the_health_that_is_emitted(received: list[str]) -> None:
    _assert_received(
        received,
        "airflow.kafka_steward.cluster.offline_partitions:17|g",
        "airflow.kafka_steward.cluster.replica_imbalance:0.25|g",
    )


@pytest.mark.process
def test_a_real_statsd_receives_what_each_look_of_the_watch_measures(received: list[str]) -> None:
    cluster = "airflow.kafka_steward.cluster."
    first = received.index(f"{cluster}under_replicated_partitions:0|g")
    second = received.index(f"{cluster}under_replicated_partitions:2|g")
    assert first < second, "broker 3 was killed between the looks, and a reassignment is not counted"
    _assert_received(
        received[:second],
        f"{cluster}reassigning_partitions:1|g",
        f"{cluster}reassignment_max_lag:100|g",
        f"{cluster}failed_brokers:0|g",
    )
    _assert_received(
        received[second:],
        f"{cluster}reassignment_max_lag:90|g",
        f"{cluster}reassignment_bytes_in_per_sec.4:10|g",
        f"{cluster}reassignment_bytes_out_per_sec.1:10|g",
        f"{cluster}failed_brokers:1|g",
        f"{cluster}pending_replicas:0|g",
    )


@pytest.mark.process
def test_the_page_lists_each_measure_of_a_clusters_health(received: list[str]) -> None:
    prefix = "kafka_steward.cluster."
    measures = {re.sub(r"\.\d+$", "", name.removeprefix(prefix)) for name in _names(received) if prefix in name}
    page = PAGE.read_text().replace("`..._out_per_sec.<broker>`", "reassignment_bytes_out_per_sec")
    assert {measure for measure in measures if measure not in page} == set()


def _names(lines: list[str]) -> set[str]:
    return {line.split(":")[0].removeprefix("airflow.") for line in lines}


def _assert_received(lines: list[str], *expected: str) -> None:
    assert set(expected) <= set(lines), lines
