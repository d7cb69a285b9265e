"""What a person reads when something is wrong, task by task; `docs/faults.md` is the list."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial, partialmethod
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from kafka_steward.assignment import Assignment, Move, TopicPartition
from kafka_steward.errors import ClusterUnreachable
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.hooks.steward import StewardHook
from kafka_steward.journal.store import Journal
from kafka_steward.operators.failures import FindFailuresOperator
from kafka_steward.operators.leaders import ElectLeadersOperator
from kafka_steward.operators.report import ReportPlanOperator
from kafka_steward.operators.snapshot import SnapshotClusterOperator
from kafka_steward.operators.submit import SubmitReassignmentOperator
from kafka_steward.planning.files.formats import plan_table, write_plan
from kafka_steward.sensors.brokers import BrokerFailureSensor
from kafka_steward.settings import Settings
from kafka_steward.triggers.watch import WatchTrigger
from tests.airflow_home import Connect, context
from tests.sasl_broker import PASSWORD, guarded
from tests.simulated_plan import memory_journal, move
from tests.simulator import Simulator

__all__ = ["guarded"]

#: The tasks of a heal that connect to the cluster.
TASKS: dict[str, Callable[[str], Any]] = {
    "find_failures": lambda conn_id: FindFailuresOperator(task_id="t", conn_id=conn_id),
    "snapshot": lambda conn_id: SnapshotClusterOperator(task_id="t", conn_id=conn_id),
    "submit": lambda conn_id: SubmitReassignmentOperator(task_id="t", conn_id=conn_id, plan="/plan"),
    "elect_leaders": lambda conn_id: ElectLeadersOperator(task_id="t", conn_id=conn_id),
    "report": lambda conn_id: ReportPlanOperator(task_id="t", conn_id=conn_id, plan={}),
}


@pytest.mark.parametrize("task", TASKS)
def test_no_such_connection_fails_each_task_at_once_and_for_good(task: str) -> None:
    with pytest.raises(AirflowFailException) as told:
        TASKS[task]("nowhere").execute(context())
    assert str(told.value) == (
        "There is no Airflow connection nowhere; create it (type kafka_steward), or name another one."
    )


@pytest.mark.process
def test_bootstrap_servers_that_are_down_fail_a_task_so_that_it_is_retried(connect: Connect) -> None:
    # Within one second, a busy machine is not refused yet.
    conn_id = connect(extra={"bootstrap_timeout_ms": 3000})
    with pytest.raises(ClusterUnreachable) as told:
        TASKS["find_failures"](conn_id).execute(context())
    assert str(told.value) == (
        "No Kafka server at 127.0.0.1:1 answered within 3 s (111 ECONNREFUSED); check that it runs, and the "
        "connection's bootstrap servers and security protocol."
    )


def refused_by(connect: Connect, guarded: str) -> str:
    """The connection of someone who has the password wrong."""
    protocol = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
    # A busy machine must not make a cluster that refuses look like one that does not answer.
    patient = {"bootstrap_timeout_ms": 10_000}
    return connect(host=guarded, login="steward", password=f"not-{PASSWORD}", extra={**protocol, **patient})


@pytest.mark.kraft
def test_a_wrong_password_fails_at_once_and_for_good(connect: Connect, guarded: str) -> None:
    conn_id, began_s = refused_by(connect, guarded), time.monotonic()
    sentence = (
        f"Authentication failed at {guarded}: Kafka says 'Authentication failed: Invalid username or password'; check "
        "the user name, the password and the mechanism in the connection."
    )
    with pytest.raises(AirflowFailException) as told:
        FindFailuresOperator(task_id="find_failures", conn_id=conn_id).execute(context())
    assert str(told.value) == sentence
    with pytest.raises(AirflowFailException, match="Authentication failed at"):
        BrokerFailureSensor(task_id="wait", conn_id=conn_id).execute(context())
    assert StewardHook(conn_id).test_connection() == (False, sentence)
    assert time.monotonic() - began_s < 20


@pytest.mark.kraft
def test_a_watch_with_a_wrong_password_says_so_and_emits_no_event(
    connect: Connect, guarded: str, capsys: pytest.CaptureFixture[str]
) -> None:
    watch = WatchTrigger(refused_by(connect, guarded))

    async def listen() -> None:
        async for event in watch.run():
            pytest.fail(f"rang: {event}")

    async def listen_for(seconds: float) -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(listen(), seconds)
        await watch.cleanup()

    asyncio.run(listen_for(8))
    told = capsys.readouterr().out
    assert (
        told.count("The watch of kafka_test cannot check for failed brokers, and tries again: Authentication failed at")
        == 1
    )
    assert PASSWORD not in told


class Stage:
    """A simulated cluster and its journal, which every hook opens; time passes while a task waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, topics: Sequence[str]) -> None:
        self.simulator = Simulator.of("1a 2b 3c 4a", *topics)
        self.journal: Journal = memory_journal(self.simulator)
        self.folder = folder
        self.meanwhile: Callable[[], None] = lambda: None
        monkeypatch.setattr(StewardHook, "open", partialmethod(_opened, self))
        monkeypatch.setattr(SubmitReassignmentOperator, "_wait_unless_killed", lambda *_: self._wait())

    def submit(self, moves: Sequence[Move], *, operation: str, **settings: Any) -> dict[str, Any]:
        """Write a plan, and carry it out in the worker."""
        head = {"cluster_id": self.simulator.cluster_id, "snapshot_digest": "s", "operation": operation, "options": {}}
        proof = {**head, "replicas_moved": len(moves), "brokers_failed": [], "unplaced": []}
        write_plan(f"{self.folder}/plan", plan_table(moves), proof)
        submit = SubmitReassignmentOperator(
            task_id="submit", plan=f"{self.folder}/plan", deferrable=False, settings={"throttle": 0, **settings}
        )
        return submit.execute(context(task_id="submit"))

    def replicas(self) -> dict[str, Assignment]:
        return {str(name): partition.replicas for name, partition in self.simulator.topics.items()}

    def _wait(self) -> None:
        self.simulator.tick()
        self.meanwhile()


def _opened(hook: StewardHook, stage: Stage) -> Any:
    settings = Settings.of(hook.overrides)
    shared: dict[str, Any] = {"cluster": stage.simulator, "journal": stage.journal, "settings": settings}
    return nullcontext(SimpleNamespace(**shared, context=partial(ClusterContext, *shared.values())))


MakeStage = Callable[..., Stage]


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> MakeStage:
    return lambda *topics: Stage(monkeypatch, tmp_path, topics)


def test_a_plan_whose_target_died_since_is_held_and_then_waits_for_a_person(stage: MakeStage) -> None:
    world = stage("t: 123")
    before = world.replicas()
    world.simulator.kill(4)
    with pytest.raises(AirflowFailException) as told:
        world.submit([move("t-0", "123", "423")], operation="apply", max_attempts=2)
    assert str(told.value).endswith(
        "is stuck after 2 attempts and needs operator action: t-0 was not moved: target broker 4 is not live."
    )
    assert world.replicas() == before
    assert world.simulator.reassignments() == {}


def test_a_heal_whose_target_died_since_hands_back_and_changes_nothing(stage: MakeStage) -> None:
    world = stage("t: 123")
    before = world.replicas()
    world.simulator.kill(1)
    world.simulator.kill(4)
    told = world.submit([move("t-0", "123", "423")], operation="heal", max_attempts=2)
    assert (told["status"], told["left"]) == ("failed", 1)
    assert told["sentence"].endswith(
        "has failed: 0 of 1 partition moved, 1 dropped (1 still not fully replicated: t-0)."
    )
    assert world.replicas() == before


def test_a_topic_deleted_in_the_middle_is_dropped_and_the_rest_goes_on(stage: MakeStage) -> None:
    world = stage("t: 123", "doomed: 123")
    world.meanwhile = lambda: world.simulator.delete("doomed") if _exists(world, "doomed-0") else None
    told = world.submit([move("doomed-0", "123", "423"), move("t-0", "123", "423")], operation="apply")
    assert (told["status"], told["left"]) == ("completed", 0)
    assert told["sentence"].endswith("1 of 2 partitions moved, 1 dropped.")
    assert world.replicas() == {"t-0": (4, 2, 3)}
    assert {row.detail for row in world.journal.plans.rows(told["digest"])} >= {"its topic was deleted"}


def _exists(world: Stage, name: str) -> bool:
    topic, _, number = name.rpartition("-")
    return TopicPartition(topic, int(number)) in world.simulator.topics
