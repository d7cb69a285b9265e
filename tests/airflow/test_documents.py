"""KIP-236's documents in a real Airflow: the watch executes them, and their assets start DAGs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.document_api.request_documents import request_add
from kafka_steward.execution.announcements import announced_restarts
from kafka_steward.execution.plans.cancel import send_cancel_signal
from kafka_steward.hooks.session import ClusterSession
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Actor
from kafka_steward.journal.kip_documents import CancelRequest
from kafka_steward.journal.mailbox import read_one
from kafka_steward.journal.records import PlanRecord
from kafka_steward.sandbox import Sandbox
from tests.airflow.conftest import Desk
from tests.eventually import eventually

pytestmark = [pytest.mark.airflow, pytest.mark.ci]

DAGS = """\
# Airflow DAGs that react to documents.
from datetime import timedelta
from airflow.sdk import DAG
from kafka_steward.dags import cancel
from kafka_steward.dags.documents import cancel_requested, reassignment_requested
from kafka_steward.operators.documents import AnnounceBrokerRestartOperator
from kafka_steward.operators.documents import DisableReassignmentOperator, EnableReassignmentOperator

cluster = dict(conn_id="{conn_id}")
with DAG("requested_{conn_id}", schedule=[reassignment_requested("{conn_id}")], catchup=False):
    AnnounceBrokerRestartOperator(task_id="announce", broker=4, lasts=timedelta(hours=1), **cluster)
cancel(schedule=[cancel_requested("{conn_id}")], dag_id="cancelled_{conn_id}", **cluster)
with DAG("off_{conn_id}", schedule=None):
    DisableReassignmentOperator(task_id="disable", reason="a maintenance", **cluster)
with DAG("on_{conn_id}", schedule=None):
    EnableReassignmentOperator(task_id="enable", reason="it is over", **cluster)
"""
ADA = Actor(person="ada")
BEFORE, WANTED = (2, 1), (2, 3)


@pytest.fixture
def opened(desk: Desk) -> Iterator[ClusterSession]:
    # Nothing heals by itself, so that the only runs are those of this test; what moves takes minutes.
    desk.configure(heal_failure_interval=-1, throttle=50_000)
    with desk.opened() as opened:
        yield opened


def in_flight(opened: ClusterSession, partition: TopicPartition) -> PlanRecord:
    """The plan that moves the partition, once it is in flight."""
    assert partition in opened.cluster.reassignments()
    (plan,) = opened.journal.plans.unfinished()
    return plan


def assert_no_request(opened: ClusterSession) -> None:
    assert opened.journal.mailbox.children(paths.REASSIGNMENT_REQUESTS) == []


def run_by_hand(desk: Desk, dag_id: str) -> None:
    desk.trigger(dag_id, {}, "ann")
    assert desk.ended(dag_id, 0, within=120)["state"] == "success"


def test_a_request_and_a_signal_are_executed_by_the_watch_and_start_the_dags_of_their_assets(
    desk: Desk, kraft_sandbox: Sandbox, opened: ClusterSession, topic: str
) -> None:
    requested, cancelled, off, on = (f"{name}_{desk.conn_id}" for name in ("requested", "cancelled", "off", "on"))
    kraft_sandbox.create_topics(topic, assignments={0: BEFORE})
    kraft_sandbox.fill(topic, 8_000_000)
    partition = TopicPartition(topic, 0)
    desk.add_dags("documents", DAGS.format(conn_id=desk.conn_id), requested, cancelled, off, on)
    for dag_id in (off, on):
        desk.pause(dag_id, paused=False)
    run_by_hand(desk, off)
    switch = read_one(opened.journal.mailbox, paths.REASSIGN_CANCEL)
    assert switch is not None
    assert '"person":"ann"' in switch.data

    request_add(
        opened.journal,
        f'{{"partitions": [{{"topic": "{topic}", "partition": 0, "replicas": {list(WANTED)}}}]}}',
        who=ADA,
    )
    desk.pause(requested, paused=False)  # from now on there is a watch
    run_by_hand(desk, on)
    assert read_one(opened.journal.mailbox, paths.REASSIGN_CANCEL) is None
    plan = eventually(lambda: in_flight(opened, partition), within=120)
    eventually(lambda: assert_no_request(opened), within=60)  # it is deleted at the end of the poll that submits it
    assert desk.ended(requested, 0, within=120)["state"] == "success"
    assert list(announced_restarts(opened.journal.mailbox)) == [4]

    send_cancel_signal(opened.journal, CancelRequest(person="ada", reason="peak"), ADA)
    run = desk.ended(cancelled, 0, within=180)
    assert run["state"] == "success", desk.log(cancelled, run["dag_run_id"], "cancel")[-2000:]
    told = desk.xcom(cancelled, run["dag_run_id"], "cancel")
    assert (told["plan"], told["status"], told["as_before"], told["partitions"]) == (plan.digest, "cancelled", True, 1)
    assert opened.cluster.reassignments() == {}
    assert opened.cluster.snapshot([topic]).partitions[partition].replicas == BEFORE
    assert read_one(opened.journal.mailbox, paths.CANCEL_IN_PROGRESS) is None
    asked = [row.entry.who.person for row in opened.journal.audit.rows(plan=plan.digest, action=Action.REQUEST)]
    assert asked == ["ada"]
    for dag_id in (requested, cancelled):
        desk.pause(dag_id, paused=True)
