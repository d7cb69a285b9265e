"""Which moves in flight can no longer end because a broker died, and which of them a cancel takes back."""

from __future__ import annotations

import pytest

from kafka_steward.cluster.state import Partition
from kafka_steward.execution.move_recovery import (
    dead_target_brokers,
    dead_target_reason,
    find_unfinishable_moves,
    is_cancel_safe,
)
from kafka_steward.journal.records import MoveRow, MoveState, Phase
from tests.execution.looks import brokers, look, part
from tests.simulated_plan import move

FLIES = part("t-0", "4231", isr="123", adding="4", removing="1")


def row(after: str = "423", phase: Phase = Phase.ACCEPTED) -> MoveRow:
    return MoveRow(move("t-0", "123", after), MoveState.SUBMITTED, attempt=1, phase=phase)


@pytest.mark.parametrize(
    ("phase", "partition", "live", "bouncing", "cancelled"),
    [
        (Phase.ACCEPTED, FLIES, "1234", "", False),
        (Phase.ACCEPTED, FLIES, "123", "", True),
        (Phase.INTENDED, FLIES, "123", "", True),
        (Phase.CANCELLING, FLIES, "123", "", False),
        (Phase.ACCEPTED, FLIES, "123", "4", False),
        (Phase.ACCEPTED, FLIES, "123", "3", True),
        (Phase.ACCEPTED, part("t-0", "423", isr="23"), "123", "", False),
        (Phase.ACCEPTED, FLIES, "234", "", False),
        (Phase.ACCEPTED, FLIES, "124", "", False),
        (Phase.ACCEPTED, part("t-0", "4231", isr="12", adding="4", removing="1"), "124", "", True),
    ],
    ids=[
        "all live",
        "target died",
        "target died, not known to be accepted",
        "cancelled already",
        "target restarts",
        "another restarts",
        "has ended",
        "removed one died",
        "kept one died and is in sync by what the leader last said",
        "kept one died",
    ],
)
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
    [
        ("123", "target broker 4 failed"),
        ("13", "target brokers 2 and 4 failed"),
        ("1234", "a target broker failed"),
    ],
)
def test_the_clause_names_the_dead_in_order(live: str, clause: str) -> None:
    assert dead_target_reason(row(), look(live, part("t-0", "4231", isr="13", adding="4", removing="1"))) == clause


@pytest.mark.parametrize(
    ("partition", "live", "can"),
    [
        (FLIES, "1234", True),
        (part("t-0", "4231", isr="4", adding="4", removing="1"), "1234", False),
        (part("t-0", "4231", isr="4", adding="4", removing="1"), "123", True),
        (part("t-1", "123"), "1234", False),
    ],
    ids=["originals in sync", "only the new one in sync", "nothing in sync is live", "gone"],
)
def test_a_cancel_must_not_take_the_partition_offline(partition: Partition, live: str, can: bool) -> None:
    assert is_cancel_safe(row(), look(live, partition)) is can


def test_a_later_stride_goes_back_to_what_the_ones_before_it_brought() -> None:
    second = part("t-0", "12345", isr="4", adding="5")
    assert is_cancel_safe(row("456"), look("45", second)) is True
    assert is_cancel_safe(row("456"), look("5", second)) is False
