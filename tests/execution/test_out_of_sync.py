"""Which partitions are not whole, in order, and what is still missing of each."""

from __future__ import annotations

from kafka_steward.assignment import TopicPartition
from kafka_steward.execution.plan_report import OutOfSyncPartition, find_out_of_sync
from tests.execution.looks import look, part

SNAPSHOT = look(
    "1234",
    part("u-0", "321", isr="2"),
    part("t-10", "1234", adding="4"),
    part("t-2", "1234", isr="123", adding="4"),
    part("t-1", "123"),
)
TEN, TWO, U = (
    OutOfSyncPartition("t", 10, (), True),
    OutOfSyncPartition("t", 2, (4,), True),
    OutOfSyncPartition("u", 0, (3, 1), False),
)


def test_all_partitions_that_miss_a_replica_or_move_are_told_in_order() -> None:
    assert find_out_of_sync(SNAPSHOT) == (TWO, TEN, U)


def test_only_what_was_asked_for_is_told_and_what_does_not_exist_is_left_out() -> None:
    asked = [TopicPartition("u", 0), TopicPartition("gone", 0), TopicPartition("t", 1)]
    assert find_out_of_sync(SNAPSHOT, asked) == (U,)
    assert find_out_of_sync(SNAPSHOT, []) == ()


def test_each_says_what_it_waits_for() -> None:
    assert [each.sentence for each in (TWO, TEN, U)] == [
        "t-2 waits for broker 4 to be in sync and is being moved.",
        "t-10 is being moved.",
        "u-0 waits for brokers 3 and 1 to be in sync.",
    ]
