"""Cordoned brokers (KIP-1066) where replicas are given to brokers without a planner: joining, filling, creating."""

from __future__ import annotations

from kafka_steward.assignment import TopicPartition
from kafka_steward.execution.broker_joins import claim_empty_brokers, poll_empty_brokers, poll_joined_brokers
from kafka_steward.execution.cluster_queries import cordoned_brokers
from kafka_steward.execution.topics import TopicSpec, create_topic
from kafka_steward.settings import Settings
from tests.simulated_plan import WHO, memory_journal
from tests.simulator import Simulator

EVERY = Settings(heal_retry_interval=60)


def test_a_new_broker_is_rung_for_and_taken_up_when_it_is_not_cordoned_any_more() -> None:
    simulator = Simulator.of("1a 2b 3c 4a 5b", "t: 123 231")
    journal = memory_journal(simulator)
    simulator.cordoned.add(4)
    assert poll_empty_brokers(simulator, journal, EVERY).due == (5,)
    assert claim_empty_brokers(simulator, journal, "expand/1").brokers == (5,)
    simulator.tick(60)
    assert poll_empty_brokers(simulator, journal, EVERY).due == ()
    assert claim_empty_brokers(simulator, journal, "expand/2").brokers == ()
    simulator.cordoned.clear()
    simulator.tick(60)
    assert poll_empty_brokers(simulator, journal, EVERY).due == (4,)
    assert claim_empty_brokers(simulator, journal, "expand/3").brokers == (4,)


def test_a_topic_is_created_and_filled_around_a_cordoned_broker() -> None:
    simulator = Simulator.of("1a 2b 3c", mode="kraft")
    journal = memory_journal(simulator)
    simulator.cordoned.add(2)
    created = create_topic(simulator, journal, TopicSpec("t", 1, 3), allowed=True, who=WHO)
    assert created.pending == 1
    assert set(simulator.topics[TopicPartition("t", 0)].replicas) == {1, 3}
    joined = poll_joined_brokers(simulator, journal, EVERY, WHO)
    assert joined is not None
    assert (joined.eligible, joined.due) == ((), ())
    simulator.cordoned.clear()
    joined = poll_joined_brokers(simulator, journal, EVERY, WHO)
    assert joined is not None
    assert (joined.eligible, joined.due) == ((2,), (2,))


def test_one_that_does_not_answer_is_not_called_cordoned_and_nobody_is_asked_about_none() -> None:
    simulator = Simulator.of("1a 2b 3c")
    simulator.cordoned |= {1, 2}
    simulator.mute.add(2)
    assert cordoned_brokers(simulator, [1, 2, 3]) == {1}
    simulator.reachable = False
    assert cordoned_brokers(simulator, []) == frozenset()
