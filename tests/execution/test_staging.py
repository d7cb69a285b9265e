"""One added replica of a partition at a time (KIP-236's staggering), by option, also when it is disturbed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_steward.assignment import Assignment, Move, Operation, TopicPartition
from kafka_steward.cluster.state import Partition
from kafka_steward.document_api.request_intake import PartialCancel
from kafka_steward.execution.moves.staging import (
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
from kafka_steward.execution.plans.drive import DrivePolicy, run_to_end
from kafka_steward.execution.plans.lifecycle import request_cancel
from kafka_steward.execution.plans.snapshot import started_moves, take_snapshot
from kafka_steward.execution.plans.undo_verification import verify_undone
from kafka_steward.execution.topics.creation import TopicSpec, create_topic
from kafka_steward.execution.topics.pending import PendingState, list_pending
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action
from kafka_steward.journal.records import MoveRow, MoveState, PlanStatus
from kafka_steward.planning.files.formats import read_snapshot
from kafka_steward.settings import Settings
from tests.cancelling import undo_of
from tests.documents import create_document
from tests.simulated_plan import FOLLOWERS, WHO, World, delete, lose, memory_journal, move
from tests.simulator import Simulator

BROKERS = "1a 2b 3c 4a 5b 6c 7a"
T0 = TopicPartition("t", 0)
ONE = Settings(throttle=0, one_replica_at_a_time=True)


@pytest.fixture(params=["kraft", "zookeeper"])
def simulator(request: pytest.FixtureRequest) -> Simulator:
    return Simulator.of(BROKERS, "t: 123", mode=request.param, size=300)


def world_of(simulator: Simulator, after: str = "456", *, settings: Settings = ONE, before: str = "123") -> World:
    moves = [move("t-0", before, after, size=300)]
    return World(simulator, memory_journal(simulator), moves, settings=settings, auto_generated=False)


def submitted(world: World) -> list[tuple[list[int], list[int]]]:
    rows = world.journal.audit.rows(plan=world.digest, action=Action.SUBMIT)
    return [(row.entry.before, row.entry.after) for row in rows]


def to_the_second_stage(world: World) -> None:
    """4 has arrived, and 5 is on its way."""
    for _ in range(20):
        world.step()
        if world.simulator.topics[T0].adding == (5,):
            return
        world.simulator.tick()
    raise AssertionError("the second stage did not begin")


def to_the_last_stage(world: World) -> None:
    """6 is on its way, and the originals leave with its arrival."""
    while world.simulator.topics[T0].adding != (6,):
        world.step()
        world.simulator.tick()
        world.step()


def to_halfway(world: World) -> None:
    """4 has arrived, and reassignments are switched off, so that 5 waits."""
    world.step()
    create_document(world.journal.mailbox, paths.REASSIGN_CANCEL, "")
    world.simulator.tick(4)
    world.step()
    assert (world.replicas("t-0"), world.states()) == ((1, 2, 3, 4), {"t-0": "held"})


def partition(
    replicas: Assignment, *, isr: Assignment = (), adding: Assignment = (), removing: Assignment = ()
) -> Partition:
    return Partition("t", 0, replicas, frozenset(isr or replicas), replicas[0], None, adding, removing)


WIDE = move("t-0", "123", "456", size=7)
ALL = frozenset(range(1, 8))
NEXT = {
    "the first new replica comes beside the originals": (WIDE, partition((1, 2, 3)), ALL, (1, 2, 3, 4)),
    "the originals leave with the last": (move("t-0", "12345", "456"), partition((1, 2, 3, 4, 5)), ALL, (4, 5, 6)),
    "of two": (move("t-0", "123", "453"), partition((1, 2, 3)), ALL, (1, 2, 3, 4)),
    "from where it is": (move("t-0", "3124", "456"), partition((3, 1, 2, 4)), ALL, (3, 1, 2, 4, 5)),
    "one alone is one reassignment as ever": (move("t-0", "123", "423"), partition((1, 2, 3)), ALL, (4, 2, 3)),
    "a reorder, too": (move("t-0", "123", "231"), partition((1, 2, 3)), ALL, (2, 3, 1)),
    "and fewer replicas": (move("t-0", "1234", "12"), partition((1, 2, 3, 4)), ALL, (1, 2)),
    "one out of sync would hang a stage": (WIDE, partition((1, 2, 3), isr=(1, 2)), ALL, (4, 5, 6)),
    "and so would a dead one": (WIDE, partition((1, 2, 3)), ALL - {3}, (4, 5, 6)),
}


@pytest.mark.parametrize(("whole", "seen", "live", "after"), NEXT.values(), ids=NEXT)
def test_the_next_stage(whole: Move, seen: Partition, live: frozenset[int], after: Assignment) -> None:
    found = next_stage(whole, seen, live, one_at_a_time=True, unclean=False)
    assert found == replace(whole, after=after)


@pytest.mark.parametrize(
    ("before", "after", "between"),
    [
        ("123", "456", [(1, 2, 3, 4), (1, 2, 3, 4, 5), (1, 2, 3, 4, 5, 6)]),
        ("123", "453", [(1, 2, 3, 4), (1, 2, 3, 4, 5)]),
        ("123", "423", [(1, 2, 3, 4)]),
        ("123", "231", []),
        ("1234", "12", []),
    ],
)
def test_the_assignments_between_the_stages(before: str, after: str, between: list[Assignment]) -> None:
    assert intermediate_assignments(move("t-0", before, after)) == between


def test_a_place_between_two_stages_is_distinguished_from_every_other() -> None:
    whole = move("t-0", "123", "456")
    assert [stage_reached(whole, each) for each in ((1, 2, 3, 4), (5, 4, 3, 2, 1))] == [1, 2]
    others = [(1, 2, 3), (4, 5, 6), (6, 5, 4), (1, 2, 3, 5), (1, 2, 4), (1, 2, 3, 4, 7), (1, 4, 5)]
    assert [stage_reached(whole, each) for each in others] == [0] * len(others)


FOUR = partition((1, 2, 3, 4))


HALFWAY = {
    "waits": (MoveRow(WIDE, MoveState.WAITING, attempt=1, stage=1), FOUR, True),
    "held, in any order": (MoveRow(WIDE, MoveState.HELD, attempt=1, stage=2), partition((5, 1, 4, 2, 3)), True),
    "never tried": (MoveRow(WIDE, MoveState.WAITING), FOUR, False),
    "not in stages": (MoveRow(WIDE, MoveState.WAITING, attempt=1), FOUR, False),
    "submitted": (MoveRow(WIDE, MoveState.SUBMITTED, attempt=1, stage=1), FOUR, False),
    "in flight": (MoveRow(WIDE, MoveState.WAITING, attempt=1, stage=1), partition((1, 2, 3, 4), adding=(4,)), False),
    "at the start": (MoveRow(WIDE, MoveState.WAITING, attempt=1, stage=1), partition((1, 2, 3)), False),
    "elsewhere": (MoveRow(WIDE, MoveState.WAITING, attempt=1, stage=1), partition((1, 2, 3, 5)), False),
    "gone": (MoveRow(WIDE, MoveState.WAITING, attempt=1, stage=1), None, False),
}


@pytest.mark.parametrize(("row", "seen", "rests"), HALFWAY.values(), ids=HALFWAY)
def test_what_rests_halfway_goes_on_and_can_go_back(row: MoveRow, seen: Partition | None, rests: bool) -> None:
    assert remaining_move(row, seen) == (replace(WIDE, before=seen.replicas) if seen and rests else WIDE)
    assert can_roll_back_stages(row, seen, frozenset({1, 2, 3})) is rests
    assert can_roll_back_stages(row, seen, frozenset({1, 2, 4, 5})) is False, "a dead original would hang it"


IN_FLIGHT = {
    "gone": (None, WIDE),
    "at rest": (partition((1, 2, 3)), WIDE),
    "all at once": (partition((4, 5, 6, 1, 2, 3), adding=(4, 5, 6), removing=(1, 2, 3)), WIDE),
    "someone else's": (partition((1, 2, 3, 7), adding=(7,)), WIDE),
    "first": (partition((1, 2, 3, 4), adding=(4,)), replace(WIDE, after=(1, 2, 3, 4))),
    "second": (partition((2, 1, 3, 4, 5), adding=(5,)), replace(WIDE, before=(2, 1, 3, 4), after=(2, 1, 3, 4, 5))),
    "last": (
        partition((4, 5, 6, 1, 2, 3), adding=(6,), removing=(1, 2, 3)),
        replace(WIDE, before=(4, 5, 1, 2, 3), after=(4, 5, 6)),
    ),
}


@pytest.mark.parametrize(("seen", "expected"), IN_FLIGHT.values(), ids=IN_FLIGHT)
def test_what_is_in_flight_is_the_whole_move_or_one_stage(seen: Partition | None, expected: Move) -> None:
    assert part_in_flight(MoveRow(WIDE, MoveState.SUBMITTED, attempt=1), seen) == expected


TARGETS = {
    "the whole": (partition((4, 5, 6, 1, 2, 3), adding=(4, 5, 6), removing=(1, 2, 3)), (4, 5, 6)),
    "a stage": (partition((2, 3, 1, 5, 4), adding=(5,)), (2, 3, 1, 5, 4)),
    "someone's removal": (partition((1, 2, 3, 4, 7), removing=(7,)), None),
    "another order": (partition((6, 5, 4, 1, 2, 3), adding=(4, 5, 6), removing=(1, 2, 3)), None),
    "a stage in its order": (partition((1, 2, 3, 4), adding=(4,)), (1, 2, 3, 4)),
    "someone's addition": (partition((1, 2, 3, 7), adding=(7,)), None),
    "at rest": (partition((4, 5, 6)), None),
    "a completed stage, shown late": (partition((2, 3, 4, 5, 6, 1), removing=(1,)), (2, 3, 4, 5, 6)),
}


@pytest.mark.parametrize(("seen", "target"), TARGETS.values(), ids=TARGETS)
def test_only_its_own_targets_are_recognized_in_flight(seen: Partition, target: Assignment | None) -> None:
    assert target_in_flight(WIDE, seen) == target


RETURNING = {
    "one": (partition((1, 2, 3, 4), removing=(4,)), True),
    "two": (partition((1, 2, 3, 4, 5), removing=(4, 5)), True),
    "all": (partition((1, 2, 3, 4, 5, 6), removing=(4, 5, 6)), True),
    "in another order": (partition((2, 1, 3, 4), removing=(4,)), False),
    "not its own": (partition((1, 2, 3, 7), removing=(7,)), False),
    "and more comes": (partition((1, 2, 3, 4, 5), adding=(5,), removing=(4, 5)), False),
    "not all": (partition((1, 2, 3, 4, 5), removing=(5,)), False),
}


@pytest.mark.parametrize(("seen", "back"), RETURNING.values(), ids=RETURNING)
def test_it_goes_back_when_only_what_arrived_is_let_go_of(seen: Partition, back: bool) -> None:
    assert is_rolling_back(WIDE, seen) is back


def test_a_submission_says_how_many_new_replicas_there_will_be() -> None:
    assert [stage_number(WIDE, target) for target in ((1, 2, 3), (1, 2, 3, 4), (4, 5, 6))] == [0, 1, 4]
    assert [stage_text(WIDE, stage) for stage in (0, 1)] == ["", "1 of 3 new replicas"]
    assert stage_text(WIDE, 3) == stage_text(WIDE, 4) == "3 of 3 new replicas", "the last stage only removes"


# the whole way


def test_a_move_of_three_replicas_is_three_reassignments_that_add_one_each(simulator: Simulator) -> None:
    world = world_of(simulator, settings=Settings(throttle=80, one_replica_at_a_time=True))
    widest, listed, told = 0, set(), list[int]()

    def wait(_: float) -> None:
        nonlocal widest
        widest = max(widest, len(simulator.topics[T0].adding))
        listed.add(simulator.topic_settings["t"].get(FOLLOWERS))
        simulator.tick()

    progress = run_to_end(
        world.runner.step, wait, DrivePolicy(interval_s=lambda: 1, report=lambda one: told.append(one.bytes_done))
    )
    assert (progress.status, world.replicas("t-0"), widest) == (PlanStatus.COMPLETED, (4, 5, 6), 1)
    assert submitted(world) == [
        ([1, 2, 3], [1, 2, 3, 4]),
        ([1, 2, 3, 4], [1, 2, 3, 4, 5]),
        ([1, 2, 3, 4, 5], [4, 5, 6]),
    ]
    assert listed == {"0:4", "0:5", "0:6"}, "each is throttled while it is copied, and no longer"
    assert world.throttles() == world.leases() == []
    row = world.row("t-0")
    assert (row.move, row.state, row.attempt) == (world.moves[0], MoveState.COMPLETED, 3)
    assert progress.bytes_done == progress.bytes_total == 900
    assert told == sorted(told)


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


def test_a_pending_replica_stays_pending_while_its_fill_rests_halfway() -> None:
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
    (replica,) = list_pending(journal, simulator.snapshot())
    assert (replica.state, replica.missing) == (PendingState.OPEN, 1)
    world.run()
    assert [replica.state for replica in list_pending(journal, simulator.snapshot())] == [PendingState.SETTLED]


def test_a_heal_of_two_replicas_adds_both_at_once(simulator: Simulator) -> None:
    simulator.kill(1)
    simulator.kill(2)
    world = World(simulator, memory_journal(simulator), [move("t-0", "123", "453")], settings=ONE)
    world.run()
    assert submitted(world) == [([1, 2, 3], [4, 5, 3])]


def test_what_the_setting_was_when_it_began_does_not_bind_who_goes_on(simulator: Simulator) -> None:
    world = world_of(simulator)
    to_the_second_stage(world)
    world.settings = Settings(throttle=0)
    world.runner = world.new_runner()
    assert world.run().status is PlanStatus.COMPLETED
    assert submitted(world)[-1] == ([1, 2, 3, 4, 5], [4, 5, 6])
    assert world.replicas("t-0") == (4, 5, 6)


def test_between_two_stages_the_switch_holds_and_the_move_goes_on_after(simulator: Simulator) -> None:
    world = world_of(simulator)
    to_halfway(world)
    delete(world.journal, paths.REASSIGN_CANCEL)
    assert world.run().status is PlanStatus.COMPLETED
    assert world.replicas("t-0") == (4, 5, 6)


# cancel and rollback


def take_back(world: World, *, even_if_disabled: bool = False) -> int:
    """Roll the whole plan back; the most replicas that were being added to the partition at once."""
    undo = undo_of(world, settings=ONE, even_if_disabled=even_if_disabled)
    widest = 0
    for _ in range(60):
        if undo.step().ended:
            break
        widest = max(widest, len(world.simulator.topics[T0].adding))
        world.simulator.tick()
    return widest


@pytest.mark.parametrize("reach", [to_the_second_stage, to_the_last_stage, to_halfway])
def test_a_cancel_ends_at_exactly_the_original_order(simulator: Simulator, reach: Callable[[World], None]) -> None:
    world = world_of(simulator)
    reach(world)
    request_cancel(world.journal, world.digest, who=WHO, reason="enough")
    assert world.run().status is PlanStatus.CANCELLED
    assert (world.replicas("t-0"), simulator.topics[T0].reassigning) == ((1, 2, 3), False)
    assert [(row.state, row.detail) for row in world.rows()] == [(MoveState.DROPPED, "cancelled: enough")]
    assert verify_undone(simulator, world.journal, world.digest).ok


def test_a_cancel_between_two_stages_that_cannot_go_back_can_be_rolled_back_later(
    simulator: Simulator,
) -> None:
    world = world_of(simulator)
    to_halfway(world)
    simulator.kill(1)
    request_cancel(world.journal, world.digest, who=WHO, reason="enough")
    assert world.run().status is PlanStatus.CANCELLED
    assert world.replicas("t-0") == (1, 2, 3, 4)
    verified = verify_undone(simulator, world.journal, world.digest)
    why = "its original broker 1 is not live, so it keeps the replicas [1, 2, 3, 4]"
    assert [each.why for each in verified.left_alone] == [why]
    simulator.restart(1)
    simulator.tick()
    take_back(world, even_if_disabled=True)
    assert world.replicas("t-0") == (1, 2, 3)


def test_a_whole_plan_goes_back_one_replica_at_a_time_too(simulator: Simulator) -> None:
    world = world_of(simulator)
    world.run()
    widest = take_back(world)
    assert (world.replicas("t-0"), widest) == ((1, 2, 3), 1)
    assert verify_undone(simulator, world.journal, world.digest).ok


# others, and deaths


def test_after_an_external_cancel_of_a_stage_the_move_fails_and_the_stages_before_it_are_undone(
    simulator: Simulator,
) -> None:
    world = world_of(simulator)
    to_the_second_stage(world)
    world.step()
    simulator.cancel([T0])
    progress = world.run()
    assert progress.status is PlanStatus.FAILED
    assert (world.replicas("t-0"), world.row("t-0").detail) == ((1, 2, 3), "someone else cancelled it")


@pytest.mark.parametrize(
    ("reach", "settings", "theirs", "state"),
    [
        pytest.param(to_the_second_stage, ONE, (1, 2, 7), MoveState.FAILED, id="in a stage"),
        pytest.param(to_halfway, ONE, (7, 2, 3), MoveState.DROPPED, id="between two stages"),
        pytest.param(World.step, Settings(throttle=0), (1, 2, 3, 4), MoveState.FAILED, id="a stop, without the option"),
    ],
)
def test_what_someone_else_makes_of_it_is_theirs(
    simulator: Simulator, reach: Callable[[World], object], settings: Settings, theirs: Assignment, state: MoveState
) -> None:
    world = world_of(simulator, settings=settings)
    reach(world)
    simulator.cancel([T0])
    simulator.alter({T0: theirs})
    simulator.run()
    world.run()
    assert (world.replicas("t-0"), world.row("t-0").state) == (theirs, state)


def test_a_target_that_dies_in_its_stage_is_waited_for_at_the_originals(simulator: Simulator) -> None:
    world = world_of(simulator)
    to_the_second_stage(world)
    simulator.kill(5)
    for _ in range(16):
        world.step()
        simulator.tick()
    assert (world.replicas("t-0"), world.states()) == ((1, 2, 3), {"t-0": "held"})
    simulator.restart(5)
    assert world.run().status is PlanStatus.COMPLETED
    assert world.replicas("t-0") == (4, 5, 6)


def test_a_target_that_dies_before_its_stage_holds_up_only_that(simulator: Simulator) -> None:
    world = world_of(simulator)
    world.step()
    simulator.kill(6)
    for _ in range(6):
        world.step()
        simulator.tick()
    assert (world.replicas("t-0"), world.states()) == ((1, 2, 3, 4), {"t-0": "held"})
    simulator.restart(6)
    assert world.run().status is PlanStatus.COMPLETED


def test_an_original_that_dies_in_the_middle_is_not_waited_for(simulator: Simulator) -> None:
    world = world_of(simulator)
    to_the_second_stage(world)
    simulator.kill(1)
    assert world.run().status is PlanStatus.COMPLETED
    assert submitted(world)[-1] == ([1, 2, 3, 4], [4, 5, 6])
    assert world.replicas("t-0") == (4, 5, 6)


def test_a_heal_in_between_counts_a_partition_at_rest_halfway_as_moving(simulator: Simulator, tmp_path: Path) -> None:
    world = world_of(simulator)
    to_halfway(world)
    begun = started_moves(world.journal)
    take_snapshot(simulator, str(tmp_path / "s"), failed=(), now_ms=1, begun=begun)
    (row,) = read_snapshot(str(tmp_path / "s")).partitions.to_pylist()
    assert (row["replicas"], row["adding"], row["target_rf"]) == ([1, 2, 3, 4], [4], 3)
    request_cancel(world.journal, world.digest, who=WHO, reason="enough")
    world.run()
    assert started_moves(world.journal) == {}


def test_a_partition_that_is_taken_out_halfway_goes_back_first(simulator: Simulator) -> None:
    world = world_of(simulator)
    to_halfway(world)
    with world.journal.step_lock("me") as fence:
        why = "a later document asks for something else"
        left = PartialCancel(simulator, world.journal, world.digest, why=why, who=WHO, fence=fence).run([T0])
    assert (left, world.replicas("t-0"), world.states()) == ({}, (1, 2, 3), {"t-0": "dropped"})
