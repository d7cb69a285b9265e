"""A reassignment that a person wrote: read in both forms, and refused with each fault named."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.errors import PlanError
from kafka_steward.execution.plan_requests import parse_assignments, validate_against_cluster
from tests.execution.looks import look, part
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
        (
            "{}",
            'The reassignment lists no partition; it should be {"version": 1, "partitions": [...]}.',
        ),
        (
            {},
            'The reassignment lists no partition; it should be {"version": 1, "partitions": [...]}.',
        ),
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
