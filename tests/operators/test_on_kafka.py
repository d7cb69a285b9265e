"""Each operator and sensor on a real cluster, in the order in which a heal uses them; the worker does it all."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, DownstreamTasksSkipped, TaskDeferred

from kafka_steward.assignment import Move, TopicPartition
from kafka_steward.errors import PlanError, WrongCluster
from kafka_steward.hooks.session import ClusterSession
from kafka_steward.hooks.steward import ClusterIdPin, StewardHook
from kafka_steward.journal.audit import Action
from kafka_steward.operators.checks import CheckReassignmentOperator
from kafka_steward.operators.failures import FindFailuresOperator
from kafka_steward.operators.leaders import ElectLeadersOperator
from kafka_steward.operators.plan import PlanReassignmentOperator
from kafka_steward.operators.report import ReportPlanOperator
from kafka_steward.operators.review import ReviewPlanOperator
from kafka_steward.operators.snapshot import SnapshotClusterOperator
from kafka_steward.operators.submit import SubmitReassignmentOperator
from kafka_steward.planning.files.formats import plan_table, write_plan
from kafka_steward.sandbox import Sandbox
from kafka_steward.sensors.brokers import BrokerFailureSensor
from kafka_steward.sensors.replication import IsrCatchUpSensor
from tests.airflow_home import Connect, context
from tests.eventually import eventually


@pytest.fixture
def conn_id(connect: Connect, sandbox: Sandbox) -> str:
    return connect(host=sandbox.bootstrap, extra={"heal_failure_interval": 0, "step_interval": 0.5})


@pytest.fixture
def opened(conn_id: str) -> Iterator[ClusterSession]:
    with StewardHook(conn_id).open() as opened:
        yield opened


@pytest.fixture
def victim(sandbox: Sandbox, topic: str) -> Callable[[], int]:
    """Makes a topic of 8 partitions and kills a broker that hosts some of them; gives the broker's id."""
    sandbox.create_topics(topic, partitions=8, replication_factor=3)
    sandbox.fill(topic, 2_000_000)
    return lambda: _killed(sandbox, 4)


def _killed(sandbox: Sandbox, broker: int) -> int:
    sandbox.kill(broker)
    return broker


def found(conn_id: str, **more: Any) -> dict[str, Any]:
    return FindFailuresOperator(task_id="find_failures", conn_id=conn_id, **more).execute(context())


def planned(conn_id: str, failed: list[int]) -> dict[str, Any]:
    snapshot = SnapshotClusterOperator(task_id="snapshot", conn_id=conn_id, failed_brokers=failed).execute(context())
    plan = PlanReassignmentOperator(task_id="plan", conn_id=conn_id, snapshot=snapshot)
    return plan.execute(context())


def nothing_is_to_be_healed(conn_id: str) -> None:
    with pytest.raises(AirflowSkipException, match="Nothing is to be healed now"):
        found(conn_id)


def detected(conn_id: str, broker: int) -> None:
    """Operator and sensor find the broker, and the operator tells of it."""
    told: list[Any] = []
    failed = eventually(
        lambda: found(conn_id, on_failure_detected=told.append), within=60, errors=(AirflowSkipException,)
    )
    assert failed["brokers"] == [broker]
    assert told[0]["kafka_steward"]["event"] == "failure_detected"
    assert BrokerFailureSensor(task_id="s", conn_id=conn_id).execute(context()) == [broker]


def reviewed(conn_id: str, plan: dict[str, Any]) -> None:
    """The review logs the same plan in both modes; with `report`, the workflow stops there."""
    facts = ReviewPlanOperator(task_id="review", conn_id=conn_id, plan=plan, mode="heal").execute(context())
    assert f"moves {plan['replicas_moved']} replicas" in facts["sentence"]
    pushed = context()
    report_only: dict[str, Any] = {"mode": "report", "dag": DAG("heal", schedule=None)}
    with pytest.raises(DownstreamTasksSkipped):
        ReviewPlanOperator(task_id="review", conn_id=conn_id, plan=plan, **report_only).execute(pushed)
    assert facts["sentence"] in pushed["ti"].xcoms["return_value"]["sentence"]


def submitted(conn_id: str, plan: dict[str, Any]) -> dict[str, Any]:
    """The worker carries it out, for Ann; a second time there is nothing to do."""
    submit = SubmitReassignmentOperator(task_id="submit", conn_id=conn_id, plan=plan, deferrable=False)
    result = submit.execute(context(task_id="submit", person="ann"))
    assert (result["status"], result["left"]) == ("completed", 0)
    again = SubmitReassignmentOperator(task_id="submit", conn_id=conn_id, plan=plan)
    assert again.execute(context())["status"] == "completed"
    return result


@pytest.mark.in_ci("kraft")
@pytest.mark.ci
@pytest.mark.usefixtures("plans_in_process")
def test_a_heal_task_by_task(
    kraft_sandbox: Sandbox, conn_id: str, opened: ClusterSession, victim: Callable[[], int]
) -> None:
    nothing_is_to_be_healed(conn_id)
    assert BrokerFailureSensor(task_id="s", conn_id=conn_id).poke(context()).is_done is False
    broker = victim()
    detected(conn_id, broker)
    plan = planned(conn_id, [broker])
    assert plan["replicas_moved"] == plan["lower_bound"] > 0
    reviewed(conn_id, plan)
    assert opened.journal.plans.get(plan["digest"]) is None
    result = submitted(conn_id, plan)

    caught_up = IsrCatchUpSensor(task_id="wait", conn_id=conn_id, plan=plan["digest"]).execute(context())
    assert caught_up == {"partitions": plan["partitions"], "missing": 0}
    elected = ElectLeadersOperator(task_id="elect", conn_id=conn_id, plan=plan["digest"]).execute(context())
    assert elected["refused"] == 0
    healed: list[Any] = []
    report = ReportPlanOperator(
        task_id="report",
        conn_id=conn_id,
        verify="heal",
        brokers=[broker],
        plan=plan,
        submitted=result,
        on_done=healed.append,
    ).execute(context())
    assert (report["under_replicated"], report["left"]) == (0, 0)
    assert "Every partition of the cluster is fully replicated." in report["sentence"]
    assert healed[0]["kafka_steward"]["event"] == "healed"
    people = {row.entry.who.person for row in opened.journal.audit.rows(plan=plan["digest"], action=Action.SUBMIT)}
    assert people == {"ann"}
    nothing_is_to_be_healed(conn_id)


@pytest.mark.ci
@pytest.mark.usefixtures("plans_in_process")
def test_the_review_names_the_broker_that_will_lead_all_of_a_topic(
    sandbox: Sandbox, conn_id: str, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """By a reassignment as the workflow `apply` is given it, which moves no replica."""
    turns = itertools.cycle([[1, 2, 4], [2, 4, 1], [4, 1, 2]])
    sandbox.create_topics(topic, assignments={number: next(turns) for number in range(6)})
    given = [{"topic": topic, "partition": number, "replicas": [4, 1, 2]} for number in range(6)]
    check = CheckReassignmentOperator(
        task_id="check", conn_id=conn_id, reassignment={"version": 1, "partitions": given}
    ).execute(context())
    snapshot = SnapshotClusterOperator(task_id="snapshot", conn_id=conn_id).execute(context())
    options = {"reassignment": check["reassignment"]}
    plan = PlanReassignmentOperator(
        task_id="plan", conn_id=conn_id, snapshot=snapshot, operation="apply", options=options
    ).execute(context())
    assert plan["replicas_moved"] == 0
    capsys.readouterr()
    ReviewPlanOperator(task_id="review", conn_id=conn_id, plan=plan, snapshot=snapshot).execute(context())
    assert f"Broker 4 will be the preferred leader of all 6 partitions of {topic}." in capsys.readouterr().out


def written_plan(opened: ClusterSession, topic: str, uri: str) -> str:
    """A plan of one move, written by hand in the way of a planner; returns its digest."""
    partition = opened.cluster.snapshot([topic]).partitions[TopicPartition(topic, 0)]
    spare = min(opened.cluster.live_brokers().keys() - set(partition.replicas))
    after = (*partition.replicas[:-1], spare)
    move = Move(topic, 0, partition.replicas, after, 0, 0, "given", topic_id=partition.topic_id)
    head = {"cluster_id": opened.cluster.cluster_id, "snapshot_digest": "s", "operation": "heal", "options": {}}
    return write_plan(uri, plan_table([move]), {**head, "replicas_moved": 1, "brokers_failed": [], "unplaced": []})


@pytest.mark.in_ci("kraft")
@pytest.mark.ci
def test_a_heal_of_which_nothing_moved_fails_its_report_and_is_due_again(
    connect: Connect, sandbox: Sandbox, topic: str, tmp_path: Path
) -> None:
    # With two of four brokers dead, a busy machine finds a live one within a second only if it is lucky.
    extra: dict[str, Any] = {"heal_failure_interval": 0, "step_interval": 0.5, "bootstrap_timeout_ms": 8000}
    extra |= {"max_attempts": 2, "max_failed_fraction": 0.6}
    conn_id = connect(host=sandbox.bootstrap, extra=extra)
    sandbox.create_topics(topic, assignments={0: [1, 4], 1: [1, 4]})
    with StewardHook(conn_id).open() as opened:
        found_partitions = opened.cluster.snapshot([topic]).partitions
        moves = [
            Move(topic, number, (1, 4), (1, 2), 0, number, "broker_failed", topic_id=partition.topic_id)
            for (_, number), partition in sorted(found_partitions.items())
        ]
        head = {"cluster_id": opened.cluster.cluster_id, "snapshot_digest": "s", "operation": "heal", "options": {}}
        proof = {**head, "replicas_moved": 2, "lower_bound": 2, "brokers_failed": [4], "unplaced": []}
        digest = write_plan(f"{tmp_path}/plan", plan_table(moves), proof)
        plan = {"uri": f"{tmp_path}/plan", "digest": digest, "replicas_moved": 2, "lower_bound": 2, "partitions": 2}
        for broker in (4, 2):  # the failed one, and the target of its heal
            sandbox.kill(broker)
        eventually(lambda: _assert_live(opened, 1, 3), within=60)
        submit = SubmitReassignmentOperator(task_id="submit", conn_id=conn_id, plan=plan, deferrable=False)
        result = submit.execute(context(task_id="submit"))
        assert (result["status"], result["left"]) == ("failed", 2)
        told: list[Any] = []
        report = ReportPlanOperator(
            task_id="report", conn_id=conn_id, verify="heal", brokers=[4], plan=plan, submitted=result,
            on_not_healable=told.append,
        )  # fmt: skip
        with pytest.raises(
            AirflowFailException,
            match=r"^Not all of broker 4 was healed: of 2 partitions due, 0 were repaired",
        ):
            report.execute(context(task_id="report"))
        facts = [each["kafka_steward"] for each in told]
        assert [(each["event"], each["partitions"], each["replicas_moved"]) for each in facts] == [
            ("not_healable", 0, 0)
        ]
        due = eventually(lambda: found(conn_id), within=60, errors=(AirflowSkipException,))
        assert 4 in due["brokers"]


def _assert_live(opened: ClusterSession, *brokers: int) -> None:
    assert set(opened.cluster.live_brokers()) == set(brokers)


def edited(uri: str) -> None:
    proof = Path(uri, "proof.json")
    proof.write_text(json.dumps({**json.loads(proof.read_text()), "operation": "drain"}))


@pytest.mark.in_ci("kraft")
@pytest.mark.parametrize("form", ["task's return value", "uri"])
def test_a_plan_edited_by_hand_is_refused_and_changes_nothing(  # noqa: PLR0917 - fixtures
    sandbox: Sandbox, conn_id: str, opened: ClusterSession, topic: str, tmp_path: Path, form: str
) -> None:
    sandbox.create_topics(topic, partitions=1, replication_factor=3)
    digest, before = written_plan(opened, topic, f"{tmp_path}/plan"), opened.cluster.snapshot([topic]).partitions
    edited(f"{tmp_path}/plan")
    plan = f"{tmp_path}/plan" if form == "uri" else {"uri": f"{tmp_path}/plan", "digest": digest}
    with pytest.raises(PlanError, match="was edited after it was made"):
        SubmitReassignmentOperator(task_id="submit", conn_id=conn_id, plan=plan).execute(context())
    assert opened.cluster.snapshot([topic]).partitions == before
    assert opened.journal.plans.latest(10) == []


@pytest.mark.in_ci("kraft")
def test_a_plan_edited_with_its_digest_is_not_the_one_that_was_made(
    sandbox: Sandbox, conn_id: str, opened: ClusterSession, topic: str, tmp_path: Path
) -> None:
    sandbox.create_topics(topic, partitions=1, replication_factor=3)
    written_plan(opened, topic, f"{tmp_path}/plan")
    plan = {"uri": f"{tmp_path}/plan", "digest": "0" * 64}
    with pytest.raises(PlanError, match="is not the one that was made"):
        SubmitReassignmentOperator(task_id="submit", conn_id=conn_id, plan=plan).execute(context())
    assert opened.journal.plans.latest(10) == []


def assert_behind(wait: IsrCatchUpSensor) -> None:
    assert not wait.poke(context()).is_done


@pytest.mark.in_ci("kraft")
def test_a_deferrable_task_defers_what_takes_time(conn_id: str, topic: str, victim: Callable[[], int]) -> None:
    victim()
    wait = IsrCatchUpSensor(task_id="wait", conn_id=conn_id, partitions=[f"{topic}-{n}" for n in range(8)])
    eventually(lambda: assert_behind(wait), within=60)
    with pytest.raises(TaskDeferred) as waits:
        wait.execute(context())
    path, keywords = waits.value.trigger.serialize()
    assert path == "kafka_steward.triggers.wait.WaitTrigger"
    assert keywords["arguments"] == {"partitions": [[topic, n] for n in range(8)]}


@pytest.mark.in_ci("kraft")
def test_an_unwritable_workspace_is_one_sentence_and_changes_nothing(
    connect: Connect, conn_id: str, sandbox: Sandbox
) -> None:
    connect(host=sandbox.bootstrap, extra={"workspace": "/proc/kafka-steward"})
    with pytest.raises(PlanError, match=r"^The workspace cannot be written: .*/proc/kafka-steward"):
        SnapshotClusterOperator(task_id="snapshot", conn_id=conn_id).execute(context())


def test_the_test_button_describes_the_cluster(conn_id: str, sandbox: Sandbox, opened: ClusterSession) -> None:
    mode = {"kraft": "KRaft", "zookeeper": "ZooKeeper"}[sandbox.mode]
    said = f"Cluster {opened.cluster.cluster_id} in {mode} mode answers; live brokers: 1, 2, 3, 4."
    assert StewardHook(conn_id).test_connection() == (True, said)


@pytest.mark.in_ci("kraft")
def test_another_cluster_behind_the_same_servers_is_refused(
    connect: Connect, conn_id: str, sandbox: Sandbox, opened: ClusterSession
) -> None:
    hook = StewardHook(conn_id)
    ClusterIdPin(hook.access.journal).set(hook.access, "the-cluster-that-was-here")
    with pytest.raises(WrongCluster, match="the-cluster-that-was-here"):
        StewardHook(conn_id).cluster()
    connect(host=sandbox.bootstrap, extra={"cluster_id": opened.cluster.cluster_id})
    StewardHook(conn_id).cluster().close()


@pytest.mark.in_ci("kraft")
def test_a_kafka_connection_is_reused(connect: Connect, sandbox: Sandbox, opened: ClusterSession) -> None:
    connect("plain_kafka", conn_type="kafka", host="", extra={"bootstrap.servers": sandbox.bootstrap, "group.id": "g"})
    connect("by_reference", host="", extra={"kafka_conn_id": "plain_kafka"})
    with StewardHook("by_reference").cluster() as cluster:
        assert cluster.cluster_id == opened.cluster.cluster_id
