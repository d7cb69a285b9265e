"""Moves: their states, what a poll shows of them, which can no longer end, and what is rolled back (KIP-236)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_steward.assignment import Move, TopicPartition
from kafka_steward.cluster.state import Broker, Partition, Snapshot
from kafka_steward.execution.moves.observe import TRANSITION_OF, Observation, observe_move, observe_moves
from kafka_steward.execution.moves.observe import ObservedState as State
from kafka_steward.execution.moves.recovery import (
    Deaths,
    dead_target_brokers,
    dead_target_reason,
    find_changing_plan,
    find_unfinishable_moves,
    plan_rollback_moves,
)
from kafka_steward.execution.moves.rows import MoveRows
from kafka_steward.execution.moves.states import (
    OPEN,
    SETTLED,
    TRANSITIONS,
    Event,
    Held,
    HoldReason,
    bytes_to_copy,
    filter_unsettled,
    final_status,
    next_state,
    no_progress_possible,
    phase_of,
)
from kafka_steward.journal.records import Cause, MoveRow, MoveState, Phase, PlanStatus
from tests.execution.looks import brokers, look, part
from tests.simulated_plan import move

IN_FLIGHT = part("t-0", "4231", isr="123", adding="4", removing="1")
WITHOUT_KEPT = part("t-0", "4231", isr="12", adding="4", removing="1")


def row(after: str = "423", phase: Phase = Phase.ACCEPTED) -> MoveRow:
    return MoveRow(move("t-0", "123", after), MoveState.SUBMITTED, attempt=1, phase=phase)


def test_rows_answer_as_a_look_at_each_of_them_does() -> None:
    every = [(state, attempt, stage) for state in MoveState for attempt in (0, 1) for stage in (0, 1)]
    found = [
        MoveRow(
            move(f"t-{at}", "123", "423" if at % 2 else "132", chunk=at // 4, size=at),
            state,
            attempt=attempt,
            stage=stage,
        )
        for at, (state, attempt, stage) in enumerate(every)
    ]
    rows = MoveRows(found)
    assert rows.unsettled == filter_unsettled(found)
    assert rows.open == [each for each in found if each.state in OPEN]
    assert {(each.topic, each.adding) for each in rows.open_kinds} == {("t", each.move.adding) for each in rows.open}
    assert rows.submitted == [each for each in found if each.state is MoveState.SUBMITTED]
    assert rows.started == [each for each in found if each.attempt or each.stage or each in rows.submitted]
    assert all(found[place].topic_partition == name for name, place in rows.places.items())
    assert rows.counts == dict.fromkeys(MoveState, 4)
    assert rows.bytes_to_copy.total() == sum(bytes_to_copy(each.move) for each in found)
    assert (rows.first_chunk, rows.last_chunk) == (0, len(MoveState) - 1)
    assert (MoveRows().first_chunk, MoveRows().last_chunk) == (None, -1)


DEATHS = {
    "all live": (IN_FLIGHT, "1234", "", {}, False),
    "target died": (IN_FLIGHT, "123", "", {4: 10}, True),
    "target died for less than ten seconds": (IN_FLIGHT, "123", "", {4: 9.9}, False),
    "target was first seen dead now": (IN_FLIGHT, "123", "", {}, False),
    "target restarts": (IN_FLIGHT, "123", "4", {4: 1000}, False),
    "another restarts": (IN_FLIGHT, "123", "3", {4: 10}, True),
    "removed one died": (IN_FLIGHT, "234", "", {}, False),
    "kept one died and is in sync by what the leader last said": (IN_FLIGHT, "124", "", {3: 1000}, False),
    "kept one died": (WITHOUT_KEPT, "124", "", {3: 300}, True),
    "kept one died for less than a heal waits": (WITHOUT_KEPT, "124", "", {3: 299}, False),
    "kept one restarts": (WITHOUT_KEPT, "124", "3", {3: 300}, False),
}


@pytest.mark.parametrize(("partition", "live", "bouncing", "dead_s", "cancelled"), DEATHS.values(), ids=DEATHS)
def test_only_what_is_in_flight_to_a_dead_broker_is_cancelled(
    partition: Partition, live: str, bouncing: str, dead_s: dict[int, float], cancelled: bool
) -> None:
    moving, now_ms = row(), 10_000_000
    since_ms = {broker: now_ms - int(seconds * 1000) for broker, seconds in dead_s.items()}
    deaths = Deaths(since_ms, now_ms, frozenset(brokers(bouncing)))
    found = find_unfinishable_moves([moving], look(live, partition), deaths, kept_after_s=300)
    assert found == ([moving] if cancelled else [])
    assert find_unfinishable_moves([moving], look(live, partition), deaths, kept_after_s=-1) == (
        found if 4 in dead_s else []
    )


def test_a_replica_that_the_metadata_calls_offline_is_lost_once_its_broker_says_so() -> None:
    partition = replace(IN_FLIGHT, offline=frozenset({4}))
    for failed_dirs in (frozenset[int](), frozenset({4})):
        deaths = Deaths().after_look([], 1, recorded_ms={}, restarting=frozenset(), failed_dirs=failed_dirs)
        found = find_unfinishable_moves([row()], look("1234", partition), deaths, kept_after_s=300)
        assert found == [row()] * len(failed_dirs)


def test_a_broker_is_dead_since_the_first_of_the_looks_in_a_row_or_since_the_journal_has_it() -> None:
    def look_at(deaths: Deaths, dead: set[int], now_ms: int, **recorded: int) -> Deaths:
        since = {int(name[1:]): at_ms for name, at_ms in recorded.items()}
        none = frozenset[int]()
        return deaths.after_look(dead, now_ms, recorded_ms=since, restarting=none, failed_dirs=none)

    first = look_at(Deaths(), {4}, 1000)
    assert not first.last(4, 0), "one look"
    assert look_at(first, {4}, 1001).last(4, 0)
    again = look_at(look_at(first, set(), 2000), {4}, 3000)
    assert not again.last(4, 0), "it was back in between"
    assert look_at(Deaths(), {4}, 20_000, b4=5_000).last(4, 15)


def test_of_one_replica_at_a_time_only_the_target_of_the_stage_in_flight_counts() -> None:
    wide, stage = row("456"), part("t-0", "1234", isr="123", adding="4")
    assert dead_target_brokers(wide, look("1234", stage)) == set()
    assert dead_target_brokers(wide, look("123", stage)) == {4}
    assert dead_target_brokers(wide, look("12", part("t-0", "1234", isr="12", adding="4"))) == {3, 4}


@pytest.mark.parametrize(
    ("live", "clause"),
    [("123", "target broker 4 failed"), ("13", "target brokers 2 and 4 failed"), ("1234", "a target broker failed")],
)
def test_the_clause_names_the_dead_in_order(live: str, clause: str) -> None:
    assert dead_target_reason(row(), look(live, part("t-0", "4231", isr="13", adding="4", removing="1"))) == clause


COMPLETED, SATISFIED, DROPPED = MoveState.COMPLETED, MoveState.SATISFIED, MoveState.DROPPED
MOVE = move("t-0", "123", "456", topic_id="id1")
THERE = part("t-0", "456", topic_id="id1")
ANEW = replace(THERE, topic_id="id2")
ANEW_AT_ORIGINALS = part("t-0", "123", topic_id="id2")


def changed(replicas: str) -> str:
    return f"someone else changed its replicas to {list(brokers(replicas))}"


def test_a_plan_is_taken_back_from_where_each_partition_is_the_last_move_first() -> None:
    moves = [replace(MOVE, partition=n, position=n, size_bytes=10 + n) for n in range(4)]
    rows = [
        MoveRow(moves[0], COMPLETED),
        MoveRow(moves[1], DROPPED, attempt=1, stage=1),
        MoveRow(moves[2], SATISFIED, attempt=1),
        MoveRow(moves[3], DROPPED, attempt=2),
    ]
    found = [part("t-0", "456"), part("t-1", "1234"), part("t-2", "231"), part("t-3", "456")]
    back = plan_rollback_moves(rows, look("123456", *found), chunk_size=3)
    assert back.skipped == ()
    assert back.moves == (
        Move("t", 3, (4, 5, 6), (1, 2, 3), 0, 0, "given", "id1", 13),
        Move("t", 2, (2, 3, 1), (1, 2, 3), 0, 1, "given", "id1", 12),
        Move("t", 1, (1, 2, 3, 4), (1, 2, 3), 0, 2, "given", "id1", 11),
        Move("t", 0, (4, 5, 6), (1, 2, 3), 1, 0, "given", "id1", 10),
    )


@pytest.mark.parametrize(
    ("row", "partition", "live", "why"),
    [
        (MoveRow(MOVE, COMPLETED), None, "123456", "its topic was deleted"),
        (MoveRow(MOVE, DROPPED, attempt=1), None, "123456", "its topic was deleted"),
        (MoveRow(MOVE, COMPLETED), ANEW, "123456", "its topic was deleted and re-created"),
        (MoveRow(MOVE, DROPPED, attempt=1), ANEW, "123456", "its topic was deleted and re-created"),
        (MoveRow(MOVE, COMPLETED), ANEW_AT_ORIGINALS, "123456", "its topic was deleted and re-created"),
        (
            MoveRow(MOVE, DROPPED, attempt=1, cause=Cause.REQUESTED),
            ANEW_AT_ORIGINALS,
            "123456",
            "its topic was deleted and re-created",
        ),
        (MoveRow(MOVE, COMPLETED), part("t-0", "457"), "123456", changed("457")),
        (MoveRow(MOVE, COMPLETED), part("t-0", "231"), "123456", changed("231")),
        (MoveRow(MOVE, COMPLETED), replace(THERE, removing=(6,)), "123456", changed("456")),
        (MoveRow(MOVE, DROPPED, attempt=1), part("t-0", "123", removing="3"), "123456", changed("123")),
        (MoveRow(MOVE, MoveState.FAILED, attempt=1), THERE, "123456", changed("456")),
        (MoveRow(MOVE, MoveState.FAILED, attempt=1), part("t-0", "231"), "123456", changed("231")),
        (MoveRow(MOVE, MoveState.FAILED, attempt=1), part("t-0", "4571", adding="7"), "123456", changed("4571")),
        (MoveRow(MOVE, COMPLETED), THERE, "23456", "its original broker 1 is not live"),
        (MoveRow(MOVE, COMPLETED), THERE, "2456", "its original brokers 1 and 3 are not live"),
        (MoveRow(MOVE, DROPPED, attempt=1, stage=1), part("t-0", "1234"), "13456", "its original broker 2 is not live"),
    ],
)
def test_what_is_left_alone_is_named_with_a_reason(
    row: MoveRow, partition: Partition | None, live: str, why: str
) -> None:
    back = plan_rollback_moves([row], look(live, *([partition] if partition else [])), chunk_size=2)
    assert (back.moves, back.skipped) == ((), ((row, why),))


def test_what_is_left_alone_comes_in_the_order_of_what_goes_back() -> None:
    rows = [MoveRow(replace(MOVE, partition=n), COMPLETED) for n in range(3)]
    back = plan_rollback_moves(rows, look("123456", part("t-1", "456")), chunk_size=2)
    assert [each.partition for each in back.moves] == [1]
    assert [row.move.partition for row, _ in back.skipped] == [2, 0]


@pytest.mark.parametrize(
    ("row", "partition"),
    [
        (MoveRow(MOVE, COMPLETED), part("t-0", "123")),
        (MoveRow(MOVE, DROPPED, attempt=1), part("t-0", "123")),
        (MoveRow(MOVE, MoveState.FAILED, attempt=1), part("t-0", "123")),
        (MoveRow(MOVE, DROPPED, attempt=1), part("t-0", "457")),
        (MoveRow(MOVE, DROPPED), THERE),
        (MoveRow(MOVE, SATISFIED), THERE),
        (MoveRow(MOVE, MoveState.WAITING, attempt=1), THERE),
    ],
)
def test_what_is_back_or_was_never_ours_is_not_mentioned(row: MoveRow, partition: Partition | None) -> None:
    back = plan_rollback_moves([row], look("123456", *([partition] if partition else [])), chunk_size=2)
    assert (back.moves, back.skipped) == ((), ())


@pytest.mark.parametrize(("planned", "seen"), [(None, "id1"), ("id1", None), (None, None), ("id1", "id1")])
def test_only_two_different_ids_make_another_topic(planned: str | None, seen: str | None) -> None:
    row = MoveRow(replace(MOVE, topic_id=planned), COMPLETED)
    assert len(plan_rollback_moves([row], look("123456", replace(THERE, topic_id=seen)), chunk_size=2).moves) == 1


def test_an_order_is_restored_though_an_original_broker_is_dead() -> None:
    row = MoveRow(move("t-0", "123", "231"), COMPLETED)
    assert len(plan_rollback_moves([row], look("23", part("t-0", "231")), chunk_size=2).moves) == 1


def test_a_failed_log_directory_is_named_also_when_no_other_broker_is_live() -> None:
    row = MoveRow(move("t-0", "123", "423"), MoveState.SUBMITTED, attempt=1, phase=Phase.ACCEPTED)
    partition = replace(part("t-0", "4231", isr="23", adding="4", removing="1"), offline=frozenset({4}))
    assert dead_target_reason(row, look("4", partition)) == "a log directory of target broker 4 failed"


CHANGED_BY = {
    "completed": (MoveState.COMPLETED, 1, "456", True),
    "in flight": (MoveState.SUBMITTED, 1, "456123", True),
    "submitted, and not begun": (MoveState.SUBMITTED, 1, "123", False),
    "never submitted": (MoveState.WAITING, 0, "456", False),
    "after its first stage": (MoveState.DROPPED, 1, "1234", True),
    "after its second stage": (MoveState.DROPPED, 1, "12345", True),
    "at none of its stages": (MoveState.DROPPED, 1, "1237", False),
    "as after a stage, and never submitted": (MoveState.WAITING, 0, "1234", False),
}


@pytest.mark.parametrize(("state", "attempt", "found", "by_plan"), CHANGED_BY.values(), ids=CHANGED_BY)
def test_a_plan_changed_a_partition_if_it_submitted_a_move_to_where_it_is(
    state: MoveState, attempt: int, found: str, by_plan: bool
) -> None:
    others = [("d1", MoveRow(move("t-0", "123", "456"), state, attempt=attempt, stage=attempt))]
    assert find_changing_plan(brokers(found), others) == ("d1" if by_plan else None)


# What a look says about a submitted move

LIVE = frozenset({2, 3, 4})
ONE_NEW = move("t-0", "123", "423", topic_id="id1")


def seen(replicas: str, isr: str, *, adding: str = "", removing: str = "", topic_id: str | None = "id1") -> Partition:
    as_ids = [tuple(map(int, digits)) for digits in (replicas, isr, adding, removing)]
    return Partition("t", 0, as_ids[0], frozenset(as_ids[1]), 2, topic_id, as_ids[2], as_ids[3])


SEEN_IN_FLIGHT = seen("4231", "123", adding="4", removing="1")
CASES = {
    "in flight": (Phase.ACCEPTED, SEEN_IN_FLIGHT, State.IN_FLIGHT),
    "in flight, and not known to be accepted": (Phase.INTENDED, SEEN_IN_FLIGHT, State.IN_FLIGHT),
    "arrived": (Phase.ACCEPTED, seen("423", "234"), State.ARRIVED),
    "arrived, answer lost": (Phase.INTENDED, seen("423", "234"), State.ARRIVED),
    "arrived while being cancelled": (Phase.CANCELLING, seen("423", "234"), State.ARRIVED),
    "at the target, ISR not whole yet": (Phase.ACCEPTED, seen("423", "23"), State.IN_FLIGHT),
    "at the target in another order": (Phase.ACCEPTED, seen("234", "234"), State.TAKEN_OVER),
    "never asked": (Phase.INTENDED, seen("123", "23"), State.NOT_STARTED),
    "cancelled by someone": (Phase.ACCEPTED, seen("123", "23"), State.CANCELLED_EXTERNALLY),
    "cancelled by someone, order lost": (Phase.ACCEPTED, seen("231", "23"), State.CANCELLED_EXTERNALLY),
    "order lost before it was known to be taken": (Phase.INTENDED, seen("231", "23"), State.CANCELLED_EXTERNALLY),
    "cancel asked, still listed": (Phase.CANCELLING, SEEN_IN_FLIGHT, State.CANCELLING),
    "cancelled, order lost": (Phase.CANCELLING, seen("231", "23"), State.ORDER_CHANGED),
    "cancelled, as it was": (Phase.CANCELLING, seen("123", "23"), State.RESTORED),
    "elsewhere": (Phase.ACCEPTED, seen("234", "234"), State.TAKEN_OVER),
    "on its way elsewhere": (Phase.ACCEPTED, seen("5231", "23", adding="5", removing="1"), State.TAKEN_OVER),
    "wedged": (Phase.ACCEPTED, seen("1234", "1234", adding="4", removing="4"), State.TAKEN_OVER),
    "a broker that does not know of its end": (Phase.ACCEPTED, seen("4231", "234"), State.IN_FLIGHT),
    "a broker that does not know of its cancel": (Phase.CANCELLING, seen("4231", "23"), State.IN_FLIGHT),
    "deleted": (Phase.ACCEPTED, None, State.GONE),
    "re-created": (Phase.ACCEPTED, seen("253", "235", topic_id="id2"), State.RECREATED),
    "re-created, and moves": (
        Phase.ACCEPTED,
        seen("42356", "2356", adding="4", removing="56", topic_id="id2"),
        State.RECREATED_IN_FLIGHT,
    ),
    "re-created, and moved": (Phase.INTENDED, seen("423", "234", topic_id="id2"), State.RECREATED_AT_TARGET),
    "topic id unknown": (Phase.ACCEPTED, seen("423", "234", topic_id=None), State.ARRIVED),
    "at the target, and with one more": (Phase.ACCEPTED, seen("4235", "235"), State.TAKEN_OVER),
    "what was to be removed, behind others": (Phase.ACCEPTED, seen("2341", "234"), State.TAKEN_OVER),
}


@pytest.mark.parametrize("case", CASES)
def test_a_submitted_move(case: str) -> None:
    phase, partition, expected = CASES[case]
    row = MoveRow(ONE_NEW, MoveState.SUBMITTED, "why", attempt=1, phase=phase)
    assert observe_move(row, partition, LIVE) is expected


LOWERED = move("t-0", "1234", "12", topic_id="id1")
SAME_PLACE = {
    "not begun": (LOWERED, Phase.INTENDED, seen("1234", "12"), State.NOT_STARTED),
    "cancelled by someone": (LOWERED, Phase.ACCEPTED, seen("1234", "12"), State.CANCELLED_EXTERNALLY),
    "in flight": (LOWERED, Phase.ACCEPTED, seen("1234", "3", removing="34"), State.IN_FLIGHT),
    "arrived": (LOWERED, Phase.ACCEPTED, seen("12", "12"), State.ARRIVED),
}


@pytest.mark.parametrize("case", SAME_PLACE)
def test_a_move_that_only_removes_replicas_is_back_although_kafka_lists_it_so_in_flight(case: str) -> None:
    lowered, phase, partition, expected = SAME_PLACE[case]
    row = MoveRow(lowered, MoveState.SUBMITTED, attempt=1, phase=phase)
    assert observe_move(row, partition, frozenset(range(1, 5))) is expected


WIDE = move("t-0", "123", "456", topic_id="id1")
ALL, ORIGINALS, TWO = frozenset(range(1, 8)), frozenset({1, 2, 3}), frozenset({2, 3})
COMES, GOES = seen("1234", "123", adding="4"), seen("1234", "1234", removing="4")
ELSEWHERE = seen("12347", "123", adding="7", removing="4")
#: Phase, new replicas that the submission named (None: all at once), what is seen, who is live.
STAGES = {
    "a stage in flight": (Phase.ACCEPTED, 1, COMES, ALL, State.IN_FLIGHT),
    "a stage in flight, and is being cancelled": (Phase.CANCELLING, 1, COMES, ALL, State.CANCELLING),
    "someone else's stage": (Phase.ACCEPTED, None, COMES, ALL, State.TAKEN_OVER),
    "another broker's replica comes": (Phase.ACCEPTED, 1, seen("1237", "123", adding="7"), ALL, State.TAKEN_OVER),
    "what came is let go of": (Phase.CANCELLING, 1, GOES, ORIGINALS, State.RETURNING),
    "someone lets go of what came": (Phase.ACCEPTED, 1, GOES, ALL, State.TAKEN_OVER),
    "a stage arrived": (Phase.ACCEPTED, 1, seen("1234", "1234"), ALL, State.BETWEEN_STAGES),
    "more arrived than was named": (Phase.ACCEPTED, 1, seen("12345", "1234"), ALL, State.BETWEEN_STAGES),
    "the second was never asked": (Phase.INTENDED, 2, seen("1234", "1234"), ALL, State.NOT_STARTED),
    "someone cancelled the second": (Phase.ACCEPTED, 2, seen("1234", "1234"), ALL, State.CANCELLED_BETWEEN_STAGES),
    "cancelled halfway, an original is dead": (Phase.CANCELLING, 2, seen("1234", "1234"), TWO, State.CANNOT_ROLL_BACK),
    "halfway, though asked for as a whole": (Phase.ACCEPTED, None, seen("1234", "1234"), ALL, State.TAKEN_OVER),
    "a stage in flight, and none was named": (Phase.ACCEPTED, 0, COMES, ALL, State.TAKEN_OVER),
    "halfway, and none was named": (Phase.ACCEPTED, 0, seen("1234", "1234"), ALL, State.TAKEN_OVER),
    "at no stop of it": (Phase.ACCEPTED, 1, seen("1235", "1235"), ALL, State.TAKEN_OVER),
    "back before the first": (Phase.ACCEPTED, 1, seen("123", "123"), ALL, State.CANCELLED_EXTERNALLY),
}


def stage(phase: Phase, count: int | None) -> MoveRow:
    return MoveRow(WIDE, MoveState.SUBMITTED, attempt=1, phase=phase, stage=count or 0)


@pytest.mark.parametrize("case", STAGES)
def test_a_move_that_gets_one_replica_at_a_time(case: str) -> None:
    phase, count, partition, live, expected = STAGES[case]
    assert observe_move(stage(phase, count), partition, live) is expected


def test_without_a_topic_id_in_the_plan_any_topic_of_that_name_is_meant() -> None:
    row = MoveRow(move("t-0", "123", "423"), MoveState.SUBMITTED, attempt=1)
    assert observe_move(row, seen("423", "234"), LIVE) is State.ARRIVED


def test_a_replica_that_was_in_sync_and_died_is_not_waited_for() -> None:
    row = MoveRow(ONE_NEW, MoveState.SUBMITTED, attempt=1, phase=Phase.ACCEPTED)
    assert observe_move(row, seen("423", "23"), frozenset({2, 3})) is State.ARRIVED_SINCE_SHRUNK


def test_an_isr_that_was_whole_once_need_not_be_whole_again() -> None:
    row = MoveRow(ONE_NEW, MoveState.SUBMITTED, attempt=1, phase=Phase.ACCEPTED, isr_seen=True)
    assert observe_move(row, seen("423", "23"), LIVE) is State.ARRIVED


def test_what_was_tried_and_is_in_flight_is_ours_and_what_was_not_is_not() -> None:
    assert observe_move(MoveRow(ONE_NEW, attempt=1), SEEN_IN_FLIGHT, LIVE) is State.ADOPTED
    assert (
        observe_move(MoveRow(ONE_NEW, attempt=1, stage=1, unacknowledged=True), SEEN_IN_FLIGHT, LIVE) is State.ADOPTED
    )
    assert observe_move(MoveRow(ONE_NEW, attempt=1, stage=1), SEEN_IN_FLIGHT, LIVE) is State.STILL_IN_FLIGHT
    assert observe_move(MoveRow(ONE_NEW, attempt=0), SEEN_IN_FLIGHT, LIVE) is None
    assert observe_move(MoveRow(ONE_NEW, MoveState.HELD, attempt=1), seen("123", "23"), LIVE) is None


def test_a_pure_reorder_is_recognized_by_its_order() -> None:
    reorder = MoveRow(move("t-0", "123", "231"), MoveState.SUBMITTED, attempt=1, phase=Phase.INTENDED)
    assert observe_move(reorder, seen("123", "123"), LIVE) is State.NOT_STARTED
    assert observe_move(reorder, seen("231", "123"), LIVE) is State.ARRIVED
    for isr in ("12", "4"):
        assert observe_move(reorder, seen("231", isr), LIVE) is State.REORDERED, "nothing is waited for"


@pytest.mark.parametrize("state", [state for state in MoveState if state.settled])
def test_what_is_settled_stays_so(state: MoveState) -> None:
    assert observe_move(MoveRow(ONE_NEW, state, attempt=1), SEEN_IN_FLIGHT, LIVE) is None


def test_each_meaning_is_possible_in_the_table() -> None:
    for each, (event, words) in TRANSITION_OF.items():
        start = MoveState.WAITING if each in {State.ADOPTED, State.STILL_IN_FLIGHT} else MoveState.SUBMITTED
        assert next_state(start, event)
        assert words


def test_observations_come_in_the_order_of_the_rows_with_what_was_found_and_what_is_in_flight() -> None:
    named = [replace(seen("423", "234"), partition=1), seen("1234", "123", adding="4"), replace(GOES, partition=3)]
    partitions = {each.topic_partition: each for each in named}
    snapshot = Snapshot("c", 0, {broker: Broker(broker, "h", 1) for broker in ORIGINALS}, partitions)
    arrived = MoveRow(replace(ONE_NEW, partition=1), MoveState.SUBMITTED, attempt=1)
    gone = MoveRow(move("t-9", "123", "423"), MoveState.SUBMITTED)
    moving = stage(Phase.ACCEPTED, 1)
    goes = replace(stage(Phase.CANCELLING, 1), move=replace(WIDE, partition=3))
    waits = MoveRow(move("t-4", "123", "423"))
    assert observe_moves([goes, arrived, waits, gone, moving], snapshot) == [
        Observation(goes, State.RETURNING, (1, 2, 3, 4), isr_whole=False, in_flight=goes.move),
        Observation(arrived, State.ARRIVED, (4, 2, 3), isr_whole=True, in_flight=arrived.move),
        Observation(gone, State.GONE, None, isr_whole=False, in_flight=gone.move),
        Observation(
            moving, State.IN_FLIGHT, (1, 2, 3, 4), isr_whole=False, in_flight=replace(WIDE, after=(1, 2, 3, 4))
        ),
    ]


def test_a_submitted_move_of_a_topic_that_we_may_not_describe_is_hidden_and_not_gone() -> None:
    row = MoveRow(move("t-0", "123", "423"), MoveState.SUBMITTED, attempt=1, phase=Phase.ACCEPTED)
    waiting = MoveRow(move("t-1", "123", "423"))
    (finding,) = observe_moves([row, waiting], replace(look("1234"), hidden=frozenset({"t"})))
    assert (finding.row, finding.state, finding.found) == (row, State.HIDDEN, None)


def test_every_state_is_in_the_table_and_can_be_left_unless_it_is_settled() -> None:
    assert set(TRANSITIONS) == set(MoveState)
    assert {state for state, events in TRANSITIONS.items() if not events} == SETTLED
    assert OPEN.isdisjoint(SETTLED)


def test_every_state_can_be_reached_from_the_first() -> None:
    reached, ahead = set(), {MoveState.WAITING}
    while ahead:
        state = ahead.pop()
        reached.add(state)
        ahead |= set(TRANSITIONS[state].values()) - reached
    assert reached == set(MoveState)


def test_nothing_is_settled_without_having_been_asked_of_kafka_or_decided() -> None:
    for state in OPEN:
        assert Event.COMPLETE not in TRANSITIONS[state]
        assert Event.TAKE_OVER not in TRANSITIONS[state]


@pytest.mark.project
def test_the_picture_in_the_docs_is_the_table() -> None:
    text = (Path(__file__).parents[2] / "docs" / "moves.md").read_text()
    drawn = [line.strip() for line in text.splitlines() if " --> " in line and "[*]" not in line]
    arrows = [
        (state.value, to.value, ", ".join(event.value for event, then in events.items() if then is to))
        for state, events in TRANSITIONS.items()
        for to in dict.fromkeys(events.values())
        if to is not state
    ]
    assert sorted(drawn) == sorted(f"{before} --> {after}: {events}" for before, after, events in arrows)


def test_what_cannot_happen_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="A move that is completed cannot meet 'submit'"):
        next_state(MoveState.COMPLETED, Event.SUBMIT)


@pytest.mark.parametrize("phase", Phase)
def test_the_phase_is_what_the_row_says_whatever_its_detail_says(phase: Phase) -> None:
    assert (phase.message(), phase.message("why")) == (phase.value, f"{phase.value}: why")
    for detail in ("", "accepted: it was", "cancelling: cancelled", "intended"):
        assert phase_of(MoveRow(move("t-0", "123", "423"), MoveState.SUBMITTED, detail, phase=phase)) is phase


def test_a_row_that_names_no_phase_assumes_least() -> None:
    assert phase_of(MoveRow(move("t-0", "123", "423"), MoveState.SUBMITTED, "accepted")) is Phase.INTENDED


def test_unsettled_keeps_the_order() -> None:
    rows = [MoveRow(move(f"t-{n}", "123", "423"), state) for n, state in enumerate(MoveState)]
    assert [row.state for row in filter_unsettled(rows)] == [MoveState.WAITING, MoveState.HELD, MoveState.SUBMITTED]


@pytest.mark.parametrize(
    ("states", "status"),
    [
        ([], PlanStatus.COMPLETED),
        ([MoveState.COMPLETED], PlanStatus.COMPLETED),
        ([MoveState.SATISFIED], PlanStatus.COMPLETED),
        ([MoveState.DROPPED, MoveState.COMPLETED], PlanStatus.COMPLETED),
        ([MoveState.FAILED, MoveState.SATISFIED], PlanStatus.COMPLETED),
        ([MoveState.DROPPED], PlanStatus.FAILED),
        ([MoveState.DROPPED, MoveState.FAILED], PlanStatus.FAILED),
    ],
)
def test_a_plan_of_which_nothing_moved_has_failed(states: list[MoveState], status: PlanStatus) -> None:
    rows = [MoveRow(move(f"t-{n}", "123", "423"), state) for n, state in enumerate(states)]
    assert final_status(rows) is final_status(rows, cancelled=False) is status
    assert final_status(rows, cancelled=True) is PlanStatus.CANCELLED


@pytest.mark.parametrize(
    ("causes", "status", "unless_cancelled"),
    [
        ([Cause.REQUESTED], PlanStatus.CANCELLED, PlanStatus.FAILED),
        ([Cause.ORDER_REFUSED], PlanStatus.CANCELLED, PlanStatus.FAILED),
        ([Cause.SUPERSEDED], PlanStatus.CANCELLED, PlanStatus.CANCELLED),
        ([Cause.SUPERSEDED, None], PlanStatus.FAILED, PlanStatus.FAILED),
    ],
)
def test_a_plan_whose_moves_a_person_cancelled_or_later_requests_replaced_is_cancelled(
    causes: list[Cause | None], status: PlanStatus, unless_cancelled: PlanStatus
) -> None:
    rows = [MoveRow(move(f"t-{n}", "123", "423"), MoveState.DROPPED, cause=cause) for n, cause in enumerate(causes)]
    assert (final_status(rows), final_status(rows, cancelled=False)) == (status, unless_cancelled)


WAITING, HELD, SENT, DONE = MoveState.WAITING, MoveState.HELD, MoveState.SUBMITTED, MoveState.COMPLETED
DEAD, DISABLED = HoldReason.TARGET_DEAD, HoldReason.CLUSTER_DISABLED


def test_whom_a_wait_is_for_and_what_it_means() -> None:
    assert {reason for reason in HoldReason if reason.is_operator_choice} == {
        HoldReason.CLUSTER_DISABLED,
        HoldReason.NOT_APPROVED,
        HoldReason.TARGET_RESTARTING,
        HoldReason.TARGET_CORDONED,
        HoldReason.EXTERNAL_REASSIGNMENT,
        HoldReason.UNDER_MIN_ISR_ELSEWHERE,
    }
    ends = {
        HoldReason.SATISFIED: Event.SATISFY,
        HoldReason.ALREADY_THERE: Event.SATISFY,
        HoldReason.PARTITION_GONE: Event.DROP,
        HoldReason.RECREATED: Event.DROP,
        HoldReason.CHANGED_ELSEWHERE: Event.DROP,
        HoldReason.DUPLICATE_REPLICA: Event.DROP,
        HoldReason.BROKER_UNREGISTERED: Event.DROP,
        HoldReason.ORIGINAL_CORDONED: Event.DROP,
    }
    assert {reason: reason.event for reason in HoldReason} == dict.fromkeys(HoldReason, Event.HOLD) | ends


def test_a_hold_has_a_sentence_with_what_was_found() -> None:
    sentence = "t-3 was not moved: it has no leader to copy from; bring back its broker 2 with its data."
    assert Held.of(TopicPartition("t", 3), HoldReason.NO_LEADER, "bring back its broker 2 with its data") == Held(
        "t", 3, HoldReason.NO_LEADER, sentence
    )


@pytest.mark.parametrize(
    ("states", "reasons", "expected"),
    [
        ([WAITING], [DEAD], True),
        ([HELD, WAITING, DONE], [DEAD, DEAD], True),
        ([HELD, WAITING], [DEAD], False),
        ([HELD, SENT], [DEAD], False),
        ([HELD, WAITING], [DEAD, DISABLED], False),
        ([HELD], [DISABLED], False),
        ([DONE], [], False),
        ([], [], False),
    ],
)
def test_a_step_was_futile_when_all_that_could_begin_is_held_and_nobody_chose_it(
    states: list[MoveState], reasons: list[HoldReason], expected: bool
) -> None:
    rows = [MoveRow(move(f"t-{n}", "123", "423"), state) for n, state in enumerate(states)]
    held = [Held.of(TopicPartition("t", n), reason, 4) for n, reason in enumerate(reasons)]
    assert no_progress_possible(rows, held) is expected
