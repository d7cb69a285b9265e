"""Whether a disk has room is judged by what is so when a move begins, not by what was planned."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_steward.assignment import Move, TopicPartition
from kafka_steward.execution.moves import Held, HoldReason
from kafka_steward.journal.records import MoveState
from tests.execution.runs import apply, simulator
from tests.simulated_plan import World, move
from tests.simulator import DISK, Simulator

__all__ = ["simulator"]

T0 = TopicPartition("t", 0)
MOVE = move("t-0", "123", "423", size=100)


def first_step(simulator: Simulator, *moves: Move) -> tuple[World, str]:
    """The sentence of the first move after one step."""
    world = apply(simulator, *moves)
    world.new_runner().step()
    return world, world.rows()[0].detail


@pytest.mark.parametrize("planned", [100, None], ids=["smaller when planned", "size unknown when planned"])
def test_a_partition_that_has_outgrown_the_disk_is_held_until_there_is_room(
    simulator: Simulator, planned: int | None
) -> None:
    simulator.topics[T0].size = simulator.topics[T0].held[1] = DISK
    world, detail = first_step(simulator, replace(MOVE, size_bytes=planned))
    assert detail == Held.of(T0, HoldReason.DISK_FULL, 4).sentence
    assert simulator.topics[T0].replicas == (1, 2, 3)
    simulator.topics[T0].size = simulator.topics[T0].held[1] = 100
    assert world.run().completed == 1


def test_a_partition_that_has_shrunk_begins(simulator: Simulator) -> None:
    world, _ = first_step(simulator, replace(MOVE, size_bytes=2 * DISK))
    assert world.rows()[0].state is MoveState.SUBMITTED


def test_a_leader_that_does_not_tell_the_size_holds_the_move(simulator: Simulator) -> None:
    simulator.mute.add(1)
    world, detail = first_step(simulator, MOVE)
    assert detail == Held.of(T0, HoldReason.SIZE_UNKNOWN, 1).sentence
    simulator.mute.clear()
    assert world.run().completed == 1


def test_a_receiver_that_does_not_tell_its_room_holds_the_move(simulator: Simulator) -> None:
    simulator.mute.add(4)
    world, detail = first_step(simulator, MOVE)
    assert detail == Held.of(T0, HoldReason.DISK_UNKNOWN, 4).sentence
    simulator.mute.clear()
    assert world.run().completed == 1


def test_what_flies_takes_room_by_the_size_on_its_leader(simulator: Simulator) -> None:
    """Planned with 100 bytes, the first has by now nearly all that the disk may take; the second has to wait for it."""
    large = int(DISK * 0.8)
    simulator.topics[T0].size = simulator.topics[T0].held[1] = large
    second = move("t-1", "231", "234", size=100, position=1)
    simulator.topics[TopicPartition("t", 1)].size = simulator.topics[TopicPartition("t", 1)].held[2] = int(DISK * 0.1)
    world, _ = first_step(simulator, MOVE, second)
    assert [row.state for row in world.rows()] == [MoveState.SUBMITTED, MoveState.WAITING]
    world.new_runner().step()
    assert world.rows()[1].detail == Held.of(TopicPartition("t", 1), HoldReason.DISK_FULL, 4).sentence


def test_what_somebody_else_moves_takes_room_too(simulator: Simulator) -> None:
    large = simulator.topics[TopicPartition("t", 1)]
    large.size = large.held[2] = int(DISK * 0.8)
    simulator.topics[T0].size = simulator.topics[T0].held[1] = int(DISK * 0.1)
    simulator.alter({TopicPartition("t", 1): (2, 3, 4)})
    _, detail = first_step(simulator, MOVE)
    assert detail == Held.of(T0, HoldReason.DISK_FULL, 4).sentence


def test_a_cordoned_broker_receives_nothing_until_it_is_uncordoned(simulator: Simulator) -> None:
    """KIP-1066: somebody chose that, so it is waited for without a failed attempt."""
    simulator.cordoned.add(4)
    world, detail = first_step(simulator, MOVE)
    assert detail == Held.of(T0, HoldReason.TARGET_CORDONED, 4).sentence
    assert HoldReason.TARGET_CORDONED.is_operator_choice
    simulator.cordoned.clear()
    assert world.run().completed == 1


def test_a_replica_that_stays_in_a_failed_log_directory_holds_the_move(simulator: Simulator) -> None:
    simulator.fail_disk(2, T0)
    _, detail = first_step(simulator, MOVE)
    assert detail == Held.of(T0, HoldReason.KEPT_REPLICA_OFFLINE, 2).sentence
