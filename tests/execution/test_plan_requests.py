"""What a person asks for: a reassignment, its log directories (KIP-113), and the form of a rebalance."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

import pytest

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.cluster.state import BrokerLogDirs
from kafka_steward.errors import PlanError, SettingError
from kafka_steward.execution.named_directories import check_directories, held_directories
from kafka_steward.execution.plan_requests import parse_assignments, validate_against_cluster
from kafka_steward.rebalance_request import RebalanceRequest
from tests.execution.looks import look, part
from tests.simulator import Simulator
from tests.tool_output import CURRENT, DISKS, execute_output, generate_output

DOCUMENT = {
    "version": 1,
    "partitions": [
        {"topic": "t", "partition": 1, "replicas": [3, 1]},
        {"topic": "t", "partition": 0, "replicas": [1, 2]},
    ],
}
SNAPSHOT = look("12", part("t-0", "17"), part("t-1", "12"), fenced="3")


@pytest.mark.parametrize("document", [DOCUMENT, json.dumps(DOCUMENT)], ids=["parsed", "text"])
def test_a_document_is_read_parsed_or_as_text(document: Any) -> None:
    assert parse_assignments(document)[0] == {TopicPartition("t", 1): (3, 1), TopicPartition("t", 0): (1, 2)}


def test_a_document_is_read_with_the_directories_that_it_names_and_as_kafkas_tool_printed_it() -> None:
    named = {(TopicPartition("t", 0), 1): DISKS[0], (TopicPartition("t", 0), 2): DISKS[1]}
    for document in (CURRENT["4.3"], execute_output("4.3")):
        assert parse_assignments(document) == ({TopicPartition("t", 0): (1, 2)}, named)
    with pytest.raises(PlanError, match=r"^The reassignment has two assignments, in the lines 2 and 5; keep one"):
        parse_assignments(generate_output("4.3"))


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (
            "[",
            (
                "The reassignment is not JSON: Expecting value: line 1 column 2 (char 1); paste a file of "
                "kafka-reassign-partitions."
            ),
        ),
        ("{}", 'The reassignment lists no partition; it should be {"version": 1, "partitions": [...]}.'),
        ({}, 'The reassignment lists no partition; it should be {"version": 1, "partitions": [...]}.'),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_sentence(document: Any, sentence: str) -> None:
    with pytest.raises(PlanError) as refused:
        parse_assignments(document)
    assert str(refused.value) == sentence


@pytest.mark.parametrize(
    ("given", "faults"),
    [
        ({TopicPartition("u", 0): (1, 2)}, "u-0 does not exist."),
        ({TopicPartition("t", 0): (1, 3, 2)}, "t-0 names broker 3, which is not live."),
        ({TopicPartition("t", 0): (7, 1)}, "t-0 names broker 7, which is not live."),
        ({TopicPartition("t", 0): (1, 9)}, "t-0 names broker 9, which is no broker of this cluster."),
        (
            {TopicPartition("u", 0): (3, 9), TopicPartition("t", 9): (1,), TopicPartition("t", 1): (3,)},
            (
                "t-1 names broker 3, which is not live. t-9 does not exist. u-0 does not exist. u-0 names broker 3, "
                "which is not live. u-0 names broker 9, which is no broker of this cluster."
            ),
        ),
        (
            {TopicPartition("u", n): (1,) for n in range(7)},
            (
                "u-0 does not exist. u-1 does not exist. u-2 does not exist. u-3 does not exist. u-4 does not exist. "
                "And 2 more."
            ),
        ),
    ],
)
def test_what_the_cluster_cannot_do_is_refused_with_each_fault(
    given: dict[TopicPartition, Assignment], faults: str
) -> None:
    with pytest.raises(PlanError) as refused:
        validate_against_cluster(given, SNAPSHOT, {})
    assert str(refused.value) == f"The reassignment cannot be executed. {faults}"


def test_what_names_live_brokers_and_known_partitions_is_let_through() -> None:
    validate_against_cluster({TopicPartition("t", 0): (2, 1), TopicPartition("t", 1): (1,)}, SNAPSHOT, {"t": 1})


def test_a_dead_broker_is_no_fault_where_the_plan_leaves_the_partition_as_it_is() -> None:
    name = TopicPartition("t", 0)
    lost = look("12", part("t-0", "3", isr=""), part("t-1", "12"), fenced="3")
    validate_against_cluster({name: (3, 1), TopicPartition("t", 1): (1,)}, lost, {})
    validate_against_cluster({name: (1, 7)}, SNAPSHOT, {})
    with pytest.raises(PlanError, match="t-0 names broker 7, which is not live"):
        validate_against_cluster({name: (7, 1)}, SNAPSHOT, {})


def test_fewer_replicas_than_min_insync_replicas_are_refused_unless_there_are_as_few_already() -> None:
    name, least = TopicPartition("t", 1), {"t": 3}
    validate_against_cluster({name: (1, 2)}, SNAPSHOT, least)  # as it is
    validate_against_cluster({name: (2, 1)}, SNAPSHOT, least)
    with pytest.raises(PlanError) as refused:
        validate_against_cluster({name: (1,)}, SNAPSHOT, least)
    assert str(refused.value) == (
        "The reassignment cannot be executed. t-1 is refused: it would go from 2 to 1 replicas, and "
        "min.insync.replicas is 3; ask for more replicas, or lower min.insync.replicas of its topic."
    )
    with pytest.raises(PlanError) as refused:
        validate_against_cluster({name: (2, 1, 3)}, SNAPSHOT, least)
    assert str(refused.value) == "The reassignment cannot be executed. t-1 names broker 3, which is not live."


def test_fields_that_are_not_given_are_unset() -> None:
    assert RebalanceRequest.of({"operation": "rebalance"}) == RebalanceRequest("rebalance")


def test_given_values_are_kept() -> None:
    given = {"operation": "drain", "brokers": [4, 5], "exclude": ("pay_.*",), "rack_aware": False, "max_moves": 3}
    assert RebalanceRequest.of(given) == RebalanceRequest(
        "drain", brokers=[4, 5], exclude=("pay_.*",), rack_aware=False, max_moves=3
    )


@pytest.mark.parametrize("empty", [None, [], ()])
@pytest.mark.parametrize("name", ["brokers", "topics", "exclude", "exclude_brokers"])
def test_a_list_that_is_none_or_empty_becomes_an_empty_tuple(name: str, empty: list[str] | None) -> None:
    assert getattr(RebalanceRequest.of({"operation": "expand", name: empty}), name) == ()


@pytest.mark.parametrize("name", ["replication_factor", "rack_aware", "balance", "tolerance", "max_bytes"])
def test_a_field_that_is_no_list_may_be_none(name: str) -> None:
    assert getattr(RebalanceRequest.of({"operation": "expand", name: None}), name) is None


def test_an_unknown_field_is_refused_with_all_valid_ones() -> None:
    with pytest.raises(SettingError) as refused:
        RebalanceRequest.of({"operation": "rebalance", "broker": [4]})
    assert str(refused.value) == (
        "Unknown rebalance option 'broker'. Valid options: operation, brokers, topics, exclude, exclude_brokers, "
        "replication_factor, rack_aware, internal_topics, rackless, balance, tolerance, prefer, max_moves, max_bytes."
    )


T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Asked(Simulator):
    """A cluster that counts the questions for log directories; every replica is in /disk-1."""

    asked: tuple[tuple[int, ...], ...] = ()

    def log_dirs(self, brokers: Collection[int]) -> dict[int, BrokerLogDirs]:
        self.asked += (tuple(brokers),)
        return super().log_dirs(brokers)


@pytest.fixture
def asked() -> Asked:
    return Asked(dict(zip((1, 2, 3, 4), "abca", strict=True)), {"t": [(1, 2, 3), (2, 3, 1)]})


def checked(asked: Simulator, named: dict[tuple[TopicPartition, int], str]) -> str:
    return check_directories(asked, asked.snapshot(), named)


def test_the_directory_in_which_a_broker_holds_the_replica_asks_for_nothing(asked: Asked) -> None:
    assert checked(asked, {(T0, 1): "/disk-1", (T1, 3): "/disk-1"}) == ""
    assert asked.asked == ((1, 3),)


def test_the_directory_of_an_added_replica_is_the_brokers_choice(asked: Asked) -> None:
    assert checked(asked, {(T0, 4): "/disk-2", (T0, 1): "/disk-1"}) == (
        'The reassignment names a log directory (KIP-113) for t-0 on broker 4; it is taken as "any": the broker '
        "chooses the directory of a replica that it does not hold."
    )
    many = {(TopicPartition("t", number), 4): "/disk-1" for number in range(5)}
    assert "for t-0 on broker 4, t-1 on broker 4, t-2 on broker 4 and 2 more; it is" in checked(asked, many)


def test_brokers_are_asked_only_for_replicas_that_they_hold(asked: Asked) -> None:
    assert held_directories(asked, asked.snapshot(), ()) == {}
    assert held_directories(asked, asked.snapshot(), [(T0, 4), (TopicPartition("u", 0), 1)]) == {}
    assert asked.asked == ()


def test_a_move_between_the_directories_of_a_broker_is_refused(asked: Asked) -> None:
    with pytest.raises(PlanError) as refused:
        checked(asked, {(T0, 4): "/disk-2", (T0, 1): "/disk-1", (T1, 2): "/disk-2"})
    assert str(refused.value) == (
        'The reassignment is refused: it names the log directory "/disk-2" (KIP-113) for t-1 on broker 2, which has it '
        'in "/disk-1", and Kafka Steward moves nothing between the directories of one broker; write "any", or use '
        "kafka-reassign-partitions."
    )


def test_a_replica_that_is_being_added_or_that_nobody_reports_has_no_other_directory(asked: Asked) -> None:
    asked.alter({T0: (1, 2, 4)})
    asked.mute.add(2)
    asked.kill(3)
    assert held_directories(asked, asked.snapshot(), [(T0, 4), (T1, 2), (T1, 3), (T1, 1)]) == {(T1, 1): "/disk-1"}
