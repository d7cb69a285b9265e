"""The fill DAG in a real Airflow, on real clusters: started by the broker that joins, and by a person (KIP-409)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka_steward.hooks.session import ClusterSession
from kafka_steward.journal.records import PENDING_REPLICAS
from kafka_steward.sandbox import Sandbox
from tests.airflow.conftest import DONE, Desk
from tests.eventually import eventually
from tests.lost_brokers import lose
from tests.simulated_plan import pending_partitions

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow]

DAGS = """\
# Airflow DAGs of one cluster: the fill, and one that makes a topic and waits for the broker.
from airflow.sdk import DAG
from kafka_steward.dags import fill
from kafka_steward.operators.topics import CreatePartitionsOperator, CreateTopicOperator
from kafka_steward.sensors.brokers import BrokerJoinSensor
fill(conn_id="{conn_id}")
with DAG("topics_{conn_id}", schedule=None) as dag:
    allowed = {{"enable_under_replicated_topic_creation": True}}
    topic = CreateTopicOperator(
        task_id="create", conn_id="{conn_id}", topic="{topic}", partitions=3, replication_factor=4, settings=allowed
    )
    more = CreatePartitionsOperator(task_id="grow", conn_id="{conn_id}", topic="{topic}", count=4)
    topic >> more >> BrokerJoinSensor(task_id="joined", conn_id="{conn_id}")
"""
TOPICS = "org.apache.kafka.tools.TopicCommand"
TASKS = ["find_pending", "plan", "submit", "report"]


@pytest.fixture
def opened(desk: Desk) -> Iterator[ClusterSession]:
    # Nothing heals by itself, so that the only runs are those of this test.
    desk.configure(heal_failure_interval=-1, heal_retry_interval=3600)
    with desk.opened() as opened:
        yield opened


@pytest.mark.in_ci("zookeeper")
def test_a_broker_that_joins_starts_the_fill_which_creates_the_pending_replicas(
    desk: Desk, sandbox: Sandbox, opened: ClusterSession, topic: str
) -> None:
    fill, topics = f"fill_{desk.conn_id}", f"topics_{desk.conn_id}"
    desk.add_dags("fill", DAGS.format(conn_id=desk.conn_id, topic=topic), fill, topics)
    sandbox.create_topics(f"{topic}-before", assignments={0: (1, 2, 3, 4)})  # by which broker 4 is known
    lose(sandbox, 4)
    eventually(lambda: assert_live(opened, 1, 2, 3), within=60)
    desk.pause(fill, paused=False)
    desk.pause(topics, paused=False)
    made = desk.trigger(topics, {}, "ann")
    eventually(lambda: assert_state(desk, topics, made, "grow", "success"), within=240)
    assert desk.xcom(topics, made, "create")["pending"] == 3
    assert pending_partitions(opened.journal, topic) == [0, 1, 2, 3]
    assert desk.runs(fill) == [], "no live broker can host the pending replicas"

    sandbox.restart(4)
    run = desk.ended(fill, 0)
    states = desk.tasks(fill, run["dag_run_id"])
    assert (run["state"], run["run_type"]) == ("success", "asset_triggered"), {
        task: desk.log(fill, run["dag_run_id"], task)[-2000:] for task, state in states.items() if state == "failed"
    }
    assert [states[task] for task in TASKS] == ["success"] * len(TASKS)
    report = desk.xcom(fill, run["dag_run_id"], "report")
    assert (report["pending"], report["partitions"], report["replicas_moved"], report["lower_bound"]) == (0, 4, 4, 4)
    assert report["sentence"] == "Filled 4 replicas of 4 partitions. No replica is pending."
    assert opened.journal.rows(PENDING_REPLICAS).all() == []
    assert described(sandbox, topic) == [{"1", "2", "3", "4"}] * 4
    eventually(lambda: assert_state(desk, topics, made, "joined", "success", "deferred"), within=60)

    by_hand = desk.trigger(fill, {}, "ann")
    eventually(lambda: assert_state(desk, fill, by_hand, "report", "skipped"), within=240)
    assert "No replica is pending." in desk.log(fill, by_hand, "find_pending")
    desk.airflow.call_api("PATCH", f"/api/v2/dags/{topics}/dagRuns/{made}", {"state": "success"})


def assert_state(desk: Desk, dag_id: str, run_id: str, task: str, *states: str) -> None:
    found = desk.tasks(dag_id, run_id)
    assert found.get(task) in states, {
        each: (state, desk.log(dag_id, run_id, each)[-1500:]) for each, state in found.items() if state in DONE
    } or found


def assert_live(opened: ClusterSession, *brokers: int) -> None:
    assert set(opened.cluster.live_brokers()) == set(brokers)


def described(sandbox: Sandbox, topic: str) -> list[set[str]]:
    """Replicas by partition, as Kafka's own tool prints them."""
    text = sandbox.kafka_tool(TOPICS, "--bootstrap-server", sandbox.bootstrap, "--describe", "--topic", topic)
    lines = [line.split("\t") for line in text.splitlines() if "Partition: " in line]
    return [set(next(word[10:] for word in line if word.startswith("Replicas: ")).split(",")) for line in lines]
