"""Moves start more slowly while the cluster is under pressure, and no lie or clock makes a burst of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.cluster.state import BrokerLogDirs
from kafka_steward.errors import KafkaRefused, KafkaTimeout
from kafka_steward.execution.concurrency import Pressure
from kafka_steward.settings import Settings
from tests.execution.runs import apply
from tests.simulated_plan import World, move
from tests.simulator import Simulator

OUTSIDE = TopicPartition("u", 0)
EIGHT_AT_ONCE = Settings(throttle=0, max_in_per_broker=8)
MB = 1_000_000


class SlowSimulator(Simulator):
    """Its controller takes so many milliseconds for a submission."""

    takes_ms = 0

    def alter(
        self, targets: Mapping[TopicPartition, Assignment], *, keep_factor: bool = False
    ) -> dict[TopicPartition, KafkaRefused | None]:
        self.now_ms += self.takes_ms
        return super().alter(targets, keep_factor=keep_factor)


class SilentSimulator(SlowSimulator):
    """Its controller does not answer, and does nothing."""

    silent = False

    def alter(
        self, targets: Mapping[TopicPartition, Assignment], *, keep_factor: bool = False
    ) -> dict[TopicPartition, KafkaRefused | None]:
        if self.silent:
            self.now_ms += self.takes_ms
            raise KafkaTimeout("The controller did not answer.")
        return super().alter(targets, keep_factor=keep_factor)


class LyingSimulator(Simulator):
    """Its brokers report so many times the bytes that they hold."""

    factor = 1

    def log_dirs(self, brokers: Collection[int]) -> dict[int, BrokerLogDirs]:
        told = super().log_dirs(brokers)
        return {
            broker: replace(dirs, replica_bytes={name: size * self.factor for name, size in dirs.replica_bytes.items()})
            for broker, dirs in told.items()
        }


def of(kind: type[Simulator], **more: int) -> Simulator:
    return kind.of("1a 2b 3c 4a", "t: " + " ".join(["123"] * 20), "u: 123", **more)


def twenty(simulator: Simulator, settings: Settings, *, size: int = 100) -> World:
    moves = [move(f"t-{n}", "123", "423", position=n, size=size) for n in range(20)]
    return apply(simulator, *moves, settings=settings)


def test_fewer_moves_start_while_a_partition_outside_the_plan_is_out_of_sync() -> None:
    simulator = of(Simulator, bandwidth=0)
    world = twenty(simulator, EIGHT_AT_ONCE)
    simulator.topics[OUTSIDE].isr.discard(3)
    progress = world.step()
    assert (progress.in_flight, progress.pressure) == (2, Pressure.OUT_OF_SYNC)
    assert progress.sentence.endswith("Moves start more slowly: u-0, outside this plan, is out of sync.")
    simulator.topics[OUTSIDE].isr.add(3)
    assert world.step().pressure is Pressure.OUT_OF_SYNC, "the others are looked at once per second"
    simulator.tick()
    progress = world.step()
    assert (progress.in_flight, progress.pressure) == (8, None)


@pytest.mark.parametrize("why", ["a dead broker", "a failed disk", "a reassignment", "a partition of the plan"])
def test_what_other_moves_do_not_make_worse_is_no_pressure(why: str) -> None:
    simulator = of(Simulator, bandwidth=0)
    world = twenty(simulator, EIGHT_AT_ONCE)
    if why == "a dead broker":
        simulator.create("v", [(5, 2, 3)])
    elif why == "a failed disk":
        simulator.fail_disk(3, OUTSIDE)
    elif why == "a reassignment":
        simulator.alter({OUTSIDE: (1, 2, 4)})
    else:
        simulator.topics[TopicPartition("t", 19)].isr.discard(3)
    progress = world.step()
    assert progress.pressure is None
    assert progress.in_flight == (7 if why == "a reassignment" else 8)


def test_fewer_moves_start_after_the_controller_was_slow() -> None:
    simulator = of(SlowSimulator, bandwidth=50)
    assert isinstance(simulator, SlowSimulator)
    world = twenty(simulator, EIGHT_AT_ONCE)
    simulator.takes_ms = 6000
    first = world.step()
    assert (first.in_flight, first.pressure) == (8, None)
    simulator.bandwidth = 100_000
    simulator.takes_ms = 0
    simulator.tick()
    second = world.step()
    assert (second.in_flight, second.pressure) == (2, Pressure.CONTROLLER_SLOW)
    assert "the controller took 6 s for a request" in second.sentence
    simulator.tick()
    third = world.step()
    assert (third.in_flight, third.pressure) == (8, None)


def test_a_request_without_an_answer_is_a_slow_one() -> None:
    simulator = of(SilentSimulator, bandwidth=0)
    assert isinstance(simulator, SilentSimulator)
    world = twenty(simulator, EIGHT_AT_ONCE)
    simulator.takes_ms, simulator.silent = 6000, True
    assert world.step().in_flight == 8, "recorded as submitted, and not confirmed"
    simulator.takes_ms, simulator.silent = 0, False
    second = world.step()
    assert (second.in_flight, second.pressure) == (2, Pressure.CONTROLLER_SLOW)
    assert "the controller took 6 s for a request" in second.sentence


@pytest.mark.parametrize(("factor", "in_flight"), [(1, 3), (0, 3), (100, 1)])
def test_a_lie_about_sizes_ends_at_what_was_planned_or_at_one_move_at_a_time(factor: int, in_flight: int) -> None:
    """At 1 MB/s a broker has at most 10 MB in transfer: three moves of 3 MB."""
    simulator = of(LyingSimulator, size=3 * MB, bandwidth=0)
    assert isinstance(simulator, LyingSimulator)
    simulator.factor = factor
    for partition in simulator.topics.values():
        partition.held = dict.fromkeys(partition.held, 3 * MB)
    world = twenty(simulator, Settings(throttle=1 * MB, min_free=0), size=3 * MB)
    assert world.step().in_flight == in_flight
    assert world.step().in_flight == in_flight


@pytest.mark.parametrize("jump_ms", [-10_000_000, 10_000_000])
def test_a_clock_that_jumps_makes_no_burst(jump_ms: int) -> None:
    simulator = of(Simulator, size=20 * MB, bandwidth=0)
    world = twenty(simulator, Settings(throttle=1 * MB, min_free=0), size=20 * MB)
    assert world.step().in_flight == 1
    simulator.now_ms += jump_ms
    assert world.step().in_flight == 1
