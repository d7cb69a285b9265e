"""Who has failed is seen at once, although all partitions are asked for only now and then."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.state import Snapshot
from kafka_steward.execution.failure_detector import CALM_MS, LOST_MS, FailureDetector
from kafka_steward.journal.store import Journal
from kafka_steward.settings import Settings
from tests.simulated_plan import WHO
from tests.simulator import Simulator


@pytest.fixture
def asked(simulator: Simulator, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """When all partitions were asked for."""
    times: list[int] = []
    everything = simulator.snapshot

    def counted(topics: Collection[str] | None = None) -> Snapshot:
        times.append(simulator.now_ms)
        return everything(topics)

    monkeypatch.setattr(simulator, "snapshot", counted)
    return times


def test_while_the_same_brokers_live_only_they_are_asked_for(
    simulator: Simulator, journal: Journal, asked: list[int]
) -> None:
    detector = FailureDetector(simulator, journal, Settings(), WHO)

    def looks(seconds: int) -> int:
        asked.clear()
        for _ in range(seconds):
            simulator.tick()
            assert detector.poll().down == ()
        return len(asked)

    assert (looks(1), looks(CALM_MS // 1000 - 1), looks(1)) == (1, 0, 1)
    simulator.kill(4)  # which holds nothing
    assert (looks(1), looks(1)) == (1, 0)
    simulator.kill(1)
    assert detector.poll().down == (1,)
    assert detector.poll().down == (1,)
    simulator.restart(1)
    assert detector.poll().cleared == (1,)


def test_while_a_broker_is_gone_all_partitions_are_asked_for_every_ten_seconds_and_before_it_is_announced(
    simulator: Simulator, journal: Journal, asked: list[int]
) -> None:
    detector = FailureDetector(simulator, journal, Settings(heal_failure_interval=34), WHO)
    simulator.kill(1)
    began_ms = simulator.now_ms
    verdict = detector.poll()
    while not verdict.due:
        simulator.tick()
        verdict = detector.poll()
    assert [(at_ms - began_ms) // 1000 for at_ms in asked] == [0, 10, 20, 30, 34]
    assert LOST_MS == 10_000


def test_a_broker_of_which_too_few_have_said_that_it_is_gone_is_asked_for_at_each_look(
    simulator: Simulator, journal: Journal, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    detector = FailureDetector(simulator, journal, Settings(), WHO)
    monkeypatch.setattr(simulator, "live_views", lambda brokers: {2: frozenset(brokers)})
    simulator.kill(1)
    for _ in range(3):
        assert detector.poll().down == ()
        simulator.tick()
    assert len(asked) == 3
    monkeypatch.undo()
    assert detector.poll().down == (1,)


def test_nothing_is_announced_of_a_broker_that_was_healed_since_the_last_look_at_all_partitions(
    simulator: Simulator, journal: Journal
) -> None:
    detector = FailureDetector(simulator, journal, Settings(heal_failure_interval=9), WHO)
    simulator.kill(1)
    assert detector.poll().waiting
    simulator.tick()
    everywhere = [name for name, each in simulator.snapshot().partitions.items() if 1 in each.replicas]
    simulator.alter(dict.fromkeys(everywhere, (2, 3, 4)))
    simulator.tick(8)
    verdict = detector.poll()
    assert (verdict.due, verdict.down) == ((), ())


def test_replicas_that_are_assigned_to_a_dead_broker_are_seen_in_the_end(
    simulator: Simulator, journal: Journal
) -> None:
    simulator.kill(4)
    detector = FailureDetector(simulator, journal, Settings(), WHO)
    assert detector.poll().down == ()
    simulator.alter({TopicPartition("t", 0): (4, 2, 3)})
    simulator.tick(CALM_MS // 1000)
    assert detector.poll().down == (4,)
