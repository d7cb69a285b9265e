"""The Runner on a simulated cluster, in the world as it is: brokers die and return, people and requests get lost."""

from __future__ import annotations

from functools import partial

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.execution.moves import HoldReason
from kafka_steward.journal.audit import Outcome
from kafka_steward.journal.records import Cause, PlanStatus
from kafka_steward.settings import Settings
from tests.execution.runs import apply, heal, simulator
from tests.simulated_plan import move
from tests.simulator import Simulator

__all__ = ["simulator"]


def test_the_failed_broker_comes_back_and_the_rest_is_dropped(simulator: Simulator) -> None:
    world = heal(simulator, settings=Settings(throttle=0, max_in_per_broker=2))
    world.step()
    simulator.restart(1)
    progress = world.run()
    assert list(world.states().values()) == ["completed"] * 2 + ["satisfied"] * 3
    assert world.replicas("t-0") == (4, 2, 3)
    assert world.replicas("t-2") == (3, 1, 2)
    assert progress.sentence.endswith("2 of 5 partitions moved, 3 no longer needed to move.")
    assert world.actions().count("skip") == 3


def test_what_a_person_asked_for_is_not_skipped_when_brokers_are_live(simulator: Simulator) -> None:
    world = apply(simulator, move("t-0", "123", "423"))
    world.run()
    assert world.replicas("t-0") == (4, 2, 3)


def test_a_target_that_died_before_is_held_with_a_sentence_and_nothing_changes(simulator: Simulator) -> None:
    world = heal(simulator)
    before = {name: each.replicas for name, each in simulator.topics.items()}
    simulator.kill(4)
    progress = world.step()
    assert {held.code for held in progress.held} == {HoldReason.TARGET_DEAD}
    assert progress.held[0].sentence == ("t-0 was not moved: target broker 4 is not live; it is retried.")
    assert progress.held[0].sentence in progress.sentence
    assert {name: each.replicas for name, each in simulator.topics.items()} == before
    assert "submit" not in world.actions()


def test_a_heal_hands_back_what_it_cannot_do_and_the_next_may_take_it(simulator: Simulator) -> None:
    world = heal(simulator, settings=Settings(throttle=0, max_attempts=3))
    simulator.kill(4)
    progress = world.run()
    assert progress.status is PlanStatus.FAILED
    assert progress.sentence.endswith("has failed: 0 of 5 partitions moved, 5 dropped, 5 still not fully replicated.")
    assert progress.dropped == 5
    assert progress.left == 5
    assert world.record().live_brokers == ()
    assert world.row("t-0").detail.startswith(
        "deferred to the next plan after 3 attempts: t-0 was not moved: target broker 4"
    )


def test_what_a_person_asked_for_is_stuck_and_keeps_the_cluster(simulator: Simulator) -> None:
    world = apply(simulator, move("t-0", "123", "423"), settings=Settings(throttle=0, max_attempts=3))
    simulator.kill(4)
    progress = world.run()
    assert progress.status is PlanStatus.STUCK
    assert progress.waits_for_person
    assert progress.sentence.startswith(
        f"Plan {world.digest[:12]} is stuck after 3 attempts and needs operator action: t-0"
    )
    assert world.journal.slot.holders() == (world.digest,)
    assert world.step().status is PlanStatus.STUCK


def test_a_target_that_dies_in_the_middle_is_rescued_in_order_and_goes_on_later(simulator: Simulator) -> None:
    world = apply(simulator, move("t-0", "123", "423", size=1000))
    simulator.topics[TopicPartition("t", 0)].size = 1000
    world.step()
    simulator.tick()
    simulator.kill(4)
    world.step()
    assert world.replicas("t-0") == (2, 3, 1), "Kafka's cancel loses the order"
    world.step()
    assert world.replicas("t-0") == (1, 2, 3)
    progress = world.step()
    assert progress.held[0].code is HoldReason.TARGET_DEAD
    assert world.states() == {"t-0": "held"}
    assert world.actions()[:4] == ["submit", "cancel", "reorder", "hold"]
    simulator.restart(4)
    world.run()
    assert world.replicas("t-0") == (4, 2, 3)
    assert world.row("t-0").attempt == 2


def test_a_kept_replica_that_dies_in_the_middle_is_rescued_too(simulator: Simulator) -> None:
    world = apply(simulator, move("t-0", "123", "423", size=1000))
    simulator.topics[TopicPartition("t", 0)].size = 1000
    world.step()
    simulator.kill(3)
    world.step()
    world.step()
    assert world.replicas("t-0") == (1, 2, 3)
    assert world.step().held[0].code is HoldReason.KEPT_REPLICA_DEAD


def test_a_move_whose_only_copy_in_sync_is_a_new_one_is_not_cancelled_when_a_target_dies(simulator: Simulator) -> None:
    world = apply(simulator, move("t-0", "123", "341", size=1000))
    flying = simulator.topics[TopicPartition("t", 0)]
    flying.size = 1000
    world.step()
    flying.isr.add(4)
    for broker in (1, 2, 3):
        simulator.kill(broker)
    assert (flying.isr, flying.leader) == ({4}, 4)
    world.step()
    assert (flying.isr, flying.leader, world.states()["t-0"]) == ({4}, 4, "submitted")
    for broker in (1, 2, 3):
        simulator.restart(broker)
    world.run()
    assert world.replicas("t-0") == (3, 4, 1)


def test_a_broker_that_announced_its_restart_is_waited_for(simulator: Simulator) -> None:
    world = apply(simulator, move("t-0", "123", "423", size=1000))
    simulator.topics[TopicPartition("t", 0)].size = 1000
    world.step()
    world.journal.tree.create("/admin/rolling_bounce/4", '{"timestamp": 5}')
    simulator.kill(4)
    world.step()
    assert simulator.reassignments()
    simulator.restart(4)
    world.run()
    assert world.replicas("t-0") == (4, 2, 3)


def test_nothing_starts_while_the_cluster_is_disabled(simulator: Simulator) -> None:
    world = heal(simulator, settings=Settings(throttle=0, max_attempts=2))
    node = world.journal.tree.create("/admin/reassign_cancel", "")
    for _ in range(5):
        progress = world.step()
    assert {held.code for held in progress.held} == {HoldReason.CLUSTER_DISABLED}
    assert "delete /admin/reassign_cancel" in progress.sentence
    world.journal.tree.delete(node.path, version=0)
    assert world.run().completed == 5


def test_a_topic_deleted_in_the_middle_is_dropped(simulator: Simulator) -> None:
    simulator.create("u", [(1, 2, 3)])
    world = heal(simulator, settings=Settings(throttle=50, max_in_per_broker=2))
    world.step()
    simulator.delete("t")
    progress = world.run()
    assert progress.status is PlanStatus.COMPLETED
    assert (progress.dropped, progress.completed, progress.left) == (5, 1, 0)
    assert world.row("t-0").detail == "the topic was deleted"
    assert world.row("t-4").detail == "t-4 was not moved: it no longer exists."
    assert world.borrowed() == []


def test_a_topic_created_anew_in_the_middle_is_left_alone(simulator: Simulator) -> None:
    world = heal(simulator, settings=Settings(throttle=0, max_in_per_broker=2))
    world.step()
    simulator.delete("t")
    simulator.create("t", [(2, 3, 4)] * 6)
    progress = world.run()
    assert progress.dropped == 5
    assert world.row("t-0").detail == "the topic was deleted and re-created"
    assert world.replicas("t-0") == (2, 3, 4)


def test_what_someone_else_moves_is_theirs(simulator: Simulator) -> None:
    world = apply(simulator, move("t-0", "123", "423"), move("t-1", "231", "234", position=1))
    simulator.alter({TopicPartition("t", 1): (2, 4, 1)})
    progress = world.step()
    assert progress.held[0].code is HoldReason.EXTERNAL_REASSIGNMENT
    simulator.alter({TopicPartition("t", 0): (4, 3, 1)})
    simulator.run()
    world.run()
    assert world.states() == {"t-0": "failed", "t-1": "dropped"}
    assert world.replicas("t-0") == (4, 3, 1)
    assert world.replicas("t-1") == (2, 4, 1)


def test_what_someone_else_cancels_stays_cancelled(simulator: Simulator) -> None:
    world = apply(simulator, move("t-0", "123", "423"))
    world.step()
    world.step()
    simulator.cancel([TopicPartition("t", 0)])
    world.run()
    assert world.states() == {"t-0": "dropped"}
    # Kafka's cancel loses the order: whoever reads this must hear of another preferred leader.
    assert world.row("t-0").detail == "someone else cancelled it; its replicas are [2, 3, 1], originally [1, 2, 3]"
    assert world.row("t-0").cause is Cause.CANCELLED_ELSEWHERE


def test_a_reassignment_that_reached_its_target_by_others_needs_nothing(simulator: Simulator) -> None:
    world = apply(simulator, move("t-0", "123", "423"))
    simulator.alter({TopicPartition("t", 0): (4, 2, 3)})
    simulator.run()
    assert world.run().satisfied == 1


def test_an_answer_that_was_lost_is_read_from_the_cluster(
    simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = heal(simulator)
    with monkeypatch.context() as patch:
        patch.setattr(simulator, "alter", partial(simulator.alter_unanswered, after_ticks=3))
        progress = world.step()
    assert progress.sentence == "The controller did not answer in 30 s; the change may have been made."
    assert world.record().attempts == 1
    assert {row.outcome for row in world.journal.audit.rows(plan=world.digest)} == {Outcome.UNKNOWN}
    progress = world.run()
    assert progress.completed == 5
    simulator.tick(5)
    assert all(simulator.topics[row.topic_partition].replicas == row.move.after for row in world.rows())


def test_what_kafka_refuses_is_told_in_its_own_words(simulator: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    world = apply(simulator, move("t-0", "123", "923"), settings=Settings(throttle=0, max_attempts=2))
    simulator.racks.pop(9, None)
    simulator.alive.add(9)  # it lives, and the controller does not know it: refused
    simulator.racks[9] = None
    snapshot = simulator.snapshot()
    assert 9 in snapshot.live
    monkeypatch.setattr(simulator, "snapshot", lambda *_: snapshot)
    del simulator.racks[9]
    progress = world.step()
    assert progress.held[0].code is HoldReason.KAFKA_REFUSED
    assert "The manual partition assignment is not valid." in progress.sentence
    assert world.run().status is PlanStatus.STUCK


def test_a_cluster_that_does_not_answer_is_counted_and_told(simulator: Simulator) -> None:
    world = apply(simulator, move("t-0", "123", "423"), settings=Settings(throttle=0, max_attempts=3))
    simulator.reachable = False
    assert world.step().sentence == "No bootstrap server answers."
    simulator.reachable = True
    world.step()
    assert world.record().attempts == 0
    simulator.reachable = False
    assert world.run().status is PlanStatus.STUCK


def test_a_stall_is_noticed_and_an_eta_told(simulator: Simulator) -> None:
    simulator.bandwidth = 10
    world = apply(simulator, move("t-0", "123", "423"), settings=Settings(throttle=0, stall_after=3))
    world.step()
    simulator.tick()
    world.step()
    simulator.tick()
    progress = world.step()
    assert progress.stalled == ()
    assert progress.bytes_total == 100
    assert progress.bytes_done == 20
    assert progress.bytes_per_s == pytest.approx(10, rel=0.8)
    assert progress.eta_s is not None
    simulator.bandwidth = 0
    simulator.tick(4)
    assert world.step().stalled == (TopicPartition("t", 0),)
