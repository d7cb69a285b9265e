"""The health DAG in a real Airflow, on real clusters; and what the watch emits and keeps meanwhile (KIP-352)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka_steward.hooks.session import ClusterSession
from kafka_steward.sandbox import Sandbox
from tests.airflow.conftest import DONE, Desk
from tests.eventually import eventually
from tests.statsd import StatsD

pytestmark = [pytest.mark.airflow, pytest.mark.ci, pytest.mark.in_ci("zookeeper")]

DAGS = """\
# Airflow DAGs of one cluster.
from airflow.sdk import DAG
from kafka_steward.dags import heal, health
from kafka_steward.sensors.health import ClusterHealthSensor
heal(conn_id="{conn_id}", dag_id="watching_{conn_id}")
health(conn_id="{conn_id}")
health(conn_id="{conn_id}", dag_id="hourly_{conn_id}", schedule="@continuous", max_active_runs=1)
with DAG("healthy_{conn_id}", schedule=None):
    ClusterHealthSensor(task_id="healthy", conn_id="{conn_id}", poke_interval=1)
"""


@pytest.fixture
def opened(desk: Desk) -> Iterator[ClusterSession]:
    # Nothing heals by itself, so that the only runs are those of this test.
    desk.configure(heal_failure_interval=-1, health_interval=1)
    with desk.opened() as opened:
        yield opened


def test_the_cluster_is_reported_on_demand_by_schedule_and_by_the_watch(
    desk: Desk, sandbox: Sandbox, opened: ClusterSession, statsd: StatsD, topic: str
) -> None:
    health, hourly = f"health_{desk.conn_id}", f"hourly_{desk.conn_id}"
    healthy, watching = f"healthy_{desk.conn_id}", f"watching_{desk.conn_id}"
    desk.add_dags("health", DAGS.format(conn_id=desk.conn_id), health, hourly, healthy, watching)
    sandbox.create_topics(topic, partitions=4, replication_factor=3, configs={"min.insync.replicas": "3"})
    for dag_id in (health, healthy, watching):
        desk.pause(dag_id, paused=False)

    whole = desk.trigger(health, {}, "ann")
    eventually(lambda: assert_ended(desk, health, whole, "success"), within=120)
    told = desk.xcom(health, whole, "health")
    assert (told["healthy"], told["above"]) == (True, [])
    assert told["measures"]["under_replicated_partitions"] == 0

    sandbox.kill(4)
    eventually(lambda: assert_dead(opened, 4), within=60)
    waits = desk.trigger(healthy, {}, "ann")
    eventually(lambda: assert_deferred(desk, healthy, waits), within=120)
    hurt = desk.trigger(health, {"when_unhealthy": "fail"}, "ann")
    eventually(lambda: assert_ended(desk, health, hurt, "failed"), within=120)
    assert "under_replicated_partitions, under_min_isr_partitions: above the limit." in desk.log(health, hurt, "health")
    eventually(lambda: assert_emitted(statsd, opened), within=60)

    sandbox.restart(4)
    eventually(lambda: assert_ended(desk, healthy, waits, "success"), within=120)
    desk.pause(hourly, paused=False)
    assert desk.ended(hourly, 0)["state"] == "success"
    desk.pause(hourly, paused=True)


def assert_ended(desk: Desk, dag_id: str, run_id: str, state: str) -> None:
    found = next(run["state"] for run in desk.runs(dag_id) if run["dag_run_id"] == run_id)
    assert found in DONE, desk.tasks(dag_id, run_id)
    assert found == state, [desk.log(dag_id, run_id, task)[-1500:] for task in desk.tasks(dag_id, run_id)]


def assert_deferred(desk: Desk, dag_id: str, run_id: str) -> None:
    assert desk.tasks(dag_id, run_id) == {"healthy": "deferred"}


def assert_emitted(statsd: StatsD, opened: ClusterSession) -> None:
    """By the watch, as a gauge and as a row."""
    name = "airflow.kafka_steward.cluster.under_replicated_partitions:"
    values = [line.removeprefix(name) for line in statsd.received if line.startswith(name)]
    assert any(not value.startswith("0") for value in values), values
    assert opened.journal.health is not None
    rows = [measures for _, measures in opened.journal.health.rows()]
    assert rows[-1]["under_min_isr_partitions"] > 0
    assert rows[-1]["failed_brokers"] == 1


def assert_dead(opened: ClusterSession, broker: int) -> None:
    assert broker not in opened.cluster.live_brokers()
