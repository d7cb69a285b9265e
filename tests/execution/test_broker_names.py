"""Sentences about one broker and about several: their verbs agree."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafka_steward.assignment import begin_with_brokers, name_brokers
from kafka_steward.execution.broker_joins import poll_empty_brokers
from kafka_steward.execution.failure_detector import FailureDetector
from kafka_steward.execution.topics import TopicSpec, create_topic
from kafka_steward.settings import Settings
from kafka_steward.triggers.wait import evaluate_check
from tests.simulated_plan import WHO, memory_journal
from tests.simulator import Simulator


@pytest.mark.parametrize(
    ("brokers", "name", "beginning"),
    [
        ([3], "broker 3", "Broker 3 is"),
        ([3, 4], "brokers 3 and 4", "Brokers 3 and 4 are"),
        ((3, 4, 10), "brokers 3, 4 and 10", "Brokers 3, 4 and 10 are"),
    ],
)
def test_the_verb_agrees_with_the_number_of_brokers(brokers: Any, name: str, beginning: str) -> None:
    assert name_brokers(brokers) == name
    assert begin_with_brokers(brokers, "is", "are") == beginning


def test_brokers_that_are_down_are_named_by_the_detector() -> None:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 234")
    detector = FailureDetector(simulator, memory_journal(simulator), Settings(max_failed_fraction=0.5), WHO)
    simulator.kill(1)
    simulator.kill(2)
    assert detector.poll().sentence.startswith("Brokers 1 and 2 are down; the grace period ends in ")


def test_brokers_that_joined_or_did_not_are_named() -> None:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 12")
    place: Any = SimpleNamespace(cluster=simulator, journal=memory_journal(simulator), settings=Settings())
    found = evaluate_check("broker_joined", place, {})
    assert found.sentence == "No replica is pending. Brokers 3 and 4 hold nothing yet."
    assert poll_empty_brokers(simulator, place.journal, Settings()).sentence == "Brokers 3 and 4 have joined."
    simulator.kill(3)
    simulator.kill(4)
    found = evaluate_check("broker_joined", place, {"brokers": [1, 3, 4]})
    assert (found.met, found.sentence) == (False, "Brokers 3 and 4 are not live.")
    assert evaluate_check("broker_joined", place, {"brokers": [1, 2]}).sentence == "All requested brokers are live."


def test_brokers_that_can_host_pending_replicas_are_named() -> None:
    simulator = Simulator.of("1a 2b 3c 4a", "other: 123", mode="zookeeper")
    place: Any = SimpleNamespace(cluster=simulator, journal=memory_journal(simulator), settings=Settings())
    simulator.kill(3)
    simulator.kill(4)
    create_topic(simulator, place.journal, TopicSpec("t", 1, 3), allowed=True, who=WHO)
    simulator.restart(3)
    simulator.restart(4)
    assert "are pending; brokers 3 and 4 can host some." in evaluate_check("broker_joined", place, {}).sentence
