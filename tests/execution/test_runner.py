"""The Runner on a simulated cluster: what it does in the world as it should be, and in the one that is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import PlanError
from kafka_steward.execution.decisions.holds import HoldReason
from kafka_steward.execution.loop import run_to_end
from kafka_steward.execution.runner import Runner
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Outcome
from kafka_steward.journal.plans import PlanStatus
from kafka_steward.settings import Settings
from tests.simulator import Simulator
from tests.worlds import FOLLOWERS, RATE, WHO, World, heal_moves, journal_of, memory_journal, move

TOPIC = "t: 123 231 312 124 213 321"
MODES = ("kraft", "zookeeper")


@pytest.fixture(params=MODES)
def simulator(request: pytest.FixtureRequest) -> Simulator:
    return Simulator.of("1a 2b 3c 4a", TOPIC, mode=request.param)


def heal(simulator: Simulator, **more: Any) -> World:
    """Broker 1 died; it is replaced by 4 wherever 4 is not yet."""
    simulator.kill(1)
    return World(simulator, memory_journal(simulator), heal_moves(simulator, 1, 4), failed=(1,), **more)


def apply(simulator: Simulator, *moves: Any, **more: Any) -> World:
    """What a person asked for."""
    return World(simulator, memory_journal(simulator), moves, auto_generated=False, **more)


def test_a_heal_makes_the_cluster_whole_and_says_so(simulator: Simulator, tmp_path: Path) -> None:
    simulator.kill(1)
    world = World(simulator, journal_of(simulator, tmp_path), heal_moves(simulator, 1, 4), failed=(1,))
    progress = world.run()
    assert progress.status is PlanStatus.COMPLETED
    assert progress.completed == 5
    assert all(simulator.topics[row.topic_partition].replicas == row.move.after for row in world.rows())
    assert progress.sentence == f"Plan {world.digest[:12]} is complete: 5 of 5 partitions moved."
    assert world.journal.slot.owner() is None


def test_every_change_of_kafka_has_its_row_and_its_outcome(simulator: Simulator) -> None:
    world = heal(simulator, settings=Settings(throttle=50))
    world.run()
    rows = world.journal.audit.rows(plan=world.digest)
    assert {row.outcome for row in rows} == {Outcome.DONE}
    assert {row.entry.who for row in rows} == {WHO}
    actions = [row.entry.action.value for row in rows]
    assert {action: actions.count(action) for action in sorted(set(actions))} == {
        "finish": 1,
        "settle": 5,
        "submit": 5,
        "throttle": 6,  # five list entries, one rate
        "unthrottle": 6,
    }
    submitted = next(row.entry for row in rows if row.entry.action.value == "submit")
    assert (submitted.before, submitted.after) == ([1, 2, 3], [4, 2, 3])


def test_a_second_run_of_a_finished_plan_does_nothing(simulator: Simulator) -> None:
    world = heal(simulator)
    first = world.run()
    rows, now = world.journal.audit.rows(), simulator.snapshot()
    assert world.new_runner().step() == first
    assert world.journal.audit.rows() == rows
    assert simulator.snapshot() == now


def test_chunks_that_a_death_at_the_end_left_go_with_the_next_step(simulator: Simulator) -> None:
    world = heal(simulator)
    names = world.journal.tree.children(paths.REASSIGN_CHUNKS)
    left = {name: world.journal.tree.get(paths.chunk(name)) for name in names}
    assert world.run().ended
    for name, node in left.items():
        assert node is not None
        world.journal.tree.create(paths.chunk(name), node.data)
    world.step()
    assert world.journal.tree.children(paths.REASSIGN_CHUNKS) == []


def test_plans_that_ended_long_ago_are_forgotten_when_another_ends(simulator: Simulator) -> None:
    world = heal(simulator)
    old, kept = f"{'a' * 64}", f"{'b' * 64}"
    for digest in (old, kept):
        record = world.publish(digest, [])
        world.journal.plans.update(record, status=PlanStatus.COMPLETED)
        world.simulator.now_ms += int(world.settings.plan_retention * 86_400_000) - 60_000
    assert world.run().ended
    assert world.journal.plans.get(old) is None
    assert world.journal.plans.get(kept) is not None


def test_publishing_again_does_not_begin_again(simulator: Simulator) -> None:
    world = heal(simulator)
    world.run()
    assert world.publish(world.digest, world.moves).status is PlanStatus.COMPLETED


def test_a_plan_that_moves_nothing_ends_at_once_and_says_what_is_left(simulator: Simulator) -> None:
    world = World(simulator, memory_journal(simulator), [], left=3)
    progress = world.step()
    assert progress.status is PlanStatus.COMPLETED
    assert progress.sentence.endswith("0 of 0 partitions moved, 3 still without all their replicas.")
    record = world.journal.plans.get(world.digest)
    assert record is not None
    assert record.live_brokers == (1, 2, 3, 4)


def test_no_more_fly_than_the_caps_allow(simulator: Simulator) -> None:
    world = heal(simulator, settings=Settings(throttle=0, max_in_per_broker=2))
    seen = []

    def watch() -> None:
        seen.append(len(simulator.reassignments()))
        simulator.tick()

    world.run(between=watch)
    assert max(seen) == 2


def test_a_chunk_waits_for_the_one_before(simulator: Simulator) -> None:
    world = heal(simulator, settings=Settings(throttle=0, window="chunk"))
    world.step()
    assert list(world.states().values()) == ["submitted"] * 2 + ["waiting"] * 3
    simulator.tick()
    world.step()
    assert list(world.states().values()) == ["completed", "submitted"] + ["waiting"] * 3


def test_the_pause_between_chunks_is_kept(simulator: Simulator) -> None:
    world = heal(simulator, settings=Settings(throttle=0, window="chunk", chunk_pause=10))
    starts = []

    def watch() -> None:
        starts.append(sum(row.attempt for row in world.rows()))
        simulator.tick()

    world.run(between=watch)
    assert starts.index(3) - starts.index(2) > 10


def test_the_throttle_is_there_while_it_moves_and_gone_after(simulator: Simulator) -> None:
    world = heal(simulator, settings=Settings(throttle=50))
    world.step()
    assert simulator.topic_settings["t"][FOLLOWERS] == "0:4,1:4,2:4,4:4,5:4"
    assert simulator.broker_settings[4] == {RATE: "50"}
    simulator.tick(2)
    world.step()
    assert simulator.topic_settings["t"][FOLLOWERS] == "1:4,2:4,4:4,5:4"
    world.run()
    assert world.throttles() == []
    assert world.borrowed() == []


class Behind:
    """A cluster whose brokers tell of their settings as they were at first: a change is seen a moment later."""

    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator

    def __getattr__(self, name: str) -> Any:
        return getattr(self._simulator, name)

    def broker_configs(self, brokers: Any, *_: Any, **__: Any) -> Any:
        return {broker: {} for broker in brokers}


def test_a_rate_that_no_broker_shows_yet_is_given_back_too(simulator: Simulator) -> None:
    world = heal(simulator, settings=Settings(throttle=50))
    world.cluster = Behind(simulator)
    world.runner = world.new_runner()
    world.step()
    assert f"4:{50}" in world.throttles()
    assert world.run().ended
    assert world.throttles() == []


def test_what_others_throttle_stays(simulator: Simulator) -> None:
    simulator.topic_settings["t"][FOLLOWERS] = "0:4,3:2"
    simulator.broker_settings[4][RATE] = "70"
    world = heal(simulator, settings=Settings(throttle=50))
    world.step()
    assert simulator.broker_settings[4][RATE] == "50"
    world.run()
    assert simulator.topic_settings["t"][FOLLOWERS] == "0:4,3:2"
    assert simulator.broker_settings[4][RATE] == "70"


def test_a_rate_that_someone_changed_meanwhile_is_theirs(simulator: Simulator) -> None:
    world = heal(simulator, settings=Settings(throttle=50))
    world.step()
    simulator.broker_settings[4][RATE] = "99"
    world.run()
    assert simulator.broker_settings[4][RATE] == "99"
    assert world.borrowed() == []


def test_a_topic_that_throttles_everything_is_left_alone(simulator: Simulator) -> None:
    simulator.topic_settings["t"][FOLLOWERS] = "*"
    world = heal(simulator, settings=Settings(throttle=50))
    world.run()
    assert simulator.topic_settings["t"][FOLLOWERS] == "*"


def test_the_leaders_side_is_throttled_when_asked_for(simulator: Simulator) -> None:
    world = heal(simulator, settings=Settings(throttle=50, throttle_leaders=True))
    world.step()
    assert "0:2" in simulator.topic_settings["t"]["leader.replication.throttled.replicas"]
    world.run()
    # Broker 1 is dead: what was lent there is written down until it is back.
    assert simulator.topic_settings["t"] == {}
    assert [of for broker, of in simulator.broker_settings.items() if broker != 1] == [{}, {}, {}]


def test_the_failed_broker_comes_back_and_the_rest_is_dropped(simulator: Simulator) -> None:
    world = heal(simulator, settings=Settings(throttle=0, max_in_per_broker=2))
    world.step()
    simulator.restart(1)
    progress = world.run()
    assert list(world.states().values()) == ["completed"] * 2 + ["satisfied"] * 3
    assert world.replicas("t-0") == (4, 2, 3)
    assert world.replicas("t-2") == (3, 1, 2)
    assert progress.sentence.endswith("2 of 5 partitions moved, 3 needed nothing any more.")
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
    assert {held.reason for held in progress.held} == {HoldReason.TARGET_DEAD}
    assert progress.held[0].sentence == (
        "t-0 was not moved: broker 4, which is to receive it, is not live; it is tried again."
    )
    assert progress.held[0].sentence in progress.sentence
    assert {name: each.replicas for name, each in simulator.topics.items()} == before
    assert "submit" not in world.actions()


def test_a_heal_hands_back_what_it_cannot_do_and_the_next_may_take_it(simulator: Simulator) -> None:
    world = heal(simulator, settings=Settings(throttle=0, max_attempts=3))
    simulator.kill(4)
    progress = world.run()
    assert progress.status is PlanStatus.COMPLETED
    assert progress.dropped == 5
    assert progress.left == 5
    record = world.journal.plans.get(world.digest)
    assert record is not None
    assert record.live_brokers == ()
    assert world.row("t-0").detail.startswith("handed back after 3 attempts: t-0 was not moved: broker 4")


def test_what_a_person_asked_for_is_stuck_and_keeps_the_cluster(simulator: Simulator) -> None:
    world = apply(simulator, move("t-0", "123", "423"), settings=Settings(throttle=0, max_attempts=3))
    simulator.kill(4)
    progress = world.run()
    assert progress.status is PlanStatus.STUCK
    assert progress.waits_for_person
    assert progress.sentence.startswith(
        f"Plan {world.digest[:12]} is stuck after 3 attempts and waits for a person: t-0"
    )
    assert world.journal.slot.owner() == world.digest
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
    assert progress.held[0].reason is HoldReason.TARGET_DEAD
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
    assert world.step().held[0].reason is HoldReason.KEPT_REPLICA_DEAD


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
    assert {held.reason for held in progress.held} == {HoldReason.CLUSTER_DISABLED}
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
    assert world.row("t-4").detail == "t-4 was not moved: it does not exist any more."
    assert world.borrowed() == []


def test_a_topic_created_anew_in_the_middle_is_left_alone(simulator: Simulator) -> None:
    world = heal(simulator, settings=Settings(throttle=0, max_in_per_broker=2))
    world.step()
    simulator.delete("t")
    simulator.create("t", [(2, 3, 4)] * 6)
    progress = world.run()
    assert progress.dropped == 5
    assert world.row("t-0").detail == "the topic was deleted and created anew"
    assert world.replicas("t-0") == (2, 3, 4)


def test_what_someone_else_moves_is_theirs(simulator: Simulator) -> None:
    world = apply(simulator, move("t-0", "123", "423"), move("t-1", "231", "234", position=1))
    simulator.alter({TopicPartition("t", 1): (2, 4, 1)})
    progress = world.step()
    assert progress.held[0].reason is HoldReason.FOREIGN_REASSIGNMENT
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
    assert world.row("t-0").detail == "someone else cancelled it"


def test_a_reassignment_that_reached_its_target_by_others_needs_nothing(simulator: Simulator) -> None:
    world = apply(simulator, move("t-0", "123", "423"))
    simulator.alter({TopicPartition("t", 0): (4, 2, 3)})
    simulator.run()
    assert world.run().satisfied == 1


def test_an_answer_that_was_lost_is_read_from_the_cluster(
    simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = heal(simulator)
    unanswered = lambda targets: simulator.alter_unanswered(targets, after_ticks=3)  # noqa: E731
    with monkeypatch.context() as patch:
        patch.setattr(simulator, "alter", unanswered)
        progress = world.step()
    assert progress.sentence == "The controller did not answer in 30 s; the change may have been made."
    record = world.journal.plans.get(world.digest)
    assert record is not None
    assert record.attempts == 1
    assert {row.outcome for row in world.journal.audit.rows(plan=world.digest)} == {Outcome.UNKNOWN}
    progress = world.run()
    assert progress.completed == 5
    simulator.tick(5)
    assert all(simulator.topics[row.topic_partition].replicas == row.move.after for row in world.rows())


def test_what_kafka_refuses_is_told_in_its_own_words(simulator: Simulator) -> None:
    world = apply(simulator, move("t-0", "123", "923"), settings=Settings(throttle=0, max_attempts=2))
    simulator.racks.pop(9, None)
    simulator.alive.add(9)  # it lives, and the controller does not know it: refused
    simulator.racks[9] = None
    snapshot = simulator.snapshot()
    assert 9 in snapshot.live
    simulator.snapshot = lambda *_: snapshot  # type: ignore[method-assign]
    del simulator.racks[9]
    progress = world.step()
    assert progress.held[0].reason is HoldReason.KAFKA_REFUSED
    assert "The manual partition assignment is not valid." in progress.sentence
    assert world.run().status is PlanStatus.STUCK


def test_a_cluster_that_does_not_answer_is_counted_and_told(simulator: Simulator) -> None:
    world = apply(simulator, move("t-0", "123", "423"), settings=Settings(throttle=0, max_attempts=3))
    simulator.reachable = False
    assert world.step().sentence == "No bootstrap server answers."
    simulator.reachable = True
    world.step()
    record = world.journal.plans.get(world.digest)
    assert record is not None
    assert record.attempts == 0
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


def test_another_cluster_or_an_unknown_plan_is_refused(simulator: Simulator) -> None:
    world = heal(simulator)
    with pytest.raises(PlanError, match="no plan 0000"):
        Runner(simulator, world.journal, "0000", world.settings, WHO).step()
    simulator.cluster_id = "another"
    with pytest.raises(PlanError, match="is of cluster simulated, and this is another"):
        world.step()


def test_beside_a_live_stepper_it_does_nothing_and_says_who(simulator: Simulator) -> None:
    world = heal(simulator)
    with world.journal.step_lock("other:1"):
        progress = world.step()
    assert progress.busy
    assert progress.sentence.startswith("The plan is being stepped by other:1")
    assert world.actions() == []


def test_a_plan_that_made_way_goes_on_afterwards(simulator: Simulator) -> None:
    world = apply(simulator, move("t-0", "123", "423"))
    healing = World(simulator, world.journal, [move("t-1", "231", "234")])
    world.journal.slot.take(world.digest)
    world.journal.slot.yield_to(healing.digest)
    record = world.journal.plans.get(world.digest)
    assert record is not None
    world.journal.plans.update(record, status=PlanStatus.PAUSED, reason="it made way")
    assert "belongs to plan" in world.step().sentence
    healing.run()
    assert "resume" in world.actions()
    assert world.run().completed == 1


def test_the_loop_waits_between_steps_and_reports_each(simulator: Simulator) -> None:
    world = heal(simulator)
    waits: list[float] = []
    told: list[str] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        simulator.tick()

    progress = run_to_end(world.runner, wait, interval_s=2, report=lambda each: told.append(each.sentence))
    assert progress.ended
    assert len(waits) == len(told) - 1
    assert set(waits) == {2.0}, "nothing waits for a place"
    assert told[-1] == progress.sentence


def test_the_loop_hurries_while_places_fall_free(simulator: Simulator) -> None:
    world = heal(simulator, settings=Settings(throttle=0, max_in_per_broker=1))
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        simulator.tick()

    assert run_to_end(world.runner, wait, interval_s=2).ended
    assert waits[:4] == [0.5] * 4
    assert waits[-1] == 2
