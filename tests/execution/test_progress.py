"""What is told of a plan that runs: counts, bytes, the sentence, and the values that a step returns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.execution.concurrency import Pressure
from kafka_steward.execution.moves import Held, HoldReason
from kafka_steward.execution.progress import Progress, TransferRate, next_step_s, progress_of
from kafka_steward.journal.records import MoveRow, MoveState, PlanRecord, PlanStatus
from tests.simulated_plan import move

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
FLIES = TopicPartition("submitted", 0)
HELD = Held.of(TopicPartition("held", 0), HoldReason.TARGET_DEAD, 4)
TRACK = TransferRate(9000, 130, arrived={FLIES: 30, TopicPartition("submitted", 1): 500}, bytes_per_s=10.0)
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
    stalled=(FLIES,),
    chunk=1,
    chunks=3,
    left=3,
    busy=True,
    sentence=f"10 of 28 partitions settled, 5 in flight, 13 waiting. {HELD.sentence}",
)


def of(*states: MoveState) -> list[MoveRow]:
    return [MoveRow(move(f"t-{n}", "123", "423", size=100), state) for n, state in enumerate(states)]


def test_every_partition_and_every_byte_is_counted_once() -> None:
    assert progress_of(RECORD, ROWS, held=[HELD], track=TRACK, stalled=[FLIES], busy=True) == PROGRESS


def test_without_a_track_what_flies_counts_nothing_and_nothing_is_known_of_the_rate() -> None:
    told = progress_of(RECORD, ROWS)
    assert (told.bytes_done, told.bytes_per_s, told.eta_s) == (100, None, None)
    assert (told.held, told.stalled, told.busy, told.soon_s, told.stops) == ((), (), False, None, False)


def test_a_plan_that_is_through_has_no_chunk_left_and_no_time_to_wait() -> None:
    told = progress_of(RECORD, of(MoveState.COMPLETED, MoveState.COMPLETED))
    assert (told.chunk, told.chunks, told.eta_s, told.bytes_done, told.bytes_total) == (None, 1, 0.0, 200, 200)


def test_a_plan_without_moves_has_no_chunks() -> None:
    told = progress_of(RECORD, [])
    assert (told.chunk, told.chunks, told.partitions_total, told.bytes_total, told.eta_s) == (None, 0, 0, 0, 0.0)


WAITS = of(MoveState.COMPLETED, MoveState.SUBMITTED, MoveState.WAITING)
FLY = of(MoveState.COMPLETED, MoveState.SUBMITTED)


@pytest.mark.parametrize(
    ("status", "rows", "more", "sentence"),
    [
        (PlanStatus.RUNNING, WAITS, {}, "1 of 3 partitions settled, 1 in flight, 1 waiting."),
        (PlanStatus.RUNNING, FLY, {}, "1 of 2 partitions settled, 1 in flight."),
        (PlanStatus.PUBLISHED, FLY, {}, "1 of 2 partitions settled, 1 in flight."),
        (PlanStatus.RUNNING, WAITS, {"note": "Why."}, "1 of 3 partitions settled, 1 in flight, 1 waiting. Why."),
        (PlanStatus.RUNNING, FLY, {"note": "Why."}, "1 of 2 partitions settled, 1 in flight."),
        (
            PlanStatus.RUNNING,
            WAITS,
            {"note": "Why.", "held": [HELD]},
            f"1 of 3 partitions settled, 1 in flight, 1 waiting. {HELD.sentence}",
        ),
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
        (0, 100, 1.0, 5.0, 1.0),
        (0, 100, 1.0, 3600.0, 720.0),
        (0, 100, 1.0, -3600.0, 0.3),  # the clock was set back
    ],
)
def test_the_next_step_comes_in_half_the_time_that_the_rest_needs_and_later_the_longer_nothing_is_found(
    ended: int, left: int, since_s: float, quiet_s: float, soon_s: float
) -> None:
    assert next_step_s(ended=ended, left=left, since_s=since_s, quiet_s=quiet_s) == soon_s


def test_what_a_step_returns_is_plain_and_tells_twenty_partitions_at_most() -> None:
    held = [Held.of(TopicPartition("t", n), HoldReason.TARGET_DEAD, 4) for n in range(21)]
    stalled = tuple(TopicPartition("u", n) for n in range(21))
    told = replace(PROGRESS, held=tuple(held), stalled=stalled, stops=True, pressure=Pressure.OUT_OF_SYNC)
    plain = told.to_json()
    assert plain == {
        "digest": "d1",
        "status": "running",
        "partitions_total": 28,
        "partitions_settled": 10,
        "in_flight": 5,
        "waiting": 13,
        "completed": 1,
        "satisfied": 2,
        "dropped": 3,
        "failed": 4,
        "held": [[f"t-{n}", held[n].sentence] for n in range(20)],
        "bytes_total": 1900,
        "bytes_done": 230,
        "bytes_per_s": 10.0,
        "eta_s": 167.0,
        "stalled": [f"u-{n}" for n in range(20)],
        "chunk": 1,
        "chunks": 3,
        "left": 3,
        "busy": True,
        "sentence": PROGRESS.sentence,
        "pressure": "out_of_sync",
        "soon_s": None,
        "stops": True,
    }
    assert (type(plain["status"]), type(plain["pressure"])) == (str, str)
