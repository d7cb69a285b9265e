"""What is told at the end of a plan that people asked for: every partition accounted for."""

from __future__ import annotations

import pytest

from kafka_steward.execution.plan_report import PlanOutcome, summarize_outcome
from kafka_steward.journal.records import MoveRow, MoveState
from tests.simulated_plan import move

#: What the row of a move in each state says.
DETAILS = {
    MoveState.COMPLETED: "complete",
    MoveState.SATISFIED: "satisfied",
    MoveState.DROPPED: "the topic was deleted.",
    MoveState.FAILED: "",
    MoveState.HELD: "",
}


def test_what_was_planned_and_not_moved_is_listed_with_its_reason() -> None:
    states = [*DETAILS, MoveState.COMPLETED, MoveState.SATISFIED, MoveState.COMPLETED]
    rows = [MoveRow(move(f"t-{n}", "123", "453"), state, DETAILS[state]) for n, state in enumerate(states)]
    left = [("t-2", "the topic was deleted."), ("t-3", "failed"), ("t-4", "held")]
    assert summarize_outcome(rows) == PlanOutcome(3, 2, left, replicas_placed=6, replicas_needed=12)
    assert summarize_outcome([]) == PlanOutcome(0, 0, [])


@pytest.mark.parametrize(
    ("outcome", "sentence"),
    [
        (PlanOutcome(3, 0, []), "3 partitions were moved."),
        (PlanOutcome(3, 2, []), "3 partitions were moved, 2 no longer needed to move."),
        (
            PlanOutcome(3, 0, [("t-0", "the topic was deleted...")]),
            (
                "3 partitions were moved. 1 partition was not moved as approved, and no other moves were made: "
                "t-0, the topic was deleted."
            ),
        ),
        (
            PlanOutcome(0, 1, [("t-0", "why"), ("t-1", "other")]),
            (
                "0 partitions were moved, 1 no longer needed to move. 2 partitions were not moved as approved, and "
                "no other moves were made: t-0, why. 1 more moves are held."
            ),
        ),
    ],
)
def test_the_sentence_names_the_first_and_counts_the_others(outcome: PlanOutcome, sentence: str) -> None:
    assert outcome.sentence == sentence


@pytest.mark.parametrize(
    ("outcome", "sentence"),
    [
        (PlanOutcome(3, 2, [], 4, 4), "4 of 4 replicas were replaced."),
        (PlanOutcome(0, 0, [("t-0", "why.")], 0, 2), "0 of 2 replicas were replaced: t-0, why."),
        (
            PlanOutcome(1, 0, [("t-0", "why"), ("t-1", "other")], 1, 3),
            "1 of 3 replicas were replaced: t-0, why. 1 more partition was not moved.",
        ),
        (
            PlanOutcome(1, 0, [("t-0", "why"), ("t-1", ""), ("t-2", "")], 1, 4),
            "1 of 4 replicas were replaced: t-0, why. 2 more partitions were not moved.",
        ),
    ],
)
def test_replicas_are_counted_by_what_was_placed(outcome: PlanOutcome, sentence: str) -> None:
    assert outcome.replica_sentence("replaced") == sentence
