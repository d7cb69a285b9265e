"""Worker and triggerer as on two hosts, with an AIRFLOW_HOME each: the first run fails, and says why."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_steward.journal import paths
from kafka_steward.journal.mailbox import read_one
from kafka_steward.journal.records import MoveState
from kafka_steward.journal.zookeeper.options import ZooKeeperOptions
from kafka_steward.sandbox import Sandbox
from kafka_steward.sandbox.airflow import LocalAirflow
from kafka_steward.sandbox.artifacts import find_or_install_java
from tests.airflow.conftest import Desk
from tests.airflow.people import answer, asked
from tests.eventually import eventually
from tests.journal.zookeeper import ClockedZkMailbox, forget_journal
from tests.lost_brokers import lose
from tests.postgres import PostgresServer

#: Each test starts an Airflow of its own, so that a process of its own costs nothing more.
pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow, pytest.mark.apart]

CONN_ID = "kafka_apart"
HEAL = "heal_kafka_apart"
DAGS = """\
# Airflow DAGs of a cluster.
from datetime import timedelta
from airflow.sdk import DAG
from kafka_steward.dags import apply, cancel, fill, heal, health, rebalance, throttle
from kafka_steward.operators.topics import CreateTopicOperator
conn_id = "kafka_apart"
heal(conn_id, retries=0)
for workflow in (apply, cancel, fill, health, rebalance, throttle):
    workflow(conn_id, retry_delay=timedelta(seconds=5))
with DAG("topic_kafka_apart", schedule=None):
    allowed = dict(enable_under_replicated_topic_creation=True)
    CreateTopicOperator(task_id="create", conn_id=conn_id, topic="{topic}", replication_factor=4, settings=allowed)
"""
WORKFLOWS = ("heal", "health", "apply", "rebalance", "cancel", "throttle", "fill", "topic")
#: Settings of a watch that need not wait for long.
QUICK = {
    "heal_failure_interval": 5,
    "heal_retry_interval": 15,
    "step_interval": 1,
    "watch_interval": 1,
    "min_free": 0,
}


@pytest.fixture
def homes(tmp_path: Path) -> dict[str, Path]:
    """The AIRFLOW_HOME of the triggerer, and that of all other parts."""
    found = {name: tmp_path / name for name in ("triggerer", "worker")}
    for home in found.values():
        home.mkdir()
    return found


@pytest.fixture
def desk(homes: dict[str, Path], sandbox: Sandbox, postgres: PostgresServer, topic: str) -> Iterator[Desk]:
    """An Airflow whose triggerer shares its database with the others, and no file but the DAGs'."""
    apart = {
        part: {
            "AIRFLOW_HOME": str(home),
            f"AIRFLOW_CONN_{CONN_ID.upper()}": json.dumps(connection(sandbox, home)),
        }
        for part, home in (("triggerer", homes["triggerer"]), ("scheduler", homes["worker"]))
    }
    shared = {"JAVA_HOME": str(find_or_install_java().home)}
    database = postgres.new_database()
    with LocalAirflow(homes["worker"], environment=shared, part_environment=apart, database=database) as airflow:
        journal = f"sqlite:///{homes['worker']}/kafka_steward/journal.db"
        given = connection(sandbox, homes["worker"])["extra"]
        desk = Desk(airflow, CONN_ID, sandbox.bootstrap, given.get("journal", journal), extra=given)
        desk.add_dags("apart", DAGS.replace("{topic}", f"{topic}-pending"), *(dag_of(name) for name in WORKFLOWS))
        yield desk
    if sandbox.zookeeper:
        forget_journal(sandbox.zookeeper)


def dag_of(workflow: str) -> str:
    return f"{workflow}_{CONN_ID}"


def connection(sandbox: Sandbox, home: Path) -> dict[str, Any]:
    """With the default journal; beside ZooKeeper, where that is refused, with a file of each host."""
    extra: dict[str, Any] = dict(QUICK)
    if sandbox.mode == "zookeeper":
        extra |= {"zookeeper": sandbox.zookeeper, "journal": f"sqlite:///{home}/rows.db"}
    return {"conn_type": "kafka_steward", "host": sandbox.bootstrap, "extra": extra}


def test_a_heal_says_that_the_watch_has_another_journal(
    desk: Desk, kraft_sandbox: Sandbox, homes: dict[str, Path], topic: str
) -> None:
    kraft_sandbox.create_topics(topic, partitions=4, replication_factor=3)
    desk.pause(HEAL, paused=False)
    kraft_sandbox.kill(4)
    rung = desk.ended(HEAL, 0)
    assert (rung["run_type"], rung["state"]) == ("asset_triggered", "failed")
    log = desk.log(HEAL, rung["dag_run_id"], "find_failures")
    assert_names_both(log, "started with the journal at", homes["triggerer"], homes["worker"])

    # The watch has no part in a run that a person starts: there it is the trigger that has another journal.
    number = len(desk.runs(HEAL))
    run_id = desk.trigger(HEAL, {"ignore_grace": True}, "admin")
    by_hand = next(run for run in map(desk.ended, [HEAL] * 9, range(number, number + 9)) if run["dag_run_id"] == run_id)
    assert by_hand["state"] == "failed"
    assert_names_both(
        desk.log(HEAL, run_id, "submit"), "started with the journal at", homes["worker"], homes["triggerer"]
    )
    with desk.opened() as opened:
        (plan,) = opened.journal.plans.unfinished()
        assert {row.state for row in opened.journal.plans.rows(plan.digest)} == {MoveState.WAITING}
        assert not opened.cluster.reassignments()


def test_each_other_workflow_says_so_too_or_works(
    desk: Desk, sandbox: Sandbox, homes: dict[str, Path], topic: str
) -> None:
    """With ZooKeeper, the documents belong to the worker's rows, which are opened first, and not to the triggerer's."""
    sandbox.create_topics(topic, assignments={number: [1, 2, 3] for number in range(4)})

    assert run(desk, "health")[1] == "success"
    moved = {"topic": topic, "partition": 0, "replicas": [4, 2, 3]}
    assert_refused(desk, homes, "apply", "submit", reassignment={"version": 1, "partitions": [moved]})
    # Its plan is in the worker's journal, which is all that a change of its throttle needs.
    assert run(desk, "throttle", rate=1_000_000)[1] == "success"
    with desk.opened() as opened:
        assert [plan.throttle for plan in opened.journal.plans.unfinished()] == [1_000_000]
    # Nothing of it is in flight, so that the cancel has no need of the triggerer.
    assert run(desk, "cancel", reason="wrong host")[1] == "success"
    assert_refused(desk, homes, "rebalance", "submit")
    assert run(desk, "cancel", reason="wrong host")[1] == "success"
    with desk.opened() as opened:
        assert not opened.cluster.reassignments()
        assert opened.journal.plans.unfinished() == []

    sandbox.create_topics(f"{topic}-before", assignments={0: [1, 2, 3, 4]})  # by which broker 4 is known
    lose(sandbox, 4)
    eventually(lambda: _assert_live(desk, 1, 2, 3), within=60)
    run_id, state = run(desk, "topic")
    assert state == "success"
    # The watch of the fill reads another journal, where no replica is pending: the task says so.
    made = desk.xcom(dag_of("topic"), run_id, "create")
    assert "No watch has polled this journal ever, so no fill starts automatically" in made["sentence"]
    sandbox.restart(4)
    assert_refused(desk, homes, "fill", "submit")


def run(desk: Desk, workflow: str, **conf: Any) -> tuple[str, str]:
    """The run's id and how it ended, begun by a person, who approves where that is asked for."""
    desk.pause(dag_of(workflow), paused=False)
    number = len(desk.runs(dag_of(workflow)))
    run_id = desk.trigger(dag_of(workflow), conf, "admin")
    if workflow in {"apply", "rebalance"}:
        asked(desk, dag_of(workflow), run_id)
        answer(desk, dag_of(workflow), run_id, "Approve", user="admin")
    return run_id, desk.ended(dag_of(workflow), number)["state"]


def assert_refused(desk: Desk, homes: dict[str, Path], workflow: str, task: str, **conf: Any) -> None:
    """The run fails where it would leave its plan to the triggerer, and names both journals."""
    run_id, state = run(desk, workflow, **conf)
    assert state == "failed"
    log = desk.log(dag_of(workflow), run_id, task)
    shared = (homes["worker"] / "rows.db").exists()  # the documents, beside ZooKeeper
    words = "belong to a journal whose rows are at" if shared else "started with the journal at"
    assert_names_both(log, words, homes["worker"], homes["triggerer"])


def _assert_live(desk: Desk, *brokers: int) -> None:
    with desk.opened() as opened:
        assert set(opened.cluster.live_brokers()) == set(brokers)


def test_documents_that_are_shared_are_not_read_with_rows_that_are_not(
    desk: Desk, zookeeper_sandbox: Sandbox, homes: dict[str, Path], topic: str
) -> None:
    zookeeper_sandbox.create_topics(topic, partitions=4, replication_factor=3)
    desk.pause(HEAL, paused=False)
    eventually(lambda: _assert_documents_are_of(zookeeper_sandbox, homes["triggerer"]), within=60)
    run_id = desk.trigger(HEAL, {"ignore_grace": True}, "admin")
    run = desk.ended(HEAL, 0)
    assert (run["dag_run_id"], run["state"]) == (run_id, "failed")
    log = desk.log(HEAL, run_id, "find_failures")
    assert_names_both(log, "belong to a journal whose rows are at", homes["triggerer"], homes["worker"])


def _assert_documents_are_of(sandbox: Sandbox, home: Path) -> None:
    """The file of the rows is there before the documents name it: until then, whoever opens them is the first."""
    mailbox = ClockedZkMailbox(ZooKeeperOptions(sandbox.zookeeper or ""))
    try:
        node = read_one(mailbox, paths.JOURNAL)
    finally:
        mailbox.close()
    assert node is not None
    assert str(home) in node.data


def assert_names_both(log: str, words: str, theirs: Path, ours: Path) -> None:
    assert words in log
    assert str(theirs) in log
    assert str(ours) in log
    assert "set the setting journal to the one database that all hosts of this Airflow share" in log
