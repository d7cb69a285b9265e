"""What a rollback takes back, what it leaves alone and why, and which cancels are skipped (KIP-236)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_steward.assignment import Move
from kafka_steward.cluster.state import Partition
from kafka_steward.execution.move_recovery import cancel_forbidden_reason, plan_rollback_moves
from kafka_steward.journal.records import MoveRow, MoveState
from tests.execution.looks import brokers, look, part
from tests.simulated_plan import move

COMPLETED, SATISFIED, DROPPED = MoveState.COMPLETED, MoveState.SATISFIED, MoveState.DROPPED
MOVE = move("t-0", "123", "456", topic_id="id1")
THERE = part("t-0", "456", topic_id="id1")


def changed(replicas: str) -> str:
    return f"someone else changed its replicas to {list(brokers(replicas))}"


@pytest.mark.parametrize(
    ("originals", "isr", "live", "why"),
    [
        ("", "123", "123", "no original replicas are recorded, so it cannot be cancelled"),
        ("12", "3", "123", "none of the original replicas is in sync, so a cancel would take it offline"),
        ("12", "13", "23", "none of the original replicas is in sync, so a cancel would take it offline"),
        ("12", "23", "23", None),
        ("12", "3", "12", None),
    ],
)
def test_a_cancel_that_would_take_the_partition_offline_is_skipped(
    originals: str, isr: str, live: str, why: str | None
) -> None:
    found = cancel_forbidden_reason(brokers(originals) or None, part("t-0", "123", isr=isr), frozenset(brokers(live)))
    assert found == (None if why is None else f"KIP-236: {why}")


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
        (MoveRow(MOVE, COMPLETED), None, "123456", "it no longer exists"),
        (
            MoveRow(MOVE, COMPLETED),
            replace(THERE, topic_id="id2"),
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
def test_what_is_left_alone_is_named_with_the_reason(
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
        (MoveRow(MOVE, DROPPED, attempt=1), None),
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
