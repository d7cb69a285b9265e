"""What others ask of Kafka by `/admin/reassign_partitions`: written down as in flight for as long as it is."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.state import Snapshot
from kafka_steward.document_api.controller import track_legacy_reassignments
from kafka_steward.document_api.request_rules import ActiveReassignment
from kafka_steward.journal import paths
from kafka_steward.journal.kip_documents import InFlight
from tests.protocol.simulated_watch import Yard, document

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def asked_of_kafka(yard: Yard, *wanted: str) -> None:
    yard.journal.tree.create(paths.REASSIGN_PARTITIONS, document(wanted))


def follow(yard: Yard, under_way: dict[TopicPartition, ActiveReassignment] | None = None) -> list[str]:
    return track_legacy_reassignments(yard.simulator, yard.journal, under_way or {})


def test_it_is_written_down_until_it_has_ended() -> None:
    yard = Yard()
    asked_of_kafka(yard, "t-0 23")
    yard.simulator.alter({T0: (2, 3)})
    assert follow(yard) == []
    assert yard.record("t-0") == InFlight(None, (2, 3), legacy=True, top=2)
    yard.journal.tree.delete(paths.REASSIGN_PARTITIONS, version=0)
    follow(yard)
    assert yard.record("t-0") is not None  # Kafka has read the node, and carries it out
    yard.simulator.run()
    follow(yard)
    assert yard.record("t-0") is None


def test_what_kafka_has_not_begun_is_written_down_and_what_does_not_exist_is_not() -> None:
    yard = Yard()
    asked_of_kafka(yard, "t-0 23", "t-9 23", "x-0 23")
    follow(yard)
    assert yard.record("t-0") == InFlight(None, (2, 3), legacy=True, top=2)
    assert (yard.record("t-9"), yard.record("x-0")) == (None, None)


def test_its_originals_are_those_that_its_writer_gave_and_its_top_what_it_had() -> None:
    yard = Yard()
    text = '{"partitions":[{"topic":"t","partition":1,"replicas":[2,3,4,5],"original_replicas":[1,2,3]}]}'
    yard.journal.tree.create(paths.REASSIGN_PARTITIONS, text)
    yard.simulator.alter({T1: (2, 3, 4, 5)})
    follow(yard)
    assert yard.record("t-1") == InFlight((1, 2, 3), (2, 3, 4, 5), legacy=True, top=3)


def test_of_a_topic_that_was_deleted_nothing_stays() -> None:
    yard = Yard()
    asked_of_kafka(yard, "t-0 23")
    follow(yard)
    yard.journal.tree.delete(paths.REASSIGN_PARTITIONS, version=0)
    yard.simulator.delete("t")
    follow(yard)
    assert yard.record("t-0") is None


def test_what_cannot_be_read_is_left_to_kafka() -> None:
    yard = Yard()
    asked_of_kafka(yard, "t-0 23")
    follow(yard)
    yard.journal.tree.set(paths.REASSIGN_PARTITIONS, "{", version=0)
    (said,) = follow(yard)
    assert said.startswith("Left to Kafka: /admin/reassign_partitions does not contain JSON (")
    assert yard.record("t-0") is not None


UNDER_WAY = {
    "another target": (ActiveReassignment((2, 4), (1, 2), plan="p"), True),
    "the same target": (ActiveReassignment((2, 3), (1, 2), plan="p"), False),
    "by the same route": (ActiveReassignment((2, 4), (1, 2), legacy=True, plan="p"), False),
}


@pytest.mark.parametrize("case", UNDER_WAY)
def test_what_came_by_the_other_route_is_not_written_down_again_and_told(case: str) -> None:
    flight, told = UNDER_WAY[case]
    yard = Yard()
    asked_of_kafka(yard, "t-1 234", "t-0 23")
    said = "t-0 is also requested by /admin/reassign_partitions, and a request is already reassigning it."
    assert follow(yard, {T0: flight}) == ([said] if told else [])
    assert yard.record("t-0") is None
    assert yard.record("t-1") == InFlight(None, (2, 3, 4), legacy=True, top=3)


def test_where_nothing_came_by_the_old_route_the_cluster_is_not_asked() -> None:
    yard = Yard()
    cluster: Any = None
    assert track_legacy_reassignments(cluster, yard.journal, {}) == []


def test_only_the_topics_that_matter_are_asked_for() -> None:
    yard = Yard("t: 12", "u: 12", "v: 12")
    seen: list[list[str]] = []
    real = yard.simulator.snapshot

    def snapshot(topics: Collection[str] | None = None) -> Snapshot:
        seen.append(list(topics or ()))
        return real(topics)

    yard.simulator.snapshot = snapshot  # type: ignore[method-assign]  # notes what is asked for
    asked_of_kafka(yard, "u-0 23")
    follow(yard)
    yard.journal.tree.delete(paths.REASSIGN_PARTITIONS, version=0)
    asked_of_kafka(yard, "t-0 23")
    follow(yard)
    assert seen == [["u"], ["t", "u"]]
