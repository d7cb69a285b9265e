"""The rebalance DAG in a real Airflow, on a real cluster: refused, rejected, approved, and with nothing left to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kafka_steward.hooks.steward import Opened
from kafka_steward.sandbox import Sandbox
from kafka_steward.sandbox.airflow import AirflowFailed
from tests.airflow.conftest import Desk
from tests.airflow.people import answer, asked, reported

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.ci]

DAG = """\
# An Airflow DAG of one cluster.
from kafka_steward.dags import rebalance
rebalance(conn_id="{conn_id}")
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
    desk.add_dags("rebalance", DAG.format(conn_id=desk.conn_id), rebalance)
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
