"""The Runner in the world as it should be: what it does, in which order, how fast, and when it rests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_steward.assignment import Move, Operation, TopicPartition
from kafka_steward.errors import PlanError
from kafka_steward.execution.moves.concurrency import outside_window_reason
from kafka_steward.execution.moves.states import HoldReason
from kafka_steward.execution.plans.drive import DrivePolicy, run_to_end
from kafka_steward.execution.plans.runner import PlanRunner
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Outcome
from kafka_steward.journal.listing import QUARANTINE, quarantine_document
from kafka_steward.journal.mailbox import read_one
from kafka_steward.journal.records import MoveState, PlanRecord, PlanStatus
from kafka_steward.settings import Settings
from tests.documents import create_document
from tests.execution.runs import apply, heal, simulator
from tests.simulated_plan import FOLLOWERS, RATE, WHO, World, heal_moves, journal_of, memory_journal, move
from tests.simulator import Simulator

__all__ = ["simulator"]


def test_a_heal_makes_the_cluster_whole_and_says_so(simulator: Simulator, tmp_path: Path) -> None:
    simulator.kill(1)
    world = World(simulator, journal_of(simulator, tmp_path), heal_moves(simulator, 1, 4), failed=(1,))
    progress = world.run()
    assert progress.status is PlanStatus.COMPLETED
    assert progress.completed == 5
    assert all(simulator.topics[row.topic_partition].replicas == row.move.after for row in world.rows())
    assert progress.sentence == f"Plan {world.digest[:12]} is complete: 5 of 5 partitions moved."
    assert world.journal.slot.holders() == ()


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
    names = world.journal.mailbox.children(paths.REASSIGN_CHUNKS)
    left = {name: read_one(world.journal.mailbox, paths.chunk(name)) for name in names}
    assert world.run().ended
    for name, node in left.items():
        assert node is not None
        create_document(world.journal.mailbox, paths.chunk(name), node.data)
    world.step()
    assert world.journal.mailbox.children(paths.REASSIGN_CHUNKS) == []


def test_quarantined_documents_are_deleted_with_the_plans_of_their_time(simulator: Simulator) -> None:
    world, digests = heal(simulator), [letter * 64 for letter in "abc"]
    mailbox, times_ms = world.journal.mailbox, [0, world.settings.plan_retention * 86_400_000 - 60_000]
    for digest, ms in zip(digests[:2], times_ms, strict=True):
        simulator.now_ms += int(ms)
        record = world.publish(digest, [])
        world.journal.plans.update(record, status=PlanStatus.COMPLETED)
        quarantine_document(
            mailbox, world.journal.state, create_document(mailbox, f"/admin/{digest[0]}", "{"), "no JSON", None
        )
    simulator.now_ms += 120_000
    assert world.run().ended
    assert [world.journal.plans.get(digest) is None for digest in digests[:2]] == [True, False]
    assert [row.value.path for row in world.journal.rows(QUARANTINE).all()] == ["/admin/b"]


@pytest.mark.parametrize(("minutes", "kept"), [(59, True), (61, False)])
def test_without_retention_an_ended_plan_is_kept_for_an_hour(simulator: Simulator, minutes: int, *, kept: bool) -> None:
    world = heal(simulator, settings=Settings(throttle=0, plan_retention=0))
    world.journal.plans.update(world.publish("a" * 64, []), status=PlanStatus.COMPLETED)
    simulator.now_ms += minutes * 60_000
    assert world.run().ended
    assert (world.journal.plans.get("a" * 64) is not None) is kept


def test_publishing_again_does_not_begin_again(simulator: Simulator) -> None:
    world = heal(simulator)
    world.run()
    assert world.publish(world.digest, world.moves).status is PlanStatus.COMPLETED


def test_a_plan_that_moves_nothing_ends_at_once_and_says_what_is_left(simulator: Simulator) -> None:
    world = World(simulator, memory_journal(simulator), [], left=3)
    progress = world.step()
    assert progress.status is PlanStatus.COMPLETED
    assert progress.sentence.endswith("is complete: it had nothing to move, 3 partitions left by the plan.")
    assert world.record().live_brokers == (1, 2, 3, 4)


def test_no_more_are_in_flight_than_the_caps_allow(simulator: Simulator) -> None:
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


def test_another_cluster_or_an_unknown_plan_is_refused(simulator: Simulator) -> None:
    world = heal(simulator)
    with pytest.raises(PlanError, match="no plan 0000"):
        PlanRunner(ClusterContext(simulator, world.journal, world.settings, WHO), "0000").step()
    simulator.cluster_id = "another"
    with pytest.raises(PlanError, match="is of cluster simulated, and this is another"):
        world.step()


def test_the_loop_waits_between_steps_and_reports_each(simulator: Simulator) -> None:
    world = heal(simulator)
    waits: list[float] = []
    told: list[str] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        simulator.tick()

    progress = run_to_end(
        world.runner.step, wait, DrivePolicy(interval_s=lambda: 2, report=lambda each: told.append(each.sentence))
    )
    assert progress.ended
    assert len(waits) == len(told) - 1
    assert waits[0] == 0.3, "moves have started"
    assert set(waits) <= {0.3, 2.0}
    assert told[-1] == progress.sentence


def test_the_loop_hurries_while_places_fall_free(simulator: Simulator) -> None:
    world = heal(simulator, settings=Settings(throttle=0, max_in_per_broker=1))
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        simulator.tick()

    assert run_to_end(world.runner.step, wait, DrivePolicy(interval_s=lambda: 2)).ended
    assert len(waits) >= 4
    assert max(waits) <= 0.3


@pytest.mark.parametrize(("first", "second", "ended"), [("32", "4", True), ("32", "41", True), ("52", "4", False)])
def test_a_partition_without_a_live_replica_keeps_no_plan_from_ending(first: str, second: str, ended: bool) -> None:
    """A plan that waits for more needs a person."""
    simulator = Simulator.of("1a 2b 3c 4a 5b", "t: 12 5", size=100)
    simulator.kill(5)
    moves = [move("t-0", "12", first), move("t-1", "5", second, position=1)]
    world = apply(simulator, *moves, settings=Settings(throttle=0, max_attempts=3))
    progress = world.run()
    assert (progress.ended, progress.waits_for_person) == (ended, not ended)
    assert world.states() == {"t-0": "completed" if ended else "held", "t-1": "dropped"}
    assert (world.journal.slot.holders() == ()) is ended
    assert "bring back its broker 5" in world.row("t-1").detail


#: The simulator's clock begins at 1970-01-01 00:16:40 UTC.
SHUT = Settings(throttle=0, maintenance_window="02:00-04:00", max_in_flight=1)
TEN_TO_TWO_MS = (60 + 50) * 60_000


def resting(settings: Settings = SHUT, *, heal: bool = False) -> World:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 231 312")
    moves = [move("t-0", "123", "423"), move("t-1", "231", "234"), move("t-2", "312", "342")]
    return World(simulator, memory_journal(simulator), moves, settings, auto_generated=heal)


def test_outside_the_window_nothing_is_submitted_until_it_opens_as_the_sentence_says() -> None:
    closed = resting()
    for _ in range(3):
        told = closed.step()
        closed.simulator.tick()
    assert (told.in_flight, told.waiting, told.waits_for_person, told.ended) == (0, 3, False, False)
    assert told.sentence == (
        "0 of 3 partitions settled, 0 in flight, 3 waiting. Nothing new is submitted outside the maintenance window "
        "02:00-04:00; it opens 1970-01-01 02:00 (UTC)."
    )
    assert closed.simulator.reassignments() == {}
    assert (told.status, closed.record().attempts) == (PlanStatus.RUNNING, 0)
    closed.simulator.now_ms = 2 * 3_600_000
    assert closed.step().in_flight == 1
    assert closed.run().status is PlanStatus.COMPLETED


def test_what_is_in_flight_when_it_closes_is_let_finish() -> None:
    closed = resting(replace(SHUT, maintenance_window="00:00-02:00"))
    closed.simulator.now_ms = TEN_TO_TWO_MS
    assert closed.step().in_flight == 1
    closed.simulator.now_ms = 2 * 3_600_000
    told = closed.step()
    assert (told.in_flight, told.waiting) == (1, 2), "it is neither cancelled nor joined by another"
    closed.simulator.run()
    told = closed.step()
    assert (told.completed, told.in_flight, told.waiting) == (1, 0, 2)
    assert "it opens 1970-01-02 00:00 (UTC)" in told.sentence


def test_a_heal_waits_for_no_window() -> None:
    urgent = resting(heal=True)
    urgent.simulator.kill(1)
    assert urgent.step().in_flight == 1


@pytest.mark.parametrize("operation", list(Operation))
def test_only_what_can_wait_waits(operation: Operation) -> None:
    record = PlanRecord("d", "c", operation.value)
    urgent = {Operation.HEAL, Operation.FILL, Operation.ROLLBACK}
    assert (outside_window_reason(record, SHUT, 0) == "") is (operation in urgent)


def test_the_sentence_names_the_window_in_its_own_time_zone_and_is_empty_while_it_is_open() -> None:
    record, rome = PlanRecord("d", "c", "apply"), replace(SHUT, maintenance_timezone="Europe/Rome")
    assert outside_window_reason(record, rome, 0) == (
        "Nothing new is submitted outside the maintenance window 02:00-04:00; it opens 1970-01-01 02:00 (Europe/Rome)."
    )
    assert outside_window_reason(record, rome, 3_600_000) == ""
    assert outside_window_reason(record, Settings(), 0) == ""


def test_a_plan_that_made_way_goes_on_resting_and_does_not_wait_for_a_person() -> None:
    closed = resting()
    closed.journal.plans.update(closed.record(), status=PlanStatus.PREEMPTED)
    assert not closed.step().waits_for_person


def world_of(count: int, *, mode: str, size: int = 1, bandwidth: int = 10_000, throttle: int = 1_000) -> World:
    """A plan of so many moves of one topic."""
    assignments = " ".join(["123"] * count)
    simulator = Simulator.of("1a 2b 3c 4a", f"t: {assignments}", size=size, bandwidth=bandwidth, mode=mode)
    moves = [move(f"t-{at}", "123", "423", chunk=at // 50, position=at % 50, size=size) for at in range(count)]
    return World(
        simulator,
        memory_journal(simulator),
        moves,
        settings=Settings(throttle=throttle, max_in_flight=3000),
        auto_generated=False,
    )


def test_all_small_moves_start_in_one_step_and_end_in_the_next() -> None:
    world = world_of(400, mode="zookeeper")
    progress = world.step()
    assert (progress.in_flight, progress.waiting) == (400, 0)
    world.simulator.tick()
    progress = world.step()
    assert (progress.ended, progress.completed) == (True, 400)


def test_on_kraft_twice_as_many_small_moves_start_after_each_step_in_which_all_had_ended() -> None:
    world, started = world_of(450, mode="kraft"), list[int]()
    while not started or started[-1]:
        started.append(world.step().in_flight)
        world.simulator.tick()
    assert started == [50, 50, 100, 200, 50, 0]


@pytest.fixture
def almost_ended() -> World:
    """All but five of twenty moves have completed; the five are in flight, and none of them ends."""
    world = world_of(20, mode="kraft", size=100, bandwidth=0, throttle=0)
    ended = [each.topic_partition for each in world.moves[5:]]
    world.journal.plans.set_move_states(world.digest, ended, MoveState.COMPLETED, fence=None, attempt=1)
    assert world.step().in_flight == 5
    return world


def test_what_another_process_settled_counts_once(almost_ended: World) -> None:
    almost_ended.simulator.bandwidth = 10_000
    almost_ended.simulator.topics[TopicPartition("t", 4)].size = 10**6
    almost_ended.simulator.tick()
    assert almost_ended.new_runner().step().completed == 19
    for _ in range(2):
        progress = almost_ended.step()
        assert (progress.completed, progress.in_flight, progress.bytes_done) == (19, 1, 2_000)


def test_rows_that_a_restored_backup_brought_back_count_as_they_are(almost_ended: World) -> None:
    almost_ended.journal.plans.set_move_states(
        almost_ended.digest, [TopicPartition("t", 9)], MoveState.HELD, fence=None
    )
    progress = almost_ended.step()
    assert (progress.partitions_settled, progress.partitions_total) == (14, 20)


def test_the_end_looks_at_the_topics_whose_moves_had_settled_before() -> None:
    """A broker that dies after a topic's moves completed leaves them not fully replicated, and the end says so."""
    simulator = Simulator.of("1a 2b 3c 4a 5b", "a: 123", "b: 123", size=100, bandwidth=100)
    moves = [move("a-0", "123", "423"), move("b-0", "123", "523", position=1)]
    rules = Settings(throttle=0, max_in_flight=1)
    world = World(simulator, memory_journal(simulator), moves, settings=rules, auto_generated=False)
    while world.step().completed < 1 or world.step().in_flight < 1:
        simulator.tick()
    simulator.kill(4)
    progress = world.run()
    assert (progress.completed, progress.left) == (2, 1)
    assert progress.sentence.endswith("2 of 2 partitions moved (1 still not fully replicated: a-0).")


#: Both send to broker 4, and from each of the brokers 1, 2 and 3.
FIRST = [move("t-0", "123", "423"), move("t-1", "231", "431", position=1), move("t-4", "213", "413", position=2)]
SECOND = [move("t-2", "312", "412"), move("t-5", "321", "421", position=1), move("t-3", "124", "324", position=2)]


def two_plans(
    simulator: Simulator, first: list[Move], second: list[Move], *, throttles: tuple[int, int] = (0, 0), **rules: Any
) -> tuple[World, World]:
    """Two plans of one journal, both of which have begun."""
    one, other = (Settings(throttle=throttle, **rules) for throttle in throttles)
    world = apply(simulator, *first, settings=one)
    beside = World(simulator, world.journal, second, auto_generated=False, settings=other)
    for each in (world, beside):
        each.step()
    assert world.journal.slot.holders() == (world.digest, beside.digest)
    return world, beside


def run(worlds: tuple[World, World], observe: Callable[[], object]) -> None:
    """Step the plans in turn until both have ended."""
    for _ in range(60):
        progress = []
        for world in worlds:
            progress.append(world.step())
            observe()
        if all(each.ended for each in progress):
            return
        worlds[0].simulator.tick()
    raise AssertionError(f"not ended: {progress}")


def in_flight(world: World) -> int:
    return [row.state for row in world.rows()].count(MoveState.SUBMITTED)


@pytest.mark.parametrize("rules", [{"max_in_flight": 2}, {"max_in_per_broker": 2}, {"max_out_per_broker": 1}])
def test_two_plans_in_flight_never_exceed_the_limits_of_one(simulator: Simulator, rules: dict[str, Any]) -> None:
    seen = set()
    worlds = two_plans(simulator, FIRST, SECOND, **rules)

    def observe() -> None:
        moving = simulator.snapshot().reassigning
        senders = [each.leader for each in moving.values()]
        assert len(moving) <= rules.get("max_in_flight", 99)
        assert sum(4 in each.adding for each in moving.values()) <= rules.get("max_in_per_broker", 99)
        assert max(map(senders.count, senders), default=0) <= rules.get("max_out_per_broker", 99)
        seen.add(tuple(in_flight(world) > 0 for world in worlds))

    observe()
    run(worlds, observe)
    assert (True, True) in seen, "both had moves in flight at once"
    assert {simulator.topics[each.topic_partition].replicas for each in FIRST + SECOND} == {
        each.after for each in FIRST + SECOND
    }


def test_a_rate_that_two_plans_lease_is_the_stricter_one_and_is_released_with_the_last(simulator: Simulator) -> None:
    simulator.broker_settings[4][RATE] = "900"
    for number, size in ((0, 1_000), (2, 3_000)):
        simulator.topics[TopicPartition("t", number)].size = size
    worlds = two_plans(simulator, FIRST[:1], SECOND[:1], throttles=(200, 500))
    rates, lists = [simulator.broker_settings[4].get(RATE)], [simulator.topic_settings["t"].get(FOLLOWERS)]
    assert (rates, lists) == (["200"], ["0:4,2:4"])

    def observe() -> None:
        for seen, now in ((rates, simulator.broker_settings[4].get(RATE)), (lists, throttled(simulator))):
            if seen[-1] != now:
                seen.append(now)

    run(worlds, observe)
    assert (rates, lists) == (["200", "500", "900"], ["0:4,2:4", "2:4", None])
    assert worlds[0].leases() == []


def throttled(simulator: Simulator) -> str | None:
    return simulator.topic_settings.get("t", {}).get(FOLLOWERS)


@pytest.mark.parametrize("mode", ["kraft", "zookeeper"])
@pytest.mark.parametrize("settles", [True, False], ids=["in sync", "stuck_after"])
def test_a_partition_under_its_min_isr_elsewhere_is_waited_for_until_it_is_in_sync_or_stuck(
    settles: bool, mode: str
) -> None:
    simulator = Simulator.of("1a 2b 3c 4a 5b", "r: 123", "x: 45", mode=mode)
    simulator.topic_settings["x"]["min.insync.replicas"] = "2"
    outside = simulator.topics[TopicPartition("x", 0)]
    moves = [move("r-0", "123", "143")]
    rules = Settings(throttle=0, max_attempts=3, stuck_after=3600)
    world = World(simulator, memory_journal(simulator), moves, settings=rules, auto_generated=False)

    def lag() -> None:
        simulator.tick()
        outside.isr = {4}

    lag()
    for _ in range(10):
        progress = world.step()
        assert (progress.status, progress.held[0].code) == (PlanStatus.RUNNING, HoldReason.UNDER_MIN_ISR_ELSEWHERE)
        assert "x-0" in progress.sentence
        assert "stuck_after" in progress.sentence
        assert "retried" not in progress.sentence
        lag()
    assert world.record().attempts == 0
    if settles:
        outside.isr = {4, 5}
    else:
        simulator.now_ms += 3600 * 1000
    assert world.run(between=simulator.tick if settles else lag).completed == 1


def test_what_is_given_up_is_not_said_to_be_retried_and_nothing_says_when_what_is_held_ends(
    simulator: Simulator,
) -> None:
    world = heal(simulator, settings=Settings(throttle=0, max_attempts=2))
    simulator.kill(4)
    first, second = world.step(), world.step()
    assert (len(first.held), first.eta_s) == (5, None)
    assert "target broker 4 is not live; it is retried" in first.sentence
    assert (second.partitions_settled, second.held) == (5, ())
    assert "it is retried" not in second.sentence
