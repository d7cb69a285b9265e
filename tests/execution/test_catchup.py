"""How far the copying has come, how fast it goes, and what stands still: by numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.state import BrokerLogDirs
from kafka_steward.execution.moves import bytes_to_copy
from kafka_steward.execution.progress import (
    TransferRate,
    arrived_bytes,
    count_progress_bytes,
    eta_s,
    find_stalled,
)
from kafka_steward.journal import paths
from kafka_steward.settings import Settings
from tests.simulated_plan import World, memory_journal, move
from tests.simulator import Simulator

T0, T1, T2, T3 = (TopicPartition("t", number) for number in range(4))
WIDE = move("t-0", "123", "453", size=100)
SHRINKING = move("t-1", "123", "12", size=100)


def test_a_move_of_unknown_size_and_one_that_copies_nothing_count_as_no_bytes() -> None:
    assert [bytes_to_copy(each) for each in (WIDE, replace(WIDE, size_bytes=None), SHRINKING)] == [200, 0, 0]


def test_what_receivers_have_and_no_one_else_has_arrived() -> None:
    log_dirs = {1: BrokerLogDirs({T0: 100}), 4: BrokerLogDirs({T1: 7, T0: 30}), 5: BrokerLogDirs({T1: 9})}
    assert arrived_bytes([WIDE, SHRINKING], log_dirs) == {T0: 30, T1: 0}


def test_of_what_arrived_each_move_counts_what_was_planned_at_most() -> None:
    moves = [WIDE, move("t-2", "123", "423", size=50), move("t-3", "123", "423", size=50)]
    assert count_progress_bytes(moves, {T0: 201, T2: 49, T1: 1_000}) == 200 + 49 + 0


def test_a_track_remembers_when_each_partition_grew_and_forgets_what_is_not_seen_any_more() -> None:
    first = TransferRate(10, 5).update(20, 15, {T0: 0, T1: 1, T2: 4})
    assert first == TransferRate(20, 15, {T0: 0, T1: 1, T2: 4}, {T0: 20, T1: 20, T2: 20}, 1_000.0, 20)
    second = first.update(30, 17, {T0: 0, T1: 2, T3: 0})
    rate = 0.3 * 200 + 0.7 * 1_000
    assert second == TransferRate(30, 17, {T0: 0, T1: 2, T3: 0}, {T0: 20, T1: 30, T3: 30}, rate, 30)
    assert second.update(40, 17, {T0: 0, T1: 1, T3: 1}).grew_ms == {T0: 20, T1: 30, T3: 40}, "what shrank did not grow"


def test_of_a_long_time_without_a_look_only_a_part_counts_as_one_without_growth() -> None:
    first = TransferRate(0, 0).update(1_000, 0, {T0: 5, T1: 5})
    late = first.update(3_601_000, 1, {T0: 5, T1: 6}, longest_gap_ms=20_000)
    assert late.grew_ms == {T0: 3_581_000, T1: 3_601_000}
    assert late.update(3_611_000, 1, {T0: 5, T1: 6}, longest_gap_ms=20_000).grew_ms == late.grew_ms
    back = late.update(1_000, 1, {T0: 5, T1: 6}, longest_gap_ms=20_000)
    assert back.grew_ms == late.grew_ms, "a clock that was set back"


@pytest.mark.parametrize(
    ("at_ms", "done_bytes", "rate"),
    [(1_000, 50, 50.0), (500, 50, 100.0), (1_000, 0, 0.0), (1_000, -50, 0.0), (0, 50, None), (-1_000, 50, None)],
)
def test_the_first_rate_is_what_arrived_by_the_time_and_never_below_nothing(
    at_ms: int, done_bytes: int, rate: float | None
) -> None:
    assert TransferRate(0, 0).update(at_ms, done_bytes, {}).bytes_per_s == rate


@pytest.mark.parametrize(
    ("left_bytes", "bytes_per_s", "seconds"),
    [(1, 4.0, 0.25), (0, 4.0, 0.0), (-1, 4.0, 0.0), (0, None, 0.0), (1, None, None), (1, 0.0, None), (9, 0.5, 18.0)],
)
def test_the_time_left_is_unknown_without_a_rate_and_nothing_without_bytes(
    left_bytes: int, bytes_per_s: float | None, seconds: float | None
) -> None:
    assert eta_s(left_bytes, bytes_per_s) == seconds


@pytest.mark.parametrize(
    ("after_s", "found"), [(5, (T0, T1, T2)), (5.001, (T0, T2)), (9, (T0, T2)), (9.5, (T0,)), (10, (T0,)), (10.001, ())]
)
def test_what_flies_and_has_not_grown_for_so_long_is_stalled(after_s: float, found: tuple[TopicPartition, ...]) -> None:
    track = TransferRate(11_000, 0, grew_ms={T0: 1_000, T1: 6_000, T2: 2_000, TopicPartition("landed", 0): 0})
    assert find_stalled(track, [T3, T2, T1, T0], after_s=after_s) == found, "t-3 was not looked at yet"


def test_a_plan_that_waits_for_hours_after_it_has_copied_something_goes_on() -> None:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 231", size=1000)
    moves = [move("t-0", "123", "423", size=1000), move("t-1", "231", "431", position=1, size=1000)]
    rules = Settings(throttle=0, max_in_per_broker=1)
    world = World(simulator, memory_journal(simulator), moves, settings=rules, auto_generated=False)
    for _ in range(5):
        world.step()
        simulator.tick()
    world.journal.tree.create(paths.REASSIGN_CANCEL, "")
    simulator.run()
    for _ in range(2_100):
        progress = world.step()
        simulator.tick()
    assert (progress.completed, progress.waiting, progress.eta_s, progress.bytes_per_s) == (1, 1, None, 0)
    world.journal.tree.delete(paths.REASSIGN_CANCEL, version=0)
    assert world.run().completed == 2
