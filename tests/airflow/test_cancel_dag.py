"""The cancel DAG in a real Airflow, triggered by a person in the middle of a heal that a throttle holds up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from kafka_steward.assignment import Assignment
from kafka_steward.hooks.session import ClusterSession
from kafka_steward.journal.audit import Action
from kafka_steward.journal.records import MoveRow, MoveState, PlanRecord
from kafka_steward.sandbox import Sandbox
from tests.airflow.conftest import DONE, Desk
from tests.eventually import eventually

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow]

TWO_DAGS = """\
# Two Airflow DAGs of one cluster.
from kafka_steward.dags import cancel, heal
heal(conn_id="{conn_id}", dag_id="slow_heal_{conn_id}", deferrable={deferrable})
cancel(conn_id="{conn_id}", deferrable={deferrable})
"""
TOPICS = "org.apache.kafka.tools.TopicCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
#: Every partition has a replica on broker 4, in each of the three places; the first two are empty and move at once.
BEFORE = {0: (4, 1, 2), 1: (1, 4, 3), 2: (2, 3, 4), 3: (4, 3, 1), 4: (3, 4, 2)}
LARGE = {0: (4, 2, 1), 1: (2, 4, 3), 2: (1, 3, 4)}


@pytest.fixture
def opened(desk: Desk) -> Iterator[ClusterSession]:
    with desk.opened() as opened:
        yield opened


def described(sandbox: Sandbox, topic: str) -> list[str]:
    """Replicas by partition, as Kafka's own tool prints them."""
    text = sandbox.kafka_tool(TOPICS, "--bootstrap-server", sandbox.bootstrap, "--describe", "--topic", topic)
    lines = [line.split("\t") for line in text.splitlines() if "Partition: " in line]
    return [next(word.split(": ")[1] for word in line if word.startswith("Replicas: ")) for line in lines]


def printed(assignments: Mapping[int, Assignment]) -> list[str]:
    return [",".join(map(str, replicas)) for replicas in assignments.values()]


def in_the_middle(desk: Desk, opened: ClusterSession, heal: str, run_id: str) -> PlanRecord:
    """The heal's plan, as soon as some of it is done and some of it flies."""
    plans = opened.journal.plans.unfinished()
    assert len(plans) == 1, (opened.journal.plans.latest(3), desk.tasks(heal, run_id))
    plan = plans[0]
    states = [row.state for row in opened.journal.plans.rows(plan.digest)]
    assert MoveState.COMPLETED in states
    assert MoveState.SUBMITTED in states
    return plan


def begun(opened: ClusterSession, digest: str, state: MoveState) -> list[MoveRow]:
    return [row for row in opened.journal.plans.rows(digest) if row.attempt and row.state is state]


def cancelled(desk: Desk, conf: dict[str, Any]) -> dict[str, Any]:
    """What the cancel DAG's first task returned, to a person."""
    cancel = f"cancel_{desk.conn_id}"
    run_id = desk.trigger(cancel, {"scope": "plan", "throttle": 50_000_000, **conf}, "ann")

    def ended() -> str:
        state = next(run["state"] for run in desk.runs(cancel) if run["dag_run_id"] == run_id)
        states = desk.tasks(cancel, run_id)
        told = {task: desk.log(cancel, run_id, task)[-2000:] for task, at in states.items() if at == "up_for_retry"}
        assert state in DONE, (states, told)
        return str(state)

    assert eventually(ended, within=240, every=1) == "success", [
        desk.log(cancel, run_id, task) for task in ("cancel", "elect_leaders")
    ]
    told: dict[str, Any] = desk.xcom(cancel, run_id, "cancel")
    return told


def healing_in_the_middle(
    desk: Desk, sandbox: Sandbox, opened: ClusterSession, topic: str, *, deferrable: bool
) -> tuple[str, str]:
    """A broker is dead, and its heal is under way: the run's id and the plan's digest."""
    # -1: nothing heals by itself, so that the only runs are those of a person.
    desk.configure(heal_failure_interval=-1)
    sandbox.create_topics(f"{topic}-small", assignments=BEFORE)
    sandbox.create_topics(f"{topic}-large", assignments=LARGE)
    sandbox.fill(f"{topic}-large", 12_000_000)
    heal = f"slow_heal_{desk.conn_id}"
    desk.add_dags("two_dags", TWO_DAGS.format(conn_id=desk.conn_id, deferrable=deferrable), heal)
    sandbox.kill(4)
    eventually(lambda: assert_dead(opened, 4), within=60)
    desk.pause(heal, paused=False)
    run_id = desk.trigger(heal, {"ignore_grace": True, "throttle": 150_000}, "admin")
    plan = eventually(lambda: in_the_middle(desk, opened, heal, run_id), within=300, every=1)
    return run_id, plan.digest


def the_cancel_dag_in_the_middle_of_a_heal(
    desk: Desk, sandbox: Sandbox, opened: ClusterSession, topic: str, *, deferrable: bool
) -> None:
    heal, (run_id, digest) = (
        f"slow_heal_{desk.conn_id}",
        healing_in_the_middle(desk, sandbox, opened, topic, deferrable=deferrable),
    )
    told = cancelled(desk, {"reason": "too slow"})
    stopped, complete = (begun(opened, digest, state) for state in (MoveState.DROPPED, MoveState.COMPLETED))
    assert stopped
    # What was in flight is exactly as it was, its dead broker and the order included; what was complete needs it.
    assert (told["plan"], told["as_before"], told["partitions"]) == (digest, False, len(stopped))
    assert told["left_alone_count"] == len(complete) > 0
    assert {each["why"] for each in told["left_alone"]} == {"its original broker 4 is not live"}
    assert described(sandbox, f"{topic}-large") == printed(LARGE)
    eventually(lambda: assert_state(desk, heal, run_id, "submit", "success"), within=60)
    # What was complete is left alone: so the plan was cancelled, and not rolled back.
    submitted = desk.xcom(heal, run_id, "submit")
    assert (submitted["status"], told["status"]) == ("cancelled", "cancelled")
    assert (
        f"was cancelled by ann (too slow), and reverted in part by plan {told['rollback'][:12]}, "
        in submitted["sentence"]
    )

    sandbox.restart(4)
    told = cancelled(desk, {"plan": digest[:12]})
    assert (told["as_before"], told["left_alone_count"], told["status"]) == (True, 0, "rolled_back")
    assert described(sandbox, f"{topic}-small") == printed(BEFORE)
    assert described(sandbox, f"{topic}-large") == printed(LARGE)
    listed = sandbox.kafka_tool(REASSIGN, "--bootstrap-server", sandbox.bootstrap, "--list")
    assert "No partition reassignments found." in listed
    asked = [row.entry.who for row in opened.journal.audit.rows(plan=digest, action=Action.REQUEST)]
    assert {(who.person, who.dag_id) for who in asked} == {("ann", f"cancel_{desk.conn_id}")}
    desk.pause(heal, paused=True)


def assert_dead(opened: ClusterSession, broker: int) -> None:
    assert broker not in opened.cluster.live_brokers()


def assert_state(desk: Desk, dag_id: str, run_id: str, task: str, state: str) -> None:
    assert desk.tasks(dag_id, run_id)[task] == state


def test_in_the_triggerer(desk: Desk, kraft_sandbox: Sandbox, opened: ClusterSession, topic: str) -> None:
    the_cancel_dag_in_the_middle_of_a_heal(desk, kraft_sandbox, opened, topic, deferrable=True)


def test_in_the_worker(desk: Desk, zookeeper_sandbox: Sandbox, opened: ClusterSession, topic: str) -> None:
    the_cancel_dag_in_the_middle_of_a_heal(desk, zookeeper_sandbox, opened, topic, deferrable=False)
