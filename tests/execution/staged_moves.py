"""A partition that gets its replicas one by one, at the points where a test wants it."""

from __future__ import annotations

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action
from kafka_steward.settings import Settings
from tests.simulated_plan import World, memory_journal, move
from tests.simulator import Simulator

__all__ = ["BROKERS", "ONE", "T0", "simulator", "submitted", "to_halfway", "to_the_second_stride", "world_of"]

BROKERS = "1a 2b 3c 4a 5b 6c 7a"
T0 = TopicPartition("t", 0)
ONE = Settings(throttle=0, one_replica_at_a_time=True)


@pytest.fixture(params=["kraft", "zookeeper"])
def simulator(request: pytest.FixtureRequest) -> Simulator:
    return Simulator.of(BROKERS, "t: 123", mode=request.param, size=300)


def world_of(simulator: Simulator, after: str = "456", *, settings: Settings = ONE, before: str = "123") -> World:
    moves = [move("t-0", before, after, size=300)]
    return World(simulator, memory_journal(simulator), moves, settings=settings, auto_generated=False)


def submitted(world: World) -> list[tuple[list[int], list[int]]]:
    rows = world.journal.audit.rows(plan=world.digest, action=Action.SUBMIT)
    return [(row.entry.before, row.entry.after) for row in rows]


def to_the_second_stride(world: World) -> None:
    """4 has arrived, and 5 is on its way."""
    for _ in range(20):
        world.step()
        if world.simulator.topics[T0].adding == (5,):
            return
        world.simulator.tick()
    raise AssertionError("the second stride did not begin")


def to_halfway(world: World) -> None:
    """4 has arrived, and reassignments are switched off, so that 5 waits."""
    world.step()
    world.journal.tree.create(paths.REASSIGN_CANCEL, "")
    world.simulator.tick(4)
    world.step()
    assert (world.replicas("t-0"), world.states()) == ((1, 2, 3, 4), {"t-0": "held"})
