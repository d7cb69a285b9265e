"""The rebalance DAG in a real Airflow, on a real cluster: refused, rejected, approved, and with nothing left to do."""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterator
from typing import Any

import pytest

from kafka_steward.hooks.session import ClusterSession
from kafka_steward.sandbox import Sandbox
from kafka_steward.sandbox.airflow import AirflowFailed
from tests.airflow.conftest import Desk
from tests.airflow.people import answer, asked, ended, logged, reported, respond
from tests.cordons import lift_cordon
from tests.eventually import eventually

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow]

DAG = """\
# An Airflow DAG of one cluster.
from kafka_steward.dags import rebalance
rebalance(conn_id="{conn_id}", self_approval=False)
rebalance(conn_id="{conn_id}", dag_id="eyes_{conn_id}", approvers=["ann", "admin"], self_approval=False)
"""
TOPICS = "org.apache.kafka.tools.TopicCommand"
DRAIN: dict[str, Any] = {"operation": "drain", "brokers": [4]}
BEFORE = {0: (4, 1, 2), 1: (1, 4, 3), 2: (2, 3, 4), 3: (4, 3, 1), 4: (3, 1, 2)}


@pytest.fixture
def opened(desk: Desk) -> Iterator[ClusterSession]:
    # Nothing heals by itself, so that the only runs are those of this test.
    desk.configure(heal_failure_interval=-1)
    with desk.opened() as opened:
        yield opened


def described(sandbox: Sandbox, topic: str) -> list[str]:
    """Replicas by partition, as Kafka's own tool prints them."""
    text = sandbox.kafka_tool(TOPICS, "--bootstrap-server", sandbox.bootstrap, "--describe", "--topic", topic)
    lines = [line.split("\t") for line in text.splitlines() if "Partition: " in line]
    return [next(word.split(": ")[1] for word in line if word.startswith("Replicas: ")) for line in lines]


def refused(desk: Desk, dag_id: str, conf: dict[str, Any]) -> str:
    with pytest.raises(AirflowFailed) as refusal:
        desk.trigger(dag_id, conf, "ann")
    return str(refusal.value)


def refused_by_the_first_task(desk: Desk, dag_id: str, conf: dict[str, Any], sentence: str) -> None:
    run_id = desk.trigger(dag_id, conf, "ann")
    ended(desk, dag_id, run_id, "failed")
    assert desk.tasks(dag_id, run_id)["gate"] == "failed"
    assert sentence in logged(desk, dag_id, run_id, "gate")


def approve_in_vain(desk: Desk, dag_id: str, run_id: str, user: str) -> None:
    def asked_anew() -> None:
        if "may not approve its plan; the other approvers are asked" not in logged(desk, dag_id, run_id, "approve"):
            # Not yet, or it was lost.
            respond(desk, dag_id, run_id, "Approve", user=user)
            raise AssertionError(desk.tasks(dag_id, run_id))

    eventually(asked_anew, within=300, every=10, errors=(AirflowFailed,))


def reject_and_clear(desk: Desk, dag_id: str) -> None:
    """Whoever started the run does not approve its plan; somebody else rejects it. Then it is cleared."""
    run_id = desk.trigger(dag_id, DRAIN, "ann")
    assert ": drain broker" in asked(desk, dag_id, run_id)["subject"]
    approve_in_vain(desk, dag_id, run_id, "ann")
    assert asked(desk, dag_id, run_id)["response_received"] is False
    answer(desk, dag_id, run_id, "Reject", "not today", user="admin")
    facts = reported(desk, dag_id, run_id)
    assert "was rejected by admin (not today); nothing was submitted." in facts["sentence"]
    assert desk.tasks(dag_id, run_id)["submit"] == "skipped"

    # Planned anew: Airflow would still show the first plan, and take the answer for the second.
    body = {"dry_run": False, "dag_run_id": run_id, "task_ids": ["snapshot"], "include_downstream": True}
    desk.airflow.call_api("POST", f"/api/v2/dags/{dag_id}/clearTaskInstances", {**body, "only_failed": False})
    ended(desk, dag_id, run_id, "failed")
    assert "Airflow still shows the request from before approve was cleared" in logged(desk, dag_id, run_id, "approve")


def approve(desk: Desk, dag_id: str, topic: str) -> tuple[str, dict[str, Any]]:
    """One of those who may approves exactly the plan that is shown. Returns its digest, and what was reported."""
    run_id = desk.trigger(dag_id, DRAIN, "admin")
    request = asked(desk, dag_id, run_id)
    digest = desk.xcom(dag_id, run_id, "plan")["digest"]
    assert digest in request["body"]
    assert all(word in request["body"] for word in ("predicted duration", "replicas in", f"{topic}-0"))
    assert [user["id"] for user in request["assigned_users"]] == ["ann"]
    with pytest.raises(AirflowFailed, match="is not a respondent for the task"):
        respond(desk, dag_id, run_id, "Approve", user="admin")
    # While it waits, too: the answer is given where the plan is looked at.
    run = urllib.parse.quote(run_id, safe="")
    links = desk.airflow.call_api("GET", f"/api/v2/dags/{dag_id}/dagRuns/{run}/taskInstances/approve/links")
    assert links["extra_links"] == {"Plan": f"/kafka-steward/plan?conn={desk.conn_id}&digest={digest}"}
    answer(desk, dag_id, run_id, "Approve", "rack move")
    return digest, reported(desk, dag_id, run_id)


def test_a_person_drains_a_broker_approves_the_plan_and_it_is_empty(
    desk: Desk, kraft_sandbox: Sandbox, opened: ClusterSession, topic: str
) -> None:
    rebalance, eyes = f"rebalance_{desk.conn_id}", f"eyes_{desk.conn_id}"
    kraft_sandbox.create_topics(topic, assignments=BEFORE)
    kraft_sandbox.fill(topic, 2_000_000)
    desk.add_dags("rebalance", DAG.format(conn_id=desk.conn_id), rebalance, eyes, by_spark=[rebalance])
    assert "5 is greater than the maximum of 1" in refused(desk, rebalance, {"tolerance": 5})

    refused_by_the_first_task(desk, rebalance, {**DRAIN, "approve_above": 10**18}, "has no parameter 'approve_above'")
    refused_by_the_first_task(desk, rebalance, {"operation": "drain"}, "Name the brokers to drain.")

    reject_and_clear(desk, rebalance)
    assert opened.journal.plans.latest(1) == []
    digest, facts = approve(desk, eyes, topic)
    assert (facts["status"], facts["empty"], facts["not_done_count"]) == ("completed", True, 0)
    assert "Broker 4 is empty in Kafka and cordoned. Next: stop it, and" in facts["sentence"]
    assert not any("4" in replicas.split(",") for replicas in described(kraft_sandbox, topic))
    (row,) = opened.journal.audit.rows(plan=digest, action="approve")
    assert (row.entry.who.person, row.entry.reason) == ("ann", "approved: rack move")

    # Nothing is left to be drained: a success that says so, and nobody is asked.
    third = desk.trigger(rebalance, DRAIN, "admin")
    facts = reported(desk, rebalance, third)
    assert (facts["status"], facts["empty"]) == ("nothing", True)
    assert facts["sentence"].startswith("Nothing to do. Broker 4 already holds no replica.")
    assert lift_cordon(kraft_sandbox, 4)
