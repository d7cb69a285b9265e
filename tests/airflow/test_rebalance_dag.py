"""The rebalance and apply DAGs in a real Airflow, on real clusters: triggered, approved and rejected over REST."""

from __future__ import annotations

import time
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pytest

from kafka_steward.hooks.steward import Opened
from kafka_steward.sandbox import Sandbox
from kafka_steward.sandbox.airflow import AirflowFailed
from tests.airflow.conftest import DONE, Desk
from tests.eventually import eventually

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow]

DAGS = """\
# Airflow DAGs of one cluster.
from kafka_steward.dags import apply, rebalance
rebalance(conn_id="{conn_id}", deferrable={deferrable})
apply(conn_id="{conn_id}", deferrable={deferrable})
rebalance(conn_id="{conn_id}", dag_id="nightly_{conn_id}", schedule="* * * * *", fields={{"approve_above": 10**12}})
"""
TOPICS = "org.apache.kafka.tools.TopicCommand"
BEFORE = {0: (4, 1, 2), 1: (1, 4, 3), 2: (2, 3, 4), 3: (4, 3, 1), 4: (3, 1, 2)}


@pytest.fixture
def opened(desk: Desk) -> Iterator[Opened]:
    # Nothing heals by itself, so that the only runs are those of this test.
    desk.configure(heal_failure_interval=-1)
    with desk.opened() as opened:
        yield opened


def described(sandbox: Sandbox, topic: str) -> list[str]:
    """Replicas by partition, as Kafka's own tool prints them."""
    text = sandbox.kafka_tool(TOPICS, "--bootstrap-server", sandbox.bootstrap, "--describe", "--topic", topic)
    lines = [line.split("\t") for line in text.splitlines() if "Partition: " in line]
    return [next(word.split(": ")[1] for word in line if word.startswith("Replicas: ")) for line in lines]


def asked(desk: Desk, dag_id: str, run_id: str) -> Any:
    """What a person is asked, once they are."""
    path = f"/api/v2/dags/{dag_id}/dagRuns/{quoted(run_id)}/taskInstances/approve/-1/hitlDetails"

    def request() -> Any:
        states = desk.tasks(dag_id, run_id)
        assert states.get("approve") == "awaiting_input", {
            task: (state, desk.log(dag_id, run_id, task)[-1500:]) for task, state in states.items() if state == "failed"
        } or states
        return desk.airflow.api("GET", path)

    return eventually(request, within=600, every=1)


def answer(desk: Desk, dag_id: str, run_id: str, option: str, reason: str = "") -> None:
    """As ann, who may run DAGs and is no administrator; again, where Airflow loses an answer and asks anew."""
    path = f"/api/v2/dags/{dag_id}/dagRuns/{quoted(run_id)}/taskInstances/approve/-1/hitlDetails"
    body = {"chosen_options": [option], "params_input": {"reason": reason}}

    def heard() -> None:
        state = desk.tasks(dag_id, run_id)["approve"]
        if state == "awaiting_input":
            # The executor's word that the task was parked comes late, and costs the try of one that goes on before.
            time.sleep(10)
            desk.airflow.api("PATCH", path, body, user="ann")
        assert state == "success", state

    eventually(heard, within=600, every=2, errors=(AirflowFailed,))


def quoted(run_id: str) -> str:
    return urllib.parse.quote(run_id, safe="")


def reported(desk: Desk, dag_id: str, run_id: str) -> dict[str, Any]:
    """What the last task of a run that succeeded returned."""

    def ended() -> str:
        state = next(run["state"] for run in desk.runs(dag_id) if run["dag_run_id"] == run_id)
        assert state in DONE, desk.tasks(dag_id, run_id)
        return str(state)

    state = eventually(ended, within=600, every=1)
    states = desk.tasks(dag_id, run_id)
    assert state == "success", {
        task: desk.log(dag_id, run_id, task)[-2000:] for task in states if states[task] != DONE[0]
    }
    return dict(desk.xcom(dag_id, run_id, "report"))


def refused(desk: Desk, dag_id: str, conf: dict[str, Any]) -> str:
    with pytest.raises(AirflowFailed) as refusal:
        desk.trigger(dag_id, conf, "ann")
    return str(refusal.value)


def test_a_person_drains_a_broker_approves_the_plan_and_it_is_empty(
    desk: Desk, kraft_sandbox: Sandbox, opened: Opened, topic: str
) -> None:
    rebalance = f"rebalance_{desk.conn_id}"
    kraft_sandbox.create_topics(topic, assignments=BEFORE)
    kraft_sandbox.fill(topic, 2_000_000)
    desk.add_dags("rebalance", DAGS.format(conn_id=desk.conn_id, deferrable=True), rebalance)
    assert "5 is greater than the maximum of 1" in refused(desk, rebalance, {"tolerance": 5})

    # Rejected, and nothing is submitted.
    drain = {"operation": "drain", "brokers": [4]}
    first = desk.trigger(rebalance, drain, "admin")
    assert asked(desk, rebalance, first)["subject"].startswith("Move ")
    answer(desk, rebalance, first, "Reject", "not today")
    facts = reported(desk, rebalance, first)
    assert facts["sentence"].split(". ")[0].endswith("was rejected by ann (not today); nothing was submitted")
    assert desk.tasks(rebalance, first)["submit"] == "skipped"
    assert opened.journal.plans.latest(1) == []

    # Approved: exactly the plan that was shown.
    second = desk.trigger(rebalance, drain, "admin")
    request = asked(desk, rebalance, second)
    digest = desk.xcom(rebalance, second, "plan")["digest"]
    assert digest in request["body"]
    assert all(word in request["body"] for word in ("predicted duration", "replicas in", f"{topic}-0"))
    answer(desk, rebalance, second, "Approve", "rack move")
    facts = reported(desk, rebalance, second)
    assert (facts["status"], facts["empty"], facts["not_done_count"]) == ("completed", True, 0)
    assert "Broker 4 is empty in Kafka. Left to do: stop it" in facts["sentence"]
    assert not any("4" in replicas.split(",") for replicas in described(kraft_sandbox, topic))
    (row,) = opened.journal.audit.rows(plan=digest, action="approve")
    assert (row.entry.who.person, row.entry.reason) == ("ann", "approved: rack move")

    # Nothing is left to be drained: a success that says so, and nobody is asked.
    third = desk.trigger(rebalance, drain, "admin")
    facts = reported(desk, rebalance, third)
    assert (facts["status"], facts["empty"]) == ("nothing", True)
    assert facts["sentence"].startswith("Nothing to do. Broker 4 holds no replica already.")


def test_a_reassignment_by_hand_is_proven_approved_and_applied_and_a_schedule_evens_out_by_itself(
    desk: Desk, zookeeper_sandbox: Sandbox, opened: Opened, topic: str
) -> None:
    apply, nightly = f"apply_{desk.conn_id}", f"nightly_{desk.conn_id}"
    zookeeper_sandbox.create_topics(topic, assignments=BEFORE)
    zookeeper_sandbox.fill(topic, 2_000_000)
    desk.add_dags("rebalance", DAGS.format(conn_id=desk.conn_id, deferrable=False), apply, nightly)
    assert "reassignment" in refused(desk, apply, {})

    given = [
        {"topic": topic, "partition": 0, "replicas": [1, 2]},
        {"topic": topic, "partition": 1, "replicas": [1, 2, 3]},
    ]
    run_id = desk.trigger(apply, {"reassignment": {"version": 1, "partitions": given}}, "admin")
    body = asked(desk, apply, run_id)["body"]
    assert "will have 2 replicas instead of 3." in body
    answer(desk, apply, run_id, "Approve")
    facts = reported(desk, apply, run_id)
    assert (facts["status"], facts["not_done_count"]) == ("completed", 0)
    assert described(zookeeper_sandbox, topic)[:2] == ["1,2", "1,2,3"]
    who = [row.entry.who.person for row in opened.journal.audit.rows(action="approve")]
    assert who == ["ann"]

    # Every replica of a new topic lies on one side: the schedule moves what a tenth of the bytes allows, asking nobody.
    skewed = f"{topic}-skewed"
    zookeeper_sandbox.create_topics(skewed, assignments=dict.fromkeys(range(12), (1, 2, 3)))
    zookeeper_sandbox.fill(skewed, 1_000_000)
    before = spread(opened, skewed)
    desk.pause(nightly, paused=False)
    run = desk.ended(nightly, 0, within=600)
    desk.pause(nightly, paused=True)
    assert run["run_type"] == "scheduled"
    facts = reported(desk, nightly, run["dag_run_id"])
    assert desk.xcom(nightly, run["dag_run_id"], "approve")["asked"] is False
    assert (facts["status"], facts["not_done_count"]) == ("completed", 0)
    assert spread(opened, skewed) < before


def spread(opened: Opened, topic: str) -> int:
    """How many more of its replicas its fullest broker has than its emptiest."""
    held = [each.replicas for name, each in opened.cluster.snapshot().partitions.items() if name.topic == topic]
    counts = [sum(broker in replicas for replicas in held) for broker in (1, 2, 3, 4)]
    return max(counts) - min(counts)
