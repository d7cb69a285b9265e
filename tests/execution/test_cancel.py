"""Cancel and rollback (KIP-236): everything exactly as it was, order and throttles included."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import KafkaRefused, PlanError
from kafka_steward.execution.lifecycle import request_cancel
from kafka_steward.execution.move_recovery import cancel_forbidden_reason, plan_rollback_moves
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.rollback import publish_rollback
from kafka_steward.execution.undo_verification import verify_undone
from kafka_steward.journal.audit import Outcome
from kafka_steward.journal.records import Phase, PlanStatus
from kafka_steward.settings import Settings
from tests.simulated_plan import WHO, World, memory_journal, move
from tests.simulator import Simulator

MODES = ("kraft", "zookeeper")
RULES = Settings(throttle=50, max_in_per_broker=2)


@pytest.fixture(params=MODES)
def world(request: pytest.FixtureRequest) -> World:
    """Four moves, of which the first is done, one flies and two wait."""
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 231 312 213", mode=request.param, size=1000)
    simulator.topics[TopicPartition("t", 0)].size = 50
    targets = ["423", "431", "342", "214"]
    moves = [
        move(f"t-{n}", before, after, position=n, size=1000)
        for n, (before, after) in enumerate(zip(["123", "231", "312", "213"], targets, strict=True))
    ]
    made = World(simulator, memory_journal(simulator), moves, settings=RULES, auto_generated=False)
    made.step()
    simulator.tick(3)
    made.step()
    assert list(made.states().values()) == ["completed", "submitted", "submitted", "waiting"]
    return made


def status(world: World, digest: str) -> PlanStatus:
    record = world.journal.plans.get(digest)
    assert record is not None
    return record.status


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
    assert [world.replicas(f"t-{n}") for n in range(4)] == [(4, 2, 3), (2, 3, 1), (3, 1, 2), (2, 1, 3)]
    assert world.states() == {"t-0": "completed", "t-1": "dropped", "t-2": "dropped", "t-3": "dropped"}
    assert world.throttles() == []
    assert world.borrowed() == []
    assert world.journal.slot.holders() == ()
    assert world.journal.tree.get("/admin/cancel_reassignment_in_progress") is None
    assert world.row("t-3").detail == "cancelled: too slow"
    became = f"Plan {world.digest[:12]} was cancelled by ada (too slow); 1 of 4 moves had completed, and stay."
    assert progress.sentence == became
    record = world.journal.plans.get(world.digest)
    assert record is not None
    assert "is cancelled: 1 of 4 partitions moved, 3 dropped" in record.reason
    told = [row.entry for row in world.journal.audit.rows(plan=world.digest, action="cancel")]
    assert {entry.reason for entry in told} == {"cancelled: too slow"}


def test_a_cancel_works_while_the_cluster_is_disabled_and_while_the_plan_is_stuck(world: World) -> None:
    world.journal.tree.create("/admin/reassign_cancel", "")
    record = world.journal.plans.get(world.digest)
    assert record is not None
    world.journal.plans.update(record, status=PlanStatus.STUCK)
    request_cancel(world.journal, world.digest, who=WHO, reason="stop")
    assert world.run().status is PlanStatus.CANCELLED


def test_kip_236s_empty_node_cancels_a_plan_that_is_stepped(world: World) -> None:
    world.journal.tree.create("/admin/cancel_reassignment_in_progress", "")
    assert world.run().status is PlanStatus.CANCELLED
    assert world.row("t-3").detail == "cancelled: /admin/cancel_reassignment_in_progress was created"


def test_the_cancel_of_another_plan_is_none_of_ours(world: World) -> None:
    world.journal.tree.create("/admin/cancel_reassignment_in_progress", '{"version":1,"plan":"other"}')
    assert world.run().status is PlanStatus.COMPLETED
    with pytest.raises(PlanError, match="cannot be cancelled: it has already ended"):
        request_cancel(world.journal, world.digest, who=WHO, reason="late")


def test_a_cancel_that_comes_when_all_has_arrived_has_cancelled_nothing(world: World) -> None:
    world.simulator.bandwidth = 5000
    world.settings = Settings(throttle=0)
    world.runner = world.new_runner()
    world.step()
    world.simulator.tick(100)
    world.journal.tree.create("/admin/cancel_reassignment_in_progress", "")
    assert world.run().status is PlanStatus.COMPLETED
    assert world.journal.tree.get("/admin/cancel_reassignment_in_progress") is None


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


def test_what_would_go_offline_is_let_fly(world: World) -> None:
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
    world = World(simulator, memory_journal(simulator), moves, settings=RULES, auto_generated=False)
    world.cluster = Refusing(simulator)
    world.runner = world.new_runner()
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


def whole(digits: str, *, isr: str, live: str) -> str | None:
    simulator = Simulator.of("1a 2b 3c 4a 5b", "t: 123")
    simulator.alter({TopicPartition("t", 0): (4, 5)})
    partition = simulator.topics[TopicPartition("t", 0)]
    partition.isr = set(map(int, isr))
    seen = simulator.snapshot().partitions[TopicPartition("t", 0)]
    return cancel_forbidden_reason(tuple(map(int, digits)) or None, seen, frozenset(map(int, live)))


@pytest.mark.parametrize(
    ("originals", "isr", "live", "skipped"),
    [
        ("123", "123", "12345", False),
        ("123", "14", "145", False),
        ("123", "4", "45", True),
        ("123", "3", "45", True),
        ("123", "3", "", False),
        ("", "123", "12345", True),
    ],
    ids=["in sync", "one in sync", "none in sync", "in sync and dead", "all offline", "no originals"],
)
def test_kip_236s_skip_rules(originals: str, isr: str, live: str, skipped: bool) -> None:
    assert (whole(originals, isr=isr, live=live) is not None) == skipped


def test_a_whole_plan_goes_back_the_last_first(world: World) -> None:
    world.simulator.bandwidth = 5000
    world.settings = Settings(throttle=0)
    world.runner = world.new_runner()
    world.run()
    assert status(world, world.digest) is PlanStatus.COMPLETED
    record, back = publish_rollback(ClusterContext(world.simulator, world.journal, Settings(), WHO), world.digest)
    assert [each.partition for each in back.moves][-1] == world.rows()[0].move.partition
    progress = roll_back(world, record.digest)
    assert progress.status is PlanStatus.COMPLETED
    assert [world.replicas(f"t-{n}") for n in range(4)] == [(1, 2, 3), (2, 3, 1), (3, 1, 2), (2, 1, 3)]
    assert status(world, world.digest) is PlanStatus.ROLLED_BACK
    assert world.throttles() == []


def roll_back(world: World, digest: str, **rules: Any) -> Any:
    other = World.__new__(World)
    other.__dict__.update(world.__dict__ | {"digest": digest, "settings": Settings(throttle=5000, **rules)})
    other.runner = other.new_runner()
    return other.run()


def test_what_was_cancelled_and_then_rolled_back_is_all_as_it_was(world: World) -> None:
    request_cancel(world.journal, world.digest, who=WHO, reason="all of it")
    world.run()
    record, back = publish_rollback(ClusterContext(world.simulator, world.journal, Settings(), WHO), world.digest)
    assert [str(each.topic_partition) for each in back.moves] == ["t-0"]
    roll_back(world, record.digest)
    assert [world.replicas(f"t-{n}") for n in range(4)] == [(1, 2, 3), (2, 3, 1), (3, 1, 2), (2, 1, 3)]


def test_what_someone_changed_or_what_needs_a_dead_broker_is_left_alone_and_listed(world: World) -> None:
    simulator = world.simulator
    simulator.bandwidth = 5000
    world.settings = Settings(throttle=0)
    world.runner = world.new_runner()
    world.run()
    simulator.alter({TopicPartition("t", 0): (2, 3, 4)})
    simulator.kill(1)
    back = plan_rollback_moves(world.rows(), simulator.snapshot(), chunk_size=2)
    assert {str(row.topic_partition): why for row, why in back.skipped} == {
        "t-0": "someone else changed its replicas to [2, 3, 4]",
        "t-1": "its original broker 1 is not live",
        "t-2": "its original broker 1 is not live",
        "t-3": "its original broker 1 is not live",
    }
    record, _ = publish_rollback(ClusterContext(simulator, world.journal, Settings(), WHO), world.digest)
    assert record.left == 4
    assert len(world.journal.audit.rows(plan=record.digest, action="skip")) == 4
    assert roll_back(world, record.digest).sentence.endswith("0 of 0 partitions moved, 4 left alone.")


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
    assert (world.throttles(), world.borrowed(), world.journal.slot.holders()) == ([], [], ())
    why = "cancelled, and its replicas are [1, 4], but Kafka refuses their original order [4, 1]"
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
    assert "except for 1 partitions" in progress.sentence
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
