"""Topics that an ACL hides: nothing is taken for deleted, and nothing is planned without them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import RequestError
from kafka_steward.execution.cluster_queries import hidden_in, with_hidden
from kafka_steward.execution.lifecycle import request_cancel
from kafka_steward.execution.moves import Held, HoldReason
from kafka_steward.execution.pending_replicas import reconcile_pending, record_pending
from kafka_steward.execution.pending_state import PendingState as Owed
from kafka_steward.execution.recovery import HIDDEN, plan_rollback
from kafka_steward.execution.snapshot import take_snapshot
from kafka_steward.execution.verification import verify_undone
from kafka_steward.journal.moves import MoveState
from kafka_steward.journal.records import PendingReplicas
from tests.execution.runs import apply, simulator
from tests.simulated_plan import WHO, memory_journal, move
from tests.simulator import Simulator

__all__ = ["simulator"]

T0 = TopicPartition("t", 0)


def test_what_flies_outlives_an_acl_that_is_taken_away(simulator: Simulator) -> None:
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
    back = plan_rollback(world.rows(), with_hidden(simulator, simulator.snapshot(), ["t"]), chunk_size=50)
    assert (list(back.moves), [why for _, why in back.skipped]) == ([], [HIDDEN])


def test_a_debt_of_a_hidden_topic_is_not_struck_out(simulator: Simulator) -> None:
    def judged() -> list[Owed]:
        return [each.state for each in reconcile_pending(simulator, journal, simulator.snapshot(), WHO)]

    journal = memory_journal(simulator)
    simulator.create("u", [(1, 2)])
    name = TopicPartition("u", 0)
    owed = PendingReplicas.of((1, 2), 3, simulator.topics[name].topic_id)
    record_pending(journal, {name: owed}, "too few brokers", WHO)
    simulator.tick(120)
    simulator.hidden.add("u")
    assert judged() == [Owed.HIDDEN]
    simulator.hidden.clear()
    assert judged() == [Owed.OPEN]
    simulator.delete("u")
    assert judged() == [Owed.DROPPED]


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
        "Nothing was planned: Kafka does not let us describe secret, u, v and 1 more, and broker 1, 3 holds replicas "
        "of secret, which a plan would leave out. Grant our principal DESCRIBE on every topic, as docs/permissions.md "
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
    assert hidden_in(simulator, snapshot, log_dirs) == {}
    assert with_hidden(simulator, snapshot, ["u", "t"]).hidden == frozenset()
    simulator.hidden.add("u")
    assert hidden_in(simulator, snapshot, log_dirs) == {"u": (1, 3)}
    assert with_hidden(simulator, snapshot, ["u", "t"]).hidden == {"u"}
