"""What a person finds in a real Airflow when the connection is wrong, and what a StatsD receives when it is right."""

from __future__ import annotations

import json
import time

import pytest

from kafka_steward.sandbox import Sandbox
from tests.airflow.conftest import Desk
from tests.eventually import eventually
from tests.sasl_broker import PASSWORD, guarded
from tests.statsd import StatsD

__all__ = ["guarded"]

pytestmark = pytest.mark.airflow

DAGS = """\
# Airflow DAGs whose connections are wrong, with the retries of the default.
from kafka_steward.dags import heal
heal(conn_id="kafka_refused")
heal(conn_id="kafka_missing")
"""
WATCHED = """\
# An Airflow DAG whose watch is listened to.
from kafka_steward.dags import heal
heal(conn_id="{conn_id}", dag_id="watched_{conn_id}", mode="report")
"""
SENTENCES = {
    "kafka_refused": "Authentication failed at {guarded}: Kafka says 'Authentication failed: Invalid username or "
    "password'; check the user name, the password and the mechanism in the connection.",
    "kafka_missing": "There is no Airflow connection kafka_missing; create it (type kafka_steward), or name another "
    "one.",
}


@pytest.mark.ci
def test_a_wrong_or_missing_connection_is_reported_at_once_and_not_retried(
    desk: Desk, kraft_sandbox: Sandbox, guarded: str
) -> None:
    extra = json.dumps({"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"})
    secret = f"not-{PASSWORD}"
    desk.connect(
        "kafka_refused", conn_type="kafka_steward", host=guarded, login="steward", password=secret, extra=extra
    )
    desk.add_dags("wrong", DAGS, *(f"heal_{conn_id}" for conn_id in SENTENCES))
    began_s = time.monotonic()
    for conn_id in SENTENCES:
        desk.trigger(f"heal_{conn_id}", {}, "ann")
        desk.pause(f"heal_{conn_id}", paused=False)
    for conn_id, sentence in SENTENCES.items():
        run = desk.ended(f"heal_{conn_id}", 0, within=120)
        assert desk.tasks(f"heal_{conn_id}", run["dag_run_id"])["find_failures"] == "failed"
        log = desk.log(f"heal_{conn_id}", run["dag_run_id"], "find_failures")
        assert sentence.format(guarded=guarded) in log
        assert secret not in log
        desk.pause(f"heal_{conn_id}", paused=True)
    assert time.monotonic() - began_s < 120, "the retries would have taken a quarter of an hour"


@pytest.mark.ci
def test_a_statsd_receives_the_gauges_of_the_watch(desk: Desk, kraft_sandbox: Sandbox, statsd: StatsD) -> None:
    watched = f"watched_{desk.conn_id}"
    desk.add_dags("watched", WATCHED.format(conn_id=desk.conn_id), watched)
    desk.pause(watched, paused=False)
    eventually(lambda: _assert_received(statsd, "watch.failing:0|g", "watch.failed_brokers:0|g"), within=60)
    desk.pause(watched, paused=True)


def _assert_received(statsd: StatsD, *lines: str) -> None:
    assert {f"airflow.kafka_steward.{line}" for line in lines} <= set(statsd.received), statsd.received[-5:]
