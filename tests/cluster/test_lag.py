"""Lag and missing bytes, from log ends and sizes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.state import (
    BrokerLogDirs,
    Partition,
    Snapshot,
    bytes_missing,
    lag,
    partitions_by_broker,
    without_stray_replicas,
)

NAME = TopicPartition("t", 0)
PARTITION = Partition("t", 0, replicas=(1, 2, 3), isr=frozenset({1, 2}), leader=1)
sizes = st.none() | st.integers(0, 2**63 - 1)


def dirs(leader: int | None, follower: int | None) -> dict[int, BrokerLogDirs]:
    found = {1: leader, 3: follower}
    return {broker: BrokerLogDirs({} if size is None else {NAME: size}) for broker, size in found.items()}


def test_lag_is_the_leaders_end_minus_the_followers() -> None:
    assert lag({(NAME, 1): 4000, (NAME, 3): 129}, PARTITION, 3) == 3871


def test_lag_is_unknown_while_either_end_or_the_leader_is() -> None:
    offline = Partition("t", 0, (1, 2, 3), frozenset(), leader=None)
    assert lag({(NAME, 1): 4000}, PARTITION, 3) is None
    assert lag({(NAME, 3): 129}, PARTITION, 3) is None
    assert lag({(NAME, 1): 4000, (NAME, 3): 129}, offline, 3) is None


@given(leader=st.integers(0), follower=st.integers(0))
def test_lag_is_never_negative(leader: int, follower: int) -> None:
    assert lag({(NAME, 1): leader, (NAME, 3): follower}, PARTITION, 3) == max(0, leader - follower)


@given(leader=sizes, follower=sizes)
def test_missing_bytes_are_unknown_or_between_nothing_and_all(leader: int | None, follower: int | None) -> None:
    missing = bytes_missing(dirs(leader, follower), PARTITION, 3)
    assert missing is None if leader is None else missing is not None and 0 <= missing <= leader


def test_a_broker_that_holds_nothing_yet_lacks_everything_and_one_that_is_not_reached_is_unknown() -> None:
    assert bytes_missing(dirs(32_000, None), PARTITION, 3) == 32_000
    assert bytes_missing({1: BrokerLogDirs({NAME: 32_000})}, PARTITION, 3) is None


def test_all_replicas_are_asked_at_the_brokers_that_hold_them() -> None:
    other = Partition("u", 7, (3,), frozenset({3}), leader=3)
    assert partitions_by_broker([PARTITION, other]) == {1: [NAME], 2: [NAME], 3: [NAME, TopicPartition("u", 7)]}


def test_strays_of_a_returned_broker_do_not_belong_to_it() -> None:
    moved, gone = TopicPartition("moved", 0), TopicPartition("gone", 0)
    snapshot = Snapshot("id", 0, {}, {NAME: PARTITION, moved: Partition("moved", 0, (1,), frozenset({1}), leader=1)})
    directory = BrokerLogDirs({NAME: 5, moved: 6, gone: 7}, total_bytes=100, usable_bytes=80)
    assert without_stray_replicas(directory, snapshot, 3) == BrokerLogDirs({NAME: 5}, total_bytes=100, usable_bytes=80)
