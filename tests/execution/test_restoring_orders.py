"""Restoring the replica order that someone else's cancel lost: the order, and never the replication factor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.execution.cancel_restoration import find_externally_reordered, restore_externally_reordered
from kafka_steward.journal.audit import Action, Outcome
from tests.execution.runs import apply, simulator
from tests.simulated_plan import WHO, World, move
from tests.simulator import Simulator

__all__ = ["simulator"]

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def world(simulator: Simulator) -> World:
    """Two moves, cancelled by someone else in flight, as a step has seen."""
    world = apply(simulator, move("t-0", "123", "423"), move("t-1", "231", "431", position=1))
    world.step()
    simulator.cancel([T0, T1])
    world.run()
    assert [simulator.topics[name].replicas for name in (T0, T1)] == [(2, 3, 1), (3, 1, 2)]
    return world


def restore(world: World) -> None:
    restore_externally_reordered(world.simulator, world.journal, world.digest, WHO)


def test_the_order_of_each_partition_is_restored(world: World) -> None:
    assert [row.topic_partition for row in find_externally_reordered(world.simulator, world.journal, world.digest)] == [
        T0,
        T1,
    ]
    restore(world)
    assert [world.simulator.topics[name].replicas for name in (T0, T1)] == [(1, 2, 3), (2, 3, 1)]
    assert find_externally_reordered(world.simulator, world.journal, world.digest) == []


def test_a_factor_that_someone_changes_in_the_last_moment_stays(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    simulator = world.simulator
    alter = simulator.alter

    def raced(targets: Mapping[TopicPartition, Assignment], **more: Any) -> Any:
        monkeypatch.setattr(simulator, "alter", alter)
        alter({T0: (2, 3)})  # someone gives it two replicas, and Kafka does so at once
        return alter(targets, **more)

    monkeypatch.setattr(simulator, "alter", raced)
    restore(world)
    if simulator.mode == "kraft":
        assert simulator.topics[T0].replicas == (2, 3)
        (refused,) = [row for row in world.journal.audit.rows(action=Action.REORDER) if row.outcome is not Outcome.DONE]
        assert (refused.outcome, refused.entry.partition) == (Outcome.REFUSED, 0)
        assert "replication factor would change" in refused.detail
    assert simulator.topics[T1].replicas == (2, 3, 1)
