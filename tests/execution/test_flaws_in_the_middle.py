"""Several flaws of a cluster at once: each of them appears in the middle of a plan, and goes away again."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.execution.announcements import announce_restart, disable_reassignment, enable_reassignment
from kafka_steward.journal import paths
from kafka_steward.journal.records import MoveState, PlanStatus
from kafka_steward.settings import Settings
from tests.execution.runs import apply, heal
from tests.rings import tried
from tests.simulated_plan import FOLLOWERS, RATE, WHO, World, delete, move
from tests.simulator import Simulator

OUTSIDE, THEIRS = TopicPartition("u", 0), (3, 5)


@contextmanager
def a_target_is_dead(world: World) -> Iterator[None]:
    world.simulator.kill(4)
    yield
    world.simulator.restart(4)


@contextmanager
def a_broker_beside_it_is_dead(world: World) -> Iterator[None]:
    world.simulator.kill(5)
    yield
    world.simulator.restart(5)


@contextmanager
def the_target_is_cordoned(world: World) -> Iterator[None]:
    world.simulator.cordoned.add(4)
    yield
    world.simulator.cordoned.discard(4)


@contextmanager
def reassignments_are_disabled(world: World) -> Iterator[None]:
    disable_reassignment(world.journal, who=WHO, reason="maintenance")
    yield
    enable_reassignment(world.journal, who=WHO)


@contextmanager
def a_restart_is_announced(world: World) -> Iterator[None]:
    announce_restart(world.journal, 2, who=WHO)
    yield
    delete(world.journal, paths.rolling_bounce(2))


@contextmanager
def somebody_else_set_a_rate(world: World) -> Iterator[None]:
    world.simulator.broker_settings[3][RATE] = "12345"
    yield
    world.simulator.broker_settings[3].pop(RATE, None)


@contextmanager
def somebody_else_reassigns_a_partition_outside(world: World) -> Iterator[None]:
    world.simulator.late.append((world.simulator.now_ms, {OUTSIDE: THEIRS}))
    yield


@contextmanager
def a_disk_has_failed(world: World) -> Iterator[None]:
    partition = world.simulator.topics[TopicPartition("u", 1)]
    world.simulator.fail_disk(2, TopicPartition("u", 1))
    yield
    world.simulator.failed_dirs.pop(2)
    partition.offline.discard(2)


@contextmanager
def a_topic_comes_and_goes(world: World) -> Iterator[None]:
    world.simulator.create("v", [(2, 4), (4, 3)])
    yield
    world.simulator.delete("v")


@contextmanager
def the_cluster_does_not_answer(world: World) -> Iterator[None]:
    world.simulator.reachable = False
    yield
    world.simulator.reachable = True


FLAWS: list[Callable[[World], AbstractContextManager[None]]] = [
    *(a_target_is_dead, a_broker_beside_it_is_dead, the_target_is_cordoned, reassignments_are_disabled),
    *(a_restart_is_announced, somebody_else_set_a_rate, somebody_else_reassigns_a_partition_outside),
    *(a_disk_has_failed, a_topic_comes_and_goes, the_cluster_does_not_answer),
]


@pytest.mark.parametrize("mode", ["kraft", "zookeeper"])
@pytest.mark.parametrize("begin", [heal, apply])
def test_whatever_appears_and_goes_away_a_plan_ends_and_changes_nothing_else(
    begin: Callable[..., World], mode: str
) -> None:
    for seed in range(tried(60)):
        dice = random.Random(seed)
        simulator = Simulator.of("1a 2b 3c 4a 5b", "t: 123 231 312 124 213 321", "u: 23 25", mode=mode)
        settings = Settings(min_free=0, throttle=dice.choice([0, 1000]), max_in_flight=2, max_attempts=99)
        asked = (
            [] if begin is heal else [move("t-0", "123", "423"), move("t-1", "231", "241"), move("t-2", "312", "342")]
        )
        world = begin(simulator, *asked, settings=settings)
        chosen = [(flaw(world), dice.randint(1, 4), dice.randint(1, 6)) for flaw in dice.sample(FLAWS, 4)]
        for step in range(1, 100):
            for flaw, first, steps in chosen:
                if step == first:
                    flaw.__enter__()
                if step == first + steps:
                    flaw.__exit__(None, None, None)
            progress = world.step()
            if progress.ended and step > 10:
                break
            simulator.tick()
        assert progress.status is PlanStatus.COMPLETED, (seed, progress)
        for row in world.rows():
            done = row.state is MoveState.COMPLETED
            assert world.replicas(str(row.topic_partition)) == (row.move.after if done else row.move.before), (
                seed,
                row,
            )
        simulator.tick(20)
        assert simulator.topics[OUTSIDE].replicas in ((2, 3), THEIRS)
        assert simulator.topics[TopicPartition("u", 1)].replicas == (2, 5)
        assert {broker: of[RATE] for broker, of in simulator.broker_settings.items() if RATE in of} == {}, seed
        assert not any(FOLLOWERS in of for of in simulator.topic_settings.values()), seed
