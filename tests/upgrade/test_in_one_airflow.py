"""This version takes the place of the one before in an Airflow that has work: a plan in flight, an approval, a watch.

Everything is as an operator finds it: real brokers, a journal, Airflow's database with a deferred task and a request to
a person, and DAG files that nobody changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kafka_steward.assignment import Assignment
from kafka_steward.hooks.steward import ClusterSession
from kafka_steward.journal.audit import Action
from kafka_steward.journal.records import PlanRecord, PlanStatus
from kafka_steward.sandbox import Sandbox
from kafka_steward.sandbox.airflow import LocalAirflow
from kafka_steward.sandbox.artifacts import find_or_install_java
from tests.airflow.conftest import Desk
from tests.airflow.people import answer, asked, reported
from tests.airflow.test_cancel_dag import REASSIGN, described
from tests.eventually import eventually
from tests.postgres import PostgresServer
from tests.upgrade.former import VERSION, Former

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow]

DAGS = """\
# The Airflow DAGs of one cluster.
from kafka_steward.dags import apply, heal, rebalance
heal(conn_id="{conn_id}")
rebalance(conn_id="{conn_id}")
apply(conn_id="{conn_id}")
"""
#: Every partition leaves broker 4: one after the other, and each for half a minute, as the throttle is.
DRAINED: dict[int, Assignment] = {number: ((4, 2, 3), (3, 4, 2), (2, 3, 4))[number % 3] for number in range(9)}
DRAIN: dict[str, Any] = {"operation": "drain", "brokers": [4]}
PARTITION_BYTES = 4_000_000
THROTTLE = 150_000
#: The name of a trigger that no task waits for: that of an asset.
WATCH_STARTED = r"trigger ID \d+ starting"


@pytest.fixture(scope="module")
def airflow(former: Former, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAirflow]:
    """An Airflow that runs the version before."""
    home = tmp_path_factory.mktemp("upgraded")
    java = {"JAVA_HOME": str(find_or_install_java().home)}
    users = {"admin": "admin", "ann": "op"}
    with PostgresServer() as server:
        database = server.new_database(idle_in_transaction_session_timeout="30s")
        airflow = LocalAirflow(home, users=users, environment=java, database=database)
        airflow.program = former.airflow
        with airflow:
            yield airflow


@pytest.fixture
def desk(airflow: LocalAirflow, kraft_sandbox: Sandbox) -> Desk:
    journal = f"sqlite:///{airflow.home}/journal.db"
    desk = Desk(airflow, "kafka_upgraded", kraft_sandbox.bootstrap, journal)
    desk.configure(throttle=THROTTLE, max_in_flight=1)
    dags = [f"{name}_{desk.conn_id}" for name in ("heal", "rebalance", "apply")]
    desk.add_dags("workflows", DAGS.format(conn_id=desk.conn_id), *dags)
    desk.pause(dags[0], paused=False)
    return desk


def replace_version(airflow: LocalAirflow) -> None:
    """As docs/operations.md says: stop everything, install, start everything."""
    airflow.stop()
    airflow.program = Path(LocalAirflow(airflow.home).program)
    airflow.start()


def wait_until_deferred_in_the_middle(desk: Desk, dag_id: str, run_id: str, sandbox: Sandbox) -> None:
    def in_the_middle() -> None:
        assert desk.tasks(dag_id, run_id)["submit"] == "deferred"
        assert "replicas:" in list_reassignments(sandbox)

    eventually(in_the_middle, within=300, every=1)


def list_reassignments(sandbox: Sandbox) -> str:
    return sandbox.kafka_tool(REASSIGN, "--bootstrap-server", sandbox.bootstrap, "--list")


def assert_watched(desk: Desk) -> None:
    """The triggerer has started the watch."""
    assert re.search(WATCH_STARTED, desk.airflow.part_log("triggerer"))


def unfinished(opened: ClusterSession) -> PlanRecord:
    (plan,) = opened.journal.plans.unfinished()
    return plan


def write_reassignment(topic: str) -> dict[str, Any]:
    partition = {"topic": topic, "partition": 0, "replicas": [2, 3, 1]}
    return {"reassignment": {"version": 1, "partitions": [partition]}}


def begin_with_the_version_before(desk: Desk, sandbox: Sandbox, topic: str) -> tuple[str, str]:
    """The watch runs, one plan waits for an approval, the other one is in flight. Returns the runs of both."""
    eventually(lambda: assert_watched(desk), within=120, every=1)
    rebalance, apply = f"rebalance_{desk.conn_id}", f"apply_{desk.conn_id}"
    waiting = desk.trigger(apply, write_reassignment(f"{topic}-waiting"), "ann")
    asked(desk, apply, waiting)
    running = desk.trigger(rebalance, {**DRAIN, "exclude": [f"{topic}-waiting"]}, "ann")
    asked(desk, rebalance, running)
    answer(desk, rebalance, running, "Approve", "before the upgrade")
    wait_until_deferred_in_the_middle(desk, rebalance, running, sandbox)
    return waiting, running


def assert_the_watch_heals(desk: Desk, sandbox: Sandbox) -> None:
    """A broker fails, and nobody looks: the DAG was unpaused before the upgrade."""
    heal = f"heal_{desk.conn_id}"
    assert desk.runs(heal) == []
    desk.configure(throttle=100 * THROTTLE)
    sandbox.kill(3)
    run = desk.ended(heal, 0)
    assert run["run_type"] == "asset_triggered"
    facts = reported(desk, heal, run["dag_run_id"])
    assert (facts["brokers"], facts["under_replicated"], facts["left"]) == ([3], 0, 0)
    assert facts["replicas_moved"] > 0


def test_a_plan_in_flight_an_approval_and_the_watch_of_the_version_before_go_on(
    desk: Desk, kraft_sandbox: Sandbox, topic: str
) -> None:
    rebalance, apply = f"rebalance_{desk.conn_id}", f"apply_{desk.conn_id}"
    kraft_sandbox.create_topics(f"{topic}-drained", assignments=DRAINED)
    kraft_sandbox.create_topics(f"{topic}-waiting", assignments={0: (1, 2, 3)})
    kraft_sandbox.fill(f"{topic}-drained", len(DRAINED) * PARTITION_BYTES)
    waiting, running = begin_with_the_version_before(desk, kraft_sandbox, topic)
    assert VERSION in desk.airflow.run_command("providers", "list")

    replace_version(desk.airflow)
    with closing(desk.opened()) as opened:
        digest = unfinished(opened).digest
        facts = reported(desk, rebalance, running)
        assert (facts["status"], facts["empty"], facts["not_done_count"]) == ("completed", True, 0)
        assert not any("4" in replicas.split(",") for replicas in described(kraft_sandbox, f"{topic}-drained"))
        plan = opened.journal.plans.get(digest)
        assert plan is not None
        assert plan.status is PlanStatus.COMPLETED
        submitted = {
            (row.entry.topic, row.entry.partition)
            for row in opened.journal.audit.rows(plan=digest, action=Action.SUBMIT)
        }
        assert submitted >= {(f"{topic}-drained", number) for number in DRAINED}

        # The person answers after the upgrade what 0.1.0 asked.
        answer(desk, apply, waiting, "Approve", "after the upgrade")
        assert reported(desk, apply, waiting)["status"] == "completed"
        assert described(kraft_sandbox, f"{topic}-waiting") == ["2,3,1"]
    assert_the_watch_heals(desk, kraft_sandbox)
