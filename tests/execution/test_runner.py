"""The Runner on a simulated cluster: what it does in the world as it should be, and in the one that is."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.journal.plans import PlanStatus
from kafka_steward.settings import Settings
from tests.simulator import Simulator
from tests.worlds import FOLLOWERS, RATE, World, heal_moves, journal_of, move

TOPIC = "t: 123 231 312 124 213 321"


@pytest.fixture
def simulator() -> Simulator:
    return Simulator.of("1a 2b 3c 4a", TOPIC)


def heal(simulator: Simulator, folder: Path, **more: object) -> World:
    """Broker 1 died; it is replaced by 4 wherever 4 is not yet."""
    simulator.kill(1)
    return World(simulator, journal_of(simulator, folder), heal_moves(simulator, 1, 4), failed=(1,), **more)  # type: ignore[arg-type]


def test_a_heal_makes_the_cluster_whole_and_says_so(simulator: Simulator, tmp_path: Path) -> None:
    world = heal(simulator, tmp_path)
    progress = world.run()
    assert progress.status is PlanStatus.COMPLETED
    assert progress.completed == 5
    assert all(simulator.topics[row.topic_partition].replicas == row.move.after for row in world.rows())
    assert progress.sentence == f"Plan {world.digest[:12]} is complete: 5 of 5 partitions moved."
    assert world.journal.slot.owner() is None
