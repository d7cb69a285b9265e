"""Plans that move replicas at the same time: the limits, the room on disks, and the throttles are those of one plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafka_steward.assignment import Move, TopicPartition
from kafka_steward.execution.moves import Held, HoldReason
from kafka_steward.journal.records import MoveState
from kafka_steward.settings import Settings
from tests.execution.runs import apply, simulator
from tests.simulated_plan import FOLLOWERS, RATE, World, move
from tests.simulator import DISK, Simulator

__all__ = ["simulator"]

#: Both send to broker 4, and from each of the brokers 1, 2 and 3.
FIRST = [move("t-0", "123", "423"), move("t-1", "231", "431", position=1), move("t-4", "213", "413", position=2)]
SECOND = [move("t-2", "312", "412"), move("t-5", "321", "421", position=1), move("t-3", "124", "324", position=2)]


def two_plans(
    simulator: Simulator, first: list[Move], second: list[Move], *, throttles: tuple[int, int] = (0, 0), **rules: Any
) -> tuple[World, World]:
    """Two plans of one journal, both of which have begun."""
    one, other = (Settings(throttle=throttle, **rules) for throttle in throttles)
    world = apply(simulator, *first, settings=one)
    beside = World(simulator, world.journal, second, auto_generated=False, settings=other)
    for each in (world, beside):
        each.step()
    assert world.journal.slot.holders() == (world.digest, beside.digest)
    return world, beside


def run(worlds: tuple[World, World], observe: Callable[[], object]) -> None:
    """Step the plans in turn until both have ended."""
    for _ in range(60):
        progress = []
        for world in worlds:
            progress.append(world.step())
            observe()
        if all(each.ended for each in progress):
            return
        worlds[0].simulator.tick()
    raise AssertionError(f"not ended: {progress}")


def in_flight(world: World) -> int:
    return [row.state for row in world.rows()].count(MoveState.SUBMITTED)


@pytest.mark.parametrize("rules", [{"max_in_flight": 2}, {"max_in_per_broker": 2}, {"max_out_per_broker": 1}])
def test_what_two_plans_have_in_flight_never_exceeds_the_limits_of_one(
    simulator: Simulator, rules: dict[str, Any]
) -> None:
    seen = set()
    worlds = two_plans(simulator, FIRST, SECOND, **rules)

    def observe() -> None:
        moving = simulator.snapshot().reassigning
        senders = [each.leader for each in moving.values()]
        assert len(moving) <= rules.get("max_in_flight", 99)
        assert sum(4 in each.adding for each in moving.values()) <= rules.get("max_in_per_broker", 99)
        assert max(map(senders.count, senders), default=0) <= rules.get("max_out_per_broker", 99)
        seen.add(tuple(in_flight(world) > 0 for world in worlds))

    observe()
    run(worlds, observe)
    assert (True, True) in seen, "both had moves in flight at once"
    assert {simulator.topics[each.topic_partition].replicas for each in FIRST + SECOND} == {
        each.after for each in FIRST + SECOND
    }


def test_what_one_plan_copies_takes_the_room_from_the_other(simulator: Simulator) -> None:
    """The first has nearly all that the disk may take, none of which has arrived: the second has to wait for it."""
    for name, share in (("t-0", 0.8), ("t-2", 0.1)):
        partition = simulator.topics[TopicPartition("t", int(name[-1]))]
        partition.size = partition.held[partition.replicas[0]] = int(DISK * share)
    _, beside = two_plans(simulator, [move("t-0", "123", "423", size=1)], [move("t-2", "312", "412", size=1)])
    assert beside.rows()[0].detail == Held.of(TopicPartition("t", 2), HoldReason.DISK_FULL, 4).sentence


def test_a_rate_that_two_plans_lease_is_the_stricter_one_and_is_released_with_the_last(simulator: Simulator) -> None:
    simulator.broker_settings[4][RATE] = "900"
    for number, size in ((0, 1_000), (2, 3_000)):
        simulator.topics[TopicPartition("t", number)].size = size
    worlds = two_plans(simulator, FIRST[:1], SECOND[:1], throttles=(200, 500))
    rates, lists = [simulator.broker_settings[4].get(RATE)], [simulator.topic_settings["t"].get(FOLLOWERS)]
    assert (rates, lists) == (["200"], ["0:4,2:4"])

    def observe() -> None:
        for seen, now in ((rates, simulator.broker_settings[4].get(RATE)), (lists, throttled(simulator))):
            if seen[-1] != now:
                seen.append(now)

    run(worlds, observe)
    assert (rates, lists) == (["200", "500", "900"], ["0:4,2:4", "2:4", None])
    assert worlds[0].borrowed() == []


def throttled(simulator: Simulator) -> str | None:
    return simulator.topic_settings.get("t", {}).get(FOLLOWERS)
