"""Which moves start: laws for any plan, and the few cases that say what is meant."""

from __future__ import annotations

from collections import Counter
from dataclasses import astuple, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_steward.assignment import Move, TopicPartition
from kafka_steward.execution.moves import concurrency
from kafka_steward.execution.moves.concurrency import (
    ActiveTransfer,
    ConcurrencyLimits,
    LearnedWindow,
    Pressure,
    active_transfers,
    chunk_pause_left_ms,
    find_pressure,
    pressure_message,
    select_chunk_moves,
)
from kafka_steward.execution.moves.memory import SettledMoves
from kafka_steward.execution.moves.preflight import LogDirRoom
from kafka_steward.journal.records import MoveRow, MoveState
from tests.simulated_plan import move
from tests.simulator import Simulator

BROKERS = st.integers(1, 6)


def admit(*given: Any, **more: Any) -> list[Move]:
    return concurrency.admit_moves(*given, **more).moves


flowing = st.lists(st.builds(ActiveTransfer, st.frozensets(BROKERS, max_size=2), st.none() | BROKERS), max_size=6)
limits = st.builds(ConcurrencyLimits, st.integers(1, 3), st.integers(1, 3), st.integers(1, 8))


@st.composite
def plans(draw: st.DrawFn) -> list[Move]:
    moves = []
    for number in range(draw(st.integers(0, 12))):
        before = tuple(draw(st.permutations(range(1, 7)))[:3])
        after = tuple(draw(st.permutations(range(1, 7)))[:3])
        size = draw(st.none() | st.integers(0, 100))
        moves.append(Move("t", number, before, after, number // 4, number % 4, "test", None, size))
    return moves


def one_each(free: dict[int, int]) -> dict[int, tuple[LogDirRoom, ...]]:
    """Brokers with one log directory each, and the bytes that it may take."""
    return {broker: (LogDirRoom("", 0, left),) for broker, left in free.items()}


def leaders(moves: list[Move]) -> dict[TopicPartition, int | None]:
    return {each.topic_partition: each.before[0] for each in moves}


@given(plans(), flowing, limits, st.dictionaries(BROKERS, st.integers(0, 200)))
def test_no_broker_is_given_more_than_its_cap_or_its_room(
    moves: list[Move], in_flight: list[ActiveTransfer], caps: ConcurrencyLimits, room: dict[int, int]
) -> None:
    chosen = admit(moves, in_flight, caps, leaders=leaders(moves), rooms=one_each(room))
    copying = [each for each in chosen if frozenset(each.before) != frozenset(each.after)]
    into = Counter(broker for flow in in_flight for broker in flow.into)
    received = Counter(broker for each in copying for broker in each.adding)
    for broker, count in received.items():
        assert into[broker] + count <= caps.into
        taken = sum(each.size_bytes or 0 for each in copying if broker in each.adding)
        assert taken <= room.get(broker, taken)
    sent = Counter(dict.fromkeys(range(1, 7), 0))
    for flow in in_flight:
        sent[flow.out_of or 0] += len(flow.into)
    for each in copying:
        alone = sent[each.before[0]] == 0
        sent[each.before[0]] += len(each.adding)
        assert alone or sent[each.before[0]] <= caps.out_of
    assert not copying or len(in_flight) + len(copying) <= caps.total


@given(plans(), flowing, limits, st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(
    moves: list[Move], in_flight: list[ActiveTransfer], caps: ConcurrencyLimits, chance: object
) -> None:
    shuffled = list(moves)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    expected = admit(moves, in_flight, caps, leaders=leaders(moves), rooms={})
    assert admit(shuffled, in_flight, caps, leaders=leaders(moves), rooms={}) == expected


@given(plans(), limits)
def test_an_idle_cluster_always_gets_something_to_do(moves: list[Move], caps: ConcurrencyLimits) -> None:
    assert bool(admit(moves, [], caps, leaders=leaders(moves), rooms={})) == bool(moves)


windows = st.builds(
    ConcurrencyLimits,
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 8),
    st.integers(0, 200),
    st.integers(1, 50),
    refill_bytes=st.integers(1, 100),
)
sized = st.lists(
    st.builds(ActiveTransfer, st.frozensets(BROKERS, max_size=2), st.none() | BROKERS, st.integers(0, 100)), max_size=6
)


@given(plans(), sized, windows)
def test_no_broker_transfers_more_bytes_than_the_window_but_for_a_single_move_while_little_is_left(
    moves: list[Move], in_flight: list[ActiveTransfer], caps: ConcurrencyLimits
) -> None:
    chosen = admit(moves, in_flight, caps, leaders=leaders(moves), rooms={})
    copying = [each for each in chosen if frozenset(each.before) != frozenset(each.after)]
    into, out_of = Counter[int | None](), Counter[int | None]()
    flows = [*in_flight, *(ActiveTransfer(each.adding, each.before[0], weight(each, caps)) for each in copying)]
    for number, flow in enumerate(flows):
        soon, window = min(flow.left_bytes, caps.bytes_per_broker or 0), caps.bytes_per_broker or 0
        for side, brokers, bytes_, most in (
            (into, flow.into, soon, window),
            (out_of, [flow.out_of] if flow.out_of else [], soon * len(flow.into), 5 * window),
        ):
            for broker in brokers:
                new, little = number >= len(in_flight), side[broker] < caps.refill_bytes
                side[broker] += bytes_
                assert not new or little or side[broker] <= most


def weight(move: Move, caps: ConcurrencyLimits) -> int:
    return caps.unknown_bytes if move.size_bytes is None else move.size_bytes


@given(plans(), windows)
def test_every_move_is_admitted_in_the_end(moves: list[Move], caps: ConcurrencyLimits) -> None:
    waiting, steps = moves, 0
    while waiting:
        chosen = admit(waiting, [], caps, leaders=leaders(moves), rooms={})
        waiting = [each for each in waiting if each not in chosen]
        steps += 1
        assert steps <= len(moves)


@given(plans(), sized, limits)
def test_a_window_wide_enough_for_all_admits_as_many_as_none(
    moves: list[Move], in_flight: list[ActiveTransfer], caps: ConcurrencyLimits
) -> None:
    wide = replace(caps, bytes_per_broker=10_000, unknown_bytes=1)
    expected = admit(moves, in_flight, caps, leaders=leaders(moves), rooms={})
    assert admit(moves, in_flight, wide, leaders=leaders(moves), rooms={}) == expected


@given(
    st.builds(LearnedWindow, st.integers(0, 20)),
    st.integers(0, 2**40),
    st.floats(0.1, 3600),
    st.integers(-(2**45), 2**45),
    st.none() | st.sampled_from(Pressure),
)
def test_whatever_the_rate_and_the_clock_the_window_is_bounded_and_the_counts_stay(
    learned: LearnedWindow, throttle: int, interval_s: float, since_last_ms: int, pressure: Pressure | None
) -> None:
    caps = ConcurrencyLimits(7, 9, 11)
    found = caps.with_window(learned, throttle=throttle, interval_s=interval_s, since_last_ms=since_last_ms)
    assert (found.into, found.out_of, found.total) == (7, 9, 11)
    longest = max(throttle * (2 * interval_s + 30), 10_000_000) if throttle else 64_000_000 * 2**20
    assert 0 < (found.bytes_per_broker or 0) <= longest
    reduced = found.under(pressure)
    for one, other in zip(astuple(reduced)[:4], astuple(found)[:4], strict=True):
        assert 1 <= one <= other


def test_the_window_is_what_the_throttle_copies_until_the_next_step() -> None:
    caps, learned = ConcurrencyLimits(1000, 1000, 3000), LearnedWindow()
    found = caps.with_window(learned, throttle=50_000_000, interval_s=2, since_last_ms=1500)
    assert found.bytes_per_broker == 50_000_000 * 3.5
    late = caps.with_window(learned, throttle=50_000_000, interval_s=2, since_last_ms=86_400_000)
    assert late.bytes_per_broker == 50_000_000 * 34, "a plan that waited for a day is due no day's bytes"
    one_byte = caps.with_window(learned, throttle=1, interval_s=2, since_last_ms=1500)
    assert one_byte.bytes_per_broker == 10_000_000, "one response to a fetch is not divided"


def test_what_is_copied_sooner_than_it_is_accepted_does_not_wait_for_large_moves() -> None:
    """A controller that takes a second for 50 moves takes 20 ms for each; the throttle lets 1 MB through in these."""
    caps, learned = ConcurrencyLimits(1000, 1000, 3000), LearnedWindow(slowest_call_ms=1000)
    found = caps.with_window(learned, throttle=50_000_000, interval_s=2, since_last_ms=0, starts_in_turn=True)
    full = ActiveTransfer(frozenset({4}), None, 10**9)
    small, larger = into_4(300, size=1_000_000), into_4(300, size=1_000_001)
    nobody = dict.fromkeys(leaders(small))
    assert len(admit(small, [full], found, leaders=nobody, rooms={})) == 300
    assert admit(larger, [full], found, leaders=nobody, rooms={}) == []
    assert len(admit(larger, [], found, leaders=nobody, rooms={})) == 300, "each delays the next step by 20 ms"
    large = into_4(300, size=2_000_000)
    assert len(admit(large, [], found, leaders=nobody, rooms={})) == 99, "100 MB is the window, and 99 for these"
    assert large[0] in admit(
        [*large[:1], *small[1:]], [replace(full, left_bytes=99_000_000)], found, leaders=nobody, rooms={}
    )
    under = found.under(Pressure.CONTROLLER_SLOW)
    assert admit(small, [full], under, leaders=nobody, rooms={}) == []


def test_without_sizes_or_a_throttle_the_window_doubles_while_moves_end() -> None:
    caps, learned = ConcurrencyLimits(1000, 1000, 3000), LearnedWindow()
    unknown = [replace(each, size_bytes=None) for each in into_4(100)]

    def admitted(throttle: int) -> int:
        found = caps.with_window(learned, throttle=throttle, interval_s=2, since_last_ms=0)
        return len(admit(unknown, [], found, leaders=dict.fromkeys(leaders(unknown)), rooms={}))

    def after(ended: int, remained: int, slowest_ms: int = 0) -> LearnedWindow:
        return learned.update(ended=ended, remained=remained, slowest_call_ms=slowest_ms, stalled=())

    assert (admitted(0), admitted(1_000_000)) == (5, 5)
    learned = after(5, 0)
    assert (admitted(0), admitted(1_000_000)) == (10, 10)
    assert [after(2, 3).doublings, after(0, 0).doublings, after(3, 3).doublings] == [1, 1, 2]
    assert after(9, 0, slowest_ms=5001).doublings == 0
    for _ in range(30):
        learned = after(1, 0)
    assert (learned.doublings, admitted(0)) == (20, 100)


def test_small_moves_start_by_the_hundred_and_a_huge_one_alone() -> None:
    caps = ConcurrencyLimits(1000, 1000, 3000, bytes_per_broker=1000)
    small = into_4(300, size=1)
    assert len(admit(small, [], caps, leaders=dict.fromkeys(leaders(small)), rooms={})) == 300
    huge = replace(small[0], size_bytes=5000)
    assert admit([huge, *small[1:]], [], caps, leaders={}, rooms={}) == [huge]
    assert admit([*small[1:], huge], [], caps, leaders={}, rooms={})[0] == huge, "it is the first in order"
    arriving = ActiveTransfer(frozenset({4}), None, 900)
    assert len(admit([huge, *small[1:]], [arriving], caps, leaders={}, rooms={})) == 100


@pytest.mark.parametrize("leaders_throttled", [False, True])
def test_the_next_large_move_starts_when_the_one_before_ends_before_the_next_step(leaders_throttled: bool) -> None:
    caps = ConcurrencyLimits(9, 9, 9).with_window(
        LearnedWindow(), throttle=20_000_000, interval_s=2, since_last_ms=0, leaders_throttled=leaders_throttled
    )
    large = [replace(each, size_bytes=80_000_000) for each in into_4(3, size=1)]
    led_by_1 = {each.topic_partition: 1 for each in large}

    def admitted(left: int, pressure: Pressure | None = None) -> int:
        moving = ActiveTransfer(frozenset({4}), 1, left)
        return len(admit(large, [moving], caps.under(pressure), leaders=led_by_1, rooms={}))

    assert [admitted(left) for left in (80_000_000, 40_000_000, 39_999_999, 0)] == [0, 0, 1, 1]
    assert (admitted(1, Pressure.OUT_OF_SYNC), admitted(0, Pressure.OUT_OF_SYNC)) == (0, 1)


def admitted_small(
    learned: LearnedWindow, *in_flight: ActiveTransfer, in_turn: bool = False, pressure: Pressure | None = None
) -> int:
    small = into_4(400, size=1)
    caps = ConcurrencyLimits(1000, 1000, 3000).with_window(
        learned, throttle=50_000_000, interval_s=2, since_last_ms=0, starts_in_turn=in_turn
    )
    nobody = dict.fromkeys(leaders(small))
    return len(admit(small, in_flight, caps.under(pressure), leaders=nobody, rooms={}))


def test_few_of_many_small_moves_start_together_until_almost_all_end_before_the_next_step() -> None:
    """A ZooKeeper-mode controller starts them one after the other itself."""

    def after(ended: int, remained: int, slowest_ms: int = 0) -> LearnedWindow:
        return LearnedWindow(widenings=1).update(ended=ended, remained=remained, slowest_call_ms=slowest_ms, stalled=())

    moving = ActiveTransfer(frozenset({4}), None, 1)
    assert (admitted_small(LearnedWindow()), admitted_small(LearnedWindow(), in_turn=True)) == (50, 400)
    assert admitted_small(LearnedWindow(), *[moving] * 40) == 10
    assert admitted_small(LearnedWindow(), *[replace(moving, stalled=True)] * 100) == 50, "they must hold nobody up"
    assert admitted_small(LearnedWindow(), pressure=Pressure.OUT_OF_SYNC) == 12
    assert admitted_small(after(0, 0)) == admitted_small(after(29, 10)) == 100
    assert admitted_small(after(30, 10)) == 200
    assert admitted_small(after(80, 0, slowest_ms=5001)) == 50


def test_as_moves_end_those_that_two_steps_start_are_in_transfer() -> None:
    def admit(learned: LearnedWindow, moving: int, pressure: Pressure | None = None) -> int:
        in_flight = [ActiveTransfer(frozenset({4}), None, 1)] * moving
        return admitted_small(learned, *in_flight, pressure=pressure)

    def after(known: LearnedWindow, ended: int, slowest_ms: int = 0) -> LearnedWindow:
        return known.update(ended=ended, remained=50, slowest_call_ms=slowest_ms, stalled=())

    assert admit(after(LearnedWindow(), 0), 50) == 0
    one = after(LearnedWindow(), 1)
    two = after(one, 1)
    assert [admit(one, moving) for moving in (0, 50, 75)] == [50, 25, 0]
    assert [admit(two, moving) for moving in (0, 49, 50, 51, 99, 100)] == [50, 50, 50, 49, 1, 0]
    assert after(two, 1) == two, "more would start together"
    assert (admit(two, 12, Pressure.OUT_OF_SYNC), admit(two, 24, Pressure.OUT_OF_SYNC)) == (12, 1)
    assert after(two, 1, slowest_ms=5001).overlaps == 1


@pytest.mark.parametrize(
    ("in_flight", "numbers"),
    [
        ([], [0, 1, 2, 3]),
        ([ActiveTransfer(frozenset({8}), 1, 100)], [0, 1, 2, 3]),
        ([ActiveTransfer(frozenset({8, 9}), 1, 100)], [0, 1, 2]),
        ([ActiveTransfer(frozenset({8, 9}), 2, 100)], [0, 1, 2, 3]),
        ([ActiveTransfer(frozenset({8}), 1, 900)], [0, 1, 2, 3]),
        ([ActiveTransfer(frozenset({8}), 1, 90), ActiveTransfer(frozenset({9}), 1, 90)], [0, 1, 2]),
        ([ActiveTransfer(frozenset({4}), None, 200)], [1, 2, 3]),
    ],
)
def test_a_leader_sends_at_most_what_five_brokers_receive(in_flight: list[ActiveTransfer], numbers: list[int]) -> None:
    assert chosen(SPREAD, replace(WIDE, bytes_per_broker=100), *in_flight) == numbers


def test_a_throttled_leader_sends_what_one_broker_receives() -> None:
    caps = ConcurrencyLimits(9, 9, 9).with_window(
        LearnedWindow(), throttle=100, interval_s=2, since_last_ms=0, leaders_throttled=True
    )
    assert chosen(SPREAD, replace(caps, bytes_per_broker=100, refill_bytes=1)) == [0]
    assert chosen(JOINED, replace(caps, bytes_per_broker=400)) == [0, 1, 2, 3], "each from a leader of its own"
    free = ConcurrencyLimits(9, 9, 9).with_window(
        LearnedWindow(), throttle=0, interval_s=2, since_last_ms=0, leaders_throttled=True
    )
    assert chosen(SPREAD, replace(free, bytes_per_broker=100)) == [0, 1, 2, 3], "without a rate no leader is throttled"


def test_the_larger_of_the_planned_and_the_reported_size_counts_in_the_window() -> None:
    caps = replace(WIDE, bytes_per_broker=100)
    several = [replace(each, size_bytes=60) for each in JOINED]

    def admitted(sizes: dict[TopicPartition, int]) -> int:
        return len(admit(several, [], caps, leaders=leaders(several), rooms={}, sizes=sizes))

    names = [each.topic_partition for each in several]
    assert admitted({}) == 1
    assert admitted(dict.fromkeys(names, 0)) == 1, "a leader that reports nothing"
    assert admitted(dict.fromkeys(names, 90)) == 1
    several = [replace(each, size_bytes=None) for each in several]
    assert admitted(dict.fromkeys(names, 50)) == 2


def test_a_stalled_partition_keeps_nobody_waiting() -> None:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 231")
    name = TopicPartition("t", 0)
    simulator.alter({name: (4, 2, 3)})
    left = {name: 700}
    assert active_transfers(simulator.snapshot()) == [ActiveTransfer(frozenset({4}), 1)]
    assert active_transfers(simulator.snapshot(), left) == [ActiveTransfer(frozenset({4}), 1, 700)]
    assert active_transfers(simulator.snapshot(), left, {name}) == [ActiveTransfer(frozenset({4}), 1, 0, stalled=True)]


def into_4(count: int, *, size: int = 100) -> list[Move]:
    return [move(f"t-{n}", "123", "423", position=n, size=size) for n in range(count)]


@pytest.mark.parametrize(
    ("strained", "slowest_ms", "pressure", "words"),
    [
        ("4", 5000, None, "v-1, outside this plan, {fewer}; no move of this plan copies from or to its brokers."),
        ("4", 6400, Pressure.CONTROLLER_SLOW, "Moves start more slowly: the controller took 6 s for a request."),
        ("23", 9000, Pressure.CONTROLLER_SLOW, "Moves start more slowly: the controller took 9 s for a request."),
        (
            "3",
            0,
            Pressure.OUT_OF_SYNC,
            "Moves from and to broker 3 {slow}: u-3, outside this plan, is out of sync.",
        ),
        (
            "25",
            0,
            Pressure.OUT_OF_SYNC,
            "Moves from and to brokers 2 and 5 {slow}: v-1, outside this plan, {fewer}.",
        ),
    ],
)
def test_pressure_is_typed_and_said(strained: str, slowest_ms: int, pressure: Pressure | None, words: str) -> None:
    under_min_isr, out_of_sync = {TopicPartition("v", 1): frozenset({2, 5})}, {TopicPartition("u", 3): frozenset({3})}
    brokers = set(map(int, strained)) & {2, 3, 5}
    found = find_pressure(brokers, slowest_ms)
    assert found is pressure
    said = pressure_message(found, brokers, slowest_ms, under_min_isr=under_min_isr, out_of_sync=out_of_sync)
    fewer = "has fewer replicas in sync than min.insync.replicas"
    assert said == words.format(fewer=fewer, slow="start more slowly")
    assert pressure_message(None, (), 0, under_min_isr={}, out_of_sync=out_of_sync) == ""


def test_a_move_without_a_place_holds_up_nothing_behind_it() -> None:
    moves = [move("t-0", "123", "423"), move("t-1", "123", "423", position=1), move("t-2", "231", "531", position=2)]
    chosen = admit(moves, [], ConcurrencyLimits(1, 5, 9), leaders=leaders(moves), rooms={})
    assert [each.partition for each in chosen] == [0, 2]


def chosen(
    moves: list[Move], caps: ConcurrencyLimits, *in_flight: ActiveTransfer, room: dict[int, int] | None = None
) -> list[int]:
    return [
        each.partition for each in admit(moves, in_flight, caps, leaders=leaders(moves), rooms=one_each(room or {}))
    ]


WIDE = ConcurrencyLimits(9, 9, 9)
#: t-0 to t-3 go into 4, 5, 6 and 7; the leader of all is 1.
SPREAD = [move(f"t-{n}", "123", f"{4 + n}23", position=n) for n in range(4)]
#: The same into 4 alone, each from a leader of its own.
JOINED = [move(f"t-{n}", f"{5 + n}23", "423", position=n) for n in range(4)]
DOUBLE = [move("t-0", "123", "453"), move("t-1", "123", "673", position=1)]


@pytest.mark.parametrize(
    ("moves", "caps", "in_flight", "numbers"),
    [
        (SPREAD, ConcurrencyLimits(9, 9, 2), [], [0, 1]),
        (SPREAD, ConcurrencyLimits(9, 9, 3), [ActiveTransfer(frozenset({8}), 9)], [0, 1]),
        (SPREAD, ConcurrencyLimits(9, 9, 1), [ActiveTransfer(frozenset({8}), 9)], []),
        (SPREAD, ConcurrencyLimits(9, 2, 9), [], [0, 1]),
        (SPREAD, ConcurrencyLimits(9, 3, 9), [ActiveTransfer(frozenset({8}), 1)], [0, 1]),
        (SPREAD, ConcurrencyLimits(9, 3, 9), [ActiveTransfer(frozenset({8, 9}), 1)], [0]),
        (SPREAD, ConcurrencyLimits(9, 1, 9), [ActiveTransfer(frozenset({8}), None)], [0]),
        (JOINED, ConcurrencyLimits(2, 9, 9), [], [0, 1]),
        (JOINED, ConcurrencyLimits(3, 9, 9), [ActiveTransfer(frozenset({4, 8}), 9)], [0, 1]),
        (JOINED, ConcurrencyLimits(1, 9, 9), [ActiveTransfer(frozenset({4}), None)], []),
        (DOUBLE, ConcurrencyLimits(1, 1, 9), [], [0]),
        (DOUBLE, ConcurrencyLimits(1, 4, 9), [], [0, 1]),
        (DOUBLE, ConcurrencyLimits(1, 3, 9), [], [0]),
        (DOUBLE, ConcurrencyLimits(1, 4, 9), [ActiveTransfer(frozenset({5}), None)], [1]),
    ],
)
def test_each_cap_counts_what_is_in_flight_and_what_was_chosen_before(
    moves: list[Move], caps: ConcurrencyLimits, in_flight: list[ActiveTransfer], numbers: list[int]
) -> None:
    assert chosen(moves, caps, *in_flight) == numbers


@pytest.mark.parametrize(
    ("room", "numbers"), [({4: 200}, [0, 1]), ({4: 199}, [0]), ({4: 99}, []), ({4: 0}, []), ({5: 0}, [0, 1, 2, 3])]
)
def test_room_is_used_up_by_what_was_chosen_before(room: dict[int, int], numbers: list[int]) -> None:
    assert chosen(JOINED, WIDE, room=room) == numbers


def test_a_move_of_unknown_size_needs_no_room() -> None:
    assert chosen([replace(JOINED[0], size_bytes=None)], WIDE, room={4: 0}) == [0]


def test_partitions_without_a_leader_share_no_sender() -> None:
    leaderless = dict.fromkeys(leaders(SPREAD))
    assert admit(SPREAD, [], ConcurrencyLimits(9, 1, 9), leaders=leaderless, rooms={}) == SPREAD


def test_moves_start_in_plan_order_by_chunk_then_position_then_name() -> None:
    places = [("t-9", 0, 1), ("t-8", 0, 2), ("t-1", 1, 0), ("t-2", 1, 0), ("u-0", 1, 0), ("a-0", 1, 1)]
    moves = [move(name, "123", "423", chunk=chunk, position=position) for name, chunk, position in places]
    assert admit(moves[::-1], [], WIDE, leaders={}, rooms={}) == moves


def test_a_reorder_takes_no_place() -> None:
    assert chosen([move("t-0", "123", "231")], ConcurrencyLimits(1, 1, 1), ActiveTransfer(frozenset({4}), 1)) == [0]


def rows(*states: MoveState, settled_ms: int = 1000) -> list[MoveRow]:
    return [
        MoveRow(
            move(f"t-{n}", "123", "423", chunk=n // 2, position=n % 2),
            state,
            settled_ms=settled_ms if state.settled else None,
        )
        for n, state in enumerate(states)
    ]


DONE, WAITS, IN_FLIGHT, HELD = MoveState.COMPLETED, MoveState.WAITING, MoveState.SUBMITTED, MoveState.HELD


@pytest.mark.parametrize(
    ("states", "sliding", "chunked"),
    [
        ((WAITS, WAITS, WAITS, WAITS), [0, 1, 2, 3], [0, 1]),
        ((DONE, IN_FLIGHT, WAITS, HELD), [2, 3], []),
        ((DONE, DONE, IN_FLIGHT, HELD, WAITS), [3, 4], [3]),
        ((WAITS, WAITS, DONE, DONE, IN_FLIGHT, HELD), [0, 1, 5], [0, 1]),
        ((DONE, DONE), [], []),
    ],
)
def test_the_barrier_opens_one_chunk_at_a_time(
    states: tuple[MoveState, ...], sliding: list[int], chunked: list[int]
) -> None:
    assert [row.move.partition for row in select_chunk_moves(rows(*states), barrier=False)] == sliding
    assert [row.move.partition for row in select_chunk_moves(rows(*states), barrier=True)] == chunked


BETWEEN, THREE = rows(DONE, DONE, WAITS, WAITS), rows(DONE, DONE, DONE, DONE, WAITS)
PAUSES = {
    "it runs from the end of the chunk before": (BETWEEN, 1200, 300),
    "it is over": (BETWEEN, 1500, 0),
    "none precedes the first chunk": (rows(WAITS, WAITS), 0, 0),
    "none follows the last": (rows(DONE, DONE), 1200, 0),
    "the last to settle of all chunks before counts": (
        [replace(row, settled_ms=ms) for row, ms in zip(THREE, [700, 1100, 900, 1000, None], strict=True)], 1200, 400,
    ),
    "a chunk that has begun": ([replace(row, attempt=row.move.partition == 2) for row in BETWEEN], 1200, 0),
    "the chunk before was tried": ([replace(row, attempt=row.move.chunk == 0) for row in BETWEEN], 1200, 300),
    "an end that is not known": ([replace(row, settled_ms=None) for row in rows(DONE, DONE, WAITS)], 100, 0),
}  # fmt: skip


@pytest.mark.parametrize(("moves", "now_ms", "left_ms"), PAUSES.values(), ids=PAUSES)
def test_the_pause_between_two_chunks(moves: list[MoveRow], now_ms: int, left_ms: int) -> None:
    assert chunk_pause_left_ms(moves, SettledMoves(), pause_ms=500, now_ms=now_ms) == left_ms


def test_each_replica_goes_where_kafka_puts_it_or_is_asked_into_a_directory_with_room() -> None:
    """Kafka fills the directory with the fewest logs: first /b, then either of them, for all that is known."""
    moves = [move(f"t-{number}", "123", "423", position=number, size=50) for number in range(4)]
    for room_of_a, room_of_b, moved, asked in ((60, 60, 2, [1]), (60, 110, 3, []), (300, 0, 4, [0, 1, 2, 3])):
        rooms = {4: (LogDirRoom("/a", 1, room_of_a), LogDirRoom("/b", 0, room_of_b))}
        found = concurrency.admit_moves(moves, [], WIDE, leaders=leaders(moves), rooms=rooms)
        assert [each.partition for each in found.moves] == list(range(moved))
        assert found.directories == {(moves[number].topic_partition, 4): "/a" for number in asked}
    assert concurrency.directories_by_partition(found)[moves[0].topic_partition] == (
        "into the log directory /a of broker 4 (KIP-113)"
    )


def test_the_size_on_the_leader_counts_for_the_room_and_not_the_one_at_planning() -> None:
    sizes = {JOINED[0].topic_partition: 5_000}
    assert admit(JOINED[:1], [], WIDE, leaders=leaders(JOINED), rooms=one_each({4: 300}), sizes=sizes) == []
    assert admit(JOINED[:1], [], WIDE, leaders=leaders(JOINED), rooms=one_each({4: 5_000}), sizes=sizes)


def test_room_that_one_broker_gave_away_changes_none_of_the_others() -> None:
    into = [move("t-0", "123", "423"), move("t-1", "231", "531", position=1), move("t-2", "312", "412", position=2)]
    leaders = {each.topic_partition: each.before[0] for each in into}
    for left, numbers in ((100, [0, 1]), (99, [0])):
        rooms = {4: (LogDirRoom("", 0, 150),), 5: (LogDirRoom("", 0, left),)}
        chosen = admit(into, [], ConcurrencyLimits(9, 9, 9), leaders=leaders, rooms=rooms)
        assert [each.partition for each in chosen] == numbers
