"""What waits because someone chose so, and when a plan can only wait."""

from __future__ import annotations

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.execution.moves import Event, Held, HoldReason, no_progress_possible
from kafka_steward.journal.records import MoveRow, MoveState
from tests.simulated_plan import move

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
