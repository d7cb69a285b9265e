"""Many moves: how many start at once, and what is known of those that ended before."""

from __future__ import annotations

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.journal.records import MoveState
from kafka_steward.settings import Settings
from tests.simulated_plan import World, memory_journal, move
from tests.simulator import Simulator


def world_of(count: int, *, mode: str, size: int = 1, bandwidth: int = 10_000, throttle: int = 1_000) -> World:
    """A plan of so many moves of one topic."""
    assignments = " ".join(["123"] * count)
    simulator = Simulator.of("1a 2b 3c 4a", f"t: {assignments}", size=size, bandwidth=bandwidth, mode=mode)
    moves = [move(f"t-{at}", "123", "423", chunk=at // 50, position=at % 50, size=size) for at in range(count)]
    return World(
        simulator,
        memory_journal(simulator),
        moves,
        settings=Settings(throttle=throttle, max_in_flight=3000),
        auto_generated=False,
    )


def test_all_small_moves_start_in_one_step_and_end_in_the_next() -> None:
    world = world_of(900, mode="zookeeper")
    progress = world.step()
    assert (progress.in_flight, progress.waiting) == (900, 0)
    world.simulator.tick()
    progress = world.step()
    assert (progress.ended, progress.completed) == (True, 900)


def test_on_kraft_twice_as_many_small_moves_start_after_each_step_in_which_all_had_ended() -> None:
    world, started = world_of(900, mode="kraft"), list[int]()
    while not started or started[-1]:
        started.append(world.step().in_flight)
        world.simulator.tick()
    assert started == [50, 50, 100, 200, 400, 100, 0]


@pytest.fixture
def almost_ended() -> World:
    """All but five of twenty moves have completed; the five are in flight, and none of them ends."""
    world = world_of(20, mode="kraft", size=100, bandwidth=0, throttle=0)
    ended = [each.topic_partition for each in world.moves[5:]]
    world.journal.plans.set_move_states(world.digest, ended, MoveState.COMPLETED, fence=None, attempt=1)
    assert world.step().in_flight == 5
    return world


def test_what_another_process_settled_counts_once(almost_ended: World) -> None:
    almost_ended.simulator.bandwidth = 10_000
    almost_ended.simulator.topics[TopicPartition("t", 4)].size = 10**6
    almost_ended.simulator.tick()
    assert almost_ended.new_runner().step().completed == 19
    for _ in range(2):
        progress = almost_ended.step()
        assert (progress.completed, progress.in_flight, progress.bytes_done) == (19, 1, 2_000)


def test_rows_that_a_restored_backup_brought_back_count_as_they_are(almost_ended: World) -> None:
    almost_ended.journal.plans.set_move_states(
        almost_ended.digest, [TopicPartition("t", 9)], MoveState.HELD, fence=None
    )
    progress = almost_ended.step()
    assert (progress.partitions_settled, progress.partitions_total) == (14, 20)


def test_the_end_looks_at_the_topics_whose_moves_had_settled_before() -> None:
    """A broker that dies after a topic's moves completed leaves them not fully replicated, and the end says so."""
    simulator = Simulator.of("1a 2b 3c 4a 5b", "a: 123", "b: 123", size=100, bandwidth=100)
    moves = [move("a-0", "123", "423"), move("b-0", "123", "523", position=1)]
    rules = Settings(throttle=0, max_in_flight=1)
    world = World(simulator, memory_journal(simulator), moves, settings=rules, auto_generated=False)
    while world.step().completed < 1 or world.step().in_flight < 1:
        simulator.tick()
    simulator.kill(4)
    progress = world.run()
    assert (progress.completed, progress.left) == (2, 1)
    assert "1 still not fully replicated" in progress.sentence
