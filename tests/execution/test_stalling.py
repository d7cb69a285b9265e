"""Moves that make no progress, or less than producers make; and the throttle as a fraction of the network."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_steward.assignment import Move, TopicPartition
from kafka_steward.cluster.state import BrokerLogDirs, Partition
from kafka_steward.execution.moves.observe import Observation, ObservedState
from kafka_steward.execution.moves.recovery import (
    EXTERNAL_CANCEL,
    GIVEN_UP,
    INDIVIDUAL_CANCEL,
    FallingBehind,
    LagSample,
    find_falling_behind,
    find_individually_cancelled,
    retain_lag_samples,
    sample_lag,
    stall_message,
)
from kafka_steward.journal.records import Cause, MoveRow, MoveState, Phase, PlanStatus
from kafka_steward.settings import Settings
from tests.execution.looks import look, part
from tests.simulated_plan import World, memory_journal, move
from tests.simulator import Simulator

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
MOVES = [move("t-0", "123", "423"), move("t-1", "231", "431")]


def behind(at_s: int, missing: int, size: int = 0) -> LagSample:
    return LagSample(at_s * 1000, {T0: missing}, {T0: size, T1: size})


# how far behind


def partition_of(number: int, isr: str) -> Partition:
    """The first in sync leads."""
    return part(f"t-{number}", "45123", isr=isr, adding="45", removing="12")


def test_a_sample_has_what_the_replica_that_is_furthest_behind_lacks() -> None:
    moves = [move("gone-0", "123", "453"), *(move(f"t-{number}", "123", "453") for number in range(6))]
    names = [TopicPartition("t", number) for number in range(6)]
    snapshot = look(
        "",
        partition_of(0, "123"),
        replace(partition_of(1, "123"), leader=None),  # offline
        partition_of(2, "312"),  # its leader did not answer
        partition_of(3, "213"),  # its leader did not say how large it is
        partition_of(4, "12345"),  # nothing is behind
        partition_of(5, "2134"),
    )
    log_dirs = {
        1: BrokerLogDirs({names[0]: 1_000, names[1]: 70, names[2]: 70, names[3]: 70, names[4]: 70}),
        2: BrokerLogDirs({names[5]: 500}),
        4: BrokerLogDirs({names[0]: 100}),
        5: BrokerLogDirs({names[0]: 600, names[5]: 499}),
    }
    assert sample_lag(snapshot, moves, log_dirs, 7) == LagSample(
        7,
        {names[0]: 900, names[5]: 1},
        {names[0]: 1_000, names[5]: 500},
        {names[0]: frozenset({4, 5}), names[5]: frozenset({4, 5})},
    )
    without_4 = {broker: held for broker, held in log_dirs.items() if broker != 4}
    assert sample_lag(snapshot, moves[:2], without_4, 8) == LagSample(
        8, {names[0]: 400}, {names[0]: 1_000}, {names[0]: frozenset({4, 5})}
    ), "4 is not reached"


def test_the_newest_of_the_old_looks_is_kept_and_all_the_young_ones() -> None:
    looks = [behind(at_s, at_s) for at_s in (0, 5, 10, 11, 20)]
    newest = behind(30, 30)
    assert retain_lag_samples(looks, newest, for_s=20) == [*looks[2:], newest]
    assert retain_lag_samples(looks[:1], newest, for_s=20) == [looks[0], newest]
    assert retain_lag_samples([], newest, for_s=20) == [newest]


# too low to ever catch up


def test_a_lag_that_grows_for_so_long_will_never_end_and_the_rate_that_would_do_is_said() -> None:
    looks = [behind(0, 1_000), behind(300, 2_000, 30_000), behind(600, 4_000, 60_000)]
    (found,) = find_falling_behind(looks, MOVES, after_s=600)
    assert (found.partition, found.fell_behind, found.broker) == (T0, 3_000, 4)
    # Both partitions move into broker 4, and each grows by 100 bytes per second; a quarter more is ample.
    assert found.sufficient_rate == 251
    assert stall_message([], [found], after_s=600, throttle=50) == (
        "t-0 will not catch up at a throttle of 50 bytes/s: it fell 3,000 bytes further behind in the last 600 s; "
        "251 bytes/s into broker 4 would be enough."
    )


SINGLE = [move("t-0", "123", "423")]
SWAPPED = [move("t-1", "231", "641"), move("t-0", "123", "563")]


@pytest.mark.parametrize(
    ("looks", "moving", "after_s", "found"),
    [
        pytest.param(
            [behind(0, 0, 10_000), behind(1, 1, 30_000)], SINGLE, 1, [FallingBehind(T0, 1, 4, 25_001)],
            id="it had caught up before",
        ),
        pytest.param(
            [behind(0, 10, 9_000), behind(1, 20, 0)], SINGLE, 1, [FallingBehind(T0, 10, 4, 1)],
            id="its log shrank, for old messages were deleted",
        ),
        pytest.param(
            [behind(0, 10, 0), behind(1, 10, 700), behind(2, 11, 1_000)], SINGLE, 2, [FallingBehind(T0, 1, 4, 626)],
            id="it kept up for a while, and was slower over the whole time",
        ),
        pytest.param(
            [LagSample(0, {T0: 1}, {T0: 8_000}), LagSample(1_000, {T0: 2}, {T0: 8_800, T1: 7_777})], MOVES, 1,
            [FallingBehind(T0, 1, 4, 1_001)], id="the other one's size was not known in the beginning",
        ),
        pytest.param(
            [LagSample(0, {T0: 1}, {T0: 8_000, T1: 7_777}), LagSample(1_000, {T0: 2}, {T0: 8_800})], MOVES, 1,
            [FallingBehind(T0, 1, 4, 1_001)], id="the other one's size is not known in the end",
        ),
        pytest.param(
            [LagSample(0, {T0: 1, T1: 5}, {T0: 0, T1: 0}),
             LagSample(1_000, {T0: 2, T1: 7}, {T0: 800, T1: 80})], SWAPPED, 1,
            [FallingBehind(T0, 1, 5, 1_001), FallingBehind(T1, 2, 4, 101)],
            id="sorted; the broker with the lowest id is named",
        ),
        pytest.param([LagSample(0), behind(1, 9_000)], SINGLE, 1, [], id="not seen in the beginning"),
        pytest.param([behind(0, 1), behind(1, 9_000), LagSample(2_000)], SINGLE, 1, [], id="not seen in the end"),
        pytest.param([behind(0, 1), LagSample(1_000), behind(2, 9_000)], SINGLE, 1, [], id="not seen in between"),
        pytest.param([LagSample(0), LagSample(1_000)], SINGLE, 1, [], id="never seen"),
        pytest.param([behind(0, 1), behind(1, 9_000)], [], 1, [], id="nothing in flight"),
        pytest.param([], MOVES, 600, [], id="no look"),
        pytest.param([behind(0, 1_000)], MOVES, 600, [], id="one look"),
        pytest.param([behind(0, 1_000), behind(599, 9_000)], MOVES, 600, [], id="not seen long enough"),
        pytest.param([behind(0, 1_000), behind(300, 900), behind(600, 2_000)], MOVES, 600, [], id="it shrank at times"),
        pytest.param([behind(0, 1_000), behind(600, 1_000)], MOVES, 600, [], id="it did not grow"),
        pytest.param(
            [behind(0, 1_000), behind(600, 4_000)], [move("t-0", "4231", "423")], 600, [], id="only a removal is left"
        ),
    ],
)  # fmt: skip
def test_what_falls_behind_is_found_with_what_would_do(
    looks: list[LagSample], moving: list[Move], after_s: float, found: list[FallingBehind]
) -> None:
    assert find_falling_behind(looks, moving, after_s=after_s) == found


def test_the_next_of_several_replicas_is_not_taken_for_falling_behind() -> None:
    first, second = (
        LagSample(at_ms, {T0: lacks}, {T0: 900}, {T0: frozenset({broker})})
        for at_ms, lacks, broker in ((0, 10, 5), (1_000, 900, 4))
    )
    assert find_falling_behind([first, second], SINGLE, after_s=1) == []
    assert find_falling_behind([replace(first, adding=second.adding), second], SINGLE, after_s=1) == [
        FallingBehind(T0, 890, 4, 1)
    ]


@pytest.mark.parametrize(("throttle", "said"), [(0, True), (899, True), (900, False), (5_000, False)])
def test_it_is_said_to_fall_behind_only_when_a_higher_throttle_would_do(throttle: int, said: bool) -> None:
    assert bool(stall_message([], [FallingBehind(T0, 70, 5, 900)], after_s=600, throttle=throttle)) == said


TP = [TopicPartition("t", number) for number in range(5)]
STALLED_SENTENCE = "t-0, t-1 made no progress for 600 s."
PACE = "; 900 bytes/s into broker 5 would be enough"
OUTPACED_SENTENCE = "{} will not catch up {}: it fell 70 bytes further behind in the last 600 s{}."


@pytest.mark.parametrize(
    ("stalled", "behind", "throttle", "sentences"),
    [
        ([], [], 50, ""),
        (TP[:2], [], 50, STALLED_SENTENCE),
        (TP[:3], [], 50, "t-0, t-1, t-2 made no progress for 600 s."),
        (TP[:4], [], 50, "t-0, t-1, t-2, … made no progress for 600 s."),
        (
            TP[:2], [FallingBehind(TP[2], 70, 5, 900)], 50,
            f"{STALLED_SENTENCE} {OUTPACED_SENTENCE.format('t-2', 'at a throttle of 50 bytes/s', PACE)}",
        ),
        (
            [], [FallingBehind(TP[4], 70, 5, 900), FallingBehind(TP[2], 80, 4, 899)], 1,
            f"{OUTPACED_SENTENCE.format('t-4', 'at a throttle of 1 byte/s', PACE)} 1 more fell behind too.",
        ),
        (
            [], [FallingBehind(TP[1], 99, 4, 900),
                 FallingBehind(TP[3], 70, 5, 900), FallingBehind(TP[2], 80, 4, 900)], 0,
            f"{OUTPACED_SENTENCE.format('t-3', 'without a throttle', '')} 2 more fell behind too.",
        ),
    ],
)  # fmt: skip
def test_the_message_names_what_stalled_and_the_worst_of_what_falls_behind(
    stalled: list[TopicPartition], behind: list[FallingBehind], throttle: int, sentences: str
) -> None:
    assert stall_message(stalled, behind, after_s=600, throttle=throttle) == sentences


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
    warned = [sentence for sentence in sentences if "will not catch up at a throttle of 10 bytes/s" in sentence]
    assert warned
    assert warned[-1].endswith(" 63 bytes/s into broker 4 would be enough.")
    assert not any("not catch up" in sentence for sentence in sentences[:100])
    # It was planned with 100 bytes, and what producers added since is copied, too.
    assert not any("made no progress" in sentence for sentence in sentences)


@pytest.mark.parametrize("known", [True, False])
def test_a_broker_that_creates_no_log_for_its_failed_directory_is_named_at_once_and_no_rate_is(*, known: bool) -> None:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123", bandwidth=1_000, size=5_000)
    simulator.without_log.add((T0, 4))
    simulator.failed_dirs[4] = ["/disk-2"] if known else []
    simulator.broker_settings[4]["follower.replication.throttled.rate"] = "7"
    settings = Settings(throttle=10, stall_after=100)
    world = World(simulator, memory_journal(simulator), MOVES[:1], settings=settings, auto_generated=False)
    sentences = []
    for _ in range(150):
        sentences.append(world.step().sentence)
        for broker in (1, 2, 3):  # producers, and the ISR keeps up
            simulator.topics[T0].held[broker] = simulator.topics[T0].size = simulator.topics[T0].size + 50
        simulator.tick()
    broken = (
        "t-0 is not copied to broker 4, which creates no log of it while its log directory /disk-2 has failed: a "
        "former replica may be there. Restart the broker without that directory (log.dirs), or cancel the plan."
    )
    named = [number for number, sentence in enumerate(sentences) if broken in sentence]
    assert bool(named) == known
    if known:
        assert 10 <= named[0] < 30, "long before stall_after"
        assert not any("/s" in sentence or "made no progress" in sentence for sentence in sentences[named[0] :])
    else:
        assert "will not catch up at a throttle of 7 bytes/s" in sentences[-1]


def test_a_rate_of_others_is_named_from_the_first_step_on_also_without_a_throttle() -> None:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123", bandwidth=1_000, size=5_000)
    simulator.broker_settings[4]["follower.replication.throttled.rate"] = "7"
    simulator.topic_settings["t"]["follower.replication.throttled.replicas"] = "*"
    world = World(simulator, memory_journal(simulator), MOVES[:1], settings=Settings(throttle=0), auto_generated=False)
    assert "Broker 4 has follower.replication.throttled.rate 7 bytes/s, set by someone else" in world.step().sentence


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
    assert (progress.bytes_total, progress.bytes_done, progress.eta_s) == (200, 80, 12)
    assert progress.sentence.endswith("t-0 made no progress for 3 s.")


def test_a_stalled_move_can_be_waited_for_while_the_rest_goes_on() -> None:
    world = stalled_world("wait")
    for _ in range(20):
        world.simulator.tick()
        progress = world.step()
        assert not progress.stops
    assert world.states() == {"t-0": "submitted", "t-1": "completed"}
    world.simulator.elect(world.simulator.topics[T0])
    assert world.run().status is PlanStatus.COMPLETED


def test_a_stalled_move_can_be_cancelled_on_its_own_and_does_not_begin_again() -> None:
    world = stalled_world("cancel")
    progress = world.run()
    assert (progress.status, progress.completed, progress.dropped) == (PlanStatus.COMPLETED, 1, 1)
    assert world.replicas("t-0") == (1, 2, 3)
    assert world.replicas("t-1") == (4, 3, 1)
    assert "this move alone was cancelled" in world.row("t-0").detail
    assert world.throttles() == []


def row_of(
    name: str, phase: Phase = Phase.ACCEPTED, state: MoveState = MoveState.SUBMITTED, cause: Cause | None = None
) -> MoveRow:
    return MoveRow(move(name, "123", "423"), state, phase=phase, cause=cause)


def test_what_was_cancelled_on_its_own_and_has_ended_does_not_begin_again() -> None:
    cancelled = {
        "t-0": (Cause.STALLED, ObservedState.RESTORED),
        "t-1": (Cause.CANCELLED_ELSEWHERE, ObservedState.CANNOT_ROLL_BACK),
        "t-2": (Cause.REQUESTED, ObservedState.RESTORED),
        "t-3": (Cause.STALLED, ObservedState.CANCELLING),
        "t-4": (Cause.STALLED, ObservedState.RESTORED),
    }
    findings = [
        Observation(row_of(name, Phase.CANCELLING, cause=cause), state, (1, 2, 3))
        for name, (cause, state) in cancelled.items()
    ]
    now = [row_of(name, state=MoveState.HELD) for name in ("t-3", "t-2", "t-1", "t-0")]
    now += [row_of("t-4", state=MoveState.DROPPED), row_of("t-9", state=MoveState.WAITING)]
    kept = "; an original broker is dead or its log directory failed, so it keeps [1, 2, 3]"
    assert find_individually_cancelled(findings, now) == [
        (now[2], EXTERNAL_CANCEL + kept, Cause.CANCELLED_ELSEWHERE),
        (now[3], GIVEN_UP, Cause.STALLED),
    ]
    assert INDIVIDUAL_CANCEL.keys() == {Cause.STALLED, Cause.CANCELLED_ELSEWHERE, Cause.NO_LOG}
    assert find_individually_cancelled(findings[2:4], now) == []


# the throttle as a fraction


def test_the_throttle_can_be_a_fraction_of_the_stated_network() -> None:
    connection = {"network_bandwidth": 125_000_000, "throttle_fraction": 0.1}
    assert Settings.of(connection).throttle == 12_500_000
    assert Settings.of({"throttle": 7}, connection).throttle == 7
    assert Settings.of({"throttle_fraction": 0.2}, connection, {"throttle": 7}).throttle == 25_000_000
