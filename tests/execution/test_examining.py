"""A look at a cluster's health, on the simulator."""

from __future__ import annotations

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import RequestError
from kafka_steward.execution.watching.examining import HEALTHY, ailments, checked_limits, examine, health_sentence
from tests.simulator import Simulator
from tests.worlds import memory_journal


def test_a_whole_cluster_is_healthy() -> None:
    simulator = Simulator.of("1a 2b 3c", "t: 123 231")
    health, _ = examine(simulator, memory_journal(simulator))
    assert ailments(health, HEALTHY) == []
    assert health_sentence(health) == (
        "Of 2 partitions 0 are under-replicated, 0 are under min ISR, 0 are offline. None is being reassigned."
    )


def test_a_killed_broker_is_seen_and_a_reassignment_is_not_held_for_one() -> None:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 231", bandwidth=10)
    journal = memory_journal(simulator)
    simulator.alter({TopicPartition("t", 0): (1, 2, 4)})
    _, copies = examine(simulator, journal)
    simulator.tick()
    health, _ = examine(simulator, journal, copies)
    assert ailments(health, HEALTHY) == []
    assert (health.measures["reassigning_partitions"], health.max_lag) == (1, 90)
    assert health_sentence(health).endswith(" 1 is being reassigned, at most 90 messages behind, 0.0 MB/s.")
    simulator.kill(2)
    simulator.topic_settings["t"]["min.insync.replicas"] = "3"
    health, _ = examine(simulator, journal)
    assert ailments(health, HEALTHY) == ["under_replicated_partitions", "under_min_isr_partitions"]
    assert "2 are under-replicated (t-0, t-1)" in health_sentence(health)
    assert health_sentence(health).endswith("Broker 2 is gone.")


def test_limits_are_held_to_known_measures() -> None:
    assert checked_limits(None) == HEALTHY
    assert checked_limits({"reassignment_max_lag": 1000}) == {"reassignment_max_lag": 1000}
    with pytest.raises(RequestError, match="There is no measure 'lag'"):
        checked_limits({"lag": 1})
