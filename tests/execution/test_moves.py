"""The table of a move's states, and what waits because someone chose so."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.execution.moves import (
    OPEN,
    SETTLED,
    TRANSITIONS,
    Event,
    Held,
    HoldReason,
    filter_unsettled,
    final_status,
    next_state,
    no_progress_possible,
    phase_of,
)
from kafka_steward.journal.records import Cause, MoveRow, MoveState, Phase, PlanStatus
from tests.simulated_plan import move


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


def test_the_causes_of_the_moves_say_whether_a_person_cancelled_the_plan() -> None:
    rows = [MoveRow(move("t-0", "123", "423"), MoveState.DROPPED, cause=Cause.REQUESTED)]
    assert final_status(rows) is PlanStatus.CANCELLED
    assert final_status(rows, cancelled=False) is PlanStatus.FAILED
    refused = [MoveRow(move("t-0", "41", "21"), MoveState.DROPPED, cause=Cause.ORDER_REFUSED)]
    assert final_status(refused) is PlanStatus.CANCELLED


def test_a_plan_whose_moves_were_all_replaced_by_later_requests_is_cancelled() -> None:
    replaced = MoveRow(move("t-0", "123", "423"), MoveState.DROPPED, cause=Cause.SUPERSEDED)
    assert final_status([replaced], cancelled=False) is PlanStatus.CANCELLED
    lost = MoveRow(move("t-1", "123", "423"), MoveState.DROPPED)
    assert final_status([replaced, lost], cancelled=False) is PlanStatus.FAILED


WAITING, HELD, FLIES, DONE = MoveState.WAITING, MoveState.HELD, MoveState.SUBMITTED, MoveState.COMPLETED
DEAD, DISABLED = HoldReason.TARGET_DEAD, HoldReason.CLUSTER_DISABLED


def test_whom_a_wait_is_for_and_what_it_means() -> None:
    assert {reason for reason in HoldReason if reason.is_operator_choice} == {
        HoldReason.CLUSTER_DISABLED,
        HoldReason.NOT_APPROVED,
        HoldReason.TARGET_RESTARTING,
        HoldReason.TARGET_CORDONED,
        HoldReason.EXTERNAL_REASSIGNMENT,
    }
    ends = {
        HoldReason.SATISFIED: Event.SATISFY,
        HoldReason.ALREADY_THERE: Event.SATISFY,
        HoldReason.PARTITION_GONE: Event.DROP,
        HoldReason.RECREATED: Event.DROP,
        HoldReason.CHANGED_ELSEWHERE: Event.DROP,
        HoldReason.DUPLICATE_REPLICA: Event.DROP,
        HoldReason.BROKER_UNREGISTERED: Event.DROP,
    }
    assert {reason: reason.event for reason in HoldReason} == dict.fromkeys(HoldReason, Event.HOLD) | ends


def test_a_wait_is_told_with_what_was_found() -> None:
    sentence = "t-3 was not moved: it has no leader to copy from; bring back one of the brokers 1, 2."
    assert Held.of(TopicPartition("t", 3), HoldReason.NO_LEADER, "1, 2") == Held("t", 3, HoldReason.NO_LEADER, sentence)


@pytest.mark.parametrize(
    ("states", "reasons", "expected"),
    [
        ([WAITING], [DEAD], True),
        ([HELD, WAITING, DONE], [DEAD, DEAD], True),
        ([HELD, WAITING], [DEAD], False),
        ([HELD, FLIES], [DEAD], False),
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
