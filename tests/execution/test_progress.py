"""What is told of a plan that runs: counts, bytes, rates, what stands still, and what a step returns."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.state import BrokerLogDirs
from kafka_steward.execution.moves.concurrency import Pressure
from kafka_steward.execution.moves.progress import (
    Progress,
    TransferRate,
    arrived_bytes,
    cancel_outcome_message,
    count_progress_bytes,
    eta_s,
    find_stalled,
    next_step_s,
    progress_of,
)
from kafka_steward.execution.moves.states import Held, HoldReason, bytes_to_copy
from kafka_steward.journal import paths
from kafka_steward.journal.kip_documents import CancelRequest
from kafka_steward.journal.records import MoveRow, MoveState, PlanRecord, PlanStatus
from kafka_steward.settings import Settings
from tests.documents import create_document, delete_document
from tests.simulated_plan import World, memory_journal, move
from tests.simulator import Simulator

RECORD = PlanRecord("d1", "c", "heal", PlanStatus.RUNNING, reason="As the record says.", left=3)
#: By chunk, how many of each state there are; each copies 100 bytes.
STATES = {
    MoveState.COMPLETED: (0, 1),
    MoveState.SATISFIED: (0, 2),
    MoveState.DROPPED: (0, 3),
    MoveState.FAILED: (0, 4),
    MoveState.SUBMITTED: (1, 5),
    MoveState.WAITING: (2, 6),
    MoveState.HELD: (2, 7),
}
ROWS = [
    MoveRow(move(f"{state.value}-{n}", "123", "423", chunk=chunk, position=n, size=100), state)
    for state, (chunk, count) in STATES.items()
    for n in range(count)
]
IN_FLIGHT = TopicPartition("submitted", 0)
HELD = Held.of(TopicPartition("held", 0), HoldReason.TARGET_DEAD, 4)
TRACK = TransferRate(9000, 130, arrived={IN_FLIGHT: 30, TopicPartition("submitted", 1): 500}, bytes_per_s=10.0)
PROGRESS = Progress(
    digest="d1",
    status=PlanStatus.RUNNING,
    partitions_total=28,
    partitions_settled=10,
    in_flight=5,
    waiting=13,
    completed=1,
    satisfied=2,
    dropped=3,
    failed=4,
    held=(HELD,),
    bytes_total=1900,
    bytes_done=230,
    bytes_per_s=10.0,
    eta_s=167.0,
    stalled=(IN_FLIGHT,),
    chunk=1,
    chunks=3,
    left=3,
    busy=True,
    sentence=f"10 of 28 partitions settled, 5 in flight, 13 waiting. {HELD.sentence}",
)


def of(*states: MoveState) -> list[MoveRow]:
    return [MoveRow(move(f"t-{n}", "123", "423", size=100), state) for n, state in enumerate(states)]


def test_every_partition_and_every_byte_is_counted_once() -> None:
    assert progress_of(RECORD, ROWS, held=[HELD], track=TRACK, stalled=[IN_FLIGHT], busy=True) == PROGRESS


def test_of_moves_that_are_held_each_reason_is_worded_once() -> None:
    other = [Held.of(TopicPartition("held", n), HoldReason.TARGET_CORDONED, 5) for n in (1, 2)]
    assert progress_of(RECORD, ROWS, held=[HELD, *other]).sentence == (
        "10 of 28 partitions settled, 5 in flight, 13 waiting. "
        f"{other[0].sentence} The same holds 1 more. {HELD.sentence}"
    )
    assert progress_of(RECORD, ROWS, held=other).sentence.endswith(f"waiting. {other[0].sentence}")


def test_a_plan_that_is_being_cancelled_has_no_time_left_of_what_it_will_not_copy() -> None:
    asked = replace(RECORD, cancel=CancelRequest(reason="racks"))
    assert progress_of(asked, ROWS, held=[HELD], track=TRACK, stalled=[IN_FLIGHT], busy=True).eta_s is None


def test_without_a_track_what_is_in_flight_counts_nothing_and_the_rate_is_unknown() -> None:
    told = progress_of(RECORD, ROWS)
    assert (told.bytes_done, told.bytes_per_s, told.eta_s) == (100, None, None)
    assert (told.held, told.stalled, told.busy, told.soon_s, told.stops) == ((), (), False, None, False)


def test_a_plan_that_is_through_or_without_moves_has_no_chunk_left_and_no_time_to_wait() -> None:
    told = progress_of(RECORD, of(MoveState.COMPLETED, MoveState.COMPLETED))
    assert (told.chunk, told.chunks, told.eta_s, told.bytes_done, told.bytes_total) == (None, 1, 0.0, 200, 200)
    told = progress_of(RECORD, [])
    assert told.sentence == "There is nothing to move."
    assert (told.chunk, told.chunks, told.partitions_total, told.bytes_total, told.eta_s) == (None, 0, 0, 0, 0.0)


WAITS = of(MoveState.COMPLETED, MoveState.SUBMITTED, MoveState.WAITING)
FLY = of(MoveState.COMPLETED, MoveState.SUBMITTED)
ONE_OF_THREE = "1 of 3 partitions settled, 1 in flight, 1 waiting."


@pytest.mark.parametrize(
    ("status", "rows", "more", "sentence"),
    [
        (PlanStatus.RUNNING, WAITS, {}, ONE_OF_THREE),
        (PlanStatus.RUNNING, FLY, {}, "1 of 2 partitions settled, 1 in flight."),
        (PlanStatus.PUBLISHED, FLY, {}, "1 of 2 partitions settled, 1 in flight."),
        (PlanStatus.RUNNING, WAITS, {"note": "Why."}, f"{ONE_OF_THREE} Why."),
        (PlanStatus.RUNNING, FLY, {"note": "Why."}, "1 of 2 partitions settled, 1 in flight."),
        (PlanStatus.RUNNING, WAITS, {"note": "Why.", "held": [HELD]}, f"{ONE_OF_THREE} {HELD.sentence}"),
        (PlanStatus.RUNNING, WAITS, {"sentence": "Given.", "held": [HELD]}, "Given."),
        (PlanStatus.STUCK, WAITS, {"held": [HELD]}, "As the record says."),
        (PlanStatus.PREEMPTED, WAITS, {}, "As the record says."),
        (PlanStatus.COMPLETED, FLY, {}, "As the record says."),
        (PlanStatus.ABANDONED, WAITS, {}, "As the record says."),
    ],
)
def test_the_sentence_says_how_far_it_is_or_why_it_stands(
    status: PlanStatus, rows: list[MoveRow], more: dict[str, Any], sentence: str
) -> None:
    assert progress_of(replace(RECORD, status=status), rows, **more).sentence == sentence


@pytest.mark.parametrize(
    ("status", "busy", "ended", "waits"),
    [
        (PlanStatus.PUBLISHED, False, False, False),
        (PlanStatus.RUNNING, False, False, False),
        (PlanStatus.PREEMPTED, False, False, False),
        (PlanStatus.IDLE, False, False, False),
        (PlanStatus.STUCK, False, False, True),
        (PlanStatus.STUCK, True, False, False),
        (PlanStatus.COMPLETED, False, True, False),
        (PlanStatus.ROLLED_BACK, True, True, False),
    ],
)
def test_who_has_to_act_next(status: PlanStatus, busy: bool, ended: bool, waits: bool) -> None:
    told = replace(PROGRESS, status=status, busy=busy)
    assert (told.ended, told.waits_for_person) == (ended, waits)


@pytest.mark.parametrize(
    ("soon_s", "eta_s", "interval_s", "pause_s"),
    [
        (None, 167.0, 5.0, 5.0),
        (0.3, 167.0, 5.0, 0.3),
        (0.3, 167.0, 0.2, 0.2),
        (0.1, 0.01, 5.0, 0.1),
        (2.4, 1.0, 5.0, 1.0),
        (None, 3.0, 5.0, 3.0),
        (None, 0.1, 5.0, 0.3),
        (1.2, 0.0, 5.0, 1.2),
        (None, 0.0, 5.0, 5.0),  # all bytes are there, and the end is not: nothing says when
        (None, None, 5.0, 5.0),
    ],
)
def test_steps_follow_fast_while_moves_end_and_when_the_last_bytes_are_due(
    soon_s: float | None, eta_s: float | None, interval_s: float, pause_s: float
) -> None:
    assert replace(PROGRESS, soon_s=soon_s, eta_s=eta_s).pause_s(interval_s) == pause_s


@pytest.mark.parametrize(
    ("ended", "left", "since_s", "quiet_s", "soon_s"),
    [
        (0, 600, 0.0, 0.0, 0.3),  # they have just been submitted
        (100, 500, 1.0, 0.0, 0.3),
        (400, 100, 1.0, 0.0, 0.125),
        (500, 0, 1.0, 0.0, 0.1),
        (0, 100, 1.0, 0.8, 0.3),
        (400, 100, 1.0, 0.9, 0.3),
        (0, 100, 1.0, 5.0, 1.0),
        (0, 100, 1.0, 3600.0, 720.0),
        (0, 100, 1.0, -3600.0, 0.3),  # the clock was set back
    ],
)
def test_the_next_step_comes_in_half_the_time_that_the_rest_needs_and_later_the_longer_nothing_is_found(
    ended: int, left: int, since_s: float, quiet_s: float, soon_s: float
) -> None:
    assert next_step_s(ended=ended, left=left, since_s=since_s, quiet_s=quiet_s) == soon_s


def test_what_a_step_returns_is_plain_and_names_twenty_partitions_at_most() -> None:
    held = [Held.of(TopicPartition("t", n), HoldReason.TARGET_DEAD, 4) for n in range(21)]
    stalled = tuple(TopicPartition("u", n) for n in range(21))
    told = replace(PROGRESS, held=tuple(held), stalled=stalled, stops=True, pressure=Pressure.OUT_OF_SYNC)
    plain = told.to_json()
    assert plain == asdict(told) | {
        "status": "running",
        "held": [[f"t-{n}", held[n].sentence] for n in range(20)],
        "stalled": [f"u-{n}" for n in range(20)],
        "pressure": "out_of_sync",
        "external_rates": [],
    }
    assert (type(plain["status"]), type(plain["pressure"]), PROGRESS.to_json()["pressure"]) == (str, str, None)


T0, T1, T2, T3 = (TopicPartition("t", number) for number in range(4))
WIDE = move("t-0", "123", "453", size=100)
SHRINKING = move("t-1", "123", "12", size=100)


def test_a_move_of_unknown_size_and_one_that_copies_nothing_count_as_no_bytes() -> None:
    assert [bytes_to_copy(each) for each in (WIDE, replace(WIDE, size_bytes=None), SHRINKING)] == [200, 0, 0]


def test_what_receivers_have_and_no_one_else_has_arrived() -> None:
    log_dirs = {1: BrokerLogDirs({T0: 100}), 4: BrokerLogDirs({T1: 7, T0: 30}), 5: BrokerLogDirs({T1: 9, T0: 20})}
    third = move("t-2", "123", "423", size=100)
    assert arrived_bytes([WIDE, SHRINKING, third], log_dirs) == {T0: 50, T1: 0, T2: 0}


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
    assert second.update(30, 99, {}).bytes_per_s == rate, "no time has passed"


def test_of_a_long_time_without_a_look_only_a_part_counts_as_one_without_growth() -> None:
    first = TransferRate(0, 0).update(1_000, 0, {T0: 5, T1: 5})
    late = first.update(3_601_000, 1, {T0: 5, T1: 6}, longest_gap_ms=20_000)
    assert late.grew_ms == {T0: 3_581_000, T1: 3_601_000}
    assert late.update(3_611_000, 1, {T0: 5, T1: 6}, longest_gap_ms=20_000).grew_ms == late.grew_ms
    back = late.update(1_000, 1, {T0: 5, T1: 6}, longest_gap_ms=20_000)
    assert back.grew_ms == late.grew_ms, "a clock that was set back"
    idle = TransferRate(0, 0).update(1_000, 100, {T0: 100}).update(3_601_000, 100, {T0: 100}, longest_gap_ms=20_000)
    assert idle.steady_bytes_per_s is not None, "of the hour without a poll 20 s count"


@pytest.mark.parametrize(
    ("at_ms", "done_bytes", "rate"),
    [
        (1_000, 50, 50.0),
        (500, 50, 100.0),
        (1_000, 1, 1.0),
        (1_000, 0, 0.0),
        (1_000, -50, 0.0),
        (0, 50, None),
        (-1_000, 50, None),
    ],
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
def test_a_move_that_has_not_grown_for_so_long_is_stalled(after_s: float, found: tuple[TopicPartition, ...]) -> None:
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
    create_document(world.journal.mailbox, paths.REASSIGN_CANCEL, "")
    simulator.run()
    for _ in range(40):
        world.step()
        simulator.tick()
    runner: Any = world.runner
    runner._track = replace(runner._track, bytes_per_s=5e-324)  # what it has faded to by then
    progress = world.step()
    assert (progress.completed, progress.waiting, progress.eta_s, progress.bytes_per_s) == (1, 1, None, 0)
    delete_document(world.journal.mailbox, paths.REASSIGN_CANCEL)
    assert world.run().completed == 2


def test_after_half_a_minute_without_a_byte_no_time_left_is_stated() -> None:
    track = TransferRate(0, 0).update(1000, 100, {T0: 100})
    for second in range(2, 31):
        track = track.update(second * 1000, 100, {T0: 100})
        assert track.steady_bytes_per_s is not None
    assert track.update(31_000, 100, {T0: 100}).steady_bytes_per_s is None
    again = track.update(31_000, 100, {T0: 100}).update(32_000, 200, {T0: 200})
    assert again.steady_bytes_per_s == again.bytes_per_s != 0


def test_a_rate_fades_to_zero_and_a_time_left_of_more_than_a_year_is_none() -> None:
    track = TransferRate(0, 0).update(1000, 10**9, {T0: 10**9})
    for second in range(2, 2002):
        track = track.update(second * 1000, 10**9, {T0: 10**9})
    assert track.bytes_per_s == 0
    assert (eta_s(10**12, 1.0), eta_s(31_536_000, 1.0)) == (None, 31_536_000.0)


def test_what_has_arrived_stays_counted_while_another_process_steps_the_plan_or_kafka_does_not_answer() -> None:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 12", bandwidth=20)
    world = World(simulator, memory_journal(simulator), [move("t-0", "12", "32")], auto_generated=False)
    for _ in range(4):
        seen = world.step()
        simulator.tick()
    assert seen.bytes_done > 0
    with world.journal.step_lock("someone"):
        busy = world.step()
    assert (busy.busy, busy.bytes_done, busy.bytes_per_s, busy.eta_s) == (True, seen.bytes_done, None, None)
    with world.journal.step_lock("someone"):
        other = world.new_runner().step()
    assert (other.busy, other.bytes_total) == (True, 0), "it has not seen what arrived, and does not say less"
    simulator.reachable = False
    assert world.step().bytes_done == seen.bytes_done


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"status": PlanStatus.COMPLETED}, ""),
        ({"status": PlanStatus.ABANDONED}, ""),
        ({"cancel": None}, "; 1 of 2 moves had completed, and stays."),
        ({"cancel": CancelRequest(reason="why")}, " (why); 1 of 2 moves had completed, and stays."),
        (
            {"cancel": CancelRequest(scope="plan", person="ann")},
            " by ann; 1 of 2 moves had completed, and is still to be reverted.",
        ),
    ],
)
def test_what_became_of_a_plan(given: dict[str, Any], told: str) -> None:
    made = PlanRecord("d" * 64, "one", "apply", status=PlanStatus.CANCELLED)
    rows = [
        MoveRow(move("t-0", "123", "423"), MoveState.COMPLETED),
        MoveRow(move("t-1", "231", "431", position=1), MoveState.DROPPED),
    ]
    only = cancel_outcome_message(made, rows[1:])
    assert only == "Plan dddddddddddd was cancelled; its only move had not completed."
    assert cancel_outcome_message(replace(made, **given), rows) == (told and f"Plan dddddddddddd was cancelled{told}")
