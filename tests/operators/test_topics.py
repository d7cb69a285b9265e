"""The operators that make topics and partitions, executed on a simulated Kafka (KIP-409)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import KafkaRefused
from kafka_steward.journal.audit import Action
from kafka_steward.journal.records import DEFERRED_PARTITIONS, PENDING_REPLICAS
from kafka_steward.journal.store import open_journal
from kafka_steward.operators.topics import CreatePartitionsOperator, CreateTopicOperator
from tests.airflow_home import context
from tests.operators.simulated import CONN_ID, Cluster, MakeCluster, make_cluster
from tests.simulated_plan import count_pending

__all__ = ["make_cluster"]

ALLOWED: dict[str, Any] = {"enable_under_replicated_topic_creation": True}


def create(*, params: dict[str, Any] | None = None, **given: Any) -> dict[str, Any]:
    operator = CreateTopicOperator(task_id="create", conn_id=CONN_ID, **{"topic": "orders", "partitions": 2, **given})
    return operator.execute(context(task_id="create", params=params))


def add(count: Any, **given: Any) -> dict[str, Any]:
    operator = CreatePartitionsOperator(task_id="grow", conn_id=CONN_ID, topic="orders", count=count, **given)
    return operator.execute(context(task_id="grow"))


def assert_owing(cluster: Cluster, made: dict[str, Any]) -> None:
    """Three replicas were asked for, and brokers 1 and 2 are live."""
    assert cluster.replicas() == {"orders-0": (1, 2), "orders-1": (2, 1)}
    assert made == {
        "topic": "orders",
        "existed": False,
        "pending": 2,
        "sentence": "Topic orders was created with 2 partitions; 2 replicas of 2 partitions are pending, and are added "
        "when brokers join.",
    }
    assert cluster.journal.tree.children(PENDING_REPLICAS.path("orders")) == ["0", "1"]
    assert count_pending(cluster.journal.tree) == 2
    assert cluster.noted(Action.PENDING) == [("orders", "create")] * 2
    # On KRaft, Kafka is first left to place them all.
    assert cluster.noted(Action.CREATE) == [("orders", "create")] * (1 if cluster.zookeeper_mode else 2)


# topics


def test_a_topic_is_created_with_its_own_settings_and_nothing_is_owed(make_cluster: MakeCluster) -> None:
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
    assert cluster.noted(Action.CREATE) == [("orders", "create")]


def test_a_task_that_is_tried_again_finds_the_topic_that_it_created(make_cluster: MakeCluster) -> None:
    cluster = make_cluster("1a 2b 3c")
    create()
    again = create()
    assert (again["existed"], again["sentence"]) == (True, "Topic orders already exists, each with 3 replicas.")
    assert cluster.noted(Action.CREATE) == [("orders", "create")]


@pytest.mark.parametrize("mode", ["kraft", "zookeeper"])
def test_the_operators_setting_lets_a_topic_be_created_with_fewer_brokers_than_replicas(
    make_cluster: MakeCluster, mode: str
) -> None:
    cluster = make_cluster("1a 2b 3c", mode=mode)
    cluster.lose(3)
    assert_owing(cluster, create(settings=ALLOWED))


def test_so_does_the_connections_and_so_does_the_runs_parameter(make_cluster: MakeCluster) -> None:
    cluster = make_cluster("1a 2b 3c", **ALLOWED)
    cluster.lose(3)
    assert_owing(cluster, create())
    cluster = make_cluster("1a 2b 3c")
    cluster.lose(3)
    assert_owing(cluster, create(params=ALLOWED))


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
    assert (cluster.replicas(), count_pending(cluster.journal.tree)) == ({}, 0)


def test_without_the_setting_kafka_refuses_it_with_the_advice_to_set_it(make_cluster: MakeCluster) -> None:
    cluster = make_cluster("1a 2b 3c")
    cluster.lose(3)
    with pytest.raises(KafkaRefused, match="Only 2 brokers are live: wait for more, or set enable_under_replicated"):
        create()
    assert (cluster.replicas(), count_pending(cluster.journal.tree)) == ({}, 0)


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


def test_new_partitions_of_a_topic_to_which_replicas_are_owed_are_owed_as_many(make_cluster: MakeCluster) -> None:
    cluster = make_cluster("1a 2b 3c", **ALLOWED)
    cluster.lose(3)
    create()
    assert add(3)["sentence"].endswith("1 of the new partitions have pending replicas.")
    assert len(cluster.replicas()["orders-2"]) == 2
    assert count_pending(cluster.journal.tree) == 3


def test_too_few_brokers_for_partitions_fail_the_task_for_good_and_leave_no_request(make_cluster: MakeCluster) -> None:
    cluster = make_cluster("1a 2b 3c", "orders: 123")
    cluster.kill(3)
    with pytest.raises(AirflowFailException, match="pass later=True to add them when a broker joins"):
        add(3)
    assert cluster.journal.tree.children(DEFERRED_PARTITIONS.parent) == []
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


def test_with_later_too_few_brokers_for_partitions_leave_a_request(make_cluster: MakeCluster) -> None:
    cluster = make_cluster("1a 2b 3c", "orders: 123")
    cluster.kill(3)
    asked = add(3, later=True)
    assert (asked["done"], asked["waits"]) == (False, True)
    assert asked["sentence"].endswith(
        "the cluster has 2 brokers that accept replicas: they are added when a broker joins."
    )
    assert cluster.journal.tree.children(DEFERRED_PARTITIONS.parent) == ["orders"]
    assert list(cluster.topics) == [TopicPartition("orders", 0)]


# that a watch fills it


UNWATCHED = "No watch has polled this journal ever, so no fill starts automatically"


@pytest.mark.parametrize("watched", [False, True], ids=["no watch", "a watch"])
def test_what_is_left_to_be_filled_says_whether_no_watch_reads_this_journal(
    make_cluster: MakeCluster, tmp_path: Path, watched: bool
) -> None:
    cluster = make_cluster("1a 2b 3c", "orders: 123", **ALLOWED)
    with open_journal(f"sqlite:///{tmp_path}/looks.db", cluster.cluster_id) as rows:
        cluster.journal.poll_times = rows.poll_times
        if watched:
            cluster.journal.record_poll("failures")
        assert UNWATCHED not in create(topic="whole")["sentence"]
        cluster.kill(3)
        assert (UNWATCHED in create(topic="owed")["sentence"]) is not watched
        assert (UNWATCHED in add(3, later=True)["sentence"]) is not watched
        assert UNWATCHED not in add(1)["sentence"]
