"""What preflight is told: who needs nothing any more, how much room there is, and whether the cluster is strained."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.state import BrokerLogDirs, Directory
from kafka_steward.execution.preflight import (
    IncomingReplica,
    LogDirRoom,
    compute_rooms,
    find_under_min_isr_elsewhere,
    is_satisfied,
    place_replica,
)
from tests.execution.looks import brokers, look, part
from tests.simulated_plan import move


@pytest.mark.parametrize(
    ("replicas", "live", "enough"),
    [("123", "123", True), ("1234", "12345", True), ("12", "1234", False), ("123", "234", False)],
    ids=["all back", "more than before", "fewer than before", "one is dead"],
)
def test_a_move_is_satisfied_when_all_replicas_live_and_none_is_missing(replicas: str, live: str, enough: bool) -> None:
    found = is_satisfied(move("t-0", "123", "423"), part("t-0", replicas), frozenset(brokers(live)))
    assert found is enough


def disk(path: str, total: int | None, usable: int | None, **more: Any) -> Directory:
    return Directory(path, total_bytes=total, usable_bytes=usable, **more)


def test_room_is_what_each_directory_has_above_the_share_that_must_stay_free() -> None:
    told = {
        1: BrokerLogDirs({}, directories=(disk("/a", 1000, 400, logs=3),)),
        2: BrokerLogDirs({}, directories=(disk("/a", None, None),)),
        4: BrokerLogDirs({}, directories=(disk("/a", 1000, 400), disk("/b", 1000, None))),
        5: BrokerLogDirs({}, directories=(disk("/a", None, 400),)),
        6: BrokerLogDirs(
            {}, directories=(disk("/a", 1000, 400, cordoned=True), disk("/b", 100, 90), disk("/c", 0, 0, error=56))
        ),
        7: BrokerLogDirs({}, directories=(disk("/a", 1000, 400, cordoned=True),)),
    }
    assert compute_rooms(told, min_free=0.15, arriving={}) == {
        1: (LogDirRoom("", 3, 250),),
        6: (LogDirRoom("/b", 0, 75),),
    }


def test_what_is_on_its_way_takes_room_where_it_is_or_where_kafka_will_put_it() -> None:
    here, there = TopicPartition("t", 0), TopicPartition("t", 1)
    first, second = disk("/a", 1000, 900, logs=1, replica_bytes={here: 5}), disk("/b", 1000, 800, logs=0)
    arriving = {3: [IncomingReplica(here, 40), IncomingReplica(there, 70)]}
    rooms = compute_rooms({3: BrokerLogDirs({}, directories=(first, second))}, min_free=0.1, arriving=arriving)
    assert rooms == {3: (LogDirRoom("/a", 1, 760), LogDirRoom("/b", 1, 630))}
    assert place_replica(rooms[3], 630) == (LogDirRoom("/a", 1, 760), LogDirRoom("/b", 2, 0))
    assert place_replica(rooms[3], 631) is None


def test_strained_are_those_outside_the_plan_whose_brokers_all_live() -> None:
    partitions = [part("u-0", "12", isr="2"), part("t-0", "123", isr="2"), part("v-0", "23", isr="2")]
    t, u, v = (TopicPartition(name, 0) for name in "tuv")
    snapshot = look("123", *partitions)
    assert find_under_min_isr_elsewhere(snapshot, [], {"t": 2, "u": 2, "v": 1}) == [t, u]
    assert find_under_min_isr_elsewhere(snapshot, [t], {"t": 2}) == []
    assert find_under_min_isr_elsewhere(look("23", *partitions), [], {"t": 2, "u": 2, "v": 2}) == [v]
    assert find_under_min_isr_elsewhere(snapshot, [], {"u": 9}) == [u]
    assert find_under_min_isr_elsewhere(look("12", part("u-0", "12")), [], {"u": 9}) == [], (
        "never more than there are replicas"
    )
    assert find_under_min_isr_elsewhere(look("12", part("u-0", "12", isr="")), [], {}) == [], "no min ISR is known"
