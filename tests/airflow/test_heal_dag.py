"""The heal DAG in a real Airflow, on a real cluster: brokers are killed, and nobody looks."""

from __future__ import annotations

import json
import re
import urllib.parse
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from kafka_steward.hooks.session import ClusterSession
from kafka_steward.journal.audit import Action
from kafka_steward.sandbox import Sandbox
from kafka_steward.sandbox.airflow import AirflowFailed
from tests.airflow.conftest import Desk
from tests.airflow.test_page import get
from tests.eventually import eventually

pytestmark = [pytest.mark.airflow, pytest.mark.spark]

#: The shortest DAG file.
THREE_LINES = """\
from airflow_provider_kafka_steward.dags import heal

heal_production = heal(conn_id="{conn_id}")
"""
#: Two DAGs on the same asset: any, and a heal whose Spark connection can be broken, and whose notifiers write down
#: which events they get.
TWO_LISTENERS = """\
# Two Airflow DAGs of one cluster.
import json, os
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG
from kafka_steward.dags import broker_failed, heal

def write_down(context):
    with open(os.environ["EVENTS_FILE"], "a") as file:
        line = [context["dag"].dag_id, context.get("kafka_steward", {{}}).get("event", "failed")]
        file.write(json.dumps(line) + "\\n")

events = ("on_failure_detected", "on_not_healable", "on_failed", "on_healed")
options = dict(retries=0, deferrable=False, **dict.fromkeys(events, write_down))
heal(conn_id="{conn_id}", dag_id="flaky_{conn_id}", spark_conn_id="flaky_spark", **options)
with DAG("any_{conn_id}", schedule=[broker_failed("{conn_id}")]):
    EmptyOperator(task_id="started")
"""
REPORT = """\
# An Airflow DAG that heals nothing.
from kafka_steward.dags import heal
heal(conn_id="{conn_id}", dag_id="report_{conn_id}", mode="report")
"""


#: What would hide the lines that matter, in the logs of Airflow's parts. The triggerer still warns of the type.
CLIENT = r"\[kafka\.|logger=kafka\."
TYPE_OR_CLIENT = rf"type: kafka_steward\) shall not contain|{CLIENT}"
NOISE = {"triggerer": CLIENT, "api-server": TYPE_OR_CLIENT, "scheduler": TYPE_OR_CLIENT}


@pytest.fixture
def opened(desk: Desk) -> Iterator[ClusterSession]:
    with desk.opened() as opened:
        yield opened


def whole(opened: ClusterSession) -> bool:
    snapshot = opened.cluster.snapshot()
    return not any(partition.under_replicated or partition.reassigning for partition in snapshot.partitions.values())


@pytest.mark.slow
def test_a_heal_that_was_paused_and_lacked_spark_heals_when_it_can(
    desk: Desk, kraft_sandbox: Sandbox, opened: ClusterSession, topic: str
) -> None:
    kraft_sandbox.create_topics(topic, partitions=12, replication_factor=3)
    flaky, other = f"flaky_{desk.conn_id}", f"any_{desk.conn_id}"
    desk.add_dags("two_listeners", TWO_LISTENERS.format(conn_id=desk.conn_id), flaky, other, by_spark=[flaky, other])
    desk.connect("flaky_spark", conn_type="spark", host="local[none]")
    assert desk.dag(flaky)["is_paused"]

    # The watch runs for the other alone: the event comes while `flaky` is paused.
    desk.pause(other, paused=False)
    kraft_sandbox.kill(4)
    assert desk.ended(other, 0)["run_type"] == "asset_triggered"
    assert desk.runs(flaky) == []

    # Nothing heals it, so the watch fires again, and now `flaky` receives the event.
    desk.pause(flaky, paused=False)
    desk.pause(other, paused=True)
    assert_spark_failed(desk, opened, flaky)
    desk.connect("flaky_spark", conn_type="spark", host="local[*]")
    assert_healed(desk, opened, flaky, 4)
    eventually(lambda: assert_notified(desk, flaky), within=30)
    listed = json.loads(
        desk.airflow.run_command("kafka-steward", "audit", "--cluster", desk.conn_id, "--output", "json")
    )
    assert listed


@pytest.mark.slow
def test_a_heal_in_mode_report_makes_a_plan_and_submits_nothing(
    desk: Desk, kraft_sandbox: Sandbox, opened: ClusterSession, topic: str
) -> None:
    kraft_sandbox.create_topics(topic, partitions=12, replication_factor=3)
    report = f"report_{desk.conn_id}"
    desk.add_dags("report", REPORT.format(conn_id=desk.conn_id), report)
    desk.pause(report, paused=False)
    kraft_sandbox.kill(4)
    reported = desk.ended(report, 0)
    states = desk.tasks(report, reported["dag_run_id"])
    assert reported["state"] == "success", states
    assert [states[task] for task in ("plan", "submit", "report")] == ["success", "skipped", "skipped"]
    assert opened.journal.plans.latest(1) == []
    assert opened.cluster.reassignments() == {}


def test_a_killed_broker_is_healed_and_nobody_looks(
    desk: Desk, kraft_sandbox: Sandbox, opened: ClusterSession, topic: str
) -> None:
    assert_nobody_need_look(desk, kraft_sandbox, opened, topic)


@pytest.mark.slow
def test_a_killed_broker_is_healed_with_zookeeper_too(
    desk: Desk, zookeeper_sandbox: Sandbox, opened: ClusterSession, topic: str
) -> None:
    assert_nobody_need_look(desk, zookeeper_sandbox, opened, topic)


def assert_nobody_need_look(desk: Desk, sandbox: Sandbox, opened: ClusterSession, topic: str) -> None:
    sandbox.create_topics(topic, partitions=12, replication_factor=3)
    sandbox.fill(topic, 3_000_000)
    heal = f"heal_{desk.conn_id}"
    desk.add_dags("three_lines", THREE_LINES.format(conn_id=desk.conn_id), heal, by_spark=[heal])
    desk.pause(heal, paused=False)
    sandbox.kill(4)
    assert_healed(desk, opened, heal, 4)
    assert_linked(desk, heal)
    assert_quiet(desk)


def assert_linked(desk: Desk, heal: str) -> None:
    """Each task that made or carried out the plan has a button, which leads to the plan's page."""
    run_id = succeeded(desk, heal)["dag_run_id"]
    digest = desk.xcom(heal, run_id, "plan")["digest"]
    path = f"/kafka-steward/plan?conn={desk.conn_id}&digest={digest}"
    for task in ("plan", "submit", "report"):
        eventually(partial(assert_links, desk, heal, run_id, task, {"Plan": path}), within=20)
    page = get(desk.airflow, path.removeprefix("/kafka-steward/"), "victor")
    assert page.status == 200
    assert digest in page.text


def assert_links(desk: Desk, dag_id: str, run_id: str, task_id: str, links: dict[str, str]) -> None:
    run = urllib.parse.quote(run_id, safe="")
    path = f"/api/v2/dags/{dag_id}/dagRuns/{run}/taskInstances/{task_id}/links"
    assert desk.airflow.call_api("GET", path)["extra_links"] == links


def assert_quiet(desk: Desk) -> None:
    """No line is of kafka-python, and none of the api-server says that the type of our connection is no scheme."""
    for part, pattern in NOISE.items():
        noise = [line for line in desk.airflow.part_log(part).splitlines() if re.search(pattern, line)]
        assert noise == [], part


def assert_spark_failed(desk: Desk, opened: ClusterSession, heal: str) -> None:
    """The first run of `heal` has no plan, says why, and has changed nothing."""
    failed = desk.ended(heal, 0)
    assert failed["state"] == "failed"
    assert desk.tasks(heal, failed["dag_run_id"])["plan"] == "failed"
    assert "The Spark job ended without a plan: " in desk.log(heal, failed["dag_run_id"], "plan")
    assert opened.journal.plans.unfinished() == []


def assert_healed(desk: Desk, opened: ClusterSession, heal: str, broker: int) -> None:
    """A run of `heal` ends with the cluster whole, and everything it did is in the audit trail."""
    healed = eventually(lambda: succeeded(desk, heal), within=400, every=1, errors=(AirflowFailed,))
    assert healed["run_type"] == "asset_triggered"
    told = desk.xcom(heal, healed["dag_run_id"], "report")
    assert (told["brokers"], told["under_replicated"], told["left"]) == ([broker], 0, 0)
    assert told["replicas_moved"] == told["lower_bound"] > 0
    assert whole(opened)
    rows = opened.journal.audit.rows(plan=desk.xcom(heal, healed["dag_run_id"], "plan")["digest"])
    assert {Action.PUBLISH, Action.SUBMIT, Action.SETTLE, Action.FINISH} <= {row.entry.action for row in rows}
    assert {(row.entry.who.dag_id, row.entry.who.run_id) for row in rows} == {(heal, healed["dag_run_id"])}
    assert "Every partition of the cluster is fully replicated." in desk.log(heal, healed["dag_run_id"], "report")
    desk.pause(heal, paused=True)


def succeeded(desk: Desk, dag_id: str) -> Any:
    """Its first run that succeeded; any that failed had no Spark."""
    runs = desk.runs(dag_id)
    assert "success" in {run["state"] for run in runs}, [desk.tasks(dag_id, run["dag_run_id"]) for run in runs]
    return next(run for run in runs if run["state"] == "success")


def assert_notified(desk: Desk, dag_id: str) -> None:
    events = desk.notified(dag_id)
    assert set(events) == {"failed", "failure_detected", "healed"}
    assert events.count("healed") == 1
