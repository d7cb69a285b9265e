"""The tasks of a fill, executed one by one and one after the other on a simulated Kafka (KIP-409)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowSkipException

from kafka_steward.assignment import TopicPartition
from kafka_steward.execution.pending_state import PROPAGATION_MS
from kafka_steward.journal.audit import Action
from kafka_steward.journal.records import DEFERRED_PARTITIONS, PENDING_REPLICAS, MoveState, PlanRecord, PlanStatus
from kafka_steward.operators.pending_replicas import FindPendingReplicasOperator
from kafka_steward.operators.report import ReportPlanOperator
from kafka_steward.operators.snapshot import SnapshotClusterOperator
from kafka_steward.operators.submit import SubmitReassignmentOperator
from kafka_steward.operators.topics import CreatePartitionsOperator, CreateTopicOperator
from kafka_steward.planning.files.formats import plan_table, read_snapshot, write_plan
from tests.airflow_home import context
from tests.builders import planned
from tests.operators.simulated import CONN_ID, Cluster, MakeCluster, make_cluster
from tests.simulated_plan import count_pending, move

__all__ = ["make_cluster"]

MADE = {"replicas_moved": 3, "lower_bound": 3}


def find(**options: Any) -> dict[str, Any]:
    operator = FindPendingReplicasOperator(task_id="find_pending", conn_id=CONN_ID, **options)
    return operator.execute(context(task_id="find_pending"))


def snapshot() -> dict[str, str]:
    operator = SnapshotClusterOperator(task_id="snapshot", conn_id=CONN_ID, pending_replicas=True)
    return operator.execute(context(task_id="snapshot"))


def report(plan: dict[str, Any], submitted: dict[str, Any], **more: Any) -> dict[str, Any]:
    operator = ReportPlanOperator(
        task_id="report", conn_id=CONN_ID, verify="fill", plan=plan, submitted=submitted, **more
    )
    return operator.execute(context(task_id="report"))


def owing(make_cluster: MakeCluster, brokers: str = "1a 2b 3c", *topics: str, factor: int = 3) -> Cluster:
    """Brokers 1 and 2 are live, and two partitions of the topic `orders` have a replica on each."""
    cluster = make_cluster(brokers, *topics, enable_under_replicated_topic_creation=True)
    cluster.lose(*sorted(cluster.racks)[2:])
    create = CreateTopicOperator(
        task_id="create", conn_id=CONN_ID, topic="orders", partitions=2, replication_factor=factor
    )
    assert create.execute(context())["pending"] == 2 * (factor - 2)
    return cluster


def target_rfs(taken: dict[str, str]) -> dict[str, int]:
    """The number of replicas that each partition of the snapshot shall have."""
    read = read_snapshot(taken["uri"])
    assert read.digest == taken["digest"]
    return {f"{row['topic']}-{row['partition']}": row["target_rf"] for row in read.partitions.to_pylist()}


# finding


def test_where_nothing_is_owed_the_run_is_skipped(make_cluster: MakeCluster) -> None:
    make_cluster("1a 2b 3c", "orders: 123")
    with pytest.raises(AirflowSkipException, match=r"^Nothing can be filled now\. No replica is pending\.$"):
        find()


def test_where_no_live_broker_can_take_what_is_owed_the_run_is_skipped(make_cluster: MakeCluster) -> None:
    cluster = owing(make_cluster)
    with pytest.raises(AirflowSkipException) as skipped:
        find()
    assert str(skipped.value) == ("Nothing can be filled now. 2 replicas are pending, and no live broker can host one.")
    assert count_pending(cluster.journal.tree) == 2


def test_what_a_broker_that_joined_can_take_is_counted(make_cluster: MakeCluster) -> None:
    cluster = owing(make_cluster, "1a 2b 3c 4a", factor=4)
    cluster.restart(3)
    assert find() == {
        "pending": 4,
        "partitions": 2,
        "sentence": "4 replicas are pending; 2 partitions can be filled now, in part or fully.",
    }


def test_what_is_not_owed_any_more_is_dropped(make_cluster: MakeCluster) -> None:
    cluster = owing(make_cluster)
    cluster.restart(3)
    cluster.delete("orders")
    cluster.now_ms += PROPAGATION_MS
    with pytest.raises(AirflowSkipException, match="No replica is pending"):
        find()
    assert count_pending(cluster.journal.tree) == 0
    assert cluster.noted(Action.DROP) == [("orders", "find_pending")] * 2


def test_partitions_that_waited_for_a_broker_are_added(make_cluster: MakeCluster) -> None:
    cluster = make_cluster("1a 2b 3c", "orders: 123")
    cluster.kill(3)
    CreatePartitionsOperator(task_id="grow", conn_id=CONN_ID, topic="orders", count=3, later=True).execute(context())
    with pytest.raises(AirflowSkipException):
        find()
    assert list(cluster.topics) == [TopicPartition("orders", 0)], "there are too few brokers still"
    cluster.restart(3)
    with pytest.raises(AirflowSkipException, match="No replica is pending"):
        find()
    assert [len(each) for each in cluster.replicas().values()] == [3, 3, 3]
    assert cluster.noted(Action.CREATE) == [("orders", "find_pending")]
    assert cluster.journal.tree.children(DEFERRED_PARTITIONS.parent) == []


# the snapshot


def test_the_snapshot_gives_each_partition_the_replicas_that_it_shall_have(make_cluster: MakeCluster) -> None:
    cluster = owing(make_cluster, "1a 2b 3c 4a", "other: 12", factor=4)
    cluster.restart(3)
    assert target_rfs(snapshot()) == {"orders-0": 3, "orders-1": 3, "other-0": 2}, "three brokers are live"
    cluster.restart(4)
    assert target_rfs(snapshot()) == {"orders-0": 4, "orders-1": 4, "other-0": 2}


def test_in_the_snapshot_a_partition_with_a_replica_on_a_dead_broker_keeps_what_it_has(
    make_cluster: MakeCluster,
) -> None:
    cluster = owing(make_cluster)
    cluster.restart(3)
    cluster.kill(2)
    assert target_rfs(snapshot()) == {"orders-0": 2, "orders-1": 2}


def test_what_finds_them_takes_the_same_snapshot(make_cluster: MakeCluster) -> None:
    cluster = owing(make_cluster, "1a 2b 3c 4a", "other: 12", factor=4)
    cluster.restart(3)
    found = find(snapshot=True)
    assert found["pending"] == 4
    assert target_rfs(found) == target_rfs(snapshot()) == {"orders-0": 3, "orders-1": 3, "other-0": 2}


# the report


def test_the_report_settles_what_was_filled_and_notifies(make_cluster: MakeCluster) -> None:
    cluster = owing(make_cluster)
    cluster.restart(3)
    names = [TopicPartition("orders", number) for number in range(2)]
    moves = [move(str(name), "12", "123", position=name.partition) for name in names]
    plan = PlanRecord("f" * 64, cluster.cluster_id, "fill")
    record = cluster.journal.plans.publish(plan, [*moves, move("other-0", "12", "123", position=2)])
    for state, some in ((MoveState.COMPLETED, names), (MoveState.DROPPED, [TopicPartition("other", 0)])):
        cluster.journal.plans.set_move_states(plan.digest, some, state, "its topic was deleted", fence=None)
    cluster.journal.plans.update(record, status=PlanStatus.COMPLETED)
    cluster.alter(dict.fromkeys(names, (1, 2, 3)))
    cluster.run()
    notified: list[Any] = []
    facts = report({**MADE, "digest": plan.digest}, {"partitions": 3}, on_done=notified.append)
    assert facts == {
        "sentence": "Not all was filled: 2 of 3 replicas were added: other-0, its topic was deleted. No replica is "
        "pending.",
        "status": "completed",
        "settled": 2,
        "dropped": 0,
        "pending": 0,
        "partitions": 2,
        "digest": plan.digest,
        "replicas_moved": 2,
        "lower_bound": 3,
    }
    assert [each["kafka_steward"] for each in notified] == [{"event": "filled", **facts}]
    assert count_pending(cluster.journal.tree) == 0
    assert cluster.noted(Action.SETTLE) == [("orders", "report")] * 2


def test_the_report_counts_what_is_still_owed_and_what_was_dropped(make_cluster: MakeCluster) -> None:
    cluster = owing(make_cluster)
    cluster.restart(3)
    cluster.alter({TopicPartition("orders", 0): (1,)})
    cluster.run()
    facts = report({}, {})
    assert (facts["settled"], facts["dropped"], facts["pending"]) == (0, 1, 1)
    assert facts["sentence"].endswith("1 replicas are still pending, and are added when brokers join.")
    assert cluster.journal.tree.children(PENDING_REPLICAS.path("orders")) == ["1"]


# from the first task to the last


def test_the_tasks_of_a_fill_one_after_the_other_settle_what_is_owed(
    make_cluster: MakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = owing(make_cluster, "1a 2b 3c", "other: 12")
    cluster.restart(3)
    taken = find(snapshot=True)
    assert taken["partitions"] == 2
    plan = planned(read_snapshot(taken["uri"]), "fill")
    uri = f"{tmp_path}/plan"
    write_plan(uri, plan_table(plan.moves), plan.proof)
    monkeypatch.setattr(SubmitReassignmentOperator, "_wait_unless_killed", lambda *_: cluster.tick())
    submit = SubmitReassignmentOperator(task_id="submit", conn_id=CONN_ID, plan=uri, deferrable=False)
    submitted = submit.execute(context(task_id="submit"))
    assert (submitted["status"], submitted["left"]) == ("completed", 0)
    facts = report(plan.proof, submitted)
    assert facts["sentence"] == "Filled 2 replicas of 2 partitions. No replica is pending."
    assert {name: set(each) for name, each in cluster.replicas().items()} == {
        "orders-0": {1, 2, 3},
        "orders-1": {1, 2, 3},
        "other-0": {1, 2},
    }
    with pytest.raises(AirflowSkipException, match="No replica is pending"):
        find()
