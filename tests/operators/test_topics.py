"""The operators that make topics and partitions, and the tasks of a fill, executed on a simulated Kafka (KIP-409)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import KafkaRefused
from kafka_steward.execution.topics.pending import PROPAGATION_MS
from kafka_steward.journal.audit import Action
from kafka_steward.journal.records import DEFERRED_PARTITIONS, MoveState, PlanRecord, PlanStatus
from kafka_steward.journal.store import open_journal
from kafka_steward.operators.report import ReportPlanOperator
from kafka_steward.operators.snapshot import SnapshotClusterOperator
from kafka_steward.operators.submit import SubmitReassignmentOperator
from kafka_steward.operators.topics import CreatePartitionsOperator, CreateTopicOperator, FindPendingReplicasOperator
from kafka_steward.planning.files.formats import plan_table, read_snapshot, write_plan
from tests.airflow_home import context
from tests.builders import planned
from tests.operators.simulated import CONN_ID, Cluster, MakeCluster
from tests.simulated_plan import count_pending, move, pending_partitions

ALLOWED: dict[str, Any] = {"enable_under_replicated_topic_creation": True}


def create(*, params: dict[str, Any] | None = None, **given: Any) -> dict[str, Any]:
    operator = CreateTopicOperator(task_id="create", conn_id=CONN_ID, **{"topic": "orders", "partitions": 2, **given})
    return operator.execute(context(task_id="create", params=params))


def add(count: Any, **given: Any) -> dict[str, Any]:
    operator = CreatePartitionsOperator(task_id="grow", conn_id=CONN_ID, topic="orders", count=count, **given)
    return operator.execute(context(task_id="grow"))


def assert_pending(cluster: Cluster, made: dict[str, Any]) -> None:
    """Three replicas were asked for, and brokers 1 and 2 are live."""
    assert cluster.replicas() == {"orders-0": (1, 2), "orders-1": (2, 1)}
    assert made == {
        "topic": "orders",
        "existed": False,
        "pending": 2,
        "sentence": "Topic orders was created with 2 partitions; 2 replicas of 2 partitions are pending, and are added "
        "when brokers join.",
    }
    assert pending_partitions(cluster.journal, "orders") == [0, 1]
    assert count_pending(cluster.journal) == 2
    assert cluster.noted(Action.PENDING) == [("orders", "create")] * 2
    # On KRaft, Kafka is first left to place them all.
    assert cluster.noted(Action.CREATE) == [("orders", "create")] * (1 if cluster.zookeeper_mode else 2)


# topics


def test_a_topic_is_created_with_its_own_settings_and_found_by_a_second_try(make_cluster: MakeCluster) -> None:
    cluster = make_cluster("1a 2b 3c")
    made = create(config={"min.insync.replicas": 2})
    assert made == {
        "topic": "orders",
        "existed": False,
        "pending": 0,
        "sentence": "Topic orders was created with 2 partitions, each with 3 replicas.",
    }
    assert cluster.replicas() == {"orders-0": (1, 2, 3), "orders-1": (2, 3, 1)}
    assert cluster.topic_settings["orders"] == {"min.insync.replicas": "2"}
    again = create()
    assert (again["existed"], again["sentence"]) == (True, "Topic orders already exists, each with 3 replicas.")
    assert cluster.noted(Action.CREATE) == [("orders", "create")]


@pytest.mark.parametrize("mode", ["kraft", "zookeeper"])
def test_the_operators_setting_lets_a_topic_be_created_with_fewer_brokers_than_replicas(
    make_cluster: MakeCluster, mode: str
) -> None:
    cluster = make_cluster("1a 2b 3c", mode=mode)
    cluster.lose(3)
    assert_pending(cluster, create(settings=ALLOWED))


def test_so_does_the_connections_and_so_does_the_runs_parameter(make_cluster: MakeCluster) -> None:
    cluster = make_cluster("1a 2b 3c", **ALLOWED)
    cluster.lose(3)
    assert_pending(cluster, create())
    cluster = make_cluster("1a 2b 3c")
    cluster.lose(3)
    assert_pending(cluster, create(params=ALLOWED))


@pytest.mark.parametrize("settings", [{}, ALLOWED], ids=["off", "on"])
def test_on_kraft_a_fenced_broker_takes_its_place_in_a_new_topic_whatever_the_setting(
    make_cluster: MakeCluster, settings: dict[str, Any]
) -> None:
    cluster = make_cluster("1a 2b 3c", mode="kraft")
    cluster.kill(3)
    made = create(settings=settings)
    assert (made["pending"], made["existed"]) == (0, False)
    assert made["sentence"] == "Topic orders was created with 2 partitions, each with 3 replicas."
    assert [set(each) for each in cluster.replicas().values()] == [{1, 2, 3}, {1, 2, 3}]
    assert cluster.noted(Action.PENDING) == []


def test_more_replicas_than_the_cluster_has_brokers_fail_the_task_for_good(make_cluster: MakeCluster) -> None:
    cluster = make_cluster("1a 2b 3c", **ALLOWED)
    with pytest.raises(AirflowFailException, match="request at most 3, or start more brokers first"):
        create(replication_factor=10)
    assert (cluster.replicas(), count_pending(cluster.journal)) == ({}, 0)


def test_without_the_setting_kafka_refuses_it_with_the_advice_to_set_it(make_cluster: MakeCluster) -> None:
    cluster = make_cluster("1a 2b 3c")
    cluster.lose(3)
    with pytest.raises(KafkaRefused, match="Only 2 brokers are live: wait for more, or set enable_under_replicated"):
        create()
    assert (cluster.replicas(), count_pending(cluster.journal)) == ({}, 0)


@pytest.mark.parametrize("of", ["topic", "broker"])
def test_with_fewer_live_brokers_than_min_isr_the_task_fails_for_good(make_cluster: MakeCluster, of: str) -> None:
    cluster = make_cluster("1a 2b 3c", **ALLOWED)
    cluster.lose(2, 3)
    least = {"min.insync.replicas": "2"}
    if of == "broker":
        cluster.broker_settings[1] |= least
    with pytest.raises(AirflowFailException, match="Topic orders was not created: it needs 2 brokers"):
        create(config=least if of == "topic" else None)
    assert cluster.replicas() == {}


def test_a_topic_that_exists_with_other_numbers_fails_the_task_for_good(make_cluster: MakeCluster) -> None:
    cluster = make_cluster("1a 2b 3c", "orders: 12")
    with pytest.raises(AirflowFailException, match="exists with replication factor 2, and 3 was requested"):
        create()
    with pytest.raises(AirflowFailException, match="requested with partitions 0; the minimum is 1"):
        create(partitions=0)
    assert cluster.replicas() == {"orders-0": (1, 2)}


# partitions


def test_partitions_are_added_to_a_topic(make_cluster: MakeCluster) -> None:
    cluster = make_cluster("1a 2b 3c", "orders: 123")
    assert add("3") == {
        "topic": "orders",
        "done": True,
        "waits": False,
        "sentence": "Topic orders has 3 partitions, 2 of them new.",
    }
    assert [len(each) for each in cluster.replicas().values()] == [3, 3, 3]
    assert cluster.noted(Action.CREATE) == [("orders", "grow")]
    again = add(3)
    assert (again["done"], again["sentence"]) == (False, "Topic orders already has 3 partitions.")


def test_new_partitions_of_a_topic_with_pending_replicas_have_as_many_pending(make_cluster: MakeCluster) -> None:
    cluster = make_cluster("1a 2b 3c", **ALLOWED)
    cluster.lose(3)
    create()
    assert add(3)["sentence"].endswith("1 of the new partitions has pending replicas.")
    assert len(cluster.replicas()["orders-2"]) == 2
    assert count_pending(cluster.journal) == 3


def test_too_few_brokers_for_partitions_fail_the_task_for_good_and_leave_a_request_only_with_later(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster("1a 2b 3c", "orders: 123")
    cluster.kill(3)
    with pytest.raises(AirflowFailException, match="pass later=True to add them when a broker joins"):
        add(3)
    assert cluster.journal.rows(DEFERRED_PARTITIONS).all() == []
    asked = add(3, later=True)
    assert (asked["done"], asked["waits"]) == (False, True)
    assert asked["sentence"].endswith(
        "the cluster has 2 brokers that accept replicas: they are added when a broker joins."
    )
    assert [row.key for row in cluster.journal.rows(DEFERRED_PARTITIONS).all()] == ["orders"]
    assert list(cluster.topics) == [TopicPartition("orders", 0)]


def test_on_kraft_fewer_live_brokers_than_min_isr_add_no_partitions(make_cluster: MakeCluster) -> None:
    cluster = make_cluster("1a 2b 3c", "orders: 123", mode="kraft")
    cluster.topic_settings["orders"]["min.insync.replicas"] = "2"
    cluster.kill(3)
    assert add(2)["done"], "Kafka places a replica on broker 3, which is fenced"
    cluster.kill(2)
    with pytest.raises(AirflowFailException, match=r"needs 2 live brokers for new partitions, .* 1 are live"):
        add(3)
    assert add(3, later=True)["waits"]
    assert [len(each) for each in cluster.replicas().values()] == [3, 3]


# that a watch fills it


UNWATCHED = "No watch has polled this journal ever, so no fill starts automatically"


@pytest.mark.parametrize("watched", [False, True], ids=["no watch", "a watch"])
def test_what_is_left_to_be_filled_says_whether_no_watch_reads_this_journal(
    make_cluster: MakeCluster, tmp_path: Path, watched: bool
) -> None:
    cluster = make_cluster("1a 2b 3c", "orders: 123", **ALLOWED)
    with open_journal(f"sqlite:///{tmp_path}/looks.db", cluster.cluster_id) as rows:
        cluster.journal.hosts = rows.hosts
        if watched:
            cluster.journal.record_poll("failures")
        assert UNWATCHED not in create(topic="whole")["sentence"]
        cluster.kill(3)
        assert (UNWATCHED in create(topic="pending")["sentence"]) is not watched
        assert (UNWATCHED in add(3, later=True)["sentence"]) is not watched
        assert UNWATCHED not in add(1)["sentence"]


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


def with_pending(make_cluster: MakeCluster, brokers: str = "1a 2b 3c", *topics: str, factor: int = 3) -> Cluster:
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


def test_where_no_live_broker_can_host_pending_replicas_the_run_is_skipped(make_cluster: MakeCluster) -> None:
    cluster = with_pending(make_cluster)
    with pytest.raises(AirflowSkipException) as skipped:
        find()
    assert str(skipped.value) == ("Nothing can be filled now. 2 replicas are pending, and none can be added.")
    assert count_pending(cluster.journal) == 2


def test_what_a_broker_that_joined_can_take_is_counted_and_is_in_the_snapshot_of_the_same_task(
    make_cluster: MakeCluster,
) -> None:
    cluster = with_pending(make_cluster, "1a 2b 3c 4a", "other: 12", factor=4)
    cluster.restart(3)
    counted = find()
    assert counted == {
        "pending": 4,
        "partitions": 2,
        "sentence": "4 replicas are pending; 2 partitions can be filled now, in part or fully.",
    }
    found = find(snapshot=True)
    assert found.items() > counted.items()
    assert target_rfs(found) == target_rfs(snapshot()) == {"orders-0": 3, "orders-1": 3, "other-0": 2}


def test_replicas_that_are_not_pending_any_more_are_dropped(make_cluster: MakeCluster) -> None:
    cluster = with_pending(make_cluster)
    cluster.restart(3)
    cluster.delete("orders")
    cluster.now_ms += PROPAGATION_MS
    with pytest.raises(AirflowSkipException, match=r"^Nothing can be filled now\. No replica is pending\.$"):
        find()
    assert count_pending(cluster.journal) == 0
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
    assert cluster.journal.rows(DEFERRED_PARTITIONS).all() == []


# the snapshot


def test_the_snapshot_gives_each_partition_the_replicas_that_it_shall_have(make_cluster: MakeCluster) -> None:
    cluster = with_pending(make_cluster, "1a 2b 3c 4a", "other: 12", factor=4)
    cluster.restart(3)
    assert target_rfs(snapshot()) == {"orders-0": 3, "orders-1": 3, "other-0": 2}, "three brokers are live"
    cluster.restart(4)
    assert target_rfs(snapshot()) == {"orders-0": 4, "orders-1": 4, "other-0": 2}


def test_in_the_snapshot_a_partition_with_a_replica_on_a_dead_broker_keeps_what_it_has(
    make_cluster: MakeCluster,
) -> None:
    cluster = with_pending(make_cluster)
    cluster.restart(3)
    cluster.kill(2)
    assert target_rfs(snapshot()) == {"orders-0": 2, "orders-1": 2}


# the report


def test_the_report_settles_what_was_filled_and_notifies(make_cluster: MakeCluster) -> None:
    cluster = with_pending(make_cluster)
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
        "sentence": "Not all was filled: of 3 partitions due, 2 were filled and 1 was not moved: other-0, its topic "
        "was deleted. No replica is pending.",
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
    assert count_pending(cluster.journal) == 0
    assert cluster.noted(Action.SETTLE) == [("orders", "report")] * 2


def test_the_report_counts_what_is_still_pending_and_what_was_dropped(make_cluster: MakeCluster) -> None:
    cluster = with_pending(make_cluster)
    cluster.restart(3)
    cluster.alter({TopicPartition("orders", 0): (1,)})
    cluster.run()
    facts = report({}, {})
    assert (facts["settled"], facts["dropped"], facts["pending"]) == (0, 1, 1)
    assert facts["sentence"].endswith("1 replica is still pending, and is added when brokers join.")
    assert pending_partitions(cluster.journal, "orders") == [1]


# from the first task to the last


def test_the_tasks_of_a_fill_one_after_the_other_settle_pending_replicas(
    make_cluster: MakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = with_pending(make_cluster, "1a 2b 3c", "other: 12")
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
