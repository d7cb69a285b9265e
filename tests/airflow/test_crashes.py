"""Airflow's own parts die, hang and are restarted in the middle of a heal: it ends healed, each partition moved once.

They die when Kafka has accepted all moves. Of a process that dies before, the submission is sent once more:
`tests/execution/test_every_crash.py` dies at each of its calls.

The heal's plan is made by hand, so that no Spark job has to be waited for; its task is the one of the heal DAG. With
`on_kill="cancel"`, so that whatever Airflow kills by mistake would be seen to cancel the plan.
"""

from __future__ import annotations

import os
import signal
import time
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_steward.assignment import Move
from kafka_steward.execution.plans.snapshot import take_snapshot
from kafka_steward.hooks.session import ClusterSession
from kafka_steward.journal.audit import Action
from kafka_steward.journal.records import THROTTLE_LEASES, MoveState, Phase, PlanStatus
from kafka_steward.planning.files.formats import plan_table, read_snapshot, write_plan
from kafka_steward.sandbox import Sandbox
from kafka_steward.sandbox.airflow import AirflowFailed, LocalAirflow
from tests.airflow.conftest import DONE, Desk
from tests.eventually import eventually
from tests.postgres import PostgresServer

pytestmark = [pytest.mark.airflow, pytest.mark.ci, pytest.mark.apart]

CARRY = """\
# An Airflow DAG that carries out a plan made by hand.
from datetime import timedelta
from airflow.sdk import DAG, Param
from kafka_steward.operators.submit import SubmitReassignmentOperator

for where, deferrable in (("triggerer", True), ("worker", False)):
    dag_id = "carry_in_" + where
    with DAG(dag_id, schedule=None, is_paused_upon_creation=False, params={{"plan": Param("", type="string")}}):
        SubmitReassignmentOperator(
            task_id="submit",
            conn_id="{conn_id}",
            plan="{{{{ params.plan }}}}",
            deferrable=deferrable,
            on_kill="cancel",
            settings={{"throttle": 150_000}},
            retries=5,
            retry_delay=timedelta(seconds=2),
        )
"""
#: Airflow notices in seconds what takes it minutes by default; the order of things is the same.
HASTY = {
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "20",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "25",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "30",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "5",
    "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "15",
    "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "2",
}
#: While the API server starts, it answers nobody.
AWAY: dict[str, Any] = {"within": 120, "every": 1, "errors": (AssertionError, AirflowFailed, OSError)}
BEFORE = {0: (4, 1, 2), 1: (1, 4, 3), 2: (2, 3, 4), 3: (4, 3, 1), 4: (3, 4, 2)}
AFTER = {0: (3, 1, 2), 1: (1, 2, 3), 2: (2, 3, 1), 3: (2, 3, 1), 4: (3, 1, 2)}


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer) -> Iterator[LocalAirflow]:
    home, users = tmp_path_factory.mktemp("crashing"), {"admin": "admin", "ann": "op"}
    database = postgres.new_database(idle_in_transaction_session_timeout="30s")
    with LocalAirflow(home, users=users, environment=HASTY, database=database) as airflow:
        yield airflow


@pytest.fixture
def opened(desk: Desk) -> Iterator[ClusterSession]:
    with desk.opened() as opened:
        yield opened


@pytest.fixture
def heal(desk: Desk, sandbox: Sandbox, opened: ClusterSession, topic: str, tmp_path: Path) -> Callable[[str], Healing]:
    """Begins a heal in the "triggerer" or in the "worker", and returns when all of it is in flight."""

    def begin(where: str) -> Healing:
        healing = Healing(desk, opened, topic, where)
        healing.begin(sandbox, tmp_path)
        return healing

    return begin


class Healing:
    """A heal under way in one DAG run."""

    def __init__(self, desk: Desk, opened: ClusterSession, topic: str, where: str) -> None:
        self.desk, self.opened, self.topic = desk, opened, topic
        self.dag_id = f"carry_in_{where}"

    def begin(self, sandbox: Sandbox, folder: Path) -> None:
        # -1: nothing heals by itself.
        self.desk.configure(heal_failure_interval=-1)
        self.desk.add_dags("carry", CARRY.format(conn_id=self.desk.conn_id), "carry_in_triggerer", "carry_in_worker")
        sandbox.create_topics(self.topic, assignments=BEFORE)
        sandbox.fill(self.topic, 15_000_000)
        sandbox.kill(4)
        eventually(self._broker_is_dead, within=60)
        self.digest = self._plan(folder)
        self.run_id = self.desk.trigger(self.dag_id, {"plan": str(folder / "plan")}, "ann")
        eventually(self._flies, within=180, every=1)

    def _plan(self, folder: Path) -> str:
        journal, cluster = self.opened.journal, self.opened.cluster
        take_snapshot(cluster, str(folder / "snapshot"), failed={4}, now_ms=journal.now_ms())
        snapshot = read_snapshot(str(folder / "snapshot"))
        moves = [
            Move(self.topic, number, BEFORE[number], AFTER[number], 0, number, "broker_failed") for number in BEFORE
        ]
        proof = {"cluster_id": snapshot.cluster_id, "snapshot_digest": snapshot.digest, "operation": "heal"}
        return write_plan(str(folder / "plan"), plan_table(moves), {**proof, "options": {}, "brokers_failed": [4]})

    def _broker_is_dead(self) -> None:
        assert 4 not in self.opened.cluster.live_brokers()

    def _flies(self) -> None:
        """Kafka has accepted all moves; a row is already submitted before the request is sent."""
        phases = [row.phase for row in self.opened.journal.plans.rows(self.digest)]
        assert phases == [Phase.ACCEPTED] * len(BEFORE), (phases, self.desk.tasks(self.dag_id, self.run_id))

    def task(self) -> Any:
        run = urllib.parse.quote(self.run_id, safe="")
        path = f"/api/v2/dags/{self.dag_id}/dagRuns/{run}/taskInstances/submit"
        return self.desk.airflow.call_api("GET", path)

    def is_in(self, *states: str) -> Any:
        task = self.task()
        assert task["state"] in states, task
        return task

    def act(self, method: str, path: str, body: dict[str, Any]) -> None:
        self.desk.airflow.call_api(method, f"/api/v2/dags/{self.dag_id}/{path}", body, user="ann")

    def ends(self) -> str:
        """The state of the run, when it has ended."""

        def ended() -> str:
            state = next(run["state"] for run in self.desk.runs(self.dag_id) if run["dag_run_id"] == self.run_id)
            assert state in DONE, self.task()
            return str(state)

        return eventually(ended, within=400, every=1)

    def is_healed_once(self) -> None:
        """Every partition is where the plan wanted it, and was submitted once; nothing is left behind."""
        assert self.ends() == "success", self.desk.log(self.dag_id, self.run_id, "submit")
        record = self.opened.journal.plans.get(self.digest)
        assert record is not None
        assert record.status is PlanStatus.COMPLETED, record
        partitions = self.opened.cluster.snapshot([self.topic]).partitions
        assert {name.partition: one.replicas for name, one in partitions.items()} == AFTER
        assert not any(one.reassigning or one.under_replicated for one in partitions.values())
        rows = self.opened.journal.audit.rows(plan=self.digest)
        submitted = Counter(row.entry.partition for row in rows if row.entry.action is Action.SUBMIT)
        assert submitted == dict.fromkeys(BEFORE, 1)
        assert not [row for row in rows if row.entry.action in {Action.CANCEL, Action.REQUEST}]
        assert self.opened.journal.rows(THROTTLE_LEASES).all() == []


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def children_of(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def stop_in_transaction(airflow: LocalAirflow, postgres: PostgresServer) -> None:
    """Stop the scheduler at a moment at which it holds locks in its database."""

    def stopped() -> None:
        airflow.signal_part("scheduler", signal.SIGSTOP)
        time.sleep(0.5)
        if not postgres.idle_in_transaction(for_s=0.4):
            airflow.signal_part("scheduler", signal.SIGCONT)
            raise AssertionError("it was stopped between two transactions")

    eventually(stopped, within=60, every=0.05)


@pytest.mark.slow
def test_the_scheduler_is_killed_and_restarted_at_once(
    desk: Desk, kraft_sandbox: Sandbox, heal: Callable[[str], Healing], postgres: PostgresServer
) -> None:
    """Its workers outlive it with its connection, and what it had locked stays locked until PostgreSQL ends that."""
    healing = heal("worker")
    stop_in_transaction(desk.airflow, postgres)
    desk.airflow.signal_part("scheduler", signal.SIGKILL)
    desk.airflow.start_part("scheduler")
    healing.is_healed_once()


@pytest.mark.slow
def test_the_tasks_supervisor_is_killed(desk: Desk, kraft_sandbox: Sandbox, heal: Callable[[str], Healing]) -> None:
    healing = heal("worker")
    task = int(healing.task()["pid"])
    os.kill(parent_of(task), signal.SIGKILL)
    assert Path(f"/proc/{task}").exists(), "the task itself goes on, beside its next try"
    healing.is_healed_once()


@pytest.mark.slow
def test_the_task_itself_is_killed(desk: Desk, kraft_sandbox: Sandbox, heal: Callable[[str], Healing]) -> None:
    healing = heal("worker")
    os.kill(int(healing.task()["pid"]), signal.SIGKILL)
    healing.is_healed_once()
    assert healing.task()["try_number"] == 2


@pytest.mark.parametrize("part", ["triggerer", pytest.param("api-server", marks=pytest.mark.slow)])
def test_the_triggerer_or_the_api_server_is_killed(
    part: str, desk: Desk, kraft_sandbox: Sandbox, heal: Callable[[str], Healing]
) -> None:
    healing = heal("triggerer")
    eventually(lambda: healing.is_in("deferred"), within=60, every=1)
    desk.airflow.signal_part(part, signal.SIGKILL)
    desk.airflow.start_part(part)
    eventually(lambda: healing.is_in("deferred", "scheduled", "queued", "running", "success"), **AWAY)
    healing.is_healed_once()


@pytest.mark.slow
def test_the_triggerer_hangs_another_takes_over_and_it_wakes_up(
    desk: Desk, kraft_sandbox: Sandbox, heal: Callable[[str], Healing]
) -> None:
    healing = heal("triggerer")
    eventually(lambda: healing.is_in("deferred"), within=60, every=1)
    hung = desk.airflow._parts["triggerer"].pid
    family = [hung, *children_of(hung)]
    first = healing.task()["triggerer_job"]["id"]
    for pid in family:
        os.kill(pid, signal.SIGSTOP)
    try:
        desk.airflow.start_part("triggerer")
        eventually(lambda: elsewhere(healing, first), within=120, every=1)
    finally:
        for pid in family:
            os.kill(pid, signal.SIGCONT)
    healing.is_healed_once()


def elsewhere(healing: Healing, first: int) -> None:
    job = healing.task()["triggerer_job"]
    assert job is None or job["id"] != first, "the hung triggerer still has it"


@pytest.mark.slow
def test_a_deferred_task_is_cleared(desk: Desk, kraft_sandbox: Sandbox, heal: Callable[[str], Healing]) -> None:
    healing = heal("triggerer")
    eventually(lambda: healing.is_in("deferred"), within=60, every=1)
    body = {"dry_run": False, "only_failed": False, "dag_run_id": healing.run_id, "task_ids": ["submit"]}
    healing.act("POST", "clearTaskInstances", body)
    healing.is_healed_once()
    assert healing.task()["try_number"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("where", ["triggerer", "worker"])
def test_a_task_that_a_person_marks_failed_is_cancelled_if_it_was_made_so(
    where: str, kraft_sandbox: Sandbox, opened: ClusterSession, topic: str, heal: Callable[[str], Healing]
) -> None:
    healing = heal(where)
    eventually(lambda: healing.is_in("deferred", "running"), within=60, every=1)
    in_flight = [row.move for row in opened.journal.plans.rows(healing.digest) if row.state is MoveState.SUBMITTED]
    run = urllib.parse.quote(healing.run_id, safe="")
    healing.act("PATCH", f"dagRuns/{run}/taskInstances/submit", {"new_state": "failed"})

    def cancelled() -> None:
        record = opened.journal.plans.get(healing.digest)
        assert record is not None
        assert record.cancel is not None
        assert record.status is PlanStatus.CANCELLED, record

    eventually(cancelled, within=60, every=1)
    partitions = opened.cluster.snapshot([topic]).partitions
    assert all(partitions[move.topic_partition].replicas in {move.before, move.after} for move in in_flight)
    assert not any(partition.reassigning for partition in partitions.values())
