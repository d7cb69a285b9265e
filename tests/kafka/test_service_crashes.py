"""What a plan stands on is killed in its middle: the controller, ZooKeeper, PostgreSQL. It ends all the same."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from kafka_steward.assignment import Move
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.errors import JournalError
from kafka_steward.execution.plans.publishing import publish_plan
from kafka_steward.execution.plans.runner import PlanRunner
from kafka_steward.execution.plans.undo_verification import verify_undone
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.journal.audit import Action, Actor
from kafka_steward.journal.records import THROTTLE_LEASES, PlanStatus
from kafka_steward.journal.store import Journal, open_journal
from kafka_steward.sandbox import Sandbox
from kafka_steward.sandbox.processes import Process
from kafka_steward.settings import Settings
from tests.cancelling import CancelRunner
from tests.eventually import eventually
from tests.manual_plan import plan_by_hand
from tests.pace import Deadline
from tests.postgres import PostgresServer

pytestmark = pytest.mark.ci

WHO = Actor(person="ada")
SLOW = Settings(min_free=0, throttle=300_000, max_in_per_broker=2, max_out_per_broker=2)
BEFORE = {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2), 3: (1, 3, 2)}
AFTER = {0: (4, 2, 3), 1: (2, 4, 1), 2: (4, 1, 2), 3: (3, 4, 2)}


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


def begun(cluster: KafkaCluster, journal: Journal, sandbox: Sandbox, topic: str, folder: Path) -> PlanRunner:
    """A throttled plan, of which some is in flight and some waits."""
    sandbox.create_topics(topic, assignments=BEFORE)
    sandbox.fill(topic, 16_000_000)
    moves = [Move(topic, number, BEFORE[number], AFTER[number], 0, number, "given") for number in BEFORE]
    plan = plan_by_hand(cluster, journal, folder, moves)
    publish_plan(ClusterContext(cluster, journal, SLOW, WHO), plan)
    runner = PlanRunner(ClusterContext(cluster, journal, SLOW, WHO), plan.digest)

    def is_in_flight() -> None:
        progress = runner.step()
        assert progress.in_flight == 2
        assert progress.waiting == 2

    eventually(is_in_flight, within=30)
    return runner


def ends(step: Callable[[], bool], *, within_s: float = 240) -> None:
    """Step on, as every caller does, whatever is away for a while."""
    deadline = Deadline(within_s)
    while not stepped(step):
        assert not deadline.passed(), "it did not end in time"
        time.sleep(0.5)


def stepped(step: Callable[[], bool]) -> bool:
    try:
        return step()
    except JournalError:
        return False


def is_moved(cluster: KafkaCluster, topic: str) -> None:
    partitions = cluster.snapshot([topic]).partitions
    assert {name.partition: each.replicas for name, each in partitions.items()} == AFTER


def is_done(cluster: KafkaCluster, journal: Journal, runner: PlanRunner, topic: str) -> None:
    ends(lambda: runner.step().ended)
    eventually(lambda: is_moved(cluster, topic))
    rows = journal.audit.rows(action=Action.SUBMIT)
    assert {each for each, _ in Counter(row.entry.partition for row in rows).items()} == set(BEFORE)
    assert journal.slot.holders() == ()
    assert journal.rows(THROTTLE_LEASES).all() == []


def restarted(sandbox: Sandbox) -> Process:
    """What was killed, started on the disk that it left."""
    if sandbox.zookeeper is not None:
        return sandbox._kind.start_service()
    return sandbox._jvm.start("controller", "kafka.Kafka", str(sandbox.folder / "controller.properties"))


def test_the_controller_or_zookeeper_is_killed(
    sandbox: Sandbox, cluster: KafkaCluster, journal: Journal, topic: str, tmp_path: Path
) -> None:
    runner = begun(cluster, journal, sandbox, topic, tmp_path)
    assert sandbox._service is not None
    sandbox._service.kill()
    for _ in range(2):
        stepped(lambda: runner.step().ended)
    sandbox._service = restarted(sandbox)
    sandbox.wait_ready(within_s=120)
    is_done(cluster, journal, runner, topic)


def test_the_broker_that_is_the_controller_is_killed(
    zookeeper_sandbox: Sandbox, cluster: KafkaCluster, journal: Journal, topic: str, tmp_path: Path
) -> None:
    runner = begun(cluster, journal, zookeeper_sandbox, topic, tmp_path)
    zookeeper = KazooClient(zookeeper_sandbox.zookeeper)
    zookeeper.start()
    controller = json.loads(zookeeper.get("/controller")[0])["brokerid"]
    zookeeper.stop()
    zookeeper_sandbox.kill(controller)
    for _ in range(3):
        stepped(lambda: runner.step().ended)
    zookeeper_sandbox.restart(controller)
    is_done(cluster, journal, runner, topic)


def test_postgresql_is_killed_and_the_plan_is_taken_back_after(
    kraft_sandbox: Sandbox, cluster: KafkaCluster, postgres: PostgresServer, topic: str, tmp_path: Path
) -> None:
    with open_journal(postgres.new_database(), cluster.cluster_id) as journal:
        runner = begun(cluster, journal, kraft_sandbox, topic, tmp_path)
        digest = journal.plans.unfinished()[0].digest
        os.kill(postgres._process.pid, signal.SIGKILL)
        postgres._process.wait(timeout=30)
        with pytest.raises(JournalError):
            runner.step()
        eventually(postgres.start, within=30, errors=(AssertionError, OSError))
        undo = CancelRunner(
            cluster, journal, digest, Settings(min_free=0, throttle=50_000_000), WHO, scope="plan", reason="a test"
        )
        ends(lambda: undo.step().ended)

        def as_before() -> None:
            found = verify_undone(cluster, journal, digest)
            assert (found.ok, found.status) == (True, PlanStatus.ROLLED_BACK.value), found.sentence

        eventually(as_before, within=60)
