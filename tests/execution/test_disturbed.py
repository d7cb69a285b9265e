"""The Runner on a simulated cluster, in the world as it is: brokers die and return, people and requests get lost.

Bad input, pressure and odd clocks end in a sentence or a slow start, and never in a burst.
`tests/test_settings.py` and `tests/hooks/test_access.py` have what is refused before a plan begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest

from kafka_steward.assignment import Assignment, Operation, TopicPartition
from kafka_steward.cluster.state import BrokerLogDirs
from kafka_steward.errors import KafkaRefused, KafkaTimeout, VersionConflict
from kafka_steward.execution.moves.concurrency import Pressure
from kafka_steward.execution.moves.states import HoldReason
from kafka_steward.execution.unsettled import record_unsettled
from kafka_steward.journal.audit import Action, Outcome
from kafka_steward.journal.records import MoveState, PlanStatus
from kafka_steward.settings import Settings
from tests.documents import create_document
from tests.execution.runs import apply, heal, simulator
from tests.simulated_plan import World, memory_journal, move
from tests.simulator import DISK, Simulator

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
    still = "5 still not fully replicated: t-0, t-1, t-2 and 2 more"
    assert progress.sentence.endswith(f"has failed: 0 of 5 partitions moved, 5 dropped ({still}).")
    assert progress.dropped == 5
    assert progress.left == 5
    assert world.record().live_brokers == ()
    for row in world.rows():
        begin = f"deferred to the next plan after 3 attempts: {row.topic_partition} was not moved: target broker 4"
        assert row.detail.startswith(begin)


def test_what_a_person_asked_for_is_stuck_and_keeps_the_cluster(simulator: Simulator) -> None:
    world = apply(simulator, move("t-0", "123", "423"), settings=Settings(throttle=0, max_attempts=3))
    simulator.kill(4)
    progress = world.run()
    assert progress.status is PlanStatus.STUCK
    assert progress.waits_for_person
    assert progress.sentence == (
        f"Plan {world.digest[:12]} is stuck after 3 attempts and needs operator action: t-0 was not moved: target "
        "broker 4 is not live."
    ), "nothing is retried"
    assert world.journal.slot.holders() == (world.digest,)
    assert world.step().status is PlanStatus.STUCK


def test_a_target_that_dies_in_the_middle_is_rescued_in_order_and_goes_on_later(simulator: Simulator) -> None:
    world = apply(simulator, move("t-0", "123", "423", size=1000))
    simulator.topics[TopicPartition("t", 0)].size = 1000
    world.step()
    simulator.tick()
    simulator.kill(4)
    world.confirm_deaths()
    assert world.replicas("t-0") == (4, 2, 3, 1), "one look shows no death"
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


def test_a_kept_replica_that_dies_in_the_middle_is_waited_for_as_long_as_its_heal(simulator: Simulator) -> None:
    world = apply(simulator, move("t-0", "123", "423", size=1000))
    simulator.topics[TopicPartition("t", 0)].size = 1000
    world.step()
    simulator.kill(3)
    for _ in range(5):
        world.confirm_deaths()
    until = "until its broker 3, which is not live, is back and in sync; after 1800 s without it, the move is cancelled"
    assert f"t-0 stays in flight {until}." in world.step().sentence
    assert world.replicas("t-0") == (4, 2, 3, 1)
    simulator.now_ms += 1_800_000
    world.step()
    world.step()
    assert world.replicas("t-0") == (1, 2, 3)
    assert world.step().held[0].code is HoldReason.KEPT_REPLICA_DEAD


def test_a_move_whose_only_copy_in_sync_is_a_new_one_is_not_cancelled_when_a_target_dies(simulator: Simulator) -> None:
    world = apply(simulator, move("t-0", "123", "341", size=1000))
    moving = simulator.topics[TopicPartition("t", 0)]
    moving.size = 1000
    world.step()
    moving.isr.add(4)
    for broker in (1, 2, 3):
        simulator.kill(broker)
    assert (moving.isr, moving.leader) == ({4}, 4)
    world.step()
    assert (moving.isr, moving.leader, world.states()["t-0"]) == ({4}, 4, "submitted")
    for broker in (1, 2, 3):
        simulator.restart(broker)
    world.run()
    assert world.replicas("t-0") == (3, 4, 1)


def test_a_broker_that_announced_its_restart_is_waited_for(simulator: Simulator) -> None:
    world = apply(simulator, move("t-0", "123", "423", size=1000))
    simulator.topics[TopicPartition("t", 0)].size = 1000
    world.step()
    create_document(world.journal.mailbox, "/admin/rolling_bounce/4", '{"timestamp": 5}')
    simulator.kill(4)
    world.step()
    assert simulator.reassignments()
    simulator.restart(4)
    world.run()
    assert world.replicas("t-0") == (4, 2, 3)


def test_a_topic_deleted_in_the_middle_is_dropped(simulator: Simulator) -> None:
    simulator.create("u", [(1, 2, 3)])
    world = heal(simulator, settings=Settings(throttle=50, max_in_per_broker=2))
    world.step()
    simulator.delete("t")
    progress = world.run()
    assert progress.status is PlanStatus.COMPLETED
    assert (progress.dropped, progress.completed, progress.left) == (5, 1, 0)
    assert world.row("t-0").detail == "its topic was deleted"
    assert world.row("t-4").detail == "t-4 was not moved: its topic was deleted."
    assert world.leases() == []


def test_a_topic_whose_deletion_is_pending_is_dropped_but_for_what_moves_already(simulator: Simulator) -> None:
    world = apply(simulator, move("t-0", "123", "423"), move("t-1", "231", "241"), settings=Settings(max_in_flight=1))
    simulator.bandwidth = 1
    world.step()
    simulator.deletions["t"] = {1, 2, 3}
    assert simulator.snapshot().partitions.keys() == {TopicPartition("t", 0)}
    world.step()
    assert (world.row("t-0").state, world.row("t-1").detail) == (
        MoveState.SUBMITTED,
        "t-1 was not moved: the deletion of its topic is pending.",
    )
    simulator.bandwidth = 1000
    assert world.run().ended
    assert world.leases() == []


def test_a_topic_that_is_recreated_in_the_middle_is_left_alone(simulator: Simulator) -> None:
    world = heal(simulator, settings=Settings(throttle=0, max_in_per_broker=2))
    world.step()
    simulator.delete("t")
    simulator.create("t", [(2, 3, 4)] * 6)
    progress = world.run()
    assert progress.dropped == 5
    assert world.row("t-0").detail == "its topic was deleted and re-created"
    assert world.replicas("t-0") == (2, 3, 4)


@pytest.mark.parametrize("mode", ["kraft", "zookeeper"])
@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("copies", [False, True])
def test_a_topic_that_is_recreated_while_it_is_submitted_is_given_back_or_named(
    monkeypatch: pytest.MonkeyPatch, mode: str, staged: bool, copies: bool
) -> None:
    """Kafka knows topics by their names: it moves the new one."""
    simulator = Simulator.of("1a 2b 3c 4a 5b 6c", "t: 123", mode=mode)
    alter = simulator.alter

    def too_late(targets: Mapping[TopicPartition, Assignment], **more: bool) -> Any:
        monkeypatch.setattr(simulator, "alter", alter)
        simulator.delete("t")
        simulator.create("t", [(6, 2, 3)], size=100 if copies else 0)
        return simulator.alter(targets, **more)

    rules = Settings(throttle=0, one_replica_at_a_time=staged)
    world = apply(simulator, move("t-0", "123", "453", topic_id="id1"), settings=rules)
    monkeypatch.setattr(simulator, "alter", too_late)
    simulator.bandwidth = 10
    progress = world.run()
    assert (progress.dropped, simulator.reassignments()) == (1, {})
    cancels = [row.entry for row in world.journal.audit.rows(plan=world.digest, action=Action.CANCEL)]
    there = world.replicas("t-0")
    if copies:
        assert world.row("t-0").detail.endswith(
            "what Kafka began with the new one is cancelled, whose replicas may be in another order"
        )
        assert (sorted(there), len(cancels)) == ([2, 3, 6], 1)
        assert "created anew while the move was submitted" in cancels[0].reason
    else:
        assert "the new one has replicas of this move" in world.row("t-0").detail
        assert (there, cancels) == ((1, 2, 3, 4) if staged else (4, 5, 3), [])


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


def test_a_lost_answer_is_read_from_the_cluster(simulator: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_what_kafka_refuses_is_reported_in_its_own_words(simulator: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert progress.held[0].sentence.count("efused") == 1, "Kafka's own text, and not also what we say of it"
    assert "The manual partition assignment is not valid." in progress.sentence
    assert world.run().status is PlanStatus.STUCK


def test_live_receivers_alone_are_asked_for_directories_and_for_the_sizes_of_what_moves(
    simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    log_dirs, log_sizes = simulator.log_dirs, simulator.log_sizes

    def record_log_dirs(brokers: Collection[int]) -> dict[int, BrokerLogDirs]:
        asked.append(brokers)
        return log_dirs(brokers)

    def record_log_sizes(
        held: Mapping[int, Collection[TopicPartition]],
    ) -> dict[tuple[TopicPartition, int], int]:
        asked.append(held)
        return log_sizes(held)

    monkeypatch.setattr(simulator, "log_dirs", record_log_dirs)
    monkeypatch.setattr(simulator, "log_sizes", record_log_sizes)
    first, second = (TopicPartition("t", number) for number in (0, 4))
    for each in (first, second):
        simulator.topics[each].size = 10**9
    world = apply(simulator, move("t-0", "123", "423"), move("t-4", "213", "243"), settings=Settings(throttle=0))
    world.step()
    assert asked[0] == [4]
    asked.clear()
    world.step()
    assert all(each == {4: [first, second]} for each in asked)
    assert asked
    asked.clear()
    simulator.kill(4)
    world.step()
    assert asked == [], "nobody is left to be asked"


def test_a_cluster_that_does_not_answer_is_counted_and_reported(simulator: Simulator) -> None:
    world = apply(simulator, move("t-0", "123", "423"), settings=Settings(throttle=0, max_attempts=3))
    simulator.reachable = False
    assert world.step().sentence == "No bootstrap server answers."
    simulator.reachable = True
    world.step()
    assert world.record().attempts == 0
    simulator.reachable = False
    assert world.run().status is PlanStatus.STUCK


MB, HOUR_MS = 1_000_000, 3_600_000


class OddSimulator(Simulator):
    """A cluster whose brokers report `said` as the size of every replica; None: of none, -1: what it is."""

    said: int | None = -1
    tells_space = True

    def log_dirs(self, brokers: Collection[int]) -> dict[int, BrokerLogDirs]:
        found = super().log_dirs(brokers)
        return {broker: self._odd(dirs) for broker, dirs in found.items()}

    def _odd(self, dirs: BrokerLogDirs) -> BrokerLogDirs:
        sizes = dict(dirs.replica_bytes)
        if self.said is None:
            sizes = {}
        elif self.said >= 0:
            sizes = dict.fromkeys(sizes, self.said)
        space = {} if self.tells_space else {"total_bytes": None, "usable_bytes": None}
        directories = tuple(replace(each, **space, replica_bytes=sizes) for each in dirs.directories)  # type: ignore[arg-type]
        return replace(dirs, replica_bytes=sizes, directories=directories, **space)


def plan(
    count: int, settings: Settings, *, size: int = 3 * MB, planned: int | None = None, **more: Any
) -> tuple[OddSimulator, World]:
    """So many partitions of that size, each of which brings a replica to broker 4, where nothing arrives.

    `planned` is the size at planning, if it was another one.
    """
    simulator = OddSimulator.of("1a 2b 3c 4a", "t: " + " ".join(["123"] * count), size=size, bandwidth=0)
    assert isinstance(simulator, OddSimulator)
    for name, value in more.items():
        setattr(simulator, name, value)
    simulator.now_ms = 10 * HOUR_MS
    moves = [move(f"t-{n}", "123", "423", position=n, size=size if planned is None else planned) for n in range(count)]
    return simulator, apply(simulator, *moves, settings=settings)


def most_in_flight(world: World, steps: int = 6) -> int:
    return max(world.step().in_flight for _ in range(steps))


# limits that contradict each other


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        ({"max_in_flight": 2, "max_in_per_broker": 1000}, 2),
        ({"max_in_flight": 1, "max_in_per_broker": 9, "max_out_per_broker": 9}, 1),
        ({"max_in_flight": 3000, "max_in_per_broker": 4}, 4),
        ({"max_in_flight": 3000, "max_out_per_broker": 5, "max_in_per_broker": 1000}, 5),
        ({"window": "chunk", "heal_chunk_size": 1, "max_in_flight": 3000, "max_in_per_broker": 6}, 6),
    ],
)
def test_of_limits_that_contradict_each_other_the_lowest_holds(limits: dict[str, Any], most: int) -> None:
    _, world = plan(20, Settings.of({"throttle": 0, "min_free": 0, **limits}), size=100)
    assert most_in_flight(world) == most


def test_a_chunk_holds_beside_limits_that_would_let_more_start() -> None:
    simulator = Simulator.of("1a 2b 3c 4a", "t: " + " ".join(["123"] * 6), bandwidth=0)
    moves = [move(f"t-{n}", "123", "423", chunk=n // 2, position=n % 2) for n in range(6)]
    settings = Settings.of({"throttle": 0, "window": "chunk", "max_in_flight": 3000, "chunk_pause": 30})
    world = apply(simulator, *moves, settings=settings)
    assert most_in_flight(world) == 2
    simulator.bandwidth = 1_000
    simulator.tick()
    assert world.step().in_flight == 0, "the pause between two chunks holds"
    simulator.tick(31)
    assert world.step().in_flight == 2


# rates


@pytest.mark.parametrize(
    "rate",
    [{"throttle": 1}, {"network_bandwidth": 1, "throttle_fraction": 1e-9}],
    ids=["one byte", "a fraction that is less than a byte"],
)
def test_a_throttle_of_a_byte_or_less_is_one_byte_and_keeps_few_in_flight(rate: dict[str, Any]) -> None:
    simulator, world = plan(20, Settings.of({**rate, "min_free": 0}))
    assert most_in_flight(world) == 3, "10 MB, what one response to a fetch may have"
    assert simulator.broker_settings[4]["follower.replication.throttled.rate"] == "1"


# sizes


def test_a_partition_that_is_larger_than_every_disk_is_held_with_a_sentence_and_holds_up_no_other() -> None:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 123", bandwidth=1_000, size=100)
    huge = next(iter(simulator.topics.values()))
    huge.size = 2 * DISK
    huge.held = dict.fromkeys(huge.held, 2 * DISK)
    moves = [move("t-0", "123", "423", size=2 * DISK), move("t-1", "123", "423", position=1)]
    world = apply(simulator, *moves, settings=Settings.of({"throttle": 0, "max_attempts": 3}))
    first = world.step()
    assert (first.in_flight, len(first.held)) == (1, 1)
    assert (first.held[0].topic, first.held[0].partition) == ("t", 0)
    assert "less free disk space than min_free requires" in first.held[0].sentence
    last = world.run()
    assert world.states() == {"t-0": "held", "t-1": "completed"}
    assert last.status is PlanStatus.STUCK
    assert "less free disk space than min_free requires" in last.sentence


@pytest.mark.parametrize(
    ("said", "sentence"),
    [(None, "answers DescribeLogDirs without it"), (2**63 - 1, "less free disk space than min_free requires")],
    ids=["no leader reports a size", "the largest size that Kafka can say"],
)
def test_nothing_starts_without_a_size_or_without_room_for_it(said: int | None, sentence: str) -> None:
    _, world = plan(20, Settings.of({"throttle": 50 * MB, "min_free": 0}), said=said)
    for _ in range(5):
        progress = world.step()
        assert (progress.in_flight, len(progress.held)) == (0, 20)
        assert sentence in progress.held[0].sentence


def test_without_any_size_or_room_few_start_at_once_and_no_more_while_none_ends() -> None:
    """Before Kafka 3.3 a broker reports no free space."""
    simulator, world = plan(100, Settings.of({"throttle": 50 * MB}), said=None, tells_space=False)
    world.moves = [replace(each, size_bytes=None) for each in world.moves]
    world.publish("unknown", world.moves)
    world.digest = "unknown"
    world.runner = world.new_runner()
    assert most_in_flight(world) == 5
    simulator.bandwidth = 1_000 * MB
    seen = [world.step().in_flight]
    for _ in range(4):
        simulator.tick()
        seen.append(world.step().in_flight)
    assert seen == [5, 5, 10, 20, 40], "it doubles after a step that found them ended"


@pytest.mark.parametrize("said", [0, 1])
def test_sizes_that_are_far_too_small_end_at_the_counts_and_at_the_rate(said: int) -> None:
    limits = {"throttle": 1 * MB, "min_free": 0, "max_in_per_broker": 7}
    simulator, world = plan(20, Settings.of(limits), said=said, planned=said)
    assert most_in_flight(world) == 7
    assert simulator.broker_settings[4]["follower.replication.throttled.rate"] == str(MB)


@pytest.mark.parametrize("throttle", [0, 1 * MB])
def test_a_leader_that_reports_nothing_all_at_once_does_not_widen_the_window(throttle: int) -> None:
    """What was planned counts, without a throttle as well: 64 MB are 3 partitions of 20 MB, and 10 MB one."""
    _, world = plan(20, Settings.of({"throttle": throttle, "min_free": 0}), size=20 * MB, said=0)
    assert most_in_flight(world) == (1 if throttle else 3)


def test_without_a_throttle_partitions_that_are_said_to_be_empty_start_a_few_at_a_time() -> None:
    """Nothing limits what they turn out to be. With a throttle its rate does, and as many start as at most may."""
    simulator, world = plan(100, Settings.of({"throttle": 0, "min_free": 0}), size=0)
    assert most_in_flight(world) == 5
    simulator.bandwidth = MB
    simulator.tick()
    assert world.step().in_flight == 5
    simulator.tick()
    assert world.step().in_flight == 10
    _, world = plan(100, Settings.of({"throttle": MB, "min_free": 0}), size=0)
    assert most_in_flight(world) == 50


def test_the_largest_size_that_kafka_can_say_goes_one_at_a_time_where_the_room_is_unknown() -> None:
    _, world = plan(20, Settings.of({"throttle": 1 * MB}), said=2**63 - 1, tells_space=False)
    assert most_in_flight(world) == 1


# clocks


def test_a_clock_that_jumps_an_hour_ahead_and_back_starts_nothing_more() -> None:
    simulator, world = plan(20, Settings.of({"throttle": 1 * MB, "min_free": 0, "when_stalled": "wait"}), size=20 * MB)
    seen = []
    for jump_ms in (0, HOUR_MS, 0, -HOUR_MS, 0, -HOUR_MS, 0, HOUR_MS, 0):
        simulator.now_ms += jump_ms
        seen.append(world.step().in_flight)
        simulator.now_ms += 2_000
    assert max(seen) <= 2, seen
    assert Counter(world.actions())["submit"] <= 2


@pytest.mark.parametrize("when_stalled", ["cancel", "fail"])
def test_a_clock_that_jumps_ahead_makes_no_move_stalled(when_stalled: str) -> None:
    """Nobody has seen that nothing arrives for so long; a Kafka that did not answer for an hour is the same."""
    settings = {"throttle": 1 * MB, "min_free": 0, "when_stalled": when_stalled, "stall_after": 120}
    simulator, world = plan(3, Settings.of(settings), size=20 * MB)
    for _ in range(3):
        progress = world.step()
        assert (progress.in_flight, progress.stalled, progress.stops) == (1, (), False)
        simulator.now_ms += HOUR_MS if progress.partitions_settled == 0 else 0
        assert world.step().in_flight == 1
        simulator.now_ms += 2_000
    assert Counter(world.actions())["cancel"] == 0


def test_a_pause_between_chunks_is_not_shortened_by_a_clock_that_jumps_back() -> None:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 123", bandwidth=1_000)
    simulator.now_ms = 10 * HOUR_MS
    moves = [move(f"t-{n}", "123", "423", chunk=n) for n in range(2)]
    world = apply(simulator, *moves, settings=Settings.of({"throttle": 0, "window": "chunk", "chunk_pause": 60}))
    assert world.step().in_flight == 1
    simulator.tick()
    assert world.step().in_flight == 0
    simulator.now_ms -= HOUR_MS
    assert world.step().in_flight == 0
    simulator.now_ms += HOUR_MS + 61_000
    assert world.step().in_flight == 1


OUTSIDE = TopicPartition("u", 0)
EIGHT_AT_ONCE = Settings(throttle=0, max_in_per_broker=8)


class SlowSimulator(Simulator):
    """Its controller takes so many milliseconds for a submission, or does not answer it, and does nothing."""

    takes_ms, silent = 0, False

    def alter(
        self, targets: Mapping[TopicPartition, Assignment], *, keep_factor: bool = False
    ) -> dict[TopicPartition, KafkaRefused | None]:
        self.now_ms += self.takes_ms
        if self.silent:
            raise KafkaTimeout("The controller did not answer.")
        return super().alter(targets, keep_factor=keep_factor)


def of(kind: type[Simulator], **more: int) -> Simulator:
    return kind.of("1a 2b 3c 4a", "t: " + " ".join(["123"] * 20), "u: 123", **more)


def twenty(simulator: Simulator, settings: Settings, *, size: int = 100) -> World:
    moves = [move(f"t-{n}", "123", "423", position=n, size=size) for n in range(20)]
    return apply(simulator, *moves, settings=settings)


def test_fewer_moves_start_while_a_partition_outside_the_plan_is_out_of_sync() -> None:
    simulator = of(Simulator, bandwidth=0)
    world = twenty(simulator, EIGHT_AT_ONCE)
    simulator.topics[OUTSIDE].isr.discard(3)
    progress = world.step()
    assert (progress.in_flight, progress.pressure) == (2, Pressure.OUT_OF_SYNC)
    assert progress.sentence.endswith(
        "Moves from and to broker 1 start more slowly: u-0, outside this plan, is out of sync."
    )
    simulator.topics[OUTSIDE].isr.add(3)
    assert world.step().pressure is Pressure.OUT_OF_SYNC, "the others are looked at once per second"
    simulator.tick()
    progress = world.step()
    assert (progress.in_flight, progress.pressure) == (8, None)


def test_a_step_during_which_another_process_changed_the_plan_says_so(
    simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = apply(simulator, move("t-0", "123", "423"))
    conflict = VersionConflict("/steward/plans/x was changed since version 7 was read; read it again.")
    with monkeypatch.context() as patched:
        patched.setattr(world.journal.plans, "update", Mock(side_effect=conflict))
        progress = world.step()
    assert progress.busy
    assert progress.sentence == (
        f"Plan {world.digest[:12]} was changed by another process during this step; the next step goes on from there."
    )
    world.run()


@pytest.mark.parametrize("operation", [Operation.HEAL, Operation.FILL, Operation.ROLLBACK, Operation.APPLY])
@pytest.mark.parametrize("replicas", ["91", "94", "98", "9"])
def test_a_partition_that_stays_under_min_isr_concerns_the_moves_of_its_brokers_alone(
    operation: Operation, replicas: str
) -> None:
    simulator = Simulator.of(
        "1a 2b 3c 4a 5b 6c 7a 8a 9a", "t: " + "123 " * 20, "w: " + "567 " * 20, f"x: {replicas}", bandwidth=0
    )
    both = [("t", "123", "423"), ("w", "567", "867")]
    moves = [move(f"{topic}-{n}", *way, position=n) for topic, *way in both for n in range(20)]
    world = World(simulator, memory_journal(simulator), moves, EIGHT_AT_ONCE, auto_generated=False, operation=operation)
    simulator.topics[TopicPartition("x", 0)].isr.discard(int(replicas[-1]))
    simulator.topic_settings["x"]["min.insync.replicas"] = "2"
    progress = world.step()
    in_flight = Counter(row.move.topic for row in world.rows() if row.state is MoveState.SUBMITTED)
    urgent, shared = operation is not Operation.APPLY, {"91": "t", "94": "t", "98": "w"}.get(replicas)
    assert in_flight == Counter({topic: 8 if topic != shared else 2 if urgent else 0 for topic in "tw"})
    assert "x-0, outside this plan, has fewer replicas in sync than min.insync.replicas" in progress.sentence
    assert len(progress.held) == (20 if shared and not urgent else 0)
    simulator.bandwidth = 1000
    assert not urgent or world.run().completed == 40


def test_a_partition_that_has_been_under_min_isr_for_longer_than_stuck_after_holds_nothing() -> None:
    simulator = of(Simulator, bandwidth=0)
    world = twenty(simulator, EIGHT_AT_ONCE)
    simulator.topics[OUTSIDE].isr.discard(3)
    simulator.topic_settings["u"]["min.insync.replicas"] = "3"
    simulator.alter({OUTSIDE: (1, 2, 3, 4)})
    simulator.topics[OUTSIDE].isr.add(3)
    record_unsettled(world.journal, simulator.snapshot())
    simulator.now_ms += int(EIGHT_AT_ONCE.stuck_after * 1000)
    simulator.cancel([OUTSIDE])
    simulator.topics[OUTSIDE].isr.discard(3)
    assert len(world.step().held) == 20, "it was reassigned for long, and is out of sync for a moment"
    simulator.now_ms += int(EIGHT_AT_ONCE.stuck_after * 1000)
    progress = world.step()
    assert (progress.in_flight, progress.held, progress.pressure) == (2, (), Pressure.OUT_OF_SYNC)


@pytest.mark.parametrize("why", ["a dead broker", "a failed disk", "a reassignment", "a partition of the plan"])
def test_what_other_moves_do_not_make_worse_is_no_pressure(why: str) -> None:
    simulator = of(Simulator, bandwidth=0)
    world = twenty(simulator, EIGHT_AT_ONCE)
    if why == "a dead broker":
        simulator.create("v", [(5, 2, 3)])
    elif why == "a failed disk":
        simulator.fail_disk(3, OUTSIDE)
    elif why == "a reassignment":
        simulator.alter({OUTSIDE: (1, 2, 4)})
    else:
        simulator.topics[TopicPartition("t", 19)].isr.discard(3)
    progress = world.step()
    assert progress.pressure is None
    assert progress.in_flight == (7 if why == "a reassignment" else 8)


def test_fewer_moves_start_after_the_controller_was_slow() -> None:
    simulator = of(SlowSimulator, bandwidth=50)
    assert isinstance(simulator, SlowSimulator)
    world = twenty(simulator, EIGHT_AT_ONCE)
    simulator.takes_ms = 6000
    first = world.step()
    assert (first.in_flight, first.pressure) == (8, None)
    simulator.bandwidth = 100_000
    simulator.takes_ms = 0
    simulator.tick()
    second = world.step()
    assert (second.in_flight, second.pressure) == (2, Pressure.CONTROLLER_SLOW)
    assert "the controller took 6 s for a request" in second.sentence
    simulator.tick()
    third = world.step()
    assert (third.in_flight, third.pressure) == (8, None)


def test_a_request_without_an_answer_is_a_slow_one() -> None:
    simulator = of(SlowSimulator, bandwidth=0)
    assert isinstance(simulator, SlowSimulator)
    world = twenty(simulator, EIGHT_AT_ONCE)
    simulator.takes_ms, simulator.silent = 6000, True
    assert world.step().in_flight == 8, "recorded as submitted, and not confirmed"
    simulator.takes_ms, simulator.silent = 0, False
    second = world.step()
    assert (second.in_flight, second.pressure) == (2, Pressure.CONTROLLER_SLOW)
    assert "the controller took 6 s for a request" in second.sentence


@pytest.mark.parametrize("operation", [Operation.APPLY, Operation.HEAL, Operation.FILL, Operation.ROLLBACK])
@pytest.mark.parametrize(
    ("setting", "at"),
    [
        ("max_in_per_broker", " into broker 4"),
        ("max_out_per_broker", " out of broker 1"),
        ("max_in_flight", ""),
        ("throttle", " into broker 4"),
    ],
)
def test_what_somebody_else_reassigns_without_end_takes_no_place_for_ever(
    operation: Operation, setting: str, at: str
) -> None:
    simulator = of(Simulator, bandwidth=0)
    moves = [move("t-0", "123", "423", size=10**8)]
    rules = Settings.of({"stuck_after": 3_600, setting: 1})
    simulator.topics[OUTSIDE].size = 10**12
    simulator.alter({OUTSIDE: (1, 2, 4)})
    world = World(simulator, memory_journal(simulator), moves, rules, auto_generated=False, operation=operation)
    progress, urgent = world.step(), operation is not Operation.APPLY
    assert (progress.in_flight, progress.held) == (int(urgent), ())
    named = (
        f"Moves{at} wait: the reassignment of {OUTSIDE}, which somebody else has in flight, counts towards {setting}"
    )
    assert (named in progress.sentence) is not urgent
    assert urgent or f"--cancel), or raise {setting}." in progress.sentence
    simulator.now_ms += 3_599_000
    assert world.step().in_flight == int(urgent)
    simulator.now_ms += 1_000
    progress = world.step()
    assert (progress.in_flight, "wait: the reassignment" in progress.sentence) == (1, False)


def test_what_another_plan_of_ours_has_in_flight_counts_until_it_ends() -> None:
    simulator = of(Simulator, bandwidth=0)
    journal = memory_journal(simulator)
    rules = Settings(throttle=0, max_in_per_broker=1, stuck_after=3_600)
    other, world = (
        World(simulator, journal, [each], rules, auto_generated=False, operation=Operation.APPLY)
        for each in (move("u-0", "123", "124"), move("t-0", "123", "423"))
    )
    assert other.step().in_flight == 1
    for _ in range(2):
        progress = world.step()
        assert (progress.in_flight, "somebody else" in progress.sentence) == (0, False)
        simulator.now_ms += 3_600_000
