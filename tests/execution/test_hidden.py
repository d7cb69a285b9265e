"""Topics that an ACL hides: nothing is taken for deleted, and nothing is planned without them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.requests import NOT_AUTHORIZED, refusal_error
from kafka_steward.document_api.request_intake import PartialCancel
from kafka_steward.errors import KafkaRefused, PlanError, RequestError
from kafka_steward.execution.cluster_queries import HIDDEN, find_hidden_topics, with_hidden_topics
from kafka_steward.execution.effects import elect_preferred_leaders
from kafka_steward.execution.moves.in_flight import record_in_flight
from kafka_steward.execution.moves.recovery import plan_rollback_moves
from kafka_steward.execution.moves.reversal_execution import LateRetraction, late_reversal
from kafka_steward.execution.moves.states import Held, HoldReason
from kafka_steward.execution.plans.lifecycle import request_cancel
from kafka_steward.execution.plans.requests import validate_against_cluster
from kafka_steward.execution.plans.snapshot import take_snapshot
from kafka_steward.execution.plans.undo_verification import verify_undone
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.topics.creation import add_deferred_partitions, add_partitions
from kafka_steward.execution.topics.pending import PendingState, reconcile_pending, record_pending
from kafka_steward.execution.watch import upkeep
from kafka_steward.execution.watch.broker_joins import poll_joined_brokers
from kafka_steward.execution.watch.upkeep import release_orphaned_throttles, run_chores
from kafka_steward.journal import paths
from kafka_steward.journal.kip_documents import InFlight
from kafka_steward.journal.records import (
    DEFERRED_PARTITIONS,
    THROTTLE_LEASES,
    DeferredPartitions,
    LeaseKey,
    MoveState,
    PendingReplicas,
    ThrottleLease,
)
from kafka_steward.settings import Settings
from tests.documents import create_document
from tests.execution.runs import apply, simulator
from tests.simulated_plan import FOLLOWERS, WHO, memory_journal, move
from tests.simulator import Simulator

__all__ = ["simulator"]

T0 = TopicPartition("t", 0)


def test_a_move_in_flight_outlives_an_acl_that_is_taken_away(simulator: Simulator) -> None:
    world = apply(simulator, move("t-0", "123", "423"), move("t-5", "321", "421", position=1))
    runner = world.new_runner()
    runner.step()
    assert world.rows()[0].state is MoveState.SUBMITTED
    simulator.hidden.add("t")
    simulator.run()
    for _ in range(3):
        runner.step()
    world.new_runner().step()  # a process that has seen nothing of it before
    assert [row.state for row in world.rows()] == [MoveState.SUBMITTED] * 2
    simulator.hidden.clear()
    assert world.run().completed == 2


def test_what_waits_for_a_hidden_topic_is_held_and_a_deleted_one_is_dropped(simulator: Simulator) -> None:
    simulator.create("u", [(1, 2, 3)])
    world = apply(simulator, move("t-0", "123", "423"), move("u-0", "123", "423", position=1))
    simulator.hidden.add("t")
    simulator.delete("u")
    world.new_runner().step()
    first, second = world.rows()
    assert (first.state, first.detail) == (MoveState.HELD, Held.of(T0, HoldReason.TOPIC_HIDDEN).sentence)
    assert second.state is MoveState.DROPPED
    simulator.delete("t")
    world.new_runner().step()
    assert world.rows()[0].state is MoveState.HELD  # while it may not be described, Kafka does not say that it is gone
    simulator.hidden.clear()
    world.new_runner().step()
    assert world.rows()[0].state is MoveState.DROPPED


def test_a_cancel_waits_for_what_it_cannot_see(simulator: Simulator) -> None:
    world = apply(simulator, move("t-0", "123", "423"))
    runner = world.new_runner()
    runner.step()
    simulator.hidden.add("t")
    request_cancel(world.journal, world.digest, who=WHO, reason="wrong")
    runner.step()
    assert [row.state for row in world.rows()] == [MoveState.SUBMITTED]
    simulator.hidden.clear()
    world.run()
    assert world.rows()[0].state is MoveState.DROPPED
    assert simulator.topics[T0].replicas == (1, 2, 3)
    simulator.hidden.add("t")
    verified = verify_undone(simulator, world.journal, world.digest)
    assert [each.why for each in verified.left_alone] == [HIDDEN]


def test_a_rollback_leaves_alone_what_it_cannot_see(simulator: Simulator) -> None:
    world = apply(simulator, move("t-0", "123", "423"))
    world.run()
    simulator.hidden.add("t")
    back = plan_rollback_moves(world.rows(), with_hidden_topics(simulator, simulator.snapshot(), ["t"]), chunk_size=50)
    assert (list(back.moves), [why for _, why in back.skipped]) == ([], [HIDDEN])


def test_a_pending_replica_of_a_hidden_topic_is_not_dropped(simulator: Simulator) -> None:
    def judged() -> list[PendingState]:
        return [each.state for each in reconcile_pending(simulator, journal, simulator.snapshot(), WHO)]

    journal = memory_journal(simulator)
    simulator.create("u", [(1, 2)])
    name = TopicPartition("u", 0)
    pending = PendingReplicas.from_brokers((1, 2), 3, simulator.topics[name].topic_id)
    record_pending(journal, {name: pending}, "too few brokers", WHO)
    simulator.tick(120)
    simulator.hidden.add("u")
    assert judged() == [PendingState.HIDDEN]
    simulator.hidden.clear()
    assert judged() == [PendingState.OPEN]
    simulator.delete("u")
    assert judged() == [PendingState.DROPPED]


def test_a_snapshot_with_a_hidden_topic_is_refused_with_topic_brokers_and_acl(
    simulator: Simulator, tmp_path: Path
) -> None:
    for topic in ("secret", "u", "v", "w"):
        simulator.create(topic, [(1, 3)])
        simulator.hidden.add(topic)
    folder = tmp_path / "snapshot"
    with pytest.raises(RequestError) as raised:
        take_snapshot(simulator, str(folder), failed=(), now_ms=1)
    assert str(raised.value) == (
        "Nothing was planned: Kafka does not let us describe secret, u, v and 1 more, and a plan would omit the "
        "replicas of secret on brokers 1 and 3. Grant our principal DESCRIBE on every topic, as docs/permissions.md "
        "says."
    )
    assert not folder.exists()
    simulator.hidden.clear()
    take_snapshot(simulator, str(folder), failed=(), now_ms=1)


def test_a_topic_that_a_broker_still_holds_after_it_was_deleted_is_not_hidden(simulator: Simulator) -> None:
    simulator.create("u", [(1, 3)])
    log_dirs = simulator.log_dirs([1, 2, 3])
    simulator.delete("u")
    snapshot = simulator.snapshot()
    assert find_hidden_topics(simulator, snapshot, log_dirs) == {}
    assert with_hidden_topics(simulator, snapshot, ["u", "t"]).hidden == frozenset()
    simulator.hidden.add("u")
    assert find_hidden_topics(simulator, snapshot, log_dirs) == {"u": (1, 3)}
    assert with_hidden_topics(simulator, snapshot, ["u", "t"]).hidden == {"u"}


def test_other_moves_go_on_and_throttles_are_given_back_where_they_can_be(simulator: Simulator) -> None:
    simulator.create("u", [(1, 2, 3), (2, 3, 1)])
    moves = [move("t-0", "123", "423"), move("u-0", "123", "423", position=1), move("u-1", "231", "431", position=2)]
    world = apply(simulator, *moves, settings=Settings(throttle=60, max_in_per_broker=2))
    world.step()
    simulator.hidden.add("t")
    for _ in range(12):
        simulator.tick()
        told = world.step()
        assert not told.waits_for_person, told.sentence
    assert world.states() == {"t-0": "submitted", "u-0": "completed", "u-1": "completed"}
    assert "topic/u" not in world.leases()
    assert "topic/t" in world.leases()
    simulator.hidden.clear()
    assert world.run().completed == 3
    assert (world.throttles(), world.leases()) == ([], [])


UNKNOWN = ["a" * 64, "b" * 64]


@pytest.mark.parametrize("lacking", ["every right", "AlterConfigs"])
def test_a_topic_keeps_no_other_from_its_throttles_and_no_other_record_in_flight(
    simulator: Simulator, lacking: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Both have entries and a record of a plan that nobody knows any more; the first one's plan is looked at first."""
    journal = memory_journal(simulator)
    mailbox = journal.mailbox
    for topic, plan in zip(("secret", "u"), UNKNOWN, strict=True):
        simulator.create(topic, [(1, 2, 3)])
        simulator.topic_settings[topic][FOLLOWERS] = "0:4"
        lease = ThrottleLease(None, None, {plan: ("0:4",)})
        journal.rows(THROTTLE_LEASES).put(LeaseKey(topic, FOLLOWERS), lease, None)
        create_document(
            mailbox, paths.reassignment(TopicPartition(topic, 0)), InFlight((1, 2, 3), (4, 2, 3), plan=plan).to_json()
        )
    if lacking == "every right":
        simulator.hidden.add("secret")
    else:
        change = simulator._change_topic
        refused = refusal_error(NOT_AUTHORIZED, None, "changing the settings of secret")
        monkeypatch.setattr(
            simulator, "_change_topic", lambda topic, several: refused if topic == "secret" else change(topic, several)
        )
    watch = ClusterContext(simulator, journal, Settings(), WHO)
    with caplog.at_level(logging.INFO):
        run_chores(watch)
    assert simulator.topic_settings["u"] == {}
    assert [row.key.name for row in journal.rows(THROTTLE_LEASES).all()] == ["secret"]
    assert mailbox.children(paths.REASSIGNMENTS) == (["secret"] if lacking == "every right" else [])
    assert any("of secret" in each and "grant our principal" in each for each in caplog.messages)
    simulator.hidden.clear()
    monkeypatch.undo()
    run_chores(watch)
    assert simulator.topic_settings["secret"] == {}
    assert (journal.rows(THROTTLE_LEASES).all(), mailbox.children(paths.REASSIGNMENTS)) == ([], [])


@pytest.mark.parametrize("task", ["pause_idle_plans", "delete_stale_in_flight_records", "release_orphaned_throttles"])
def test_a_task_that_fails_after_plans_keeps_none_of_the_others_from_it(
    simulator: Simulator, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = []

    def noted(name: str) -> Any:
        def act(*_: Any) -> list[str]:
            called.append(name)
            if name == task:
                raise KafkaRefused(29, "no", "Kafka refused it.")
            return ["It is idle."] if name == "pause_idle_plans" else []

        return act

    tasks = ("pause_idle_plans", "delete_stale_in_flight_records", "release_orphaned_throttles")
    for name in tasks:
        monkeypatch.setattr(upkeep, name, noted(name))
    idle = run_chores(ClusterContext(simulator, memory_journal(simulator), Settings(), WHO))
    assert called == list(tasks)
    assert idle == ([] if task == "pause_idle_plans" else ["It is idle."])


def test_the_end_of_a_plan_names_a_throttle_that_could_not_be_given_back(
    simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = apply(simulator, move("t-0", "123", "423"), settings=Settings(throttle=60))
    world.step()
    refused = refusal_error(NOT_AUTHORIZED, None, "changing the settings of t")
    monkeypatch.setattr(simulator, "_change_topic", lambda *_: refused)
    told = world.run()
    assert (told.ended, told.completed) == (True, 1)
    assert "A throttle stays set for now: Kafka refused changing the settings of t" in told.sentence
    verified = verify_undone(simulator, world.journal, world.digest)
    assert verified.throttles == ("follower.replication.throttled.replicas of t has 0:4",)
    simulator.hidden.add("t")  # what is recorded counts as set, if Kafka does not let us look
    assert verify_undone(simulator, world.journal, world.digest).throttles == verified.throttles
    monkeypatch.undo()
    simulator.hidden.clear()
    release_orphaned_throttles(simulator, world.journal, WHO)
    assert (world.throttles(), world.leases()) == ([], [])


def test_a_late_request_is_taken_back_when_it_can_be_seen_again(simulator: Simulator) -> None:
    world = apply(simulator, move("t-0", "123", "423"))
    world.step()
    request_cancel(world.journal, world.digest, who=WHO, reason="wrong")
    assert world.run().ended
    row = world.rows()[0]
    late = row.move
    record_in_flight(world.journal.mailbox, world.digest, [late])
    simulator.alter({T0: late.after})
    simulator.hidden.add("t")
    retraction = LateRetraction(simulator, world.journal, world.digest, WHO)
    retraction.cancel_and_restore([late_reversal(world.digest, late, row)])
    watch = ClusterContext(simulator, world.journal, world.settings, WHO)
    run_chores(watch)
    assert simulator.topics[T0].reassigning
    assert world.journal.mailbox.children(paths.REASSIGNMENTS) == ["t"]
    simulator.hidden.clear()
    run_chores(watch)
    assert (simulator.topics[T0].replicas, simulator.topics[T0].reassigning) == ((1, 2, 3), False)
    assert world.journal.mailbox.children(paths.REASSIGNMENTS) == []


def test_a_move_in_flight_that_cannot_be_seen_is_not_taken_out_of_its_plan(simulator: Simulator) -> None:
    world = apply(simulator, move("t-0", "123", "423"))
    world.step()
    simulator.hidden.add("t")
    with world.journal.step_lock() as fence:
        cancel = PartialCancel(simulator, world.journal, world.digest, why="superseded", who=WHO, fence=fence)
        assert cancel.run([T0]) == {T0: HIDDEN}
    assert world.states() == {"t-0": "submitted"}


def test_deferred_partitions_of_a_hidden_topic_are_neither_added_nor_dropped(simulator: Simulator) -> None:
    journal = memory_journal(simulator)
    simulator.create("u", [(1, 2)])
    for topic in ("u", "t"):
        asked = DeferredPartitions(2 if topic == "u" else 7, simulator.topics[TopicPartition(topic, 0)].topic_id)
        journal.rows(DEFERRED_PARTITIONS).put(topic, asked, None)
    simulator.hidden.add("u")
    assert add_deferred_partitions(simulator, journal, WHO) == ["Topic t has 7 partitions, 1 of them new."]
    assert [row.key for row in journal.rows(DEFERRED_PARTITIONS).all()] == ["u"]
    looked = poll_joined_brokers(simulator, journal, Settings(), WHO)
    assert looked is not None
    assert looked.due == ()
    simulator.hidden.clear()
    assert add_deferred_partitions(simulator, journal, WHO) == ["Topic u has 2 partitions, 1 of them new."]


def test_a_refusal_of_one_topic_holds_up_no_other_topic(simulator: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = memory_journal(simulator)
    simulator.create("u", [(1, 2)])
    for topic, count in (("t", 7), ("u", 2)):
        journal.rows(DEFERRED_PARTITIONS).put(topic, DeferredPartitions(count), None)
    create, refused = simulator.create_partitions, refusal_error(NOT_AUTHORIZED, None, "adding partitions to topic t")
    monkeypatch.setattr(
        simulator, "create_partitions", lambda topic, count: refused if topic == "t" else create(topic, count)
    )
    with pytest.raises(KafkaRefused, match="adding partitions to topic t"):
        add_deferred_partitions(simulator, journal, WHO)
    assert TopicPartition("u", 1) in simulator.topics
    assert [row.key for row in journal.rows(DEFERRED_PARTITIONS).all()] == ["t"]


def test_a_hidden_topic_is_not_said_to_be_missing_where_partitions_are_added(simulator: Simulator) -> None:
    simulator.hidden.add("t")
    with pytest.raises(KafkaRefused, match=r"describing topic t: .*; grant our principal Describe on every topic"):
        add_partitions(simulator, memory_journal(simulator), "t", 9, later=True, who=WHO)


def test_a_given_reassignment_of_a_hidden_topic_is_refused_by_the_name_of_the_acl(simulator: Simulator) -> None:
    simulator.hidden.add("t")
    snapshot = with_hidden_topics(simulator, simulator.snapshot(), ["t", "u"])
    with pytest.raises(PlanError) as raised:
        validate_against_cluster({T0: (1, 2), TopicPartition("u", 0): (1, 2)}, snapshot, {})
    absent = "The reassignment names the topic u, which the cluster does not have."
    assert str(raised.value) == f"The partition t-0 may or may not exist: {HIDDEN}. {absent}"


def test_the_leaders_of_others_are_elected_and_the_hidden_one_is_named(simulator: Simulator) -> None:
    simulator.create("u", [(1, 2, 3)])
    simulator.topics[TopicPartition("u", 0)].leader = 2
    simulator.hidden.add("t")
    elected = elect_preferred_leaders(
        simulator, memory_journal(simulator), who=WHO, partitions=[T0, TopicPartition("u", 0), TopicPartition("v", 0)]
    )
    assert (elected.elected, elected.refused) == ((TopicPartition("u", 0),), {T0: HIDDEN})
