"""Moves that make no progress, or less than producers make; and the throttle as a fraction of the network."""

from __future__ import annotations

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import SettingError
from kafka_steward.execution.decisions.stalling import Behind, kept, outpaced, told
from kafka_steward.journal.plans import PlanStatus
from kafka_steward.settings import Settings
from tests.simulator import Simulator
from tests.worlds import World, memory_journal, move

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
MOVES = [move("t-0", "123", "423"), move("t-1", "231", "431")]


def behind(at_s: int, missing: int, size: int = 0) -> Behind:
    return Behind(at_s * 1000, {T0: missing}, {T0: size, T1: size})


# too low to ever catch up


def test_a_lag_that_grows_for_so_long_will_never_end_and_the_rate_that_would_do_is_said() -> None:
    looks = [behind(0, 1_000), behind(300, 2_000, 30_000), behind(600, 4_000, 60_000)]
    (found,) = outpaced(looks, MOVES, after_s=600)
    assert (found.partition, found.fell_behind, found.broker) == (T0, 3_000, 4)
    # Both partitions move into broker 4, and each grows by 100 bytes per second; a quarter more is ample.
    assert found.would_do == 251
    assert told([], [found], after_s=600, throttle=50) == (
        "t-0 will never catch up at a throttle of 50 bytes/s: it fell 3000 bytes further behind in the last 600 s; "
        "251 bytes/s into broker 4 would do."
    )


@pytest.mark.parametrize(
    "looks",
    [
        [],
        [behind(0, 1_000)],
        [behind(0, 1_000), behind(599, 9_000)],
        [behind(0, 1_000), behind(300, 900), behind(600, 2_000)],
        [behind(0, 1_000), behind(600, 1_000)],
    ],
)
def test_a_lag_that_shrank_at_times_or_was_not_seen_long_enough_is_let_be(looks: list[Behind]) -> None:
    assert outpaced(looks, MOVES, after_s=600) == []


def test_a_move_that_only_gives_up_a_replica_any_more_does_not_fall_behind() -> None:
    looks = [behind(0, 1_000), behind(300, 2_000, 30_000), behind(600, 4_000, 60_000)]
    assert outpaced(looks, [move("t-0", "4231", "423")], after_s=600) == []


def test_only_looks_that_matter_are_kept() -> None:
    looks: list[Behind] = []
    for at_s in range(0, 3_000, 30):
        looks = kept(looks, behind(at_s, at_s), for_s=600)
    assert len(looks) == 21
    assert looks[-1].at_ms - looks[0].at_ms == 600_000


def test_a_running_plan_says_that_its_throttle_is_too_low() -> None:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123", bandwidth=1_000, size=5_000)
    settings = Settings(throttle=10, stall_after=120)
    world = World(simulator, memory_journal(simulator), MOVES[:1], settings=settings, auto_generated=False)
    sentences = []
    for _ in range(200):
        sentences.append(world.step().sentence)
        simulator.topics[T0].size += 50  # producers, and the ISR keeps up
        for broker in (1, 2, 3):
            simulator.topics[T0].held[broker] = simulator.topics[T0].size
        simulator.tick()
    warned = [sentence for sentence in sentences if "will never catch up at a throttle of 10 bytes/s" in sentence]
    assert warned
    assert warned[-1].endswith(" 63 bytes/s into broker 4 would do.")
    assert not any("never catch up" in sentence for sentence in sentences[:100])
    # It was planned with 100 bytes, and what producers added since is copied, too.
    assert not any("made no progress" in sentence for sentence in sentences)


# stalled


def stalled_world(when_stalled: str) -> World:
    """Partition 0 copies nothing at all: its leader hangs; partition 1 is fine."""
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 231", bandwidth=10)
    settings = Settings(throttle=0, stall_after=3, when_stalled=when_stalled)
    world = World(simulator, memory_journal(simulator), MOVES, settings=settings, auto_generated=False)
    world.step()
    simulator.topics[T0].leader = None
    return world


def test_by_default_the_run_fails_and_names_what_stalled() -> None:
    world = stalled_world("fail")
    progress = world.step()
    for _ in range(8):
        world.simulator.tick()
        progress = world.step()
    assert (progress.stops, progress.stalled) == (True, (T0,))
    assert progress.sentence.endswith("t-0 made no progress for 3 s.")


def test_a_stalled_move_can_be_waited_for_while_the_rest_goes_on() -> None:
    world = stalled_world("wait")
    for _ in range(20):
        world.simulator.tick()
        progress = world.step()
        assert not progress.stops
    assert world.states() == {"t-0": "submitted", "t-1": "completed"}
    world.simulator._elect(world.simulator.topics[T0])
    assert world.run().status is PlanStatus.COMPLETED


def test_a_stalled_move_can_be_cancelled_on_its_own_and_does_not_begin_again() -> None:
    world = stalled_world("cancel")
    progress = world.run()
    assert (progress.status, progress.completed, progress.dropped) == (PlanStatus.COMPLETED, 1, 1)
    assert world.replicas("t-0") == (1, 2, 3)
    assert world.replicas("t-1") == (4, 3, 1)
    assert "cancelled on its own" in world.row("t-0").detail
    assert world.throttles() == []


# the throttle as a fraction


def test_the_throttle_can_be_a_fraction_of_the_stated_network() -> None:
    connection = {"network_bandwidth": 125_000_000, "throttle_fraction": 0.1}
    assert Settings.of(connection).throttle == 12_500_000
    assert Settings.of({"throttle": 7}, connection).throttle == 7
    assert Settings.of({"throttle_fraction": 0.2}, connection, {"throttle": 7}).throttle == 25_000_000


def test_a_fraction_of_an_unknown_network_is_refused() -> None:
    with pytest.raises(SettingError, match="is a fraction of network_bandwidth, which is not set"):
        Settings.of({"throttle_fraction": 0.1})
