"""What is broken for good stops nothing: the tasks of workflows on clusters with brokers that will never return."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from kafka_steward.assignment import TopicPartition
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.watch.failure_detector import DetectionResult, FailureDetector, report_broker
from kafka_steward.journal.observed import CheckState
from kafka_steward.operators.checks import ClusterReadyOperator
from kafka_steward.operators.failures import FindFailuresOperator
from kafka_steward.operators.plan import PlanReassignmentOperator
from kafka_steward.operators.plan_folders import read_plan_page
from kafka_steward.operators.rebalance import PlanRebalanceOperator
from kafka_steward.operators.report import ReportPlanOperator
from kafka_steward.operators.snapshot import SnapshotClusterOperator
from kafka_steward.operators.submit import SubmitReassignmentOperator
from kafka_steward.sensors.replication import IsrCatchUpSensor
from kafka_steward.settings import Settings
from tests.airflow_home import context
from tests.operators.simulated import CONN_ID, Cluster, MakeCluster
from tests.simulated_plan import WHO
from tests.simulator import DISK

RULES: dict[str, Any] = {"heal_failure_interval": 5, "step_interval": 0.1, "min_free": 0}
TRIES = itertools.count(1)


@pytest.fixture(params=["zookeeper", "kraft"])
def cluster(request: pytest.FixtureRequest, make_cluster: MakeCluster, plans_in_process: None) -> Cluster:
    """Seven brokers, of which 6 and 7 alone host a topic each, and are gone."""
    made = make_cluster(
        "1a 2b 3c 4a 5b 6c 7c", "x: 123 234 345 451 512", "old-a: 7", "old-b: 6", mode=request.param, **RULES
    )
    fail(made, 6, 7)
    return made


def fail(cluster: Cluster, *brokers: int) -> None:
    for broker in brokers:
        cluster.kill(broker)
    look(cluster)
    cluster.tick(6)


def join(cluster: Cluster, broker: int) -> None:
    cluster.racks[broker], cluster.broker_settings[broker] = "c", {}
    cluster.alive.add(broker)


def look(cluster: Cluster) -> DetectionResult:
    """Poll as the watch does."""
    return FailureDetector(cluster, cluster.journal, Settings(throttle=0, **RULES), WHO).poll()


def find(**given: Any) -> dict[str, Any]:
    """Execute the first task of a heal; `conf` are the parameters of its run."""
    run = context(params=given.pop("conf", {}), try_number=next(TRIES))
    return FindFailuresOperator(task_id="find_failures", conn_id=CONN_ID, snapshot=True, **given).execute(run)


def submit(cluster: Cluster, made: dict[str, Any], snapshot: dict[str, Any], **more: Any) -> dict[str, Any]:
    operator = SubmitReassignmentOperator(
        task_id="submit", plan=made, snapshot=snapshot, deferrable=False, conn_id=CONN_ID, **more
    )
    operator._wait_unless_killed = lambda *_: cluster.tick()  # type: ignore[method-assign]  # time passes, simulated
    return operator.execute(context())


def heal(cluster: Cluster, *, meanwhile: Callable[[], object] = lambda: None, **given: Any) -> dict[str, Any]:
    """Execute the tasks of a heal; return the report, also that of a heal that fails.

    `meanwhile` happens once it has been planned.
    """
    found = find(**given)
    shared: dict[str, Any] = {"conn_id": CONN_ID}
    made = PlanReassignmentOperator(task_id="plan", snapshot=found, **shared).execute(context(try_number=next(TRIES)))
    meanwhile()
    done = submit(cluster, made, found, named_brokers=given.get("brokers"))
    run = context()
    report = ReportPlanOperator(
        task_id="report", verify="heal", plan=made, submitted=done, brokers=found["brokers"], **shared
    )
    try:
        return report.execute(run)
    except AirflowFailException:
        return dict(run["ti"].xcoms["return_value"])


def test_brokers_that_are_gone_for_good_keep_no_other_from_being_healed(cluster: Cluster) -> None:
    assert heal(cluster)["brokers"] == [6, 7]
    look(cluster)
    cluster.tick(3600)
    cluster.journal.plans.purge(cluster.now_ms)
    assert cluster.journal.plans.latest(1) == [], "plan_retention is over"
    fail(cluster, 3)
    seen, rack = look(cluster), " (no broker of rack c is live)" if not cluster.zookeeper_mode else ""
    assert (seen.outage, seen.failed, seen.handled) == (False, (3,), (6, 7))
    old = (
        "Not counted towards an outage: brokers 6 and 7 (the last heal left only partitions that no further one would "
        "repair). Bring such a broker back with its data, delete or restore the topics of its partitions, if that "
        "is not under way already, or have it healed again: airflow kafka-steward failed 6 "
        f"--cluster {CONN_ID}."
    )
    assert seen.sentence == (
        f"Brokers 3, 6 and 7 are down{rack} longer than the grace period: broker 3 will be healed. {old}"
    )
    healed = heal(cluster)
    assert (healed["brokers"], cluster.replicas()["x-0"]) == ([3], (1, 2, 5))
    assert healed["sentence"].startswith(
        "Healed broker 3: 3 replicas of 3 partitions moved. Every partition of the cluster that a plan can repair is "
        "fully replicated. Left out: 2 partitions (old-a-0 and 1 more) without a live replica: bring back a broker or"
    )
    seen = look(cluster)
    assert (seen.sentence, seen.state) == (f"Brokers 6 and 7 are down. {old}", CheckState.NOT_HEALED)
    join(cluster, 8)
    assert look(cluster).failed == (), "it has nothing to copy from"
    cluster.restart(7)
    cluster.tick()
    look(cluster)
    fail(cluster, 7)
    seen = look(cluster)
    assert (seen.failed, list(seen.not_counted)) == ((7,), [6, 7]), "it was live, and is alone with its partition"


def test_lost_partitions_keep_no_rebalance_from_starting_and_no_broker_from_being_drained(cluster: Cluster) -> None:
    heal(cluster)
    gate = ClusterReadyOperator(task_id="gate", conn_id=CONN_ID)
    assert gate.execute(context()) == (
        "All that a plan can repair is fully replicated, and nothing of ours is in flight. Left out: 2 partitions "
        "(old-a-0 and 1 more) without a live replica: bring back a broker or a failed log directory that has one, with "
        "its data, or delete or restore the topic, if that is not under way already."
    )
    sensor = IsrCatchUpSensor(task_id="wait", conn_id=CONN_ID)
    assert sensor.execute(context()) == {"partitions": 5, "missing": 0}
    taken = SnapshotClusterOperator(task_id="snapshot", conn_id=CONN_ID, draining_brokers=[1]).execute(context())
    plan = PlanRebalanceOperator(
        task_id="plan", snapshot=taken, request={"operation": "drain", "brokers": [1]}, conn_id=CONN_ID
    )
    assert submit(cluster, plan.execute(context()), taken)["status"] == "completed"
    assert not [name for name, replicas in cluster.replicas().items() if 1 in replicas]
    cluster.kill(3)
    with pytest.raises(
        AirflowSkipException, match=r"The cluster is not ready: broker 3 is not live \(heal or restart it\); x-"
    ):
        gate.execute(context())


@pytest.mark.parametrize("drained", [[], [4]], ids=["rebalance", "drain"])
def test_a_lost_partition_is_left_by_the_plan_only_if_the_plan_had_to_change_it(
    make_cluster: MakeCluster, plans_in_process: None, drained: list[int]
) -> None:
    """With the drain, the broker that dies is another one than the drained one, which has a replica of it."""
    cluster = make_cluster("1a 2b 3c 4a 5b", "t: 12 12 12 24", mode="kraft", **RULES)
    cluster.create("old", [(5, 4) if drained else (5,)])
    cluster.lose(5)
    lost = cluster.topics[TopicPartition("old", 0)]
    lost.isr, lost.leader = {5}, None
    taken = SnapshotClusterOperator(task_id="snapshot", conn_id=CONN_ID, draining_brokers=drained).execute(context())
    request = {"operation": "drain" if drained else "rebalance", "brokers": drained}
    made = PlanRebalanceOperator(task_id="plan", snapshot=taken, request=request, conn_id=CONN_ID).execute(context())
    page = read_plan_page(made) or ""
    assert (made["unplaced"], made["partitions"] > 0, "\n- old-0: " in page) == (len(drained), True, True)
    submitted = submit(cluster, made, taken)
    report = ReportPlanOperator(task_id="report", plan=made, submitted=submitted, conn_id=CONN_ID).execute(context())
    assert (submitted["status"], submitted["left"]) == ("completed", len(drained))
    assert ("left by the plan" in submitted["sentence"]) is bool(drained)
    assert ("1 partition could not be placed" in report["sentence"]) is bool(drained)


def test_a_heal_that_would_leave_the_same_again_says_so_at_the_first_look_and_is_not_planned_again(
    make_cluster: MakeCluster, plans_in_process: None
) -> None:
    cluster = make_cluster("1a 2b 3c 4a", "t: 123 231", mode="kraft", **{**RULES, "min_free": 0.15, "max_attempts": 4})

    def fill() -> None:
        cluster.create("huge", [(4,)], size=int(DISK * 0.9))

    fail(cluster, 1)
    began_ms = cluster.now_ms
    sentences = [heal(cluster, meanwhile=fill)["sentence"]]
    took_ms = cluster.now_ms - began_ms
    assert look(cluster).failed == (1,), "somebody may make room"
    cluster.delete("huge")
    began_ms = cluster.now_ms
    sentences.append(heal(cluster, meanwhile=fill)["sentence"])
    assert (took_ms, cluster.now_ms - began_ms) == (4000, 1000)
    again = (
        "The heal before left the same partitions for the same targets; they are planned again after a day, when a "
        f"broker joins, or when the failure is reported: airflow kafka-steward failed 1 --cluster {CONN_ID}."
    )
    assert [again in sentence for sentence in sentences] == [False, True]
    assert sentences[1].startswith("Not all of broker 1 was healed: of 2 partitions due, 0 were repaired and 2 ")
    with pytest.raises(
        AirflowSkipException, match=r"Nothing is to be healed now\. Broker 1 is down\. Not counted towards"
    ):
        find()
    cluster.delete("huge")
    desk = ClusterContext(cluster, cluster.journal, Settings(**RULES), WHO)
    assert report_broker(desk, 1, reason="there is room").startswith("Broker 1 is reported as failed")
    assert heal(cluster)["sentence"].startswith("Healed broker 1: 2 replicas of 2 partitions moved.")


def test_what_no_broker_has_room_for_is_left_and_planned_again_after_a_day(
    make_cluster: MakeCluster, plans_in_process: None
) -> None:
    cluster = make_cluster("1a 2b 3c 4a", "t: 123 231", mode="kraft", **{**RULES, "min_free": 0.15})
    cluster.create("huge", [(4,)], size=int(DISK * 0.9))
    fail(cluster, 1)
    assert heal(cluster)["sentence"].startswith(
        "Not all of broker 1 was healed: of 2 partitions due, 0 were repaired and 2 were left by the plan. What no "
        "broker has room for is planned again after a day, when a broker joins, or when the failure is reported: "
        f"airflow kafka-steward failed 1 --cluster {CONN_ID}. 2 partitions could not be placed; review.md at "
    )
    assert look(cluster).failed == ()
    cluster.tick(86_000)
    assert look(cluster).failed == ()
    cluster.tick(1_000)
    assert look(cluster).failed == (1,), "somebody may have made room"
    cluster.delete("huge")
    assert heal(cluster)["sentence"].startswith("Healed broker 1: 2 replicas of 2 partitions moved.")


def test_in_an_outage_a_person_decides_and_the_run_says_so(make_cluster: MakeCluster, plans_in_process: None) -> None:
    cluster = make_cluster("1a 2b 3c 4a 5b 6c 7a", "x: 125 136 147", **RULES)
    fail(cluster, 5, 6, 7)
    with pytest.raises(AirflowFailException, match=r"3 of 7 brokers, more than max_failed_fraction \(0\.4\) allows"):
        find()
    assert find(brokers="6")["brokers"] == [6]
    found = find(conf={"max_failed_fraction": 0.9})
    assert found["brokers"] == [5, 6, 7]
    assert found["sentence"].endswith(
        "By the usual settings this would be an outage; this run has max_failed_fraction 0.9 in place of 0.4."
    )
    desk = ClusterContext(cluster, cluster.journal, Settings(**RULES), WHO)
    assert "It is healed all the same" in report_broker(desk, 5, reason="burnt")
    assert heal(cluster)["brokers"] == [5]
    assert (find()["brokers"], 5 in cluster.replicas()["x-0"]) == ([6, 7], False), "two of six are no outage"


def test_what_a_person_names_in_an_outage_is_healed_to_the_end(
    make_cluster: MakeCluster, plans_in_process: None
) -> None:
    given = {**RULES, "max_failed_brokers": 1, "max_failed_fraction": 1}
    cluster = make_cluster("1a 2b 3c 4a 5b 6c 7a", "x: 125 136 147", **given)
    fail(cluster, 5, 6, 7)
    assert heal(cluster, brokers="5, 6")["sentence"].startswith("Healed brokers 5 and 6: 2 replicas of 2 partitions")
