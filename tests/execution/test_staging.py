"""One added replica of a partition at a time (KIP-236's staggering), by option."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_steward.assignment import Assignment, Move, Operation
from kafka_steward.cluster.state import Partition
from kafka_steward.execution.pending_replicas import list_pending
from kafka_steward.execution.pending_state import PendingState
from kafka_steward.execution.staging import (
    can_roll_back_stages,
    intermediate_assignments,
    is_rolling_back,
    next_stage,
    part_in_flight,
    remaining_move,
    stage_number,
    stage_reached,
    stage_text,
    target_in_flight,
)
from kafka_steward.execution.topics import TopicSpec, create_topic
from kafka_steward.journal import paths
from kafka_steward.journal.records import MoveRow, MoveState, PlanStatus
from kafka_steward.settings import Settings
from tests.execution.staged_moves import (
    BROKERS,
    ONE,
    T0,
    simulator,
    submitted,
    to_halfway,
    to_the_second_stride,
    world_of,
)
from tests.simulated_plan import FOLLOWERS, WHO, World, lose, memory_journal, move
from tests.simulator import Simulator

__all__ = ["simulator"]


def next_one(move: Move, seen: Partition, live: frozenset[int]) -> Move:
    return next_stage(move, seen, live, one_at_a_time=True, unclean=False)


def partition(
    replicas: Assignment, *, isr: Assignment = (), adding: Assignment = (), removing: Assignment = ()
) -> Partition:
    return Partition("t", 0, replicas, frozenset(isr or replicas), replicas[0], None, adding, removing)


def test_the_originals_stay_until_the_last_replica_is_there() -> None:
    whole, live = move("t-0", "123", "456"), frozenset(range(1, 8))
    first = next_one(whole, partition((1, 2, 3)), live)
    assert (first.before, first.after) == ((1, 2, 3), (1, 2, 3, 4))
    left = move("t-0", "12345", "456")
    assert next_one(left, partition((1, 2, 3, 4, 5)), live) == left
    assert intermediate_assignments(whole) == [(1, 2, 3, 4), (1, 2, 3, 4, 5), (1, 2, 3, 4, 5, 6)]


def test_what_adds_one_replica_is_one_reassignment_as_ever() -> None:
    for whole in (move("t-0", "123", "423"), move("t-0", "123", "231"), move("t-0", "1234", "12")):
        assert next_one(whole, partition(whole.before), frozenset(range(1, 8))) == whole
        assert intermediate_assignments(whole) == ([(1, 2, 3, 4)] if 4 in whole.adding else [])


def test_a_replica_that_is_not_in_sync_or_dead_would_hang_a_stride_so_all_comes_at_once() -> None:
    whole, live = move("t-0", "123", "456"), frozenset(range(1, 8))
    assert next_one(whole, partition((1, 2, 3), isr=(1, 2)), live) == whole
    assert next_one(whole, partition((1, 2, 3)), live - {3}) == whole


def test_a_place_between_two_strides_is_told_from_every_other() -> None:
    whole = move("t-0", "123", "456")
    assert [stage_reached(whole, each) for each in ((1, 2, 3, 4), (5, 4, 3, 2, 1))] == [1, 2]
    others = [(1, 2, 3), (4, 5, 6), (6, 5, 4), (1, 2, 3, 5), (1, 2, 4), (1, 2, 3, 4, 7), (1, 4, 5)]
    assert [stage_reached(whole, each) for each in others] == [0] * len(others)
    assert target_in_flight(whole, partition((1, 2, 3, 4), adding=(4,))) == (1, 2, 3, 4)
    assert target_in_flight(whole, partition((1, 2, 3, 7), adding=(7,))) is None
    assert target_in_flight(whole, partition((1, 2, 3, 4))) is None


def test_two_new_replicas_are_two_strides_and_a_later_one_begins_where_the_partition_is() -> None:
    live, two = frozenset(range(1, 8)), move("t-0", "123", "453", size=7)
    assert next_one(two, partition((1, 2, 3)), live) == replace(two, after=(1, 2, 3, 4))
    assert intermediate_assignments(two) == [(1, 2, 3, 4), (1, 2, 3, 4, 5)]
    left = move("t-0", "3124", "456")
    assert next_one(left, partition((3, 1, 2, 4)), live) == replace(left, after=(3, 1, 2, 4, 5))


WIDE = move("t-0", "123", "456", size=7)
FOUR = partition((1, 2, 3, 4))


@pytest.mark.parametrize(
    ("row", "seen", "rests"),
    [
        (MoveRow(WIDE, MoveState.WAITING, attempt=1, stage=1), FOUR, True),
        (MoveRow(WIDE, MoveState.HELD, attempt=1, stage=2), partition((5, 1, 4, 2, 3)), True),
        (MoveRow(WIDE, MoveState.WAITING), FOUR, False),
        (MoveRow(WIDE, MoveState.WAITING, attempt=1), FOUR, False),
        (MoveRow(WIDE, MoveState.SUBMITTED, attempt=1, stage=1), FOUR, False),
        (MoveRow(WIDE, MoveState.WAITING, attempt=1, stage=1), partition((1, 2, 3, 4), adding=(4,)), False),
        (MoveRow(WIDE, MoveState.WAITING, attempt=1, stage=1), partition((1, 2, 3)), False),
        (MoveRow(WIDE, MoveState.WAITING, attempt=1, stage=1), partition((1, 2, 3, 5)), False),
        (MoveRow(WIDE, MoveState.WAITING, attempt=1, stage=1), None, False),
    ],
    ids=[
        "waits",
        "held, in any order",
        "never tried",
        "not in stages",
        "submitted",
        "flies",
        "at the start",
        "elsewhere",
        "gone",
    ],
)
def test_what_rests_halfway_goes_on_from_there_and_can_go_back(
    row: MoveRow, seen: Partition | None, rests: bool
) -> None:
    assert remaining_move(row, seen) == (replace(WIDE, before=seen.replicas) if seen and rests else WIDE)
    assert can_roll_back_stages(row, seen, frozenset({1, 2, 3})) is rests
    assert can_roll_back_stages(row, seen, frozenset({1, 2, 4, 5})) is False, "a dead original would hang it"


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (None, WIDE),
        (partition((1, 2, 3)), WIDE),
        (partition((4, 5, 6, 1, 2, 3), adding=(4, 5, 6), removing=(1, 2, 3)), WIDE),
        (partition((1, 2, 3, 7), adding=(7,)), WIDE),
        (partition((1, 2, 3, 4), adding=(4,)), replace(WIDE, after=(1, 2, 3, 4))),
        (partition((2, 1, 3, 4, 5), adding=(5,)), replace(WIDE, before=(2, 1, 3, 4), after=(2, 1, 3, 4, 5))),
        (
            partition((4, 5, 6, 1, 2, 3), adding=(6,), removing=(1, 2, 3)),
            replace(WIDE, before=(4, 5, 1, 2, 3), after=(4, 5, 6)),
        ),
    ],
    ids=["gone", "at rest", "all at once", "someone else's", "first", "second", "last"],
)
def test_what_flies_is_the_whole_move_or_one_stride(seen: Partition | None, expected: Move) -> None:
    assert part_in_flight(MoveRow(WIDE, MoveState.SUBMITTED, attempt=1), seen) == expected


@pytest.mark.parametrize(
    ("seen", "target"),
    [
        (partition((4, 5, 6, 1, 2, 3), adding=(4, 5, 6), removing=(1, 2, 3)), (4, 5, 6)),
        (partition((2, 3, 1, 5, 4), adding=(5,)), (2, 3, 1, 5, 4)),
        (partition((1, 2, 3, 4, 7), removing=(7,)), None),
        (partition((6, 5, 4, 1, 2, 3), adding=(4, 5, 6), removing=(1, 2, 3)), None),
        (partition((4, 5, 6)), None),
    ],
    ids=["the whole", "a stride", "someone's removal", "another order", "at rest"],
)
def test_only_its_own_targets_are_told_from_what_flies(seen: Partition, target: Assignment | None) -> None:
    assert target_in_flight(WIDE, seen) == target


@pytest.mark.parametrize(
    ("seen", "back"),
    [
        (partition((1, 2, 3, 4), removing=(4,)), True),
        (partition((1, 2, 3, 4, 5), removing=(4, 5)), True),
        (partition((1, 2, 3, 4, 5, 6), removing=(4, 5, 6)), True),
        (partition((2, 1, 3, 4), removing=(4,)), False),
        (partition((1, 2, 3, 7), removing=(7,)), False),
        (partition((1, 2, 3, 4, 5), adding=(5,), removing=(4, 5)), False),
        (partition((1, 2, 3, 4, 5), removing=(5,)), False),
    ],
    ids=["one", "two", "all", "in another order", "not its own", "and more comes", "not all"],
)
def test_it_goes_back_when_only_what_arrived_is_let_go_of(seen: Partition, back: bool) -> None:
    assert is_rolling_back(WIDE, seen) is back


def test_a_submission_says_how_many_new_replicas_there_will_be() -> None:
    assert [stage_number(WIDE, target) for target in ((1, 2, 3), (1, 2, 3, 4), (4, 5, 6))] == [0, 1, 4]
    assert [stage_text(WIDE, stage) for stage in (0, 1)] == ["", "1 of 3 new replicas"]
    assert stage_text(WIDE, 3) == stage_text(WIDE, 4) == "3 of 3 new replicas", "the last stage only removes"


# the whole way


def test_a_move_of_three_replicas_is_three_reassignments_that_add_one_each(simulator: Simulator) -> None:
    world = world_of(simulator, settings=Settings(throttle=80, one_replica_at_a_time=True))
    widest, listed = 0, set()

    def look() -> None:
        nonlocal widest
        widest = max(widest, len(simulator.topics[T0].adding))
        listed.add(simulator.topic_settings["t"].get(FOLLOWERS))
        simulator.tick()

    progress = world.run(between=look)
    assert (progress.status, world.replicas("t-0"), widest) == (PlanStatus.COMPLETED, (4, 5, 6), 1)
    assert submitted(world) == [
        ([1, 2, 3], [1, 2, 3, 4]),
        ([1, 2, 3, 4], [1, 2, 3, 4, 5]),
        ([1, 2, 3, 4, 5], [4, 5, 6]),
    ]
    assert listed == {"0:4", "0:5", "0:6"}, "each is throttled while it is copied, and no longer"
    assert world.throttles() == world.borrowed() == []
    row = world.row("t-0")
    assert (row.move, row.state, row.attempt) == (world.moves[0], MoveState.COMPLETED, 3)
    assert progress.bytes_done == progress.bytes_total == 900


def test_without_the_option_all_replicas_come_at_once(simulator: Simulator) -> None:
    world = world_of(simulator, settings=Settings(throttle=0))
    world.step()
    assert set(simulator.topics[T0].adding) == {4, 5, 6}
    world.run()
    assert submitted(world) == [([1, 2, 3], [4, 5, 6])]


def test_more_replicas_for_a_topic_come_one_by_one_too(simulator: Simulator) -> None:
    world = world_of(simulator, after="12345")
    assert world.run().status is PlanStatus.COMPLETED
    assert [after for _, after in submitted(world)] == [[1, 2, 3, 4], [1, 2, 3, 4, 5]]


def test_fewer_replicas_than_min_insync_replicas_come_one_by_one(simulator: Simulator) -> None:
    simulator.topic_settings["t"]["min.insync.replicas"] = "4"
    world = world_of(simulator)
    assert world.run().status is PlanStatus.COMPLETED
    assert world.replicas("t-0") == (4, 5, 6)


def test_what_is_owed_stays_owed_while_its_fill_rests_halfway() -> None:
    simulator = Simulator.of(BROKERS, mode="zookeeper")
    journal = memory_journal(simulator)
    lose(simulator, journal, *range(2, 8))
    create_topic(simulator, journal, TopicSpec("t", 1, 3, {}), allowed=True, who=WHO)
    for broker in range(2, 8):
        simulator.restart(broker)
    world = World(simulator, journal, [move("t-0", "1", "123")], ONE, auto_generated=False, operation=Operation.FILL)
    world.step()
    simulator.tick()
    assert world.replicas("t-0") == (1, 2)
    (debt,) = list_pending(journal, simulator.snapshot())
    assert (debt.state, debt.missing) == (PendingState.OPEN, 1)
    world.run()
    assert [debt.state for debt in list_pending(journal, simulator.snapshot())] == [PendingState.SETTLED]


def test_a_heal_of_two_replicas_adds_both_at_once(simulator: Simulator) -> None:
    simulator.kill(1)
    simulator.kill(2)
    world = World(simulator, memory_journal(simulator), [move("t-0", "123", "453")], settings=ONE)
    world.run()
    assert submitted(world) == [([1, 2, 3], [4, 5, 3])]


def test_progress_and_bytes_only_grow(simulator: Simulator) -> None:
    world, seen = world_of(simulator), [0]
    for _ in range(40):
        progress = world.step()
        seen.append(progress.bytes_done)
        if progress.ended:
            break
        simulator.tick()
    assert seen == sorted(seen)
    assert seen[-1] == 900


def test_what_the_setting_was_when_it_began_does_not_bind_who_goes_on(simulator: Simulator) -> None:
    world = world_of(simulator)
    to_the_second_stride(world)
    world.settings = Settings(throttle=0)
    world.runner = world.new_runner()
    assert world.run().status is PlanStatus.COMPLETED
    assert submitted(world)[-1] == ([1, 2, 3, 4, 5], [4, 5, 6])
    assert world.replicas("t-0") == (4, 5, 6)


def test_between_two_strides_the_switch_holds_and_the_move_goes_on_after(simulator: Simulator) -> None:
    world = world_of(simulator)
    to_halfway(world)
    switch = world.journal.tree.get(paths.REASSIGN_CANCEL)
    assert switch is not None
    world.journal.tree.delete(switch.path, version=switch.version)
    assert world.run().status is PlanStatus.COMPLETED
    assert world.replicas("t-0") == (4, 5, 6)


# cancel and rollback
