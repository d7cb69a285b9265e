"""The heal DAG in a real Airflow, on a real cluster: brokers are killed, and nobody looks."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from kafka_steward.hooks.steward import Opened
from kafka_steward.journal.audit import Action
from kafka_steward.sandbox import Sandbox
from tests.airflow.conftest import Desk
from tests.eventually import eventually

pytestmark = [pytest.mark.airflow, pytest.mark.spark]

#: As the README prints it, but for the connection's name.
THREE_LINES = """\
# Airflow reads only those DAG files that name it, so this line stays.
from kafka_steward.dags import heal
heal_production = heal(conn_id="{conn_id}")
"""
#: A second DAG on the same asset, and one whose Spark connection can be broken.
MORE_LINES = """\
# More Airflow DAGs of the same cluster, whose notifiers write down what they are told.
import json, os
from kafka_steward.dags import heal

def tell(context):
    with open(os.environ["TOLD"], "a") as file:
        told = [context["dag"].dag_id, context.get("kafka_steward", {{}}).get("event", "failed")]
        file.write(json.dumps(told) + "\\n")

tellers = dict(on_failure_detected=tell, on_not_healable=tell, on_failed=tell, on_healed=tell)
heal(conn_id="{conn_id}", dag_id="tell_{conn_id}", mode="report", **tellers)
heal(conn_id="{conn_id}", dag_id="flaky_{conn_id}", spark_conn_id="flaky_spark", retries=0, deferrable=False, **tellers)
"""


@pytest.fixture
def opened(desk: Desk) -> Iterator[Opened]:
    with desk.opened() as opened:
        yield opened


def whole(opened: Opened) -> bool:
    snapshot = opened.cluster.snapshot()
    return not any(partition.under_replicated or partition.reassigning for partition in snapshot.partitions.values())


def test_a_report_tells_and_submits_nothing_and_the_heal_that_was_paused_heals_when_it_is_not(
    desk: Desk, kraft_sandbox: Sandbox, opened: Opened, topic: str
) -> None:
    kraft_sandbox.create_topics(topic, partitions=12, replication_factor=3)
    heal, tell = f"heal_{desk.conn_id}", f"tell_{desk.conn_id}"
    desk.add_dags("three_lines", THREE_LINES.format(conn_id=desk.conn_id), heal)
    desk.add_dags("more_lines", MORE_LINES.format(conn_id=desk.conn_id), tell)
    assert desk.dag(heal)["is_paused"]

    # The watch runs for `tell` alone: the event comes while `heal` is paused.
    desk.pause(tell, paused=False)
    kraft_sandbox.kill(4)
    reported = desk.ended(tell, 0)
    assert reported["state"] == "success", desk.tasks(tell, reported["dag_run_id"])
    states = desk.tasks(tell, reported["dag_run_id"])
    assert [states[task] for task in ("tell_plan", "submit", "report")] == ["success", "skipped", "skipped"]
    assert set(desk.told(tell)) == {"failure_detected"}
    assert opened.journal.plans.latest(10) == []
    assert opened.cluster.reassignments() == {}
    assert desk.runs(heal) == []

    # Nothing heals it, so the watch rings again, and now `heal` hears it.
    desk.pause(heal, paused=False)
    desk.pause(tell, paused=True)
    assert_healed(desk, opened, heal, 4)


def test_a_killed_broker_is_healed_and_nobody_looks(
    desk: Desk, zookeeper_sandbox: Sandbox, opened: Opened, topic: str
) -> None:
    zookeeper_sandbox.create_topics(topic, partitions=12, replication_factor=3)
    zookeeper_sandbox.fill(topic, 3_000_000)
    heal = f"heal_{desk.conn_id}"
    desk.add_dags("three_lines", THREE_LINES.format(conn_id=desk.conn_id), heal)
    desk.pause(heal, paused=False)
    zookeeper_sandbox.kill(4)
    assert_healed(desk, opened, heal, 4)


def assert_healed(desk: Desk, opened: Opened, heal: str, broker: int) -> None:
    """The first run of `heal` ends with the cluster whole, and everything it did is in the audit trail."""
    healed = desk.ended(heal, 0)
    assert healed["state"] == "success", desk.tasks(heal, healed["dag_run_id"])
    assert healed["run_type"] == "asset_triggered"
    told = desk.xcom(heal, healed["dag_run_id"], "report")
    assert (told["brokers"], told["under_replicated"], told["left"]) == ([broker], 0, 0)
    assert told["replicas_moved"] == told["lower_bound"] > 0
    assert whole(opened)
    rows = opened.journal.audit.rows(plan=desk.xcom(heal, healed["dag_run_id"], "plan")["digest"])
    assert {Action.PUBLISH, Action.SUBMIT, Action.SETTLE, Action.FINISH} <= {row.entry.action for row in rows}
    assert {(row.entry.who.dag_id, row.entry.who.run_id) for row in rows} == {(heal, healed["dag_run_id"])}
    assert "Every partition of the cluster is whole." in desk.log(heal, healed["dag_run_id"], "report")
    desk.pause(heal, paused=True)


def test_spark_fails_the_first_time_and_a_later_run_heals(
    desk: Desk, kraft_sandbox: Sandbox, opened: Opened, topic: str
) -> None:
    # -1: nothing heals by itself, so that the only runs are those of a person.
    desk.configure(heal_failure_interval=-1)
    kraft_sandbox.create_topics(topic, partitions=6, replication_factor=3)
    flaky = f"flaky_{desk.conn_id}"
    desk.add_dags("more_lines", MORE_LINES.format(conn_id=desk.conn_id), flaky)
    desk.connect("flaky_spark", conn_type="spark", host="local[none]")
    before = opened.cluster.snapshot([topic]).partitions
    kraft_sandbox.kill(3)
    eventually(lambda: _assert_dead(opened, 3), within=60)
    desk.pause(flaky, paused=False)
    desk.trigger(flaky, {"ignore_grace": True}, "ann")
    failed = desk.ended(flaky, 0)
    assert failed["state"] == "failed"
    assert desk.tasks(flaky, failed["dag_run_id"])["plan"] == "failed"
    assert "The Spark job ended without a plan: " in desk.log(flaky, failed["dag_run_id"], "plan")
    assert {name: one.replicas for name, one in opened.cluster.snapshot([topic]).partitions.items()} == {
        name: one.replicas for name, one in before.items()
    }

    desk.connect("flaky_spark", conn_type="spark", host="local[*]")
    desk.trigger(flaky, {"ignore_grace": True}, "ann")
    healed = desk.ended(flaky, 1)
    assert healed["state"] == "success", desk.tasks(flaky, healed["dag_run_id"])
    assert whole(opened)
    digest = desk.xcom(flaky, healed["dag_run_id"], "plan")["digest"]
    people = {row.entry.who.person for row in opened.journal.audit.rows(plan=digest, action=Action.SUBMIT)}
    assert people == {"ann"}
    eventually(lambda: _told(desk, flaky), within=30)
    listed = json.loads(desk.airflow.command("kafka-steward", "audit", "--cluster", desk.conn_id, "--output", "json"))
    assert listed


def _assert_dead(opened: Opened, broker: int) -> None:
    assert broker not in opened.cluster.live_brokers()


def _told(desk: Desk, dag_id: str) -> None:
    assert sorted(desk.told(dag_id)) == ["failed", "failure_detected", "failure_detected", "healed"]
