"""Kafka's answers become our dataclasses, ours become its requests; a changed setting is read until brokers show it.

The answers are those of real brokers (3.9 with ZooKeeper, 4.3 with KRaft), cut down.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.admin import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    AlterReplicaLogDirsResponse,
    DescribeClusterResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    ElectLeadersResponse,
    IncrementalAlterConfigsRequest,
    ListPartitionReassignmentsResponse,
)
from kafka.protocol.consumer import ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.metadata import MetadataResponse

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster import client, configs, requests
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.cluster.configs import SHOWN_WITHIN_S, BrokerRate, ConfigChange, ConfigOp, RecentConfigChanges
from kafka_steward.cluster.session import Session
from kafka_steward.cluster.state import Broker, BrokerLogDirs, Directory, Partition, Reassignment
from kafka_steward.errors import BrokerUnreachable, KafkaRefused
from tests.present import present

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
TOPIC_ID = uuid.UUID("f60d7f09-64fa-4b3a-90f1-0771c1d05cdd")


def topic(name: str = "t", *, error_code: int = 0, topic_id: uuid.UUID = TOPIC_ID) -> object:
    kind = MetadataResponse.MetadataResponseTopic
    partition = kind.MetadataResponsePartition
    return kind(
        error_code=error_code,
        name=name,
        topic_id=topic_id,
        partitions=[
            partition(error_code=0, partition_index=0, leader_id=1, replica_nodes=[1, 2, 3], isr_nodes=[3, 1]),
            partition(error_code=5, partition_index=1, leader_id=-1, replica_nodes=[4, -1], isr_nodes=[4]),
        ],
    )


def test_partitions_keep_their_order_their_leader_and_the_id_as_kafka_prints_it() -> None:
    assert requests.parse_partitions(MetadataResponse(topics=[topic()])) == {
        T0: Partition("t", 0, (1, 2, 3), frozenset({1, 3}), 1, "9g1_CWT6SzqQ8QdxwdBc3Q"),
        T1: Partition("t", 1, (4, -1), frozenset({4}), None, "9g1_CWT6SzqQ8QdxwdBc3Q"),
    }


def test_topics_without_an_id_have_none() -> None:
    partitions = requests.parse_partitions(MetadataResponse(topics=[topic(topic_id=uuid.UUID(int=0))]))
    assert {partition.topic_id for partition in partitions.values()} == {None}


def test_a_topic_that_does_not_exist_is_left_out_and_a_forbidden_one_too_and_another_error_is_raised() -> None:
    for code in (3, 17, 29):
        answer = MetadataResponse(topics=[topic("u", error_code=code), topic()])
        assert requests.parse_partitions(answer).keys() == {T0, T1}
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
    in_flight = requests.parse_reassignments(
        ListPartitionReassignmentsResponse(topics=[kind(name="t", partitions=[entry])])
    )
    assert in_flight == {T0: Reassignment((4, 2, 3, 1), (4,), (1,))}
    assert (in_flight[T0].target, in_flight[T0].original) == ((4, 2, 3), (2, 3, 1))


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


def test_space_that_is_not_reported_is_unknown() -> None:
    unreported = replace(B, total_bytes=None, usable_bytes=None)
    assert described(total=-1) == BrokerLogDirs({T0: 5, T1: 7}, directories=(A, unreported))
    assert described(version=1) == BrokerLogDirs(
        {T0: 5, T1: 7}, directories=(replace(A, total_bytes=None, usable_bytes=None), unreported)
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


def test_a_directory_is_named_to_a_broker_that_does_not_have_the_replica_and_says_so() -> None:
    """KIP-113: REPLICA_NOT_AVAILABLE, or an answer of a broker that has not heard of the topic; then it remembers."""
    kind = requests.name_directories_request({T0: "/b", T1: "/b", TopicPartition("u", 3): "/c"})
    assert [(each.path, [(topic.name, topic.partitions) for topic in each.topics]) for each in kind.dirs] == [
        ("/b", [("t", [0, 1])]),
        ("/c", [("u", [3])]),
    ]
    for code, refused in ((0, False), (9, False), (3, False), (6, False), (57, True), (31, True)):
        of_topic = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
        entry = of_topic.AlterReplicaLogDirPartitionResult(partition_index=0, error_code=code)
        answer = AlterReplicaLogDirsResponse(results=[of_topic(topic_name="t", partitions=[entry])])
        found = requests.parse_named_directories(answer, [T0, T1], 4)
        assert (found[T0] is not None) is refused
        assert "the response does not contain it" in str(found[T1])
    assert "Alter on the cluster" in str(present(found[T0])), "the right is named"


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
    assert requests.parse_offsets(answer) == {T0: 129}


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


# settings of brokers and topics

KEY = "follower.replication.throttled.rate"
SET, DELETE = ConfigChange(KEY, ConfigOp.SET, "100"), ConfigChange(KEY, ConfigOp.DELETE)


class Brokers:
    """Brokers that say yes at once, and show it when they have been looked at `late` times."""

    def __init__(self, late: int, *, values: Mapping[int, str] | None = None, dead: Collection[int] = ()) -> None:
        self.late, self.dead = late, dead
        self.shown, self.coming = dict(values or {}), dict(values or {})
        self.looks = 0

    def send_to_each(self, asked: Mapping[int, Any], *, timeout_ms: int | None = None) -> dict[int, Any]:
        del timeout_ms
        requests = {broker: request() for broker, request in asked.items()}
        changing = any(isinstance(request, IncrementalAlterConfigsRequest) for request in requests.values())
        self.looks += not changing
        return {broker: self.answer(broker, request) for broker, request in requests.items()}

    def send_to_responding(self, asked: Mapping[int, Any], *, timeout_ms: int | None = None) -> dict[int, Any]:
        answers = self.send_to_each(asked, timeout_ms=timeout_ms)
        return {broker: answer for broker, answer in answers.items() if not isinstance(answer, BrokerUnreachable)}

    def answer(self, broker: int, request: Any) -> Any:
        if broker in self.dead:
            return BrokerUnreachable(broker, "gone")
        if isinstance(request, IncrementalAlterConfigsRequest):
            ((_, name, ((_, _, value),)),) = request.resources
            self.coming = {each: of for each, of in self.coming.items() if each != broker}
            self.coming |= {} if value is None else {broker: value}
            return SimpleNamespace(responses=[SimpleNamespace(resource_name=name, error_code=0, error_message=None)])
        if self.looks >= self.late:
            self.shown = self.coming
        entry = SimpleNamespace(name=KEY, value=self.shown.get(broker), config_source=2)
        result = SimpleNamespace(resource_name=str(broker), error_code=0, error_message=None, configs=[entry])
        return SimpleNamespace(results=[result])


def over(transport: Any) -> KafkaCluster:
    cluster = KafkaCluster.__new__(KafkaCluster)
    cluster._transport = transport
    cluster._config_changes = RecentConfigChanges()
    return cluster


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "SHOWN_WITHIN_S", 0.2)
    monkeypatch.setattr(client, "_POLL_S", 0.001)


@pytest.mark.parametrize(("change", "expected"), [(SET, {1: "100", 2: "7"}), (DELETE, {2: "7"})])
def test_it_is_waited_for(change: ConfigChange, expected: dict[int, str]) -> None:
    brokers = Brokers(5, values={1: "7", 2: "7"})
    assert over(brokers).change_broker_configs({1: [change]}) == {1: None}
    assert (brokers.shown, brokers.looks) == (expected, 5)


def test_one_that_never_shows_it_is_not_waited_for_for_long() -> None:
    brokers = Brokers(10**9)
    assert over(brokers).change_broker_configs({1: [SET]}) == {1: None}
    assert brokers.shown == {}


def test_one_that_is_gone_is_not_waited_for() -> None:
    brokers = Brokers(3, dead=[2])
    results = over(brokers).change_broker_configs({1: [SET], 2: [SET]})
    assert (results[1], type(results[2])) == (None, BrokerUnreachable)
    assert (brokers.shown, brokers.looks) == ({1: "100"}, 3)


def test_a_topic_is_read_again_until_its_own_setting_is_shown() -> None:
    looks = iter(["7", "7", "100"])

    def describe(request: Any) -> Any:
        entry = SimpleNamespace(name=KEY, value=next(looks), config_source=1)
        names = [name for _, name, _ in request().resources]
        results = [SimpleNamespace(resource_name=name, error_code=0, configs=[entry]) for name in names]
        return SimpleNamespace(results=results)

    done = SimpleNamespace(responses=[SimpleNamespace(resource_name="t", error_code=0, error_message=None)])
    cluster = over(SimpleNamespace(send_to_any=describe, send_to_controller=lambda *_, **__: done))
    assert cluster.change_topic_configs({"t": [SET]}) == {"t": None}
    assert cluster.topic_configs(["t"], [KEY], own_only=True) == {"t": {KEY: "100"}}
    assert next(looks, None) is None


@pytest.mark.parametrize("code", [3, 17])
def test_a_topic_that_does_not_or_cannot_exist_is_left_out_and_others_are_read(code: int) -> None:
    transport: Any = SimpleNamespace(send_to_any=lambda _: answer_of({"my topic": code, "t": 0}))
    assert over(transport).topic_configs(["my topic", "t"], ["min.insync.replicas"]) == {
        "t": {"min.insync.replicas": "2"}
    }


def test_a_topic_that_may_not_be_read_is_a_refusal() -> None:
    transport: Any = SimpleNamespace(send_to_any=lambda _: answer_of({"secret": 29, "t": 0}))
    with pytest.raises(KafkaRefused, match="secret"):
        over(transport).topic_configs(["secret", "t"], ["min.insync.replicas"])


def rate_answer(*values: tuple[int, str | None], shown: bool = True) -> Any:
    """What a broker tells of its rate, the value that it shows first: source and value."""
    synonyms = [SimpleNamespace(name=KEY, source=source, value=value) for source, value in values]
    entry = SimpleNamespace(
        name=KEY, value=values[0][1], config_source=values[0][0], synonyms=synonyms if shown else None
    )
    result = SimpleNamespace(resource_name="1", error_code=0, error_message=None, configs=[entry])
    return SimpleNamespace(results=[result])


@pytest.mark.parametrize(
    ("answer", "rate"),
    [
        (rate_answer((2, "50"), (3, "7"), (4, "3")), BrokerRate("50", "7", "3")),
        (rate_answer((2, "50"), (4, "3")), BrokerRate("50", None, "3")),
        (rate_answer((3, "7"), (4, "3")), BrokerRate(None, "7", "3")),
        (rate_answer((4, "3")), BrokerRate(None, None, "3")),
        (rate_answer((2, "50"), shown=False), BrokerRate("50", None)),
        (rate_answer((3, "7"), shown=False), BrokerRate(None, "7")),
        (SimpleNamespace(results=[SimpleNamespace(resource_name="1", error_code=0, configs=[])]), BrokerRate()),
        (rate_answer((2, " 50 "), (3, "+007")), BrokerRate("50", "7")),
        (rate_answer((2, str(2**63 - 1)), (3, "0")), BrokerRate(str(2**63 - 1), "0")),
        *((rate_answer((2, value), (3, value)), BrokerRate()) for value in (None, "", "-1", "1.5", "fast", "9" * 20)),
    ],
)
def test_a_rate_is_the_brokers_own_the_one_for_all_brokers_or_the_files(answer: Any, rate: BrokerRate) -> None:
    """What Kafka 3.9.2 and 4.3.1 were seen to apply."""
    assert configs.parse_broker_rate(answer, KEY, defaults_apply=True) == rate


def test_eligible_replicas_are_by_partition_and_the_last_known_ones_stand_in_for_none() -> None:
    def entry(number: int, eligible: list[int] | None, last: list[int] | None) -> Any:
        return SimpleNamespace(partition_index=number, eligible_leader_replicas=eligible, last_known_elr=last)

    listed = [entry(0, [2, 3], [1]), entry(1, [], [1]), entry(2, None, None)]
    topics = [
        SimpleNamespace(name="t", error_code=0, partitions=listed),
        SimpleNamespace(name="secret", error_code=29, partitions=[]),
    ]
    found = requests.parse_eligible_replicas(SimpleNamespace(topics=topics))
    assert found == {TopicPartition("t", 0): {2, 3}, TopicPartition("t", 1): {1}}


def test_a_rate_for_all_brokers_counts_where_the_broker_has_kafka_3_9_or_later() -> None:
    """Kafka before it shows the rate and does not apply it (KAFKA-10190): a copy would not be throttled at all."""
    versions = {1: (3, 8), 2: (3, 9), 3: (4, 3), 4: (3, 9)}
    network: Any = SimpleNamespace(kafka_version=versions.__getitem__)
    session = Session(network)
    asked: list[Any] = []

    def answers(requests: Mapping[int, Any], **_: object) -> dict[int, Any]:
        asked.extend(request() for request in requests.values())
        return {broker: rate_answer((2, "50"), (3, "7")) for broker in requests}

    cluster = over(SimpleNamespace(session=lambda: session, send_to_responding=answers))
    inherited = {1: None, 2: "7", 3: "7", 4: "7"}
    assert cluster.broker_rates([1, 2, 3, 4], [KEY])[KEY] == {
        each: BrokerRate("50", of) for each, of in inherited.items()
    }
    assert [request.include_synonyms for request in asked] == [True] * 4, "one request for both"


def test_a_rate_that_may_not_be_read_is_a_refusal() -> None:
    refused = SimpleNamespace(
        results=[SimpleNamespace(resource_name="1", error_code=31, error_message=None, configs=[])]
    )
    with pytest.raises(KafkaRefused, match="reading the settings of 1"):
        configs.parse_broker_rate(refused, KEY, defaults_apply=True)


def answer_of(topics: Mapping[str, int]) -> Any:
    entry = SimpleNamespace(name="min.insync.replicas", value="2", config_source=5)
    results = [
        SimpleNamespace(resource_name=name, error_code=code, error_message=None, configs=[] if code else [entry])
        for name, code in topics.items()
    ]
    return SimpleNamespace(results=results)


# A setting that a broker shows from before a change of ours is not taken for what another client has set

LISTED = "follower.replication.throttled.replicas"
LIST_SET = ConfigChange(LISTED, ConfigOp.SET, "0:1")
LIST_DELETE = ConfigChange(LISTED, ConfigOp.DELETE)


def append(entries: str) -> ConfigChange:
    return ConfigChange(LISTED, ConfigOp.APPEND, entries)


def subtract(entries: str) -> ConfigChange:
    return ConfigChange(LISTED, ConfigOp.SUBTRACT, entries)


@pytest.mark.parametrize(
    ("changes", "shown", "stale"),
    [
        ([LIST_SET], "0:1", False),
        ([LIST_SET], None, True),
        ([LIST_SET], "0:2", True),
        ([LIST_DELETE], None, False),
        ([LIST_DELETE], "0:1", True),
        ([append("0:1,1:1")], "0:1,1:1", False),
        ([append("0:1,1:1")], "5:5,1:1,0:1", False),
        ([append("0:1,1:1")], "0:1", True),
        ([append("0:1")], None, True),
        ([subtract("0:1")], "1:1", False),
        ([subtract("0:1")], "", False),
        ([subtract("0:1")], None, False),
        ([subtract("0:1")], "0:1,1:1", True),
        ([append("0:1"), subtract("1:1")], "0:1", False),
        ([append("0:1"), subtract("1:1")], "0:1,1:1", True),
        ([append("0:1"), subtract("0:1")], "", False),
        ([append("0:1"), subtract("0:1")], "0:1", True),
        ([append("0:1"), LIST_DELETE], None, False),
        ([append("0:1"), LIST_DELETE], "0:1", True),
        ([LIST_DELETE, append("0:2")], "0:2", False),
        ([LIST_DELETE, append("0:2")], None, True),
        ([LIST_SET, LIST_DELETE], "0:1", True),
    ],
)
def test_what_a_broker_shows_is_stale_unless_it_shows_every_change(
    changes: list[ConfigChange], shown: str | None, stale: bool
) -> None:
    recent = RecentConfigChanges()
    for number, change in enumerate(changes):
        recent.on_accepted("t", [change], number / 100)
    values = {"t": {} if shown is None else {LISTED: shown}, "other": {}}
    assert recent.find_stale(values, [LISTED], 1) == (["t"] if stale else [])
    assert recent.find_stale(values, ["min.insync.replicas"], 1) == [], "only what is asked for"
    assert recent.find_stale({"other": {}}, [LISTED], 1) == [], "a topic that is gone has nothing to show"


def test_what_is_not_shown_after_a_while_was_changed_by_another_client() -> None:
    recent = RecentConfigChanges()
    recent.on_accepted("t", [append("0:1")], 100)
    assert recent.find_stale({"t": {}}, [LISTED], 100 + SHOWN_WITHIN_S - 0.1) == ["t"]
    assert recent.find_stale({"t": {}}, [LISTED], 100 + SHOWN_WITHIN_S) == []
    assert recent.find_stale({"t": {}}, [LISTED], 100) == [], "what was forgotten takes no memory"
