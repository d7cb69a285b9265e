"""One added replica of a partition at a time (KIP-236's staggering), by option."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_steward.assignment import Assignment, Operation, TopicPartition
from kafka_steward.cluster.state import Partition
from kafka_steward.execution.cancelling import request_cancel
from kafka_steward.execution.decisions.owed import Standing
from kafka_steward.execution.decisions.strides import bound_for, halfway, next_stride, stops
from kafka_steward.execution.filling.creating import WantedTopic, create_topic
from kafka_steward.execution.filling.debtbook import debts
from kafka_steward.execution.snapshot import begun_moves, take_snapshot
from kafka_steward.execution.undoing.undo import Undo
from kafka_steward.execution.undoing.verifying import verify_undone
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action
from kafka_steward.journal.moves import MoveState
from kafka_steward.journal.plans import PlanStatus
from kafka_steward.planning.files.formats import read_snapshot
from kafka_steward.protocol.withdrawing import Withdrawal
from kafka_steward.settings import Settings
from tests.simulator import Simulator
from tests.worlds import FOLLOWERS, WHO, World, memory_journal, move

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


def to_the_second_stride(world: World) -> None:
    """4 has arrived, and 5 is on its way."""
    for _ in range(20):
        world.step()
        if world.simulator.topics[T0].adding == (5,):
            return
        world.simulator.tick()
    raise AssertionError("the second stride did not begin")


def to_halfway(world: World) -> None:
    """4 has arrived, and reassignments are switched off, so that 5 waits."""
    world.step()
    world.journal.tree.create(paths.REASSIGN_CANCEL, "")
    world.simulator.tick(4)
    world.step()
    assert (world.replicas("t-0"), world.states()) == ((1, 2, 3, 4), {"t-0": "held"})


# the decision


def partition(replicas: Assignment, *, isr: Assignment = (), adding: Assignment = ()) -> Partition:
    return Partition("t", 0, replicas, frozenset(isr or replicas), replicas[0], None, adding, ())


def test_the_originals_stay_until_the_last_replica_is_there() -> None:
    whole, live = move("t-0", "123", "456"), frozenset(range(1, 8))
    first = next_stride(whole, partition((1, 2, 3)), live)
    assert (first.before, first.after) == ((1, 2, 3), (1, 2, 3, 4))
    left = move("t-0", "12345", "456")
    assert next_stride(left, partition((1, 2, 3, 4, 5)), live) == left
    assert stops(whole) == [(1, 2, 3, 4), (1, 2, 3, 4, 5)]


def test_what_adds_one_replica_is_one_reassignment_as_ever() -> None:
    for whole in (move("t-0", "123", "423"), move("t-0", "123", "231"), move("t-0", "1234", "12")):
        assert next_stride(whole, partition(whole.before), frozenset(range(1, 8))) == whole
        assert stops(whole) == []


def test_a_replica_that_is_not_in_sync_or_dead_would_hang_a_stride_so_all_comes_at_once() -> None:
    whole, live = move("t-0", "123", "456"), frozenset(range(1, 8))
    assert next_stride(whole, partition((1, 2, 3), isr=(1, 2)), live) == whole
    assert next_stride(whole, partition((1, 2, 3)), live - {3}) == whole


def test_a_place_between_two_strides_is_told_from_every_other() -> None:
    whole = move("t-0", "123", "456")
    assert [halfway(whole, each) for each in ((1, 2, 3, 4), (5, 4, 3, 2, 1))] == [1, 2]
    others = [(1, 2, 3), (4, 5, 6), (1, 2, 3, 5), (1, 2, 4), (1, 2, 3, 4, 7), (1, 2, 3, 4, 5, 6)]
    assert [halfway(whole, each) for each in others] == [0] * len(others)
    assert bound_for(whole, partition((1, 2, 3, 4), adding=(4,))) == (1, 2, 3, 4)
    assert bound_for(whole, partition((1, 2, 3, 7), adding=(7,))) is None
    assert bound_for(whole, partition((1, 2, 3, 4))) is None


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


def test_what_is_owed_stays_owed_while_its_fill_rests_halfway() -> None:
    simulator = Simulator.of(BROKERS, mode="zookeeper")
    journal = memory_journal(simulator)
    for broker in range(2, 8):
        simulator.kill(broker)
    create_topic(simulator, journal, WantedTopic("t", 1, 3, {}), allowed=True, who=WHO)
    for broker in range(2, 8):
        simulator.restart(broker)
    world = World(simulator, journal, [move("t-0", "1", "123")], ONE, auto_generated=False, operation=Operation.FILL)
    world.step()
    simulator.tick()
    assert world.replicas("t-0") == (1, 2)
    (debt,) = debts(journal, simulator.snapshot())
    assert (debt.standing, debt.missing) == (Standing.OPEN, 1)
    world.run()
    assert [debt.standing for debt in debts(journal, simulator.snapshot())] == [Standing.SETTLED]


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


def test_a_cancel_in_a_stride_ends_at_exactly_the_original_order(simulator: Simulator) -> None:
    world = world_of(simulator)
    to_the_second_stride(world)
    request_cancel(world.journal, world.digest, who=WHO, reason="enough")
    assert world.run().status is PlanStatus.CANCELLED
    assert (world.replicas("t-0"), simulator.topics[T0].reassigning) == ((1, 2, 3), False)
    assert verify_undone(simulator, world.journal, world.digest).ok


def test_a_cancel_in_the_last_stride_which_loses_the_order_ends_there_too(simulator: Simulator) -> None:
    world = world_of(simulator)
    while simulator.topics[T0].adding != (6,):
        world.step()
        simulator.tick()
        world.step()
    request_cancel(world.journal, world.digest, who=WHO, reason="enough")
    assert world.run().status is PlanStatus.CANCELLED
    assert world.replicas("t-0") == (1, 2, 3)


def test_a_cancel_between_two_strides_lets_go_of_what_had_arrived(simulator: Simulator) -> None:
    world = world_of(simulator)
    to_halfway(world)
    request_cancel(world.journal, world.digest, who=WHO, reason="enough")
    assert world.run().status is PlanStatus.CANCELLED
    assert world.replicas("t-0") == (1, 2, 3)
    assert [(row.state, row.detail) for row in world.rows()] == [(MoveState.DROPPED, "cancelled: enough")]
    assert verify_undone(simulator, world.journal, world.digest).ok


def test_a_cancel_between_two_strides_that_cannot_go_back_says_so(simulator: Simulator) -> None:
    world = world_of(simulator)
    to_halfway(world)
    simulator.kill(1)
    request_cancel(world.journal, world.digest, who=WHO, reason="enough")
    assert world.run().status is PlanStatus.CANCELLED
    assert world.replicas("t-0") == (1, 2, 3, 4)
    verified = verify_undone(simulator, world.journal, world.digest)
    assert [each.why for each in verified.left_alone] == ["its original broker 1 is not live, so it keeps [1, 2, 3, 4]"]


def test_a_whole_plan_goes_back_one_replica_at_a_time_too(simulator: Simulator) -> None:
    world = world_of(simulator)
    world.run()
    undo = Undo(simulator, world.journal, world.digest, ONE, WHO, scope="plan", reason="as it was")
    widest = 0
    for _ in range(60):
        if undo.step().ended:
            break
        widest = max(widest, len(simulator.topics[T0].adding))
        simulator.tick()
    assert (world.replicas("t-0"), widest) == ((1, 2, 3), 1)
    assert verify_undone(simulator, world.journal, world.digest).ok


def test_an_abandoned_plan_that_rests_halfway_can_be_taken_back_later(simulator: Simulator) -> None:
    world = world_of(simulator)
    to_halfway(world)
    simulator.kill(1)
    request_cancel(world.journal, world.digest, who=WHO, reason="enough")
    world.run()
    simulator.restart(1)
    simulator.tick()
    undo = Undo(simulator, world.journal, world.digest, ONE, WHO, scope="plan", reason="all", even_if_disabled=True)
    for _ in range(30):
        if undo.step().ended:
            break
        simulator.tick()
    assert world.replicas("t-0") == (1, 2, 3)


# others, and deaths


def test_someone_elses_cancel_of_a_stride_is_heeded_and_the_strides_before_it_go_too(simulator: Simulator) -> None:
    world = world_of(simulator)
    to_the_second_stride(world)
    world.step()
    simulator.cancel([T0])
    progress = world.run()
    assert progress.status is PlanStatus.COMPLETED
    assert (world.replicas("t-0"), world.row("t-0").detail) == ((1, 2, 3), "someone else cancelled it")


def test_what_someone_else_asks_for_in_the_middle_is_theirs(simulator: Simulator) -> None:
    world = world_of(simulator)
    to_the_second_stride(world)
    simulator.cancel([T0])
    simulator.alter({T0: (1, 2, 7)})
    world.run()
    simulator.run()
    assert (world.replicas("t-0"), world.row("t-0").state) == ((1, 2, 7), MoveState.FAILED)


def test_what_someone_else_makes_of_it_between_two_strides_is_theirs(simulator: Simulator) -> None:
    world = world_of(simulator)
    to_halfway(world)
    simulator.alter({T0: (7, 2, 3)})
    simulator.run()
    world.run()
    assert (world.replicas("t-0"), world.row("t-0").state) == ((7, 2, 3), MoveState.DROPPED)


def test_without_the_option_a_stop_that_someone_else_makes_is_theirs(simulator: Simulator) -> None:
    world = world_of(simulator, settings=Settings(throttle=0))
    world.step()
    simulator.cancel([T0])
    simulator.alter({T0: (1, 2, 3, 4)})
    simulator.run()
    world.run()
    assert (world.replicas("t-0"), world.row("t-0").state) == ((1, 2, 3, 4), MoveState.FAILED)


def test_a_target_that_dies_in_its_stride_is_waited_for_at_the_originals(simulator: Simulator) -> None:
    world = world_of(simulator)
    to_the_second_stride(world)
    simulator.kill(5)
    for _ in range(6):
        world.step()
        simulator.tick()
    assert (world.replicas("t-0"), world.states()) == ((1, 2, 3), {"t-0": "held"})
    simulator.restart(5)
    assert world.run().status is PlanStatus.COMPLETED
    assert world.replicas("t-0") == (4, 5, 6)


def test_a_target_that_dies_before_its_stride_holds_up_only_that(simulator: Simulator) -> None:
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
    to_the_second_stride(world)
    simulator.kill(1)
    assert world.run().status is PlanStatus.COMPLETED
    assert submitted(world)[-1] == ([1, 2, 3, 4], [4, 5, 6])
    assert world.replicas("t-0") == (4, 5, 6)


def test_a_heal_in_between_counts_a_partition_at_rest_halfway_as_moving(simulator: Simulator, tmp_path: Path) -> None:
    world = world_of(simulator)
    to_halfway(world)
    begun = begun_moves(world.journal)
    take_snapshot(simulator, str(tmp_path / "s"), failed=(), now_ms=1, begun=begun)
    (row,) = read_snapshot(str(tmp_path / "s")).partitions.to_pylist()
    assert (row["replicas"], row["adding"], row["target_rf"]) == ([1, 2, 3, 4], [4], 3)
    request_cancel(world.journal, world.digest, who=WHO, reason="enough")
    world.run()
    assert begun_moves(world.journal) == {}


def test_a_partition_that_is_taken_out_halfway_goes_back_first(simulator: Simulator) -> None:
    world = world_of(simulator)
    to_halfway(world)
    with world.journal.step_lock("me") as fence:
        why = "a later document asks for something else"
        left = Withdrawal(simulator, world.journal, world.digest, why=why, who=WHO, fence=fence).run([T0])
    assert (left, world.replicas("t-0"), world.states()) == ({}, (1, 2, 3), {"t-0": "dropped"})
