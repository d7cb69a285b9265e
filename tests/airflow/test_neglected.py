"""Every workflow as a DAG in a real Airflow, on a cluster as years leave it (see tests/kafka/test_neglected.py).

The tests build on one another, in this order, on one cluster in each mode.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.execution.topics.pending import record_pending
from kafka_steward.hooks.session import ClusterSession
from kafka_steward.journal.audit import Actor
from kafka_steward.journal.records import PendingReplicas
from kafka_steward.sandbox.airflow import AirflowFailed, LocalAirflow
from kafka_steward.sandbox.neglected import FULL_DISK, GHOSTS, JOINED, STUCK, Neglected
from tests.airflow.conftest import DONE, Desk
from tests.airflow.people import answer, asked, ended
from tests.cordons import lift_cordon
from tests.eventually import eventually
from tests.neglected import CANARY, DELETED, LEFT, SETTINGS, Seen, assert_as_others_left_it

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

DAGS = """\
# All Airflow DAGs of one cluster.
from kafka_steward.dags import apply, cancel, fill, heal, health, rebalance

health(conn_id="{conn_id}")
for workflow in (apply, cancel, fill, heal, rebalance):
    workflow(conn_id="{conn_id}", deferrable={deferrable})
"""
#: The task whose result says what was done.
LAST = {"health": "health", "cancel": "cancel"}
ASKING = ("apply", "rebalance")
#: What a plan for the whole cluster leaves as it is.
NAMED = {*LEFT, "foreign-0"}


class Workflows(Seen):
    """The workflows of the cluster, and what Kafka says."""

    def __init__(self, desk: Desk, opened: ClusterSession) -> None:
        super().__init__(opened.cluster)
        self.desk, self.journal = desk, opened.journal
        #: The last request for an approval.
        self.asked: Any = None

    def dag(self, workflow: str) -> str:
        return f"{workflow}_{self.desk.conn_id}"

    def begin(self, workflow: str, **conf: Any) -> str:
        """Trigger it, and approve the plan if it is one that asks."""
        dag_id = self.dag(workflow)
        self.desk.pause(dag_id, paused=False)
        run_id = self.desk.trigger(dag_id, conf, "admin")
        if workflow in ASKING:
            self.asked = asked(self.desk, dag_id, run_id)
            answer(self.desk, dag_id, run_id, "Approve", "looked at")
        return run_id

    def report(self, workflow: str, run_id: str, state: str = "success") -> dict[str, Any]:
        """What a run reports once it has ended, as it should."""
        ended(self.desk, self.dag(workflow), run_id, state)
        return dict(self.desk.xcom(self.dag(workflow), run_id, LAST.get(workflow, "report")))

    def run(self, workflow: str, **conf: Any) -> dict[str, Any]:
        return self.report(workflow, self.begin(workflow, **conf))

    def started_by_itself(self, workflow: str, number: int, state: str = "success") -> dict[str, Any]:
        """What the run of that number reports, of those that an event has started and that found something to do."""
        self.desk.pause(self.dag(workflow), paused=False)
        run = eventually(lambda: self.reporting(workflow)[number], within=400, every=2, errors=(AirflowFailed,))
        self.desk.pause(self.dag(workflow), paused=True)
        assert run["run_type"] == "asset_triggered"
        return self.report(workflow, run["dag_run_id"], state)

    def reporting(self, workflow: str) -> list[Any]:
        """Its runs that were not skipped, as there was nothing to do."""
        dag_id = self.dag(workflow)
        runs = self.desk.runs(dag_id)
        return [run for run in runs if self.desk.tasks(dag_id, run["dag_run_id"]).get("report") in DONE]


@pytest.fixture(scope="module")
def workflows(airflow: LocalAirflow, neglected: Neglected) -> Iterator[Workflows]:
    name = f"neglected_{neglected.sandbox.mode}"
    journal = f"sqlite:///{airflow.home}/kafka_steward/{name}.db"
    desk = Desk(airflow, name, neglected.sandbox.bootstrap, journal, extra=SETTINGS)
    desk.configure()
    # The plans wait in the triggerer in one mode, and in the worker in the other one.
    dags = DAGS.format(conn_id=name, deferrable=neglected.sandbox.mode == "kraft")
    desk.add_dags(name, dags, *(f"{workflow}_{name}" for workflow in (*LAST, *ASKING, "fill", "heal")))
    with desk.opened() as opened:
        yield Workflows(desk, opened)
    (airflow.dags / f"{name}.py").unlink()


def test_health_is_reported_and_is_no_failure_of_the_run(workflows: Workflows) -> None:
    facts = workflows.run("health")
    assert not facts["healthy"]
    measures = [facts["measures"][f"{name}_partitions"] for name in ("under_replicated", "offline", "reassigning")]
    # With ZooKeeper, the last replica in sync stays in the ISR when its broker dies.
    assert measures == [8 if workflows.cluster.zookeeper_mode else 9, 1, 1]


def test_the_ghosts_are_healed_and_what_is_lost_is_named_once(workflows: Workflows) -> None:
    facts = workflows.started_by_itself("heal", 0, "failed")
    assert facts["sentence"].startswith("Not all of brokers 8 and 9 were healed"), facts
    assert [facts["sentence"].count(name) for name in ("lost-0", "wide-0")] == [1, 1], facts
    assert (facts["brokers"], workflows.behind()) == ([*GHOSTS], LEFT)
    assert {name for ghost in GHOSTS for name in workflows.holds(ghost)} == {"lost-0", "wide-0"}


def test_the_cluster_is_balanced_without_what_is_not_to_move(workflows: Workflows) -> None:
    still = {topic: workflows.at(topic) for topic in (CANARY, "stuck", "wide", "lost")}
    facts = workflows.run("rebalance", when_busy="wait")
    assert_moved(workflows, facts, *NAMED)
    assert {topic: workflows.at(topic) for topic in still} == still
    assert workflows.behind() == LEFT


def test_a_broker_is_drained_of_all_that_can_be_moved(workflows: Workflows, neglected: Neglected) -> None:
    facts = workflows.run("rebalance", operation="drain", brokers=[6], when_busy="wait")
    assert_moved(workflows, facts, "wide-0")
    assert "drain broker 6:" in workflows.asked["subject"]
    assert ", set by someone else |" in workflows.asked["body"]
    assert " wide-0 is still assigned there; drain again once nothing keeps it there" in facts["sentence"], facts
    assert workflows.holds(6) == {"wide-0"}
    assert lift_cordon(neglected.sandbox, 6) != workflows.cluster.zookeeper_mode


def test_a_replication_factor_is_raised(workflows: Workflows) -> None:
    request = {"operation": "set-replication-factor", "topics": ["scratch"], "replication_factor": 2}
    facts = workflows.run("rebalance", **request, when_busy="wait")
    assert_moved(workflows, facts)
    assert {len(replicas) for replicas in workflows.at("scratch").values()} == {2}


def test_an_assignment_is_applied_and_a_lost_partition_of_it_is_left(workflows: Workflows) -> None:
    wanted = {"large": other_last(workflows, "large"), "lost": [1]}
    facts = workflows.run("apply", reassignment=reassignment(wanted))
    assert_moved(workflows, facts, "lost-0")
    assert workflows.at("large")[0] == tuple(wanted["large"])


def test_pending_replicas_are_added(workflows: Workflows) -> None:
    pending = PendingReplicas.from_brokers(workflows.at("scratch")[5], 3)
    record_pending(workflows.journal, {TopicPartition("scratch", 5): pending}, "asked for", Actor(person="ada"))
    facts = workflows.started_by_itself("fill", 0)
    assert facts["sentence"] == "Filled 1 replica of 1 partition. No replica is pending."
    assert len(workflows.at("scratch")[5]) == 3


def test_a_plan_is_cancelled_and_rolled_back_in_the_middle(workflows: Workflows) -> None:
    before = {topic: workflows.at(topic) for topic in ("large", "scratch")}
    wanted = {topic: other_last(workflows, topic) for topic in before}
    run_id = workflows.begin("apply", reassignment=reassignment(wanted), throttle=20_000)
    eventually(lambda: {str(name): name for name in workflows.cluster.reassignments()}["large-0"], within=120)
    cancelled = workflows.run("cancel", scope="plan", reason="too slow")
    assert (cancelled["as_before"], cancelled["left_alone_count"]) == (True, 0)
    assert {topic: workflows.at(topic) for topic in before} == before
    assert "was cancelled by admin (too slow)" in workflows.report("apply", run_id)["sentence"]


def test_one_more_death_is_healed_and_what_others_left_is_as_it_was(workflows: Workflows, neglected: Neglected) -> None:
    neglected.sandbox.kill(2)
    # Neither is repaired while others are dead, or move it.
    facts = workflows.started_by_itself("heal", 1, "failed")
    assert facts["brokers"] == [2]
    assert facts["sentence"].startswith("Not all of broker 2 was healed: "), facts
    assert facts["sentence"].count("wide-0") == 1, facts
    assert workflows.holds(2) == {"wide-0", "foreign-0"}
    assert LEFT <= workflows.behind() <= NAMED
    assert len(workflows.reporting("heal")) == 2
    assert_as_others_left_it(neglected)


def assert_moved(workflows: Workflows, facts: dict[str, Any], *left: str) -> None:
    """All but what is left, which the request for an approval and the report name once each, with the reason."""
    # With ZooKeeper, a broker that was paused while a topic was deleted goes on to show it, and may be the one asked.
    gone = {name for name, _ in facts["not_done"]} & DELETED
    assert (facts["status"], facts["not_done_count"]) == ("completed", len(gone))
    completed = re.search(r"completed: (\d+) partitions? (?:was|were) moved\.(.*?)(?: lists |$)", facts["sentence"])
    assert completed, facts
    assert int(completed[1]) == facts["partitions"]
    for name in left:
        counts = (workflows.asked["body"].count(f"- {name}: "), completed[2].count(name))
        assert counts == (1, 1), (name, facts, workflows.asked)


def other_last(workflows: Workflows, topic: str) -> list[int]:
    """The replicas of its first partition, the last one on a broker that has none."""
    replicas = workflows.at(topic)[0]
    return [*replicas[:-1], next(broker for broker in (FULL_DISK, JOINED, STUCK) if broker not in replicas)]


def reassignment(wanted: dict[str, list[int]]) -> dict[str, Any]:
    first = [{"topic": topic, "partition": 0, "replicas": replicas} for topic, replicas in wanted.items()]
    return {"version": 1, "partitions": first}
