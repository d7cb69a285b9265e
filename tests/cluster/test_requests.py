"""Kafka's answers become our dataclasses, ours become its requests, and nothing is lost on the way.

The answers are those of real brokers (3.9 with ZooKeeper, 4.3 with KRaft), cut down.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.admin import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    DescribeClusterResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    ElectLeadersResponse,
    ListPartitionReassignmentsResponse,
)
from kafka.protocol.consumer import ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.metadata import MetadataResponse

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster import requests
from kafka_steward.cluster.state import Broker, BrokerLogDirs, Directory, Partition, Reassignment
from kafka_steward.errors import KafkaRefused
from tests.present import present

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
TOPIC_ID = uuid.UUID("f60d7f09-64fa-4b3a-90f1-0771c1d05cdd")


def topic(name: str = "t", *, error_code: int = 0, internal: bool = False, topic_id: uuid.UUID = TOPIC_ID) -> object:
    kind = MetadataResponse.MetadataResponseTopic
    partition = kind.MetadataResponsePartition
    return kind(
        error_code=error_code,
        name=name,
        topic_id=topic_id,
        is_internal=internal,
        partitions=[
            partition(error_code=0, partition_index=0, leader_id=1, replica_nodes=[1, 2, 3], isr_nodes=[3, 1]),
            partition(error_code=5, partition_index=1, leader_id=-1, replica_nodes=[4, -1], isr_nodes=[4]),
        ],
    )


def test_partitions_keep_their_order_their_leader_and_the_id_as_kafka_prints_it() -> None:
    partitions, internal = requests.parse_partitions(MetadataResponse(topics=[topic()]))
    assert partitions == {
        T0: Partition("t", 0, (1, 2, 3), frozenset({1, 3}), 1, "9g1_CWT6SzqQ8QdxwdBc3Q"),
        T1: Partition("t", 1, (4, -1), frozenset({4}), None, "9g1_CWT6SzqQ8QdxwdBc3Q"),
    }
    assert internal == frozenset()


def test_internal_topics_are_flagged_and_topics_without_an_id_have_none() -> None:
    answer = MetadataResponse(topics=[topic("__consumer_offsets", internal=True, topic_id=uuid.UUID(int=0))])
    partitions, internal = requests.parse_partitions(answer)
    assert internal == {"__consumer_offsets"}
    assert {partition.topic_id for partition in partitions.values()} == {None}


def test_a_topic_that_does_not_exist_is_left_out_and_a_forbidden_one_too_and_another_error_is_raised() -> None:
    for code in (3, 17, 29):
        answer = MetadataResponse(topics=[topic("u", error_code=code), topic()])
        assert requests.parse_partitions(answer)[0].keys() == {T0, T1}
        assert requests.parse_hidden_topics(answer) == ({"u"} if code == 29 else frozenset())
    with pytest.raises(KafkaRefused, match=r"describing topic t: .* \(error 5\)"):
        requests.parse_partitions(MetadataResponse(topics=[topic(error_code=5)]))


def test_a_fenced_broker_is_listed_and_marked() -> None:
    kind = DescribeClusterResponse.DescribeClusterBroker
    answer = DescribeClusterResponse(
        brokers=[
            kind(broker_id=1, host="h", port=9092, rack="a", is_fenced=False),
            kind(broker_id=2, host="h", port=9093, rack=None, is_fenced=True),
        ]
    )
    assert requests.parse_brokers(answer) == {1: Broker(1, "h", 9092, "a"), 2: Broker(2, "h", 9093, None, fenced=True)}


def test_kafkas_words_are_kept_and_a_cancellation_is_not_an_empty_target() -> None:
    kind = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
    words = "The manual partition assignment includes the broker 1 more than once."
    partition = kind.ReassignablePartitionResponse(partition_index=0, error_code=39, error_message=words)
    answer = AlterPartitionReassignmentsResponse(responses=[kind(name="t", partitions=[partition])])
    refused = present(requests.parse_alterations(answer, [T0], "the new assignment")[T0])
    assert (refused.code, refused.message) == (39, words)
    sent = requests.alter_reassignments_request({T0: None, T1: ()}, 1000)
    read = AlterPartitionReassignmentsRequest.decode(sent.encode(version=1), version=1)
    assert {entry.partition_index: entry.replicas for entry in read.topics[0].partitions} == {0: None, 1: []}


@pytest.mark.parametrize("keep", [True, False])
def test_a_reassignment_that_keeps_the_factor_says_so_to_brokers_that_know_of_it(keep: bool) -> None:
    sent = requests.alter_reassignments_request({T0: (1, 2)}, 1000, keep_factor=keep)
    read = AlterPartitionReassignmentsRequest.decode(sent.encode(version=1), version=1)
    assert read.allow_replication_factor_change is not keep
    older = AlterPartitionReassignmentsRequest.decode(sent.encode(version=0), version=0)
    assert older.topics[0].partitions[0].replicas == [1, 2]


def test_a_refusal_is_one_sentence_with_kafkas_words_or_else_with_the_codes_meaning() -> None:
    told = requests.refusal_error(39, "includes broker 77.", "the new assignment of t-0")
    assert (told.code, told.message) == (39, "includes broker 77.")
    assert str(told) == "Kafka refused the new assignment of t-0: includes broker 77 (error 39)."
    assert (
        str(requests.refusal_error(85, None, "it"))
        == "Kafka refused it: No partition reassignment is in progress (error 85)."
    )
    assert requests.refusal_error(30_000, None, "it").code == 30_000


@pytest.mark.parametrize(
    ("code", "doing", "right"),
    [
        (31, "listing reassignments", "Describe on the cluster"),
        (31, "describing the log directories of broker 1", "Describe on the cluster"),
        (29, "describing topic t", "Describe on every topic"),
        (31, "reading the settings of 1", "DescribeConfigs on the cluster"),
        (29, "changing the settings of t", "AlterConfigs on every topic"),
        (31, "the new assignment of 3 partitions", "Alter on the cluster"),
        (31, "the cancellation of 3 partitions", "Alter on the cluster"),
        (31, "electing leaders", "Alter on the cluster"),
        (29, "creating topic t", "Create on every topic"),
        (29, "adding partitions to topic t", "Alter on every topic"),
    ],
)
def test_a_right_that_is_missing_is_named(code: int, doing: str, right: str) -> None:
    told = str(requests.refusal_error(code, None, doing))
    assert told.endswith(f"(error {code}); grant our principal {right}, as docs/permissions.md says.")
    assert "grant" not in str(requests.refusal_error(39, None, doing))
    assert "grant" not in str(requests.refusal_error(code, None, "it"))


def test_an_election_that_was_not_needed_is_no_refusal() -> None:
    kind = ElectLeadersResponse.ReplicaElectionResult
    entries = [
        kind.PartitionResult(partition_id=0, error_code=84, error_message="not needed"),
        kind.PartitionResult(partition_id=1, error_code=80, error_message="The preferred leader was not available."),
    ]
    answer = ElectLeadersResponse(replica_election_results=[kind(topic="t", partition_result=entries)])
    results = requests.parse_elections(answer, [T0, T1])
    refused = present(results[T1])
    assert (results[T0], refused.code, refused.message) == (None, 80, "The preferred leader was not available.")


def test_what_is_in_flight_is_read_with_what_is_added_and_removed() -> None:
    kind = ListPartitionReassignmentsResponse.OngoingTopicReassignment
    entry = kind.OngoingPartitionReassignment(
        partition_index=0, replicas=[4, 2, 3, 1], adding_replicas=[4], removing_replicas=[1]
    )
    flying = requests.parse_reassignments(
        ListPartitionReassignmentsResponse(topics=[kind(name="t", partitions=[entry])])
    )
    assert flying == {T0: Reassignment((4, 2, 3, 1), (4,), (1,))}
    assert (flying[T0].target, flying[T0].original) == ((4, 2, 3), (2, 3, 1))


def log_dirs_answer(*, total: int = 100, **more: Any) -> DescribeLogDirsResponse:
    """Two log directories; `more` is said of the second."""
    directory = DescribeLogDirsResponse.DescribeLogDirsResult
    kind = directory.DescribeLogDirsTopic
    first = kind.DescribeLogDirsPartition(partition_index=0, partition_size=5, offset_lag=0, is_future_key=False)
    future = kind.DescribeLogDirsPartition(partition_index=0, partition_size=2, offset_lag=3, is_future_key=True)
    second = kind.DescribeLogDirsPartition(partition_index=1, partition_size=7, offset_lag=0, is_future_key=False)
    one = directory(
        error_code=0, log_dir="/a", topics=[kind(name="t", partitions=[first])], total_bytes=100, usable_bytes=60
    )
    two = directory(
        **{"error_code": 0, "log_dir": "/b", **more},
        topics=[kind(name="t", partitions=[future, second])],
        total_bytes=total,
        usable_bytes=min(total, 30),
    )
    return DescribeLogDirsResponse(results=[one, two])


def described(version: int = 5, **more: Any) -> BrokerLogDirs:
    """The answer as a broker sends it."""
    sent = log_dirs_answer(**more).encode(version=version)
    return requests.parse_log_dirs(DescribeLogDirsResponse.decode(sent, version=version), 1)


A = Directory("/a", {T0: 5}, 1, 100, 60)
B = Directory("/b", {T1: 7}, 2, 100, 30)


def test_log_dirs_add_up_and_a_log_on_its_way_to_another_disk_counts_once() -> None:
    assert described() == BrokerLogDirs({T0: 5, T1: 7}, total_bytes=200, usable_bytes=90, directories=(A, B))


def test_a_failed_disk_counts_for_nothing_and_is_named() -> None:
    found = described(error_code=56)
    assert found == BrokerLogDirs({T0: 5}, 100, 60, (A, Directory("/b", error=56)))
    assert found.failed_paths == ("/b",)
    assert not found.cordoned


def test_untold_space_is_unknown() -> None:
    untold = replace(B, total_bytes=None, usable_bytes=None)
    assert described(total=-1) == BrokerLogDirs({T0: 5, T1: 7}, directories=(A, untold))
    assert described(version=1) == BrokerLogDirs(
        {T0: 5, T1: 7}, directories=(replace(A, total_bytes=None, usable_bytes=None), untold)
    )


def test_a_cordoned_directory_keeps_what_it_has_and_has_no_room() -> None:
    """KIP-1066; brokers before Kafka 4.3 answer without it."""
    found = described(is_cordoned=True)
    assert found == BrokerLogDirs({T0: 5, T1: 7}, 100, 60, (A, replace(B, cordoned=True)))
    assert not found.cordoned
    assert not described(version=4, is_cordoned=True).directories[1].cordoned
    both = replace(found, directories=(replace(A, cordoned=True), Directory("/b", error=56)))
    assert both.cordoned
    assert not BrokerLogDirs({}).cordoned


@pytest.mark.parametrize(("asked", "sent"), [(None, None), ((), []), ((T0, T1), [("t", [0, 1])])])
def test_log_directories_are_asked_for_everything_nothing_or_some(asked: Any, sent: Any) -> None:
    encoded = requests.log_dirs_request(asked).encode(version=5)
    read = DescribeLogDirsRequest.decode(encoded, version=5)
    assert (read.topics and [(each.topic, each.partitions) for each in read.topics]) == sent


def test_log_ends_are_asked_as_no_brokers_replica_so_that_followers_answer() -> None:
    sent = requests.log_ends_request([T0, T1])
    read = ListOffsetsRequest.decode(sent.encode(version=7), version=7)
    assert read.replica_id == -2
    assert [(entry.partition_index, entry.timestamp) for entry in read.topics[0].partitions] == [(0, -1), (1, -1)]


def test_logs_that_a_broker_does_not_hold_have_no_end() -> None:
    kind = ListOffsetsResponse.ListOffsetsTopicResponse
    entries = [
        kind.ListOffsetsPartitionResponse(partition_index=0, error_code=0, offset=129),
        kind.ListOffsetsPartitionResponse(partition_index=1, error_code=3, offset=-1),
    ]
    answer = ListOffsetsResponse(topics=[kind(name="t", partitions=entries)])
    assert requests.parse_log_ends(answer) == {T0: 129}


replica_lists = st.lists(st.integers(-1, 9), max_size=4)


@given(st.dictionaries(st.builds(TopicPartition, st.sampled_from("abc"), st.integers(0, 5)), st.none() | replica_lists))
def test_a_reassignment_request_carries_exactly_what_was_asked(targets: dict[TopicPartition, list[int] | None]) -> None:
    asked = {name: None if target is None else tuple(target) for name, target in targets.items()}
    encoded = requests.alter_reassignments_request(asked, 1000).encode(version=0)
    read = AlterPartitionReassignmentsRequest.decode(encoded, version=0)
    assert {
        TopicPartition(entry.name, partition.partition_index): partition.replicas
        for entry in read.topics
        for partition in entry.partitions
    } == targets


def test_what_kafka_says_is_one_printable_line() -> None:
    refused = requests.refusal_error(44, "Policy:\x1b[2J no\nINFO all is well", "creating topic t")
    assert refused.message == r"Policy:\x1b[2J no\x0aINFO all is well"
    assert str(refused).isprintable()
