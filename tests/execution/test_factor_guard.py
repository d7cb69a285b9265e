"""KIP-860's guard: no plan changes a replication factor that somebody else has set between our look and our request."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.document_api.external_guard import ExternalReassignmentGuard
from kafka_steward.execution.cancel_restoration import find_externally_reordered, restore_externally_reordered
from kafka_steward.execution.effects import alter_keeping_factor
from kafka_steward.execution.external_reassignments import cancel_external_reassignments, find_external_reassignments
from kafka_steward.execution.late_submissions import LateRequest, LateRetraction
from kafka_steward.execution.lifecycle import request_cancel
from kafka_steward.journal import paths
from kafka_steward.journal.records import MoveState
from kafka_steward.settings import Settings
from tests.cancelling import undo_of
from tests.execution.runs import TOPIC, apply, simulator
from tests.simulated_plan import WHO, memory_journal, move
from tests.simulator import Simulator

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
    assert alter_keeping_factor(simulator, targets, before) == {T0: None, T1: None}
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


# the order of the replicas, which a cancel loses, is put back by one more request

MOVE = move("t-0", "123", "431")
#: Sets out from a cancel that is still to be made, and returns what makes it.
Scene = Callable[[Simulator], Callable[[], object]]


def intruded(simulator: Simulator) -> Callable[[], object]:
    """Somebody begins it while reassignments are switched off."""
    journal = memory_journal(simulator)
    journal.tree.create(paths.REASSIGN_CANCEL, "")
    intruders = ExternalReassignmentGuard(simulator, journal, WHO, cancel=True)
    intruders.poll()
    simulator.alter({T0: MOVE.after})
    return intruders.poll


def late(simulator: Simulator) -> Callable[[], object]:
    """A process that woke too late began it."""
    simulator.alter({T0: MOVE.after})
    retraction = LateRetraction(simulator, memory_journal(simulator), "a" * 64, WHO)
    return lambda: retraction.cancel_and_restore([LateRequest(MOVE)])


def of_others(simulator: Simulator) -> Callable[[], object]:
    """Somebody began it, and it is to go back to the originals that the request names."""
    journal = memory_journal(simulator)
    asked = '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[4,3,1],"original_replicas":[1,2,3]}]}'
    journal.tree.create(paths.REASSIGN_PARTITIONS, asked)
    simulator.alter({T0: MOVE.after})

    def act() -> None:
        with journal.step_lock("here") as fence:
            found = find_external_reassignments(simulator, journal, [])
            cancel_external_reassignments(simulator, journal, found, reason="enough", who=WHO, fence=fence)

    return act


def planned(simulator: Simulator) -> Callable[[], object]:
    """A plan began it, and is cancelled."""
    world = apply(simulator, MOVE)
    world.step()
    request_cancel(world.journal, world.digest, who=WHO, reason="enough")
    return world.run


def cancelled_elsewhere(simulator: Simulator) -> Callable[[], object]:
    """A plan began it, somebody else cancelled it, and whoever cancels the rest wants the order back."""
    world = apply(simulator, MOVE, move("t-1", "231", "234", position=1, size=10_000))
    simulator.topics[T1].size = 10_000
    world.step()
    simulator.cancel([T0])
    world.step()
    undo = undo_of(world, scope="pending")

    def act() -> None:
        while not undo.step().ended:
            simulator.tick()
        restore_externally_reordered(simulator, world.journal, world.digest, WHO)

    return act


@pytest.mark.parametrize("scene", [intruded, late, of_others, planned, cancelled_elsewhere])
def test_putting_back_an_order_changes_no_factor_that_someone_changes_meanwhile(
    monkeypatch: pytest.MonkeyPatch, scene: Scene
) -> None:
    simulator = Simulator.of("1a 2b 3c 4a", TOPIC, mode="kraft")  # the other mode does not know the guard
    act, alter, cancel = scene(simulator), simulator.alter, simulator.cancel
    asked: list[Any] = []

    def raced(targets: Mapping[TopicPartition, Assignment], **more: Any) -> Any:
        if not asked:
            alter({T0: (1, 2)})  # someone gives it two replicas between our look and our request
        asked.append(dict(targets))
        return alter(targets, **more)

    def also_asked(partitions: Collection[TopicPartition]) -> Any:
        if asked:
            asked.append(partitions)
        return cancel(partitions)

    monkeypatch.setattr(simulator, "alter", raced)
    monkeypatch.setattr(simulator, "cancel", also_asked)
    act()
    simulator.run()
    assert asked == [{T0: (1, 2, 3)}]
    assert simulator.topics[T0].replicas == (1, 2)


def test_the_order_that_someone_elses_cancel_lost_is_restored(simulator: Simulator) -> None:
    world = apply(simulator, move("t-0", "123", "423"), move("t-1", "231", "431", position=1))
    world.step()
    simulator.cancel([T0, T1])
    world.run()
    assert [simulator.topics[name].replicas for name in (T0, T1)] == [(2, 3, 1), (3, 1, 2)]
    found = find_externally_reordered(simulator, world.journal, world.digest)
    assert [row.topic_partition for row in found] == [T0, T1]
    restore_externally_reordered(simulator, world.journal, world.digest, WHO)
    assert [simulator.topics[name].replicas for name in (T0, T1)] == [(1, 2, 3), (2, 3, 1)]
    assert find_externally_reordered(simulator, world.journal, world.digest) == []
