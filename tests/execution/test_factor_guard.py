"""KIP-860's guard: no plan changes a replication factor that somebody else has set between our look and our request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.execution.altering import alter_from
from kafka_steward.journal.moves import MoveState
from kafka_steward.settings import Settings
from tests.execution.runs import apply, simulator
from tests.simulator import Simulator
from tests.worlds import move

__all__ = ["simulator"]

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Asked:
    """Remembers what was asked, guarded or not."""

    def __init__(self, simulator: Simulator) -> None:
        self.simulator = simulator
        self.calls: list[tuple[dict[TopicPartition, Assignment], bool]] = []
        self._alter = simulator.alter

    def alter(self, targets: Mapping[TopicPartition, Assignment], *, keep_factor: bool = False) -> Any:
        self.calls.append((dict(targets), keep_factor))
        return self._alter(targets, keep_factor=keep_factor)


def test_targets_are_guarded_where_their_number_stays(simulator: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(simulator)
    monkeypatch.setattr(simulator, "alter", asked.alter)
    targets = {T0: (4, 2, 3), T1: (2, 3)}
    before = {name: simulator.topics[name].replicas for name in targets}
    assert alter_from(simulator, targets, before) == {T0: None, T1: None}
    assert asked.calls == [({T0: (4, 2, 3)}, True), ({T1: (2, 3)}, False)]


def test_a_factor_that_someone_changes_in_the_last_moment_stays(
    simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = apply(simulator, move("t-0", "123", "423"), move("t-1", "231", "431", position=1))
    alter = simulator.alter

    def raced(targets: Mapping[TopicPartition, Assignment], **more: Any) -> Any:
        monkeypatch.setattr(simulator, "alter", alter)
        alter({T0: (1, 2)})  # someone gives it two replicas, and Kafka does so at once
        return alter(targets, **more)

    monkeypatch.setattr(simulator, "alter", raced)
    progress = world.run()
    if simulator.mode == "kraft":
        assert simulator.topics[T0].replicas == (1, 2)
        assert (progress.completed, world.rows()[0].state) == (1, MoveState.DROPPED)
    else:  # which does not know the guard
        assert simulator.topics[T0].replicas == (4, 2, 3)
    assert simulator.topics[T1].replicas == (4, 3, 1)


@pytest.mark.parametrize("one_by_one", [False, True], ids=["whole", "one replica at a time"])
def test_an_operation_that_changes_the_factor_is_not_guarded(simulator: Simulator, one_by_one: bool) -> None:
    settings = Settings(one_replica_at_a_time=one_by_one)
    moves = [move("t-0", "123", "1234"), move("t-1", "231", "23", position=1), move("t-3", "124", "356", position=2)]
    simulator.racks |= {5: "b", 6: "c"}
    simulator.alive |= {5, 6}
    simulator.broker_settings |= {5: {}, 6: {}}
    world = apply(simulator, *moves, settings=settings)
    assert world.run().completed == 3
    assert [simulator.topics[row.topic_partition].replicas for row in world.rows()] == [each.after for each in moves]
