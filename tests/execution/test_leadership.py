"""What the report of a heal says about leaders."""

from __future__ import annotations

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.state import Broker, Partition, Snapshot
from kafka_steward.execution.leadership import describe_leader_shortfall


def led(*leaders: int | None, replicas: tuple[int, ...] = (1, 2, 4), fenced: int | None = None) -> Snapshot:
    partitions = [Partition("t", n, replicas, frozenset(replicas), leader) for n, leader in enumerate(leaders)]
    brokers = {broker: Broker(broker, "h", 1, fenced=broker == fenced) for broker in replicas}
    return Snapshot("c", 1, brokers, {TopicPartition("t", each.partition): each for each in partitions})


def test_a_broker_that_received_replicas_and_leads_none_is_named_with_what_to_do() -> None:
    assert describe_leader_shortfall(led(1, 1, 1, 2, 2, 2), {4}) == (
        "Leaders are uneven: broker 4 leads 0 of its share of 2, because a heal moves no leader that is alive; "
        "the operation rebalance makes them even."
    )
    assert "broker 2 leads 0 of its share of 2, broker 4 leads 0 of its share of 2," in describe_leader_shortfall(
        led(1, 1, 1, 1, 1, None), {2, 4}
    )


@pytest.mark.parametrize(
    ("snapshot", "received"),
    [
        (led(1, 1, 1, 2, 2, 4), {4}),  # half of it
        (led(1, 1, 1, 2, 2, 2), {1, 2}),  # others do
        (led(1, 1, 1, 2, 2, 2), ()),
        (led(1, 1, 1, 2, 2, 2, fenced=4), {4}),
        (led(1, 2), {4}),  # less than one leader
        (led(), {4}),
    ],
)
def test_nothing_is_said_of_others(snapshot: Snapshot, received: set[int]) -> None:
    assert describe_leader_shortfall(snapshot, received) == ""
