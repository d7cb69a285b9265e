"""What a look says about a submitted move: one line per case."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_steward.cluster.state import Broker, Partition, Snapshot
from kafka_steward.execution.moves import next_state
from kafka_steward.execution.observe import TRANSITION_OF, Observation, observe_move, observe_moves
from kafka_steward.execution.observe import ObservedState as State
from kafka_steward.journal.records import MoveRow, MoveState, Phase
from tests.execution.looks import look
from tests.simulated_plan import move

LIVE = frozenset({2, 3, 4})
MOVE = move("t-0", "123", "423", topic_id="id1")


def seen(replicas: str, isr: str, *, adding: str = "", removing: str = "", topic_id: str | None = "id1") -> Partition:
    as_ids = [tuple(map(int, digits)) for digits in (replicas, isr, adding, removing)]
    return Partition("t", 0, as_ids[0], frozenset(as_ids[1]), 2, topic_id, as_ids[2], as_ids[3])


FLYING = seen("4231", "123", adding="4", removing="1")
CASES = {
    "flying": (Phase.ACCEPTED, FLYING, State.IN_FLIGHT),
    "flying, and not known to be accepted": (Phase.INTENDED, FLYING, State.IN_FLIGHT),
    "arrived": (Phase.ACCEPTED, seen("423", "234"), State.ARRIVED),
    "arrived, answer lost": (Phase.INTENDED, seen("423", "234"), State.ARRIVED),
    "arrived while being cancelled": (Phase.CANCELLING, seen("423", "234"), State.ARRIVED),
    "at the target, ISR not whole yet": (Phase.ACCEPTED, seen("423", "23"), State.IN_FLIGHT),
    "at the target in another order": (Phase.ACCEPTED, seen("234", "234"), State.TAKEN_OVER),
    "never asked": (Phase.INTENDED, seen("123", "23"), State.NOT_STARTED),
    "cancelled by someone": (Phase.ACCEPTED, seen("123", "23"), State.CANCELLED_EXTERNALLY),
    "cancelled by someone, order lost": (Phase.ACCEPTED, seen("231", "23"), State.CANCELLED_EXTERNALLY),
    "order lost before it was known to be taken": (Phase.INTENDED, seen("231", "23"), State.CANCELLED_EXTERNALLY),
    "cancel asked, still listed": (Phase.CANCELLING, FLYING, State.CANCELLING),
    "cancelled, order lost": (Phase.CANCELLING, seen("231", "23"), State.ORDER_CHANGED),
    "cancelled, as it was": (Phase.CANCELLING, seen("123", "23"), State.RESTORED),
    "elsewhere": (Phase.ACCEPTED, seen("234", "234"), State.TAKEN_OVER),
    "on its way elsewhere": (Phase.ACCEPTED, seen("5231", "23", adding="5", removing="1"), State.TAKEN_OVER),
    "wedged": (Phase.ACCEPTED, seen("1234", "1234", adding="4", removing="4"), State.TAKEN_OVER),
    "a broker that has not heard of its end": (Phase.ACCEPTED, seen("4231", "234"), State.IN_FLIGHT),
    "a broker that has not heard of its cancel": (Phase.CANCELLING, seen("4231", "23"), State.IN_FLIGHT),
    "deleted": (Phase.ACCEPTED, None, State.GONE),
    "re-created": (Phase.ACCEPTED, seen("423", "234", topic_id="id2"), State.RECREATED),
    "topic id unknown": (Phase.ACCEPTED, seen("423", "234", topic_id=None), State.ARRIVED),
    "at the target, and with one more": (Phase.ACCEPTED, seen("4235", "235"), State.TAKEN_OVER),
    "what was to be removed, behind others": (Phase.ACCEPTED, seen("2341", "234"), State.TAKEN_OVER),
}


@pytest.mark.parametrize("case", CASES)
def test_a_submitted_move(case: str) -> None:
    phase, partition, expected = CASES[case]
    row = MoveRow(MOVE, MoveState.SUBMITTED, "why", attempt=1, phase=phase)
    assert observe_move(row, partition, LIVE) is expected


LOWERED = move("t-0", "1234", "12", topic_id="id1")
SAME_PLACE = {
    "cancelled, back in order": (LOWERED, Phase.CANCELLING, seen("1234", "12"), State.RESTORED),
    "not begun": (LOWERED, Phase.INTENDED, seen("1234", "12"), State.NOT_STARTED),
    "cancelled by someone": (LOWERED, Phase.ACCEPTED, seen("1234", "12"), State.CANCELLED_EXTERNALLY),
    "cancelled, order lost": (move("t-0", "1234", "31"), Phase.CANCELLING, seen("3124", "12"), State.ORDER_CHANGED),
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
#: Phase, new replicas that the submission named (None: all at once), what is seen, who is live.
STRIDES = {
    "a stride flies": (Phase.ACCEPTED, 1, COMES, ALL, State.IN_FLIGHT),
    "a stride flies, and is being cancelled": (Phase.CANCELLING, 1, COMES, ALL, State.CANCELLING),
    "someone else's stride": (Phase.ACCEPTED, None, COMES, ALL, State.TAKEN_OVER),
    "another broker's replica comes": (Phase.ACCEPTED, 1, seen("1237", "123", adding="7"), ALL, State.TAKEN_OVER),
    "what came is let go of": (Phase.CANCELLING, 1, GOES, ORIGINALS, State.RETURNING),
    "what came is let go of, an original is dead": (Phase.CANCELLING, 1, GOES, TWO, State.CANCELLING),
    "someone lets go of what came": (Phase.ACCEPTED, 1, GOES, ALL, State.TAKEN_OVER),
    "cancelled, and bound elsewhere": (
        Phase.CANCELLING,
        1,
        seen("12347", "123", adding="7", removing="4"),
        ALL,
        State.TAKEN_OVER,
    ),
    "a stride arrived": (Phase.ACCEPTED, 1, seen("1234", "1234"), ALL, State.BETWEEN_STAGES),
    "more arrived than was named": (Phase.ACCEPTED, 1, seen("12345", "1234"), ALL, State.BETWEEN_STAGES),
    "the second was never asked": (Phase.INTENDED, 2, seen("1234", "1234"), ALL, State.NOT_STARTED),
    "someone cancelled the second": (Phase.ACCEPTED, 2, seen("1234", "1234"), ALL, State.CANCELLED_BETWEEN_STAGES),
    "cancelled halfway": (Phase.CANCELLING, 2, seen("1234", "1234"), ORIGINALS, State.ORDER_CHANGED),
    "cancelled halfway, an original is dead": (Phase.CANCELLING, 2, seen("1234", "1234"), TWO, State.CANNOT_ROLL_BACK),
    "halfway, though asked for as a whole": (Phase.ACCEPTED, None, seen("1234", "1234"), ALL, State.TAKEN_OVER),
    "a stride flies, and none was named": (Phase.ACCEPTED, 0, COMES, ALL, State.TAKEN_OVER),
    "halfway, and none was named": (Phase.ACCEPTED, 0, seen("1234", "1234"), ALL, State.TAKEN_OVER),
    "at no stop of it": (Phase.ACCEPTED, 1, seen("1235", "1235"), ALL, State.TAKEN_OVER),
    "back before the first": (Phase.ACCEPTED, 1, seen("123", "123"), ALL, State.CANCELLED_EXTERNALLY),
}


def stride(phase: Phase, count: int | None) -> MoveRow:
    return MoveRow(WIDE, MoveState.SUBMITTED, attempt=1, phase=phase, stage=count or 0)


@pytest.mark.parametrize("case", STRIDES)
def test_a_move_that_gets_one_replica_at_a_time(case: str) -> None:
    phase, count, partition, live, expected = STRIDES[case]
    assert observe_move(stride(phase, count), partition, live) is expected


def test_without_a_topic_id_in_the_plan_any_topic_of_that_name_is_meant() -> None:
    row = MoveRow(move("t-0", "123", "423"), MoveState.SUBMITTED, attempt=1)
    assert observe_move(row, seen("423", "234"), LIVE) is State.ARRIVED


def test_a_replica_that_was_in_sync_and_died_is_not_waited_for() -> None:
    row = MoveRow(MOVE, MoveState.SUBMITTED, attempt=1, phase=Phase.ACCEPTED)
    assert observe_move(row, seen("423", "23"), frozenset({2, 3})) is State.ARRIVED_SINCE_SHRUNK


def test_an_isr_that_was_whole_once_need_not_be_whole_again() -> None:
    row = MoveRow(MOVE, MoveState.SUBMITTED, attempt=1, phase=Phase.ACCEPTED, isr_seen=True)
    assert observe_move(row, seen("423", "23"), LIVE) is State.ARRIVED


def test_what_was_tried_and_flies_is_ours_and_what_was_not_is_not() -> None:
    assert observe_move(MoveRow(MOVE, attempt=1), FLYING, LIVE) is State.ADOPTED
    assert observe_move(MoveRow(MOVE, attempt=1, stage=1, unacknowledged=True), FLYING, LIVE) is State.ADOPTED
    assert observe_move(MoveRow(MOVE, attempt=1, stage=1), FLYING, LIVE) is State.STILL_IN_FLIGHT
    assert observe_move(MoveRow(MOVE, attempt=0), FLYING, LIVE) is None
    assert observe_move(MoveRow(MOVE, MoveState.HELD, attempt=1), seen("123", "23"), LIVE) is None


def test_a_pure_reorder_is_told_by_its_order() -> None:
    reorder = MoveRow(move("t-0", "123", "231"), MoveState.SUBMITTED, attempt=1, phase=Phase.INTENDED)
    assert observe_move(reorder, seen("123", "123"), LIVE) is State.NOT_STARTED
    assert observe_move(reorder, seen("231", "123"), LIVE) is State.ARRIVED


@pytest.mark.parametrize("state", [state for state in MoveState if state.settled])
def test_what_is_settled_stays_so(state: MoveState) -> None:
    assert observe_move(MoveRow(MOVE, state, attempt=1), FLYING, LIVE) is None


def test_each_meaning_is_possible_in_the_table() -> None:
    for each, (event, words) in TRANSITION_OF.items():
        start = MoveState.WAITING if each in {State.ADOPTED, State.STILL_IN_FLIGHT} else MoveState.SUBMITTED
        assert next_state(start, event)
        assert words


def test_findings_come_in_the_order_of_the_rows_with_what_was_found_and_what_flies() -> None:
    named = [replace(seen("423", "234"), partition=1), seen("1234", "123", adding="4"), replace(GOES, partition=3)]
    partitions = {each.topic_partition: each for each in named}
    snapshot = Snapshot("c", 0, {broker: Broker(broker, "h", 1) for broker in ORIGINALS}, partitions)
    arrived = MoveRow(replace(MOVE, partition=1), MoveState.SUBMITTED, attempt=1)
    gone = MoveRow(move("t-9", "123", "423"), MoveState.SUBMITTED)
    flying = stride(Phase.ACCEPTED, 1)
    goes = replace(stride(Phase.CANCELLING, 1), move=replace(WIDE, partition=3))
    waits = MoveRow(move("t-4", "123", "423"))
    assert observe_moves([goes, arrived, waits, gone, flying], snapshot) == [
        Observation(goes, State.RETURNING, (1, 2, 3, 4), isr_whole=False, in_flight=goes.move),
        Observation(arrived, State.ARRIVED, (4, 2, 3), isr_whole=True, in_flight=arrived.move),
        Observation(gone, State.GONE, None, isr_whole=False, in_flight=gone.move),
        Observation(
            flying, State.IN_FLIGHT, (1, 2, 3, 4), isr_whole=False, in_flight=replace(WIDE, after=(1, 2, 3, 4))
        ),
    ]


def test_a_submitted_move_of_a_topic_that_we_may_not_describe_is_hidden_and_not_gone() -> None:
    row = MoveRow(move("t-0", "123", "423"), MoveState.SUBMITTED, attempt=1, phase=Phase.ACCEPTED)
    waiting = MoveRow(move("t-1", "123", "423"))
    (finding,) = observe_moves([row, waiting], replace(look("1234"), hidden=frozenset({"t"})))
    assert (finding.row, finding.state, finding.found) == (row, State.HIDDEN, None)
