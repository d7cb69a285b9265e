"""Cancel and rollback of a plan (KIP-236) to their end, whoever steps them and whatever is in the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import ClusterError, KafkaRefused, KafkaTimeout, PlanError
from kafka_steward.execution.moves.in_flight import list_in_flight
from kafka_steward.execution.moves.progress import Progress
from kafka_steward.execution.moves.skips import SkippedPartition
from kafka_steward.execution.plans.drive import DrivePolicy, run_to_end
from kafka_steward.execution.plans.lifecycle import (
    Scope,
    abandon_plan,
    change_plan_throttle,
    purge_old_plans,
    request_cancel,
    throttle_message,
)
from kafka_steward.execution.plans.rollback import find_unfinished_cancels, publish_rollback
from kafka_steward.execution.plans.undo_verification import UndoVerification, find_unrestored_partitions, verify_undone
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.throttles.rates import ThrottleSide
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Outcome
from kafka_steward.journal.mailbox import read_one
from kafka_steward.journal.records import RELEASED_THROTTLES, Cause, MoveRow, MoveState, Phase, PlanStatus
from kafka_steward.settings import Settings
from tests.cancelling import CancelRunner, undo_of
from tests.documents import create_document
from tests.present import present
from tests.simulated_plan import RATE, WHO, World, memory_journal, move
from tests.simulator import Simulator

T0 = TopicPartition("t", 0)
MODES = ("kraft", "zookeeper")
BEFORE = ["123", "231", "312", "213"]
AFTER = ["423", "431", "342", "214"]
ORIGINALS = [(1, 2, 3), (2, 3, 1), (3, 1, 2), (2, 1, 3)]
RULES = Settings(throttle=80, max_in_per_broker=2)


@pytest.fixture(params=MODES)
def world(request: pytest.FixtureRequest) -> World:
    """Four moves, of which the first is done, two are in flight and one waits."""
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 231 312 213", mode=request.param, size=1000)
    simulator.topics[TopicPartition("t", 0)].size = 50
    pairs = enumerate(zip(BEFORE, AFTER, strict=True))
    moves = [move(f"t-{n}", before, after, position=n, size=1000) for n, (before, after) in pairs]
    made = World(simulator, memory_journal(simulator), moves, settings=RULES, auto_generated=False)
    made.step()
    simulator.tick(3)
    made.step()
    assert list(made.states().values()) == ["completed", "submitted", "submitted", "waiting"]
    return made


def undo(world: World, scope: Scope = "plan", **more: bool) -> CancelRunner:
    return undo_of(world, scope=scope, settings=Settings(throttle=5000), reason="too slow", **more)


def finished(world: World, stepper: CancelRunner, *, steps: int = 60) -> Progress:
    """Step and tick to the end; the bound is on work."""
    left = iter(range(steps))

    def wait(_: float) -> None:
        next(left)
        world.simulator.tick()

    progress = run_to_end(stepper.step, wait, DrivePolicy(interval_s=lambda: 1))
    assert progress.ended, progress
    return progress


def replicas(world: World) -> list[tuple[int, ...]]:
    return [world.replicas(f"t-{n}") for n in range(4)]


def cancelled(world: World) -> None:
    """Step the plan until its cancel has ended; its rollback is still to follow."""
    while not world.record().status.finished:
        world.step()
        world.simulator.tick()
    assert world.record().status is PlanStatus.CANCELLED


def land(world: World) -> None:
    """Let the plan end by itself."""
    world.simulator.bandwidth = 5000
    world.settings = Settings(throttle=0)
    world.runner = world.new_runner()
    assert world.run().status is PlanStatus.COMPLETED
    assert replicas(world)[0] == (4, 2, 3)


def is_as_it_was(world: World) -> None:
    assert replicas(world) == ORIGINALS
    assert (world.throttles(), world.leases(), world.journal.slot.holders()) == ([], [], ())
    assert world.record().status is PlanStatus.ROLLED_BACK
    assert find_unfinished_cancels(world.journal) == []


def test_in_the_middle_everything_goes_back_order_and_throttles_included(world: World) -> None:
    stepper = undo(world)
    progress = finished(world, stepper)
    assert (progress.status, progress.digest) == (PlanStatus.ROLLED_BACK, world.digest)
    back = str(stepper.rollback)
    assert progress.sentence == (
        f"Plan {world.digest[:12]} was cancelled by ada (too slow), and rolled back by plan {back[:12]}: what "
        "it had begun to move has its original replicas."
    )
    assert world.record(back).reason.endswith("is complete: 1 of 1 partition moved.")
    assert stepper.left_alone == ()
    is_as_it_was(world)


def test_a_throttle_that_was_released_and_is_set_is_found_as_long_as_its_plan_is_kept(world: World) -> None:
    finished(world, undo(world))
    settings, key = world.simulator.topic_settings["t"], ThrottleSide.FOLLOWER.replicas_key
    settings[key] = "1:4,3:3"  # the second is somebody else's
    found = verify_undone(world.simulator, world.journal, world.digest)
    assert (found.ok, found.throttles) == (False, (f"{key} of t has 1:4",))
    assert len(world.journal.rows(RELEASED_THROTTLES).all()) == 3, "two of the plan's, and its rollback's"
    world.simulator.now_ms += 366 * 86_400_000
    purge_old_plans(world.journal, RULES)
    assert world.journal.rows(RELEASED_THROTTLES).all() == []


def test_a_live_broker_that_does_not_say_what_it_keeps_is_no_proof(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished(world, undo(world))
    assert verify_undone(world.simulator, world.journal, world.digest).ok
    monkeypatch.setattr(world.simulator, "log_dirs", lambda _: {})
    found = verify_undone(world.simulator, world.journal, world.digest)
    assert (found.ok, found.wrong[0].why) == (False, "broker 4 does not report whether it still has a log of it")
    world.simulator.kill(4)
    assert verify_undone(world.simulator, world.journal, world.digest).ok


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({}, None),
        ({"replicas": (3, 2, 1)}, "its replicas are [3, 2, 1] and were [1, 2, 3]"),
        ({"adding": (4,), "replicas": (1, 2, 3, 4)}, "it is still being reassigned"),
        ({"leader": 4}, "its leader is 4, which is none of its replicas [1, 2, 3]"),
    ],
)
def test_what_is_not_as_it_was_is_named_with_the_difference(changed: dict[str, Any], why: str | None) -> None:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123")
    snapshot = simulator.snapshot()
    name, there = next(iter(snapshot.partitions.items()))
    seen = replace(snapshot, partitions={name: replace(there, **changed)})
    row = MoveRow(move("t-0", "123", "423"))
    dirs = simulator.log_dirs([4])
    assert [each.why for each in find_unrestored_partitions([row], seen, dirs)] == ([why] if why else [])
    kept = {4: replace(dirs[4], replica_bytes={name: 5})}
    first = why or "broker 4 still has a log of it"
    assert [each.why for each in find_unrestored_partitions([row], seen, kept)] == [first]


def test_what_never_reached_kafka_is_not_said_to_be_back(monkeypatch: pytest.MonkeyPatch) -> None:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123")
    monkeypatch.setattr(simulator, "broker_rates", lambda _, keys: {key: {} for key in keys})
    world = World(
        simulator, memory_journal(simulator), [move("t-0", "123", "423")], settings=RULES, auto_generated=False
    )
    assert world.step().sentence == "Broker 4 does not respond, so its throttle cannot be set."
    monkeypatch.undo()
    (row,) = world.rows()
    assert (row.state, row.attempt, row.may_have_started) == (MoveState.WAITING, 1, False)
    assert list_in_flight(world.journal.mailbox) == {}
    finished(world, undo(world))
    found = verify_undone(simulator, world.journal, world.digest)
    assert (found.ok, found.returned) == (True, ())
    assert found.sentence == f"Plan {world.digest[:12]} had started to move nothing that can go back."


def test_a_move_may_have_begun_unless_kafka_refused_all_that_was_sent_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123")
    moves = [move("t-0", "123", "423")]
    world = World(simulator, memory_journal(simulator), moves, settings=RULES, auto_generated=False)
    name, error = TopicPartition("t", 0), KafkaRefused(39, "INVALID_REPLICA_ASSIGNMENT", "It is refused.")

    def answers(answer: dict[TopicPartition, KafkaRefused] | ClusterError) -> tuple[int, int, bool]:
        """Submit it once more, with this answer."""
        with monkeypatch.context() as patch:
            patch.setattr(simulator, "alter", Mock(side_effect=[answer]))
            world.step()
        (row,) = world.rows()
        return row.attempt, row.refused, row.may_have_started

    assert answers({name: error}) == (1, 1, False)
    assert answers(KafkaTimeout("no answer")) == (2, 1, True)
    assert answers({name: error}) == (3, 2, True)
    world.step()
    (row,) = world.rows()
    assert (row.attempt, row.refused, row.phase) == (4, 0, Phase.ACCEPTED)


def test_what_never_reached_kafka_is_no_part_that_was_reverted(monkeypatch: pytest.MonkeyPatch) -> None:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123", "gone: 123")
    monkeypatch.setattr(simulator, "broker_rates", lambda _, keys: {key: {} for key in keys})
    moves = [move("t-0", "123", "423"), move("gone-0", "123", "423", position=1)]
    world = World(simulator, memory_journal(simulator), moves, settings=RULES, auto_generated=False)
    world.step()
    monkeypatch.undo()
    assert [row.attempt for row in world.rows()] == [1, 1]
    simulator.delete("gone")
    finished(world, undo(world))
    plan = present(world.journal.plans.get(world.digest))
    reason = "not reverted: its partition was left alone, and it had moved none"
    assert (plan.status, plan.reason, plan.not_rolled_back) == (PlanStatus.CANCELLED, reason, 1)


def test_what_is_pending_alone_leaves_what_was_complete(world: World) -> None:
    stepper = undo(world, "pending")
    assert finished(world, stepper).status is PlanStatus.CANCELLED
    assert replicas(world) == [(4, 2, 3), *ORIGINALS[1:]]
    assert stepper.rollback is None
    assert find_unfinished_cancels(world.journal) == []
    # The same task's next try finds it done; another plan's end is no cancel.
    assert finished(world, undo(world, "pending")).status is PlanStatus.CANCELLED


def test_a_plan_that_had_ended_goes_back_straight_away(world: World) -> None:
    land(world)
    with pytest.raises(PlanError, match="cannot be cancelled: it has already ended"):
        undo(world, "pending").step()
    finished(world, undo(world))
    is_as_it_was(world)
    rollback = world.record().rolled_back_by
    again = finished(world, undo(world))
    assert (again.status, world.record().rolled_back_by) == (PlanStatus.ROLLED_BACK, rollback)


def test_another_process_goes_on_between_the_cancel_and_the_rollback(world: World) -> None:
    request_cancel(world.journal, world.digest, who=WHO, reason="all of it", scope="plan")
    cancelled(world)
    assert [each.digest for each in find_unfinished_cancels(world.journal)] == [world.digest]
    finished(world, undo(world))
    is_as_it_was(world)


def test_the_cancel_does_not_wait_for_the_cluster_and_the_rollback_does(world: World) -> None:
    world.publish("f" * 64, [])
    world.journal.plans.update(world.record("f" * 64), auto_generated=True)
    world.journal.slot.preempt_with("f" * 64)
    stepper = undo(world)
    for _ in range(12):
        progress = stepper.step()
        world.simulator.tick()
    assert not progress.ended
    assert not progress.waits_for_person
    assert "plan ffffffffffff holds the plan slot" in progress.sentence
    assert (progress.partitions_settled, progress.partitions_total, progress.bytes_done) == (0, 1, 0), "not 100 %"
    assert replicas(world) == [(4, 2, 3), *ORIGINALS[1:]]
    world.journal.slot.release("f" * 64)
    finished(world, stepper)
    is_as_it_was(world)


def test_a_rollback_that_makes_way_for_a_heal_goes_on_after_it(world: World) -> None:
    land(world)
    stepper = undo(world)
    stepper.step()
    world.journal.slot.preempt_with("f" * 64)
    back = world.record(stepper.rollback)
    world.journal.plans.update(back, status=PlanStatus.PREEMPTED, reason="it made way")
    progress = stepper.step()
    assert not progress.waits_for_person
    world.journal.slot.release("f" * 64)
    world.journal.plans.update(world.record(stepper.rollback), status=PlanStatus.RUNNING)
    finished(world, stepper)
    is_as_it_was(world)


def test_the_rate_that_was_requested_for_a_plan_is_that_of_its_rollback_and_can_be_changed(world: World) -> None:
    """Before its rollback is published, and while it runs."""
    land(world)
    for partition in world.simulator.topics.values():
        partition.size = 100_000
    request_cancel(world.journal, world.digest, who=WHO, reason="enough", scope="plan")
    change_plan_throttle(world.journal, world.digest, 30, WHO, "peak hour")
    stepper = undo(world)
    world.simulator.tick()
    stepper.step()
    back = str(world.record().rolled_back_by)
    assert world.record(back).throttle == 30
    stepper.step()
    assert set(rates(world).values()) == {"30"}
    changed = change_plan_throttle(world.journal, world.digest, 70, WHO, "the peak is over")
    assert (changed.digest, world.record().throttle) == (back, 30)
    assert throttle_message(world.journal, changed, ()).startswith(
        f"Plan {back[:12]}, which rolls back plan {world.digest[:12]}: 70 bytes/s into one broker, from its "
        "next step on. 70 bytes/s limit nothing"
    )
    stepper.step()
    assert set(rates(world).values()) == {"70"}
    for partition in world.simulator.topics.values():
        partition.size = 10
    finished(world, stepper)
    is_as_it_was(world)
    with pytest.raises(PlanError, match="has already ended"):
        change_plan_throttle(world.journal, world.digest, 5, WHO, "too late")


def rates(world: World) -> dict[int, str]:
    return {broker: of[RATE] for broker, of in world.simulator.broker_settings.items() if RATE in of}


def test_a_switched_off_cluster_cancels_and_rolls_back_only_if_that_was_asked_for(world: World) -> None:
    create_document(world.journal.mailbox, paths.REASSIGN_CANCEL, "")
    stepper = undo(world)
    for _ in range(12):
        progress = stepper.step()
        world.simulator.tick()
    assert world.record().status is PlanStatus.CANCELLED
    assert "reassignments are disabled" in progress.sentence
    assert not progress.waits_for_person
    finished(world, undo(world, even_if_disabled=True))
    is_as_it_was(world)


def test_what_a_person_gave_up_is_cancelled_too(world: World) -> None:
    abandon_plan(world.journal, world.digest, WHO, "nobody knows")
    assert world.simulator.reassignments()
    finished(world, undo(world))
    is_as_it_was(world)


def test_a_rollback_that_was_cancelled_itself_can_be_asked_for_again(world: World) -> None:
    land(world)
    stepper = undo(world)
    stepper.step()
    assert stepper.rollback is not None
    request_cancel(world.journal, stepper.rollback, who=WHO, reason="no, leave it")
    progress, first = finished(world, stepper), stepper.rollback
    assert (progress.status, world.record().status) == (PlanStatus.COMPLETED, PlanStatus.COMPLETED)
    assert progress.sentence.startswith(
        f"The rollback of plan {world.digest[:12]} was itself cancelled or abandoned: Plan {first[:12]}"
    )
    assert find_unfinished_cancels(world.journal) == []
    again = undo(world)
    finished(world, again)
    assert again.rollback != first
    is_as_it_was(world)


def test_what_kafka_did_after_it_was_given_up_on_is_taken_back(world: World) -> None:
    # The answer to t-3's submission was lost, and Kafka applied it after the plan had been cancelled.
    land(world)
    name = TopicPartition("t", 3)
    world.journal.plans.set_move_states(world.digest, [name], MoveState.DROPPED, "given up", fence=None)
    finished(world, undo(world))
    is_as_it_was(world)


def test_what_is_left_alone_is_listed_by_any_process(world: World) -> None:
    land(world)
    world.simulator.alter({TopicPartition("t", 0): (2, 3, 4)})
    finished(world, undo(world))
    assert undo(world).left_alone == (SkippedPartition("t", 0, "someone else changed its replicas to [2, 3, 4]"),)
    assert replicas(world)[1:] == ORIGINALS[1:]
    # It is not rolled back as a whole, and says how much is not.
    assert (world.record().status, world.record().not_rolled_back) == (PlanStatus.COMPLETED, 1)
    assert world.record().reason.endswith("1 partition left alone")
    assert find_unfinished_cancels(world.journal) == []


def test_a_rollback_of_which_nothing_moves_has_ended_and_leaves_its_partitions_alone(world: World) -> None:
    land(world)
    world.simulator.bandwidth = 1
    stepper = undo(world)
    stepper.step()
    for n in range(4):
        world.simulator.cancel([TopicPartition("t", n)])
        world.simulator.alter({TopicPartition("t", n): (1, 2, 3, 4)})
    world.simulator.bandwidth = 5000
    finished(world, stepper)
    rollback = str(stepper.rollback)
    assert world.record(rollback).status is PlanStatus.FAILED
    assert [(each.topic, each.partition) for each in stepper.left_alone] == [("t", n) for n in range(4)]
    assert (world.record().status, world.record().not_rolled_back) == (PlanStatus.COMPLETED, 4)
    assert world.record().reason == "not reverted: all 4 partitions were left alone"
    assert find_unfinished_cancels(world.journal) == []
    # Asked for again, it finds nothing more that can go back, and publishes no further rollback of the same moves.
    again = undo(world)
    finished(world, again)
    assert again.rollback == rollback


def test_what_needed_a_dead_broker_goes_back_when_asked_again_after_its_return(world: World) -> None:
    land(world)
    world.simulator.kill(1)
    finished(world, undo(world))
    assert [each.why for each in undo(world).left_alone] == ["its original broker 1 is not live"] * 4
    assert world.record().status is PlanStatus.COMPLETED
    back = world.record(world.record().rolled_back_by)
    assert (back.left, len(world.journal.audit.rows(plan=back.digest, action="skip"))) == (4, 4)
    assert back.reason.endswith("it had nothing to move, 4 partitions left alone.")
    finished(world, undo(world))
    assert world.journal.plans.rows(str(world.record().rolled_back_by)) == []
    world.simulator.restart(1)
    finished(world, undo(world))
    is_as_it_was(world)
    assert undo(world).left_alone == ()


def test_two_processes_publish_one_rollback(world: World) -> None:
    land(world)
    both: list[Callable[[], Progress]] = [undo(world).step, undo(world).step]
    for turn in range(30):
        progress = both[turn % 2]()
        world.simulator.tick()
    assert progress.ended
    made = [each for each in world.journal.plans.latest(9) if each.rolls_back == world.digest]
    assert len(made) == 1
    is_as_it_was(world)


def test_what_was_taken_over_in_flight_is_named_and_not_counted_as_rolled_back(world: World) -> None:
    world.simulator.alter({TopicPartition("t", 1): (3, 1, 4)})
    world.simulator.run()
    world.step()
    assert world.states()["t-1"] == "failed"
    finished(world, undo(world))
    assert undo(world).left_alone == (SkippedPartition("t", 1, "someone else changed its replicas to [3, 1, 4]"),)
    assert world.record().status is PlanStatus.CANCELLED
    assert replicas(world) == [(1, 2, 3), (3, 1, 4), *ORIGINALS[2:]]
    assert not verify_undone(world.simulator, world.journal, world.digest).wrong


def test_what_a_later_plan_of_ours_changed_is_named_as_that_plans(world: World) -> None:
    land(world)
    moves = [move("t-0", "423", "234"), move("t-1", "431", "123", position=1)]
    later = World(world.simulator, world.journal, moves, auto_generated=False)
    assert later.run().status is PlanStatus.COMPLETED
    finished(world, undo(world))
    why = {each.partition: each.why for each in undo(world).left_alone}
    by = f"plan {later.digest[:12]} changed its replicas to"
    assert why == {0: f"{by} [2, 3, 4]", 1: f"{by} [1, 2, 3]"}


def test_a_plan_that_waits_says_which_plan_of_ours_changed_its_partition(world: World) -> None:
    later = World(world.simulator, world.journal, [move("t-3", "213", "431")], auto_generated=False)
    world.journal.slot.release(world.digest)
    world.simulator.bandwidth = 5000
    later.settings = Settings(throttle=0)
    later.runner = later.new_runner()
    assert later.run().status is PlanStatus.COMPLETED
    world.journal.slot.release(later.digest)
    world.run()
    assert world.row("t-3").detail == (
        f"t-3 was not moved: plan {later.digest[:12]} changed its replicas to [4, 3, 1] since it was planned; make a "
        "new plan."
    )


def test_a_move_in_flight_that_another_plan_of_ours_takes_over_says_which(world: World) -> None:
    later = World(world.simulator, world.journal, [move("t-1", "231", "134")], auto_generated=False)
    world.journal.plans.set_move_states(
        later.digest, [TopicPartition("t", 1)], MoveState.SUBMITTED, fence=None, attempt=1
    )
    world.simulator.alter({TopicPartition("t", 1): (1, 3, 4)})
    world.step()
    assert world.row("t-1").detail == f"plan {later.digest[:12]} reassigned the partition"


def test_an_external_cancel_that_lost_the_order_is_reported(world: World) -> None:
    world.simulator.cancel([TopicPartition("t", 1)])
    lost = replicas(world)[1]
    assert lost != ORIGINALS[1]
    stepper = undo(world, "pending")
    finished(world, stepper)
    why = f"someone else cancelled it; its replicas are {list(lost)}, originally [2, 3, 1]"
    assert (stepper.left_alone, world.row("t-1").cause) == ((SkippedPartition("t", 1, why),), Cause.CANCELLED_ELSEWHERE)
    # Taking back the whole plan restores the order, too.
    finished(world, undo(world))
    is_as_it_was(world)


@pytest.mark.parametrize("scope", ["pending", "plan"])
def test_a_throttle_on_a_dead_broker_is_named_and_released_when_asked_again(world: World, scope: Scope) -> None:
    world.simulator.kill(4)
    stepper = undo(world, scope)
    finished(world, stepper)
    assert stepper.leased_brokers == [4]
    assert [rate for rate in world.throttles() if rate.startswith("4:")] == ["4:80"]
    world.simulator.restart(4)
    again = undo(world, scope)
    finished(world, again)
    assert again.leased_brokers == []
    assert (world.throttles(), world.leases()) == ([], [])


def test_a_second_rollback_that_must_leave_something_alone_says_so(world: World) -> None:
    finished(world, undo(world))
    is_as_it_was(world)
    # Kafka applies, much later, what it was asked for t-3; and someone dislikes what t-0 has.
    world.journal.plans.set_move_states(world.digest, [TopicPartition("t", 3)], MoveState.COMPLETED, fence=None)
    world.simulator.alter({TopicPartition("t", 3): (2, 1, 4), TopicPartition("t", 0): (4, 2, 1)})
    world.simulator.run()
    again = undo(world)
    finished(world, again)
    assert [each.partition for each in again.left_alone] == [0]
    assert (world.record().status, world.record().not_rolled_back) == (PlanStatus.CANCELLED, 1)
    assert replicas(world)[1:] == ORIGINALS[1:]
    assert find_unfinished_cancels(world.journal) == []


def test_the_time_of_submission_stays_whatever_is_written_later(world: World) -> None:
    submitted_ms = world.row("t-1").submitted_ms
    world.simulator.tick()
    world.step()
    request_cancel(world.journal, world.digest, who=WHO, reason="too slow")
    world.step()
    assert world.row("t-1").phase is Phase.CANCELLING
    assert world.row("t-1").submitted_ms == submitted_ms == world.row("t-0").submitted_ms


def test_what_is_pending_is_cancelled_and_exactly_as_it_was(world: World) -> None:
    request_cancel(world.journal, world.digest, who=WHO, reason="too slow")
    progress = world.run()
    assert progress.status is PlanStatus.CANCELLED
    assert replicas(world) == [(4, 2, 3), *ORIGINALS[1:]]
    assert world.states() == {"t-0": "completed", "t-1": "dropped", "t-2": "dropped", "t-3": "dropped"}
    assert (world.throttles(), world.leases(), world.journal.slot.holders()) == ([], [], ())
    assert read_one(world.journal.mailbox, "/admin/cancel_reassignment_in_progress") is None
    assert world.row("t-3").detail == "cancelled: too slow"
    became = f"Plan {world.digest[:12]} was cancelled by ada (too slow); 1 of 4 moves had completed, and stays."
    assert progress.sentence == became
    assert "is cancelled: 1 of 4 partitions moved, 3 dropped" in world.record().reason
    told = [row.entry for row in world.journal.audit.rows(plan=world.digest, action="cancel")]
    assert {entry.reason for entry in told} == {"cancelled: too slow"}


def test_the_cancel_of_another_plan_is_none_of_ours(world: World) -> None:
    create_document(world.journal.mailbox, "/admin/cancel_reassignment_in_progress", '{"version":1,"plan":"other"}')
    assert world.run().status is PlanStatus.COMPLETED
    with pytest.raises(PlanError, match="cannot be cancelled: it has already ended"):
        request_cancel(world.journal, world.digest, who=WHO, reason="late")


def test_a_cancel_that_comes_when_all_has_arrived_has_cancelled_nothing(world: World) -> None:
    world.simulator.bandwidth = 5000
    world.settings = Settings(throttle=0)
    world.runner = world.new_runner()
    world.step()
    world.simulator.tick(100)
    create_document(world.journal.mailbox, "/admin/cancel_reassignment_in_progress", "")
    assert world.run().status is PlanStatus.COMPLETED
    assert read_one(world.journal.mailbox, "/admin/cancel_reassignment_in_progress") is None


def test_a_second_request_is_the_same_request_and_another_plans_is_its_own(world: World) -> None:
    first = request_cancel(world.journal, world.digest, who=WHO, reason="one")
    assert request_cancel(world.journal, world.digest, who=WHO, reason="two") == first
    wider = request_cancel(world.journal, world.digest, who=WHO, reason="three", scope="plan")
    assert wider.cancel is not None
    assert (wider.cancel.scope, wider.cancel.reason) == ("plan", "three")
    assert request_cancel(world.journal, world.digest, who=WHO, reason="four") == wider
    world.publish("f" * 64, [])
    assert request_cancel(world.journal, "f" * 64, who=WHO, reason="me too").cancel is not None
    with pytest.raises(PlanError, match="there is no such plan"):
        request_cancel(world.journal, "0" * 64, who=WHO, reason="?")


def test_what_would_go_offline_stays_in_flight(world: World) -> None:
    simulator = world.simulator
    name = TopicPartition("t", 1)
    simulator.bandwidth = 2000
    world.settings = RULES
    simulator.topics[name].isr = {4}
    simulator.topics[name].leader = 4
    for broker in (2, 3, 1):
        simulator.topics[name].held[broker] = 0
    request_cancel(world.journal, world.digest, who=WHO, reason="stop")
    world.step()
    assert simulator.topics[name].reassigning
    told = world.journal.audit.rows(plan=world.digest, action="skip")
    assert told[0].entry.reason.startswith("KIP-236: none of the original replicas is in sync")
    world.run()


class Refusing:
    """A cluster whose controller cancels nothing while none of a partition's replicas is live."""

    WORDS = "Eligible topic partition leaders are not available."

    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator

    def __getattr__(self, name: str) -> Any:
        return getattr(self._simulator, name)

    def cancel(self, partitions: Any) -> Any:
        lost = [each for each in partitions if not {*self._simulator.topics[each].replicas} & self._simulator.alive]
        refusal = KafkaRefused(15, self.WORDS, f"Kafka refused: {self.WORDS}")
        answers = self._simulator.cancel([each for each in partitions if each not in lost])
        return answers | dict.fromkeys(lost, refusal)


@pytest.mark.parametrize("mode", MODES)
def test_where_all_is_offline_and_kafka_refuses_its_words_are_kept_and_it_is_tried_again(mode: str) -> None:
    simulator = Simulator.of("1a 2b 3c 4a 5b", "t: 123", mode=mode, size=1000)
    moves = [move("t-0", "123", "423", size=1000)]
    journal, cluster, rules = memory_journal(simulator), Refusing(simulator), replace(RULES, max_attempts=5)
    world = World(simulator, journal, moves, settings=rules, auto_generated=False, cluster=cluster)
    world.step()
    simulator.tick()
    request_cancel(world.journal, world.digest, who=WHO, reason="stop")
    for broker in (1, 2, 3, 4):
        simulator.kill(broker)
    for _ in range(3 * world.settings.max_attempts):
        assert not world.step().ended
        simulator.tick()
    (told,) = world.journal.audit.rows(plan=world.digest, action="cancel")
    assert (told.outcome, told.detail) == (Outcome.REFUSED, f"Kafka refused: {Refusing.WORDS}")
    for broker in (1, 2, 3, 4):
        simulator.restart(broker)
    assert world.run().status is PlanStatus.CANCELLED
    assert world.replicas("t-0") == (1, 2, 3)


def test_a_plan_that_runs_is_not_rolled_back(world: World) -> None:
    with pytest.raises(PlanError, match="cannot be rolled back: it has not ended: cancel it first"):
        publish_rollback(ClusterContext(world.simulator, world.journal, Settings(), WHO), world.digest)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("before", "after"), [("456123", "456"), ("123456", "563")])
def test_the_cancel_of_a_lowered_replication_factor_ends_with_the_originals(mode: str, before: str, after: str) -> None:
    simulator = Simulator.of("1a 2a 3a 4a 5a 6a", f"t: {before}", mode=mode, size=1000, bandwidth=1)
    behind(simulator, 4, 5, 6)
    world = World(simulator, memory_journal(simulator), [move("t-0", before, after)], auto_generated=False)
    world.step()
    simulator.tick()
    world.step()
    assert world.states() == {"t-0": "submitted"}, "Kafka waits for replicas that are out of sync"
    request_cancel(world.journal, world.digest, who=WHO, reason="test")
    assert world.run(steps=6).status is PlanStatus.CANCELLED
    assert world.replicas("t-0") == tuple(map(int, before))
    assert simulator.reassignments() == {}


def behind(simulator: Simulator, *brokers: int) -> None:
    """These brokers were dead while producers wrote as much again to each of their partitions."""
    for broker in brokers:
        simulator.kill(broker)
    for partition in simulator.topics.values():
        if set(brokers) & set(partition.replicas):
            partition.size *= 2
            partition.held |= dict.fromkeys(partition.isr, partition.size)
    for broker in brokers:
        simulator.restart(broker)


def test_a_cancel_ends_when_a_broker_of_the_originals_was_unregistered() -> None:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 41", size=1000)
    rules = Settings(throttle=20)
    world = World(simulator, memory_journal(simulator), [move("t-0", "41", "21")], settings=rules, auto_generated=False)
    world.step()
    simulator.tick()
    simulator.unregister(4)
    request_cancel(world.journal, world.digest, who=WHO, reason="stop")
    progress = world.run(steps=8)
    assert (progress.status, set(world.replicas("t-0"))) == (PlanStatus.CANCELLED, {1, 4})
    assert simulator.reassignments() == {}
    assert (world.throttles(), world.leases(), world.journal.slot.holders()) == ([], [], ())
    why = "cancelled, and its replicas are [1, 4], and Kafka refuses its original ones, [4, 1]"
    assert why in world.row("t-0").detail
    assert "broker 4" in world.row("t-0").detail
    found = verify_undone(simulator, world.journal, world.digest)
    assert found.ok, "there is nothing to wait for"
    assert [why in each.why for each in found.left_alone] == [True]


def test_a_rollback_ends_too_when_a_broker_of_the_originals_was_unregistered() -> None:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 41 23", size=100)
    moves = [move("t-0", "41", "14"), move("t-1", "23", "13", position=1)]
    world = World(simulator, memory_journal(simulator), moves, auto_generated=False)
    assert world.run().completed == 2
    simulator.unregister(4)
    request_cancel(world.journal, world.digest, who=WHO, reason="stop", scope="plan")
    progress = world.run(steps=12)
    assert progress.ended
    assert (world.replicas("t-0"), world.replicas("t-1")) == ((1, 4), (2, 3))
    assert ", 1 partition left alone." in progress.sentence
    found = verify_undone(simulator, world.journal, world.digest)
    (alone,) = found.left_alone
    assert ("not registered" in alone.why, found.ok) == (True, True)


@pytest.mark.parametrize("mode", MODES)
def test_a_rollback_restores_fewer_replicas_than_min_insync_replicas(mode: str) -> None:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 1", mode=mode)
    simulator.topic_settings["t"]["min.insync.replicas"] = "3"
    world = World(simulator, memory_journal(simulator), [move("t-0", "1", "12")], auto_generated=False)
    assert world.run().completed == 1
    request_cancel(world.journal, world.digest, who=WHO, reason="stop", scope="plan")
    assert world.run().status is PlanStatus.ROLLED_BACK
    assert world.replicas("t-0") == (1,)


@pytest.mark.parametrize("cordoned", [{1}, {1, 2}], ids=["one of two", "all"])
def test_a_cordoned_original_ends_the_rollback_and_the_same_command_restores_it_later(cordoned: set[int]) -> None:
    """KIP-1066: a cordon is somebody's word, and a cancel ends with what was restored and what was not."""
    simulator = Simulator.of("1a 2b 3c 4a", "t: 13 23")
    moves = [move("t-0", "13", "43"), move("t-1", "23", "43", position=1)]
    world = World(simulator, memory_journal(simulator), moves, auto_generated=False)
    world.run()
    simulator.cordoned |= cordoned
    for _ in range(2):  # the same command again changes nothing while the cordon is there
        finished(world, undo(world))
        alone = verify_undone(simulator, world.journal, world.digest).left_alone
        assert [(each.topic, each.partition) for each in alone] == [("t", broker - 1) for broker in sorted(cordoned)]
        why = "its original broker 1 is cordoned, so it keeps the replicas that it has; remove the directories of the"
        assert why in alone[0].why
        assert "from cordoned.log.dirs, and run the same command again" in alone[0].why
        assert [world.replicas(f"t-{n}") for n in (0, 1)] == [(4, 3), (2, 3) if cordoned == {1} else (4, 3)]
        assert world.record().not_rolled_back == len(cordoned)
    simulator.cordoned.clear()
    finished(world, undo(world))
    assert (world.replicas("t-0"), world.record().status) == ((1, 3), PlanStatus.ROLLED_BACK)


@pytest.mark.parametrize("purpose", ["log_dir_failed", "balance"])
def test_an_original_in_a_failed_log_directory_ends_the_rollback_and_is_restored_without_that_directory(
    purpose: str,
) -> None:
    simulator = Simulator.of("1a 2b 3c 4a 5b", "t: 123 231", size=50)
    moves = [replace(move("t-0", "123", "423"), purpose=purpose), move("t-1", "231", "531", position=1)]
    world = World(simulator, memory_journal(simulator), moves, settings=RULES, auto_generated=False)
    assert world.run().status is PlanStatus.COMPLETED
    simulator.failed_dirs[1] = ["/disk-2"]
    simulator.without_log.add((T0, 1))
    last = finished(world, undo(world), steps=100)
    assert (world.replicas("t-0"), world.replicas("t-1")) == ((4, 2, 3), (2, 3, 1))
    helps = "restart the broker without that directory (log.dirs), and run the same command again"
    (alone,) = verify_undone(simulator, world.journal, world.digest).left_alone
    assert helps in alone.why
    assert "1 partition left alone" in world.record().reason
    rollback = present(world.record().rolled_back_by)
    begun = any(row.attempt for row in world.journal.plans.rows(rollback) if row.topic_partition == T0)
    assert begun == (purpose == "balance"), "what is known before is not submitted"
    assert world.leases() == []
    assert last.status is PlanStatus.COMPLETED
    simulator.failed_dirs.clear()
    simulator.without_log.clear()
    finished(world, undo(world))
    assert world.replicas("t-0") == (1, 2, 3)
    assert world.record().status is PlanStatus.ROLLED_BACK


def test_of_a_topic_whose_deletion_is_pending_nobody_says_that_it_was_deleted() -> None:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 231", "u: 123", size=1000)
    moves = [move("t-0", "123", "423"), move("t-1", "231", "431", position=1), move("u-0", "123", "423", position=2)]
    settings = replace(RULES, max_in_flight=1)
    world = World(simulator, memory_journal(simulator), moves, settings=settings, auto_generated=False)
    world.step()
    simulator.deletions, simulator.unshown = {"t": {1, 2, 3}}, {"t"}
    assert world.run().status is PlanStatus.COMPLETED
    assert world.row("t-0").detail == "the deletion of its topic is pending"
    assert "t-1 was not moved: the deletion of its topic is pending." in world.row("t-1").detail
    (alone,) = present(publish_rollback(ClusterContext(simulator, world.journal, settings, WHO), world.digest))[
        1
    ].skipped
    assert alone[1] == "the deletion of its topic is pending"


def test_a_cancel_of_a_plan_that_began_nothing_counts_nothing() -> None:
    found = UndoVerification("d" * 64, None, "cancelled", 0, (), (), (), False, (), (), (), ("broker 4",))
    assert found.sentence == (
        "Plan dddddddddddd had started to move nothing that can go back; released on return, by the watch, the next "
        "run of heal, or the command verify: broker 4."
    )
