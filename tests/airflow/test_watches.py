"""Ten DAGs listen to one cluster in a real Airflow: one watch polls it, and each DAG starts for its own event alone."""

from __future__ import annotations

import pytest

from kafka_steward.execution.watch.lease import list_listened_events
from kafka_steward.journal.records import WATCH_LEASE
from kafka_steward.sandbox import Sandbox
from tests.airflow.conftest import Desk
from tests.eventually import eventually

pytestmark = [pytest.mark.airflow, pytest.mark.ci]

DAGS = """\
# Airflow DAGs that listen to one cluster: two for each of its events.
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG
from kafka_steward.dags.builder import watch_asset
from kafka_steward.triggers.watch import EVENTS
for number in range(10):
    event = EVENTS[number % 5]
    with DAG(f"starts_for_{{event}}_{{number // 5}}", schedule=[watch_asset("{conn_id}", event)]):
        EmptyOperator(task_id="started")
"""
EVENTS = ("broker-failed", "broker-joined", "broker-new", "request", "cancel")
LISTENERS = {event: (f"starts_for_{event}_0", f"starts_for_{event}_1") for event in EVENTS}


@pytest.mark.in_ci("kraft")
def test_each_dag_starts_for_its_own_event_and_one_watch_polls(desk: Desk, sandbox: Sandbox, topic: str) -> None:
    desk.configure(heal_failure_interval=0, heal_retry_interval=3600)
    dag_ids = [dag_id for several in LISTENERS.values() for dag_id in several]
    desk.add_dags("listeners", DAGS.format(conn_id=desk.conn_id), *dag_ids)
    sandbox.create_topics(topic, assignments={0: (1, 2), 1: (3, 4)})
    for dag_id in dag_ids:
        desk.pause(dag_id, paused=False)
    with desk.opened() as opened:
        eventually(lambda: _assert_equal(len(opened.journal.rows(WATCH_LEASE).all()), 1), within=120)
        assert list_listened_events(opened.journal) == frozenset()

        sandbox.kill(4)
        try:
            for dag_id in LISTENERS["broker-failed"]:
                desk.ended(dag_id, 0, within=180)
        finally:
            sandbox.restart(4)
    for event in ("broker-joined", "request", "cancel"):
        assert [desk.runs(dag_id) for dag_id in LISTENERS[event]] == [[], []]
    for dag_id in dag_ids:
        desk.pause(dag_id, paused=True)


def _assert_equal(found: object, wanted: object) -> None:
    assert found == wanted
