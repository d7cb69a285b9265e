"""Plans that nobody steps are paused and give back what they borrowed; plans that ended are archived."""

from __future__ import annotations

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.execution.plans.lifecycle import request_cancel
from kafka_steward.journal.records import PlanStatus
from kafka_steward.settings import Settings
from tests.simulated_plan import WHO, World, memory_journal, move
from tests.simulator import Simulator
from tests.watching import tick_of

RULES = Settings(throttle=30, max_in_per_broker=1, abandoned_after=20, heal_failure_interval=-1)


@pytest.fixture(params=["kraft", "zookeeper"])
def world(request: pytest.FixtureRequest) -> World:
    """One partition is in flight and one waits; then whoever stepped them is gone."""
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 231", size=1000, mode=request.param)
    moves = [move("t-0", "123", "423", size=1000), move("t-1", "231", "234", position=1, size=1000)]
    made = World(simulator, memory_journal(simulator), moves, settings=RULES, auto_generated=False)
    made.step()
    made.step()
    assert made.states() == {"t-0": "submitted", "t-1": "waiting"}
    return made


def look(world: World) -> list[str]:
    """The messages of the chores of one tick."""
    return tick_of(world.simulator, world.journal, RULES)[1]


def test_a_plan_that_is_stepped_is_left_alone(world: World) -> None:
    for _ in range(15):
        world.simulator.tick(2)
        assert look(world) == []
        world.step()


def test_it_is_paused_once_and_says_what_to_do(world: World) -> None:
    world.simulator.tick(20)
    assert look(world) == []
    world.simulator.tick(1)
    (message,) = look(world)
    assert "is idle: no process has stepped it for 20 s" in message
    assert world.record().status is PlanStatus.IDLE
    assert [look(world) for _ in range(3)] == [[]] * 3
    assert world.actions().count("pause") == 1


def test_its_throttles_are_given_back_when_nothing_of_it_moves_any_more(world: World) -> None:
    world.simulator.tick(22)
    look(world)
    look(world)
    # It stays in flight, throttled; nothing new begins.
    assert world.states() == {"t-0": "submitted", "t-1": "waiting"}
    assert world.throttles() == ["t:0:4", "4:30"]
    for _ in range(25):
        world.simulator.tick()
        look(world)
    assert world.states() == {"t-0": "completed", "t-1": "waiting"}
    assert (world.throttles(), world.leases()) == ([], [])
    assert world.record().status is PlanStatus.IDLE


def test_whoever_steps_it_again_goes_on_with_it(world: World) -> None:
    world.simulator.tick(22)
    look(world)
    world.simulator.bandwidth = 5000
    world.settings = Settings(throttle=0)
    world.runner = world.new_runner()
    first = world.step()
    assert (first.status, first.waits_for_person) == (PlanStatus.RUNNING, False)
    assert world.run().status is PlanStatus.COMPLETED
    assert world.replicas("t-1") == (2, 3, 4)
    assert (world.throttles(), world.leases()) == ([], [])


def test_while_another_poll_tends_it_it_does_not_wait_for_a_person(world: World) -> None:
    world.simulator.tick(22)
    look(world)
    with world.journal.step_lock("another process"):
        progress = world.step()
    assert (progress.busy, progress.waits_for_person) == (True, False)


def test_a_cancel_that_nobody_carries_out_is_carried_out(world: World) -> None:
    request_cancel(world.journal, world.digest, who=WHO, reason="stop")
    world.simulator.tick(22)
    for _ in range(6):
        look(world)
        world.simulator.tick()
    assert world.record().status is PlanStatus.CANCELLED
    assert world.simulator.topics[TopicPartition("t", 0)].replicas == (1, 2, 3)
    assert world.throttles() == []


def test_a_stuck_plan_leases_nothing_for_long(world: World) -> None:
    world.journal.plans.update(world.record(), status=PlanStatus.STUCK, reason="it is stuck")
    for _ in range(60):
        world.simulator.tick()
        assert look(world) == []
    assert (world.record().status, world.throttles()) == (PlanStatus.STUCK, [])
