"""What is added one by one is cancelled, taken back, changed by others, or loses a broker on its way."""

from __future__ import annotations

from pathlib import Path

from kafka_steward.document_api.request_intake import PartialCancel
from kafka_steward.execution.lifecycle import request_cancel
from kafka_steward.execution.snapshot import begun_moves, take_snapshot
from kafka_steward.execution.undo_verification import verify_undone
from kafka_steward.journal.records import MoveState, PlanStatus
from kafka_steward.planning.files.formats import read_snapshot
from kafka_steward.settings import Settings
from tests.cancelling import CancelRunner
from tests.execution.staged_moves import ONE, T0, simulator, submitted, to_halfway, to_the_second_stride, world_of
from tests.simulated_plan import WHO, World
from tests.simulator import Simulator

__all__ = ["simulator"]


def take_back(world: World, **more: bool) -> int:
    """Roll the whole plan back; the most replicas that were being added to the partition at once."""
    undo = CancelRunner(
        world.simulator, world.journal, world.digest, ONE, WHO, scope="plan", reason="as it was", **more
    )
    widest = 0
    for _ in range(60):
        if undo.step().ended:
            break
        widest = max(widest, len(world.simulator.topics[T0].adding))
        world.simulator.tick()
    return widest


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
    why = "its original broker 1 is not live, so it keeps the replicas [1, 2, 3, 4]"
    assert [each.why for each in verified.left_alone] == [why]


def test_a_whole_plan_goes_back_one_replica_at_a_time_too(simulator: Simulator) -> None:
    world = world_of(simulator)
    world.run()
    widest = take_back(world)
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
    take_back(world, even_if_disabled=True)
    assert world.replicas("t-0") == (1, 2, 3)


# others, and deaths


def test_someone_elses_cancel_of_a_stride_is_heeded_and_the_strides_before_it_go_too(simulator: Simulator) -> None:
    world = world_of(simulator)
    to_the_second_stride(world)
    world.step()
    simulator.cancel([T0])
    progress = world.run()
    assert progress.status is PlanStatus.FAILED
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
        left = PartialCancel(simulator, world.journal, world.digest, why=why, who=WHO, fence=fence).run([T0])
    assert (left, world.replicas("t-0"), world.states()) == ({}, (1, 2, 3), {"t-0": "dropped"})
