"""Preferred leaders: where they are elected, and what the report of a heal says about leaders."""

from __future__ import annotations

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.state import Broker, Partition, Snapshot
from kafka_steward.execution.effects import elect_preferred_leaders, find_not_led_by_preferred
from kafka_steward.execution.leadership import describe_leader_shortfall
from kafka_steward.journal.audit import Outcome
from tests.simulated_plan import WHO, memory_journal, simulated
from tests.simulator import Simulator


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


T0 = TopicPartition("t", 0)


def test_leaders_are_elected_where_the_preferred_one_can_lead() -> None:
    simulator, journal = simulated("1a 2b 3c 4a", "t: 123 231 312")
    simulator.kill(1)
    assert find_not_led_by_preferred(simulator.snapshot()) == []
    simulator.restart(1)
    simulator.tick()
    assert find_not_led_by_preferred(simulator.snapshot()) == [T0]
    elected = elect_preferred_leaders(simulator, journal, who=WHO)
    assert (elected.elected, elected.sentence) == ((T0,), "1 preferred leaders elected.")
    assert simulator.topics[T0].leader == 1
    row = journal.audit.rows()[0]
    assert (row.entry.action.value, row.entry.before, row.entry.after, row.outcome) == ("elect", 2, 1, Outcome.DONE)
    assert elect_preferred_leaders(simulator, journal, who=WHO).elected == ()


def test_a_refused_election_is_told_in_kafkas_words(monkeypatch: pytest.MonkeyPatch) -> None:
    simulator = Simulator.of("1a 2b 3c", "t: 123")
    simulator.topics[T0].leader = 2
    seen = simulator.snapshot()
    simulator.kill(1)
    monkeypatch.setattr(simulator, "snapshot", lambda *_: seen)
    elected = elect_preferred_leaders(simulator, memory_journal(simulator), who=WHO, partitions=[T0])
    assert elected.elected == ()
    assert "The preferred leader was not available." in elected.sentence
