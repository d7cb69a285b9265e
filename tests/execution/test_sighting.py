"""Who has failed is seen at once, although all partitions are asked for only now and then."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.state import Snapshot
from kafka_steward.execution.watching.detector import Detector
from kafka_steward.execution.watching.sighting import CALM_MS
from kafka_steward.journal.open import Journal
from kafka_steward.settings import Settings
from tests.simulator import Simulator
from tests.worlds import WHO


def test_while_the_same_brokers_live_only_they_are_asked_for(
    simulator: Simulator, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    everything = simulator.snapshot

    def counted(topics: Collection[str] | None = None) -> Snapshot:
        asked.append(simulator.now_ms)
        return everything(topics)

    monkeypatch.setattr(simulator, "snapshot", counted)
    detector = Detector(simulator, journal, Settings(), WHO)

    def looks(seconds: int) -> int:
        asked.clear()
        for _ in range(seconds):
            simulator.tick()
            assert detector.look().down == ()
        return len(asked)

    assert (looks(1), looks(CALM_MS // 1000 - 1), looks(1)) == (1, 0, 1)
    simulator.kill(4)  # which holds nothing
    assert (looks(1), looks(1)) == (1, 0)
    simulator.kill(1)
    assert detector.look().down == (1,)
    assert detector.look().down == (1,)
    simulator.restart(1)
    assert detector.look().cleared == (1,)


def test_replicas_that_are_assigned_to_a_dead_broker_are_seen_in_the_end(
    simulator: Simulator, journal: Journal
) -> None:
    simulator.kill(4)
    detector = Detector(simulator, journal, Settings(), WHO)
    assert detector.look().down == ()
    simulator.alter({TopicPartition("t", 0): (4, 2, 3)})
    simulator.tick(CALM_MS // 1000)
    assert detector.look().down == (4,)
