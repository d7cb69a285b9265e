"""What is asked of Kafka: how a call is recorded, elections of leaders, and the guard of the factor (KIP-860)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast
from unittest.mock import Mock, call

import pytest

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.cluster.state import Broker, Partition, Snapshot
from kafka_steward.errors import KafkaRefused, KafkaTimeout, LockLost
from kafka_steward.execution.effects import (
    AuditedCalls,
    alter_keeping_factor,
    describe_leader_shortfall,
    elect_preferred_leaders,
    find_not_led_by_preferred,
)
from kafka_steward.execution.moves.external import (
    ExternalReassignment,
    cancel_external_reassignments,
)
from kafka_steward.execution.moves.reversal_execution import find_externally_reordered, restore_externally_reordered
from kafka_steward.journal.audit import Action, Audit, AuditRecord, Outcome
from kafka_steward.journal.locks import Fence
from kafka_steward.journal.records import MoveState
from kafka_steward.settings import Settings
from tests.execution.runs import apply, simulator
from tests.memory_tables import MemoryAudit
from tests.simulated_plan import WHO, memory_journal, move, simulated
from tests.simulator import Simulator

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
NAMES = [TopicPartition("t", number) for number in range(3)]
ENTRIES = {
    name: [AuditRecord(Action.SUBMIT, "why", plan="p", topic=name.topic, partition=name.partition)] for name in NAMES
}


class Held:
    """A fence whose lock is held for `checks` checks; its clock is that of the last one, which took 2 s each."""

    def __init__(self, checks: int = 9) -> None:
        self.left, self.now_ms = checks, 0

    def check(self) -> None:
        if self.left == 0:
            raise LockLost("Another process has acquired the step lock.")
        self.left -= 1
        self.now_ms += 2_000


def calls_with(held: Held) -> tuple[AuditedCalls, Audit]:
    audit = Audit(cast(Any, MemoryAudit("c", lambda: 1)))
    return AuditedCalls(audit, cast(Fence, held)), audit


def outcomes(audit: Audit) -> list[tuple[Outcome, str]]:
    return [(row.outcome, row.detail) for row in audit.rows()]


def test_each_key_has_its_own_outcome() -> None:
    calls, audit = calls_with(Held())
    refused = KafkaRefused(42, "not now", "Kafka refused t-1: not now.")
    silent = KafkaTimeout("No answer for t-2.")
    answers = dict(zip(NAMES, (None, refused, silent), strict=True))
    assert calls.execute(ENTRIES, lambda keys: {key: answers[key] for key in keys}) == answers
    assert outcomes(audit) == [
        (Outcome.DONE, ""),
        (Outcome.REFUSED, "Kafka refused t-1: not now."),
        (Outcome.FAILED, "No answer for t-2."),
    ]


def test_the_answer_of_a_call_during_which_the_lock_was_lost_is_recorded() -> None:
    calls, audit = calls_with(Held(checks=1))
    late: list[list[TopicPartition]] = []
    with pytest.raises(LockLost):
        calls.execute(ENTRIES, dict.fromkeys, late=late.append)
    assert late == [NAMES]
    assert outcomes(audit) == [(Outcome.DONE, "")] * 3


def test_a_call_without_an_answer_is_unknown_and_its_time_counts() -> None:
    calls, audit = calls_with(Held())

    def ask(_: list[TopicPartition]) -> dict[TopicPartition, None]:
        raise KafkaTimeout("The controller did not answer.")

    with pytest.raises(KafkaTimeout):
        calls.execute(ENTRIES, ask, late=lambda _: None)
    assert outcomes(audit) == [(Outcome.UNKNOWN, "The controller did not answer.")] * 3
    assert calls.slowest_call_ms == 2_000


def led(*leaders: int | None, replicas: tuple[int, ...] = (1, 2, 4), fenced: int | None = None) -> Snapshot:
    partitions = [Partition("t", n, replicas, frozenset(replicas), leader) for n, leader in enumerate(leaders)]
    brokers = {broker: Broker(broker, "h", 1, fenced=broker == fenced) for broker in replicas}
    return Snapshot("c", 1, brokers, {TopicPartition("t", each.partition): each for each in partitions})


def test_a_broker_that_received_replicas_and_leads_none_is_named_with_what_to_do() -> None:
    assert describe_leader_shortfall(led(1, 1, 1, 2, 2, 2), {4}) == (
        "Leaders are uneven: broker 4 leads 0 of its share of 2, because a heal moves no leader that is alive; "
        "the operation rebalance makes them even."
    )
    assert "broker 2 leads 0 of its share of 2, broker 4 leads 0 of its share of 2," in describe_leader_shortfall(
        led(1, 1, 1, 1, 1, None), {2, 4}
    )


@pytest.mark.parametrize(
    ("snapshot", "received"),
    [
        (led(1, 1, 1, 2, 2, 4), {4}),  # half of it
        (led(1, 1, 1, 2, 2, 2), {1, 2}),  # others do
        (led(1, 1, 1, 2, 2, 2), ()),
        (led(1, 1, 1, 2, 2, 2, fenced=4), {4}),
        (led(1, 2), {4}),  # less than one leader
        (led(), {4}),
    ],
)
def test_nothing_is_said_of_others(snapshot: Snapshot, received: set[int]) -> None:
    assert describe_leader_shortfall(snapshot, received) == ""


def test_leaders_are_elected_where_the_preferred_one_can_lead() -> None:
    simulator, journal = simulated("1a 2b 3c 4a", "t: 123 231 312")
    simulator.kill(1)
    assert find_not_led_by_preferred(simulator.snapshot()) == []
    simulator.restart(1)
    simulator.tick()
    assert find_not_led_by_preferred(simulator.snapshot()) == [T0]
    elected = elect_preferred_leaders(simulator, journal, who=WHO)
    assert (elected.elected, elected.sentence) == ((T0,), "1 preferred leader elected.")
    assert simulator.topics[T0].leader == 1
    row = journal.audit.rows()[0]
    assert (row.entry.action.value, row.entry.before, row.entry.after, row.outcome) == ("elect", 2, 1, Outcome.DONE)
    assert elect_preferred_leaders(simulator, journal, who=WHO).elected == ()


def test_a_refused_election_is_reported_in_kafkas_words(monkeypatch: pytest.MonkeyPatch) -> None:
    simulator = Simulator.of("1a 2b 3c", "t: 123")
    simulator.topics[T0].leader = 2
    seen = simulator.snapshot()
    simulator.kill(1)
    monkeypatch.setattr(simulator, "snapshot", lambda *_: seen)
    elected = elect_preferred_leaders(simulator, memory_journal(simulator), who=WHO, partitions=[T0])
    assert elected.elected == ()
    assert "The preferred leader was not available." in elected.sentence


__all__ = ["simulator"]


def test_targets_are_guarded_where_their_number_stays(simulator: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    alter = Mock(wraps=simulator.alter)
    monkeypatch.setattr(simulator, "alter", alter)
    targets = {T0: (4, 2, 3), T1: (2, 3)}
    before = {name: simulator.topics[name].replicas for name in targets}
    assert alter_keeping_factor(simulator, targets, before) == {T0: None, T1: None}
    assert alter.mock_calls == [call({T0: (4, 2, 3)}, keep_factor=True), call({T1: (2, 3)})]


def test_a_factor_that_someone_changes_in_the_last_moment_stays(
    simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = apply(simulator, move("t-0", "123", "423"), move("t-1", "231", "431", position=1))
    alter = simulator.alter

    def raced(targets: Mapping[TopicPartition, Assignment], **more: Any) -> Any:
        monkeypatch.setattr(simulator, "alter", alter)
        alter({T0: (1, 2)})  # someone gives it two replicas, and Kafka does so at once
        return alter(targets, **more)

    monkeypatch.setattr(simulator, "alter", raced)
    progress = world.run()
    assert simulator.topics[T0].replicas == (1, 2)
    assert (progress.completed, world.rows()[0].state) == (1, MoveState.DROPPED)
    assert simulator.topics[T1].replicas == (4, 3, 1)


@pytest.mark.parametrize("one_by_one", [False, True], ids=["whole", "one replica at a time"])
def test_an_operation_that_changes_the_factor_is_not_guarded(simulator: Simulator, one_by_one: bool) -> None:
    settings = Settings(one_replica_at_a_time=one_by_one)
    moves = [move("t-0", "123", "1234"), move("t-1", "231", "23", position=1), move("t-3", "124", "356", position=2)]
    simulator.racks |= {5: "b", 6: "c"}
    simulator.alive |= {5, 6}
    simulator.broker_settings |= {5: {}, 6: {}}
    world = apply(simulator, *moves, settings=settings)
    assert world.run().completed == 3
    assert [simulator.topics[row.topic_partition].replicas for row in world.rows()] == [each.after for each in moves]


def test_an_external_cancel_ends_when_kafka_refuses_the_order_of_the_originals() -> None:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 41", size=1000)
    journal = memory_journal(simulator)
    simulator.alter({T0: (2, 1)})
    simulator.unregister(4)
    known = ExternalReassignment(T0, (2, 1), (4, 1))
    with journal.step_lock("here") as fence:
        (ended,) = cancel_external_reassignments(simulator, journal, [known], reason="enough", who=WHO, fence=fence)
    assert (ended.state, set(simulator.topics[T0].replicas), simulator.reassignments()) == ("cancelled", {1, 4}, {})
    assert ended.sentence.startswith(
        "The external reassignment of t-0 to [2, 1] is cancelled, and its replicas are [1, 4], and Kafka refuses its "
        "original ones, [4, 1], because broker 4 is not registered: "
    )


def test_the_order_that_someone_elses_cancel_lost_is_restored(simulator: Simulator) -> None:
    world = apply(simulator, move("t-0", "123", "423"), move("t-1", "231", "431", position=1))
    world.step()
    simulator.cancel([T0, T1])
    world.run()
    assert [simulator.topics[name].replicas for name in (T0, T1)] == [(2, 3, 1), (3, 1, 2)]
    found = find_externally_reordered(simulator, world.journal, world.digest)
    assert [row.topic_partition for row in found] == [T0, T1]
    restore_externally_reordered(simulator, world.journal, world.digest, WHO)
    assert [simulator.topics[name].replicas for name in (T0, T1)] == [(1, 2, 3), (2, 3, 1)]
    assert find_externally_reordered(simulator, world.journal, world.digest) == []
