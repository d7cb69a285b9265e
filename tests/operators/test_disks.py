"""Disks and hidden topics, as the tasks of a heal and of `health` see them: by the settings of the connection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from kafka_steward.assignment import TopicPartition
from kafka_steward.operators.failures import FindFailuresOperator, ReportFailureOperator
from kafka_steward.operators.health import ReportHealthOperator
from kafka_steward.operators.snapshot import SnapshotClusterOperator
from kafka_steward.planning.files.formats import read_snapshot
from tests.airflow_home import context
from tests.operators.simulated import CONN_ID, Cluster, MakeCluster, gauges, make_cluster

__all__ = ["gauges", "make_cluster"]


def cluster(make_cluster: MakeCluster, tmp_path: Path, **settings: Any) -> Cluster:
    given = {"workspace": str(tmp_path), "heal_failure_interval": 0, "max_failed_fraction": 0.5, **settings}
    made = make_cluster("1a 2b 3c 4a", "t: 123 231", **given)
    made.fail_disk(2, TopicPartition("t", 0))
    return made


def test_a_heal_takes_up_a_failed_log_directory_if_the_connection_says_so(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    cluster(make_cluster, tmp_path, heal_failed_disks=True)
    found = FindFailuresOperator(task_id="find_failures", conn_id=CONN_ID).execute(context())
    assert found["brokers"] == [2]
    taken = SnapshotClusterOperator(task_id="snapshot", conn_id=CONN_ID, failed_brokers=[2]).execute(context())
    snapshot = read_snapshot(taken["uri"])
    assert snapshot.partitions["offline"].to_pylist() == [[2], None]
    assert {row["broker"]: row["state"] for row in snapshot.brokers.to_pylist()}[2] == "live"


def test_what_is_found_is_in_the_snapshot_that_the_same_task_takes(make_cluster: MakeCluster, tmp_path: Path) -> None:
    cluster(make_cluster, tmp_path).kill(3)
    notified: list[Any] = []
    find = FindFailuresOperator(task_id="find", conn_id=CONN_ID, snapshot=True, on_failure_detected=notified.append)
    found = find.execute(context())
    snapshot = read_snapshot(found["uri"])
    assert snapshot.digest == found["digest"]
    states = {row["broker"]: row["state"] for row in snapshot.brokers.to_pylist()}
    assert {broker for broker, state in states.items() if state == "failed"} == set(found["brokers"]) == {3}
    assert len(notified) == 1


def test_people_are_notified_once_although_the_snapshot_takes_a_retry(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    made = cluster(make_cluster, tmp_path)
    made.kill(3)
    made.create("secret", [(1, 3)])
    made.hidden.add("secret")
    notified: list[Any] = []
    find = FindFailuresOperator(task_id="find", conn_id=CONN_ID, snapshot=True, on_failure_detected=notified.append)
    with pytest.raises(AirflowFailException, match="does not let us describe secret"):
        find.execute(context())
    made.hidden.clear()
    find.execute(context())
    assert len(notified) == 1


def test_a_heal_leaves_it_alone_and_names_it_by_default(make_cluster: MakeCluster, tmp_path: Path) -> None:
    cluster(make_cluster, tmp_path)
    with pytest.raises(AirflowSkipException, match=r"log directory /disk-2 has failed, with 1 replicas; they are not"):
        FindFailuresOperator(task_id="find_failures", conn_id=CONN_ID).execute(context())
    taken = SnapshotClusterOperator(task_id="snapshot", conn_id=CONN_ID, failed_brokers=[2]).execute(context())
    assert read_snapshot(taken["uri"]).partitions["offline"].null_count == 2


def test_a_reported_log_directory_is_healed_by_default(make_cluster: MakeCluster, tmp_path: Path) -> None:
    made = cluster(make_cluster, tmp_path, heal_failure_interval=600)
    report = ReportFailureOperator(
        task_id="report", conn_id=CONN_ID, broker="2", log_dirs=["/disk-2"], reason="it clicks"
    )
    assert report.execute(context()).startswith("The log directory /disk-2 of broker 2 is reported as failed")
    found = FindFailuresOperator(task_id="find_failures", conn_id=CONN_ID).execute(context())
    assert found["brokers"] == [2]
    made.kill(3)
    taken = SnapshotClusterOperator(task_id="snapshot", conn_id=CONN_ID, failed_brokers=[2, 3]).execute(context())
    snapshot = read_snapshot(taken["uri"])
    assert snapshot.partitions["offline"].to_pylist() == [[2], None]
    states = {row["broker"]: row["state"] for row in snapshot.brokers.to_pylist()}
    assert (states[2], states[3]) == ("live", "failed")


def test_a_reported_broker_is_found_at_once_and_a_live_one_is_refused_for_good(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    made = cluster(make_cluster, tmp_path, heal_failure_interval=600)
    made.kill(3)
    told = ReportFailureOperator(task_id="report", conn_id=CONN_ID, broker=3).execute(context())
    assert told.startswith("Broker 3 is reported as failed")
    assert FindFailuresOperator(task_id="find_failures", conn_id=CONN_ID).execute(context())["brokers"] == [3]
    for broker, words in ((1, "Broker 1 was not reported as failed: it is live"), ("one", "'one' is not a broker id")):
        with pytest.raises(AirflowFailException, match=words):
            ReportFailureOperator(task_id="report", conn_id=CONN_ID, broker=broker).execute(context())


def test_a_hidden_topic_fails_the_snapshot_for_good_and_is_counted_by_health(
    make_cluster: MakeCluster, tmp_path: Path, gauges: dict[str, tuple[float, object]]
) -> None:
    made = cluster(make_cluster, tmp_path)
    made.create("secret", [(1, 3)])
    made.hidden.add("secret")
    with pytest.raises(
        AirflowFailException, match=r"describe secret, and a plan would omit the replicas of secret on brokers 1 and 3"
    ):
        SnapshotClusterOperator(task_id="snapshot", conn_id=CONN_ID).execute(context())
    facts = ReportHealthOperator(task_id="health", conn_id=CONN_ID).execute(context())
    assert facts["above"] == ["under_replicated_partitions", "failed_log_dirs", "hidden_topics"]
    assert gauges["kafka_steward.cluster.hidden_topics"][0] == 1
    assert gauges["kafka_steward.cluster.failed_log_dirs"][0] == 1
