"""Which moves can no longer end, which cancels are skipped, and what a rollback takes back (KIP-236)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_steward.assignment import Move
from kafka_steward.cluster.state import Partition
from kafka_steward.execution.move_recovery import (
    cancel_forbidden_reason,
    dead_target_brokers,
    dead_target_reason,
    find_changing_plan,
    find_unfinishable_moves,
    is_cancel_safe,
    plan_rollback_moves,
)
from kafka_steward.journal.records import MoveRow, MoveState, Phase
from tests.execution.looks import brokers, look, part
from tests.simulated_plan import move

FLIES = part("t-0", "4231", isr="123", adding="4", removing="1")


def row(after: str = "423", phase: Phase = Phase.ACCEPTED) -> MoveRow:
    return MoveRow(move("t-0", "123", after), MoveState.SUBMITTED, attempt=1, phase=phase)


IN_FLIGHT = {
    "all live": (Phase.ACCEPTED, FLIES, "1234", "", False),
    "target died": (Phase.ACCEPTED, FLIES, "123", "", True),
    "target died, not known to be accepted": (Phase.INTENDED, FLIES, "123", "", True),
    "cancelled already": (Phase.CANCELLING, FLIES, "123", "", False),
    "target restarts": (Phase.ACCEPTED, FLIES, "123", "4", False),
    "another restarts": (Phase.ACCEPTED, FLIES, "123", "3", True),
    "has ended": (Phase.ACCEPTED, part("t-0", "423", isr="23"), "123", "", False),
    "removed one died": (Phase.ACCEPTED, FLIES, "234", "", False),
    "kept one died and is in sync by what the leader last said": (Phase.ACCEPTED, FLIES, "124", "", False),
    "kept one died": (Phase.ACCEPTED, part("t-0", "4231", isr="12", adding="4", removing="1"), "124", "", True),
}


@pytest.mark.parametrize(("phase", "partition", "live", "bouncing", "cancelled"), IN_FLIGHT.values(), ids=IN_FLIGHT)
def test_only_what_flies_to_a_dead_broker_is_cancelled(
    phase: Phase, partition: Partition, live: str, bouncing: str, cancelled: bool
) -> None:
    moving = row(phase=phase)
    found = find_unfinishable_moves([moving], look(live, partition), frozenset(brokers(bouncing)))
    assert found == ([moving] if cancelled else [])


def test_of_one_replica_at_a_time_only_the_target_of_what_flies_counts() -> None:
    wide, stride = row("456"), part("t-0", "1234", isr="123", adding="4")
    assert dead_target_brokers(wide, look("1234", stride)) == set()
    assert dead_target_brokers(wide, look("123", stride)) == {4}
    assert dead_target_brokers(wide, look("12", part("t-0", "1234", isr="12", adding="4"))) == {3, 4}


@pytest.mark.parametrize(
    ("live", "clause"),
    [("123", "target broker 4 failed"), ("13", "target brokers 2 and 4 failed"), ("1234", "a target broker failed")],
)
def test_the_clause_names_the_dead_in_order(live: str, clause: str) -> None:
    assert dead_target_reason(row(), look(live, part("t-0", "4231", isr="13", adding="4", removing="1"))) == clause


CANCELS = {
    "originals in sync": (FLIES, "1234", True),
    "only the new one in sync": (part("t-0", "4231", isr="4", adding="4", removing="1"), "1234", False),
    "nothing in sync is live": (part("t-0", "4231", isr="4", adding="4", removing="1"), "123", True),
    "gone": (part("t-1", "123"), "1234", False),
}


@pytest.mark.parametrize(("partition", "live", "can"), CANCELS.values(), ids=CANCELS)
def test_a_cancel_must_not_take_the_partition_offline(partition: Partition, live: str, can: bool) -> None:
    assert is_cancel_safe(row(), look(live, partition)) is can


def test_a_later_stride_goes_back_to_what_the_ones_before_it_brought() -> None:
    second = part("t-0", "12345", isr="4", adding="5")
    assert is_cancel_safe(row("456"), look("45", second)) is True
    assert is_cancel_safe(row("456"), look("5", second)) is False


COMPLETED, SATISFIED, DROPPED = MoveState.COMPLETED, MoveState.SATISFIED, MoveState.DROPPED
MOVE = move("t-0", "123", "456", topic_id="id1")
THERE = part("t-0", "456", topic_id="id1")


def changed(replicas: str) -> str:
    return f"someone else changed its replicas to {list(brokers(replicas))}"


OFFLINE = "none of the original replicas is in sync, so a cancel would take it offline"


@pytest.mark.parametrize(
    ("originals", "isr", "live", "why"),
    [
        pytest.param("123", "123", "12345", None, id="in sync"),
        pytest.param("123", "14", "145", None, id="one in sync"),
        pytest.param("123", "4", "45", OFFLINE, id="none in sync"),
        pytest.param("123", "3", "45", OFFLINE, id="in sync and dead"),
        pytest.param("12", "43", "34", OFFLINE, id="in sync and no original"),
        pytest.param("123", "3", "", None, id="all offline"),
        pytest.param("12", "3", "12", None, id="what is in sync is offline"),
        pytest.param(
            "", "123", "123", "no original replicas are recorded, so it cannot be cancelled", id="no originals"
        ),
    ],
)
def test_kip_236s_skip_rules(originals: str, isr: str, live: str, why: str | None) -> None:
    partition = part("t-0", "45123", isr=isr, adding="45", removing="123")
    found = cancel_forbidden_reason(brokers(originals) or None, partition, frozenset(brokers(live)))
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
        (MoveRow(MOVE, COMPLETED), replace(THERE, topic_id="id2"), "123456", "its topic was deleted and re-created"),
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
