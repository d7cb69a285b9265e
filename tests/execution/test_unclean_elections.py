"""Moves of topics that allow unclean leader elections: no new replica is elected before a better one (both modes)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.cluster.metadata_freshness import MetadataReconciler
from kafka_steward.cluster.requests import INVALID_ASSIGNMENT, refusal_error
from kafka_steward.cluster.state import Partition
from kafka_steward.execution.announcements import announce_restart
from kafka_steward.execution.moves.staging import as_completed_stage, next_stage, part_in_flight
from kafka_steward.execution.moves.states import HoldReason
from kafka_steward.execution.plans.lifecycle import Scope, request_cancel
from kafka_steward.execution.plans.undo_verification import verify_undone
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action
from kafka_steward.journal.records import Cause, MoveRow, MoveState, Phase, PlanStatus
from kafka_steward.settings import Settings
from tests.documents import create_document, delete_document
from tests.simulated_plan import FOLLOWERS, RATE, WHO, World, heal_moves, memory_journal, move
from tests.simulator import UNCLEAN, Simulator

T0 = TopicPartition("t", 0)
UNTHROTTLED = Settings(throttle=0)


def submitted(world: World) -> list[tuple[list[int], list[int]]]:
    rows = world.journal.audit.rows(plan=world.digest, action=Action.SUBMIT)
    return [(row.entry.before, row.entry.after) for row in rows]


@pytest.fixture(params=["kraft", "zookeeper"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def unclean(mode: str, replicas: str, *, size: int = 180) -> Simulator:
    simulator = Simulator.of("1a 2b 3c 4a 5b", f"t: {replicas}", mode=mode, size=size, bandwidth=30)
    simulator.topic_settings["t"][UNCLEAN] = "true"
    return simulator


def lags(simulator: Simulator, broker: int, *, by: int) -> None:
    """A live replica that does not catch up any more."""
    partition = simulator.topics[T0]
    partition.isr.discard(broker)
    partition.held[broker] = partition.size - by
    simulator.topic_settings["t"][FOLLOWERS] = f"{T0.partition}:{broker}"
    simulator.broker_settings[broker][RATE] = "0"


def applied(simulator: Simulator, before: str, after: str, **more: Any) -> World:
    moves = [move("t-0", before, after, size=180)]
    given = {"settings": UNTHROTTLED, "auto_generated": False, **more}
    return World(simulator, memory_journal(simulator), moves, **given)


def stage(before: str, after: str, live: str, *, unclean: bool = True, one_at_a_time: bool = False) -> str:
    seen = Partition("t", 0, tuple(map(int, before)), frozenset(map(int, before)), int(before[0]))
    asked, serving = move("t-0", before, after), frozenset(map(int, live))
    found = next_stage(asked, seen, serving, one_at_a_time=one_at_a_time, unclean=unclean)
    return "".join(map(str, found.after))


@pytest.mark.parametrize(
    ("before", "after", "live", "expected"),
    [
        ("12", "31", "12345", "123"),
        ("12", "34", "12345", "1234"),
        ("12", "312", "12345", "123"),
        ("123", "412", "12345", "1234"),
        ("12", "13", "12345", "123"),
        ("12", "123", "12345", "123"),
        ("12", "21", "12345", "21"),
        ("123", "12", "12345", "12"),
        ("1", "2", "12345", "2"),
        ("12", "31", "1345", "31"),
        ("123", "412", "1245", "124"),
        ("123", "423", "2345", "234"),
        ("123", "234", "2345", "234"),
        ("123", "453", "2345", "2345"),
    ],
)
def test_all_live_originals_stand_before_the_new_replicas(before: str, after: str, live: str, expected: str) -> None:
    assert stage(before, after, live) == expected
    assert stage(before, after, live, unclean=False) == after


def test_one_at_a_time_the_last_stage_copies_nothing_either() -> None:
    assert stage("123", "456", "12345678", one_at_a_time=True) == "1234"
    assert stage("12345", "456", "12345678", one_at_a_time=True) == "123456"
    assert stage("123456", "456", "12345678", one_at_a_time=True) == "456"


STAGED = move("t-0", "12", "31")
COMES = Partition("t", 0, (1, 2, 3), frozenset({1, 3}), 1, adding=(3,))


def test_a_stage_whose_new_replicas_are_in_sync_counts_as_complete_whatever_else_lags() -> None:
    submitted_row = MoveRow(STAGED, MoveState.SUBMITTED, attempt=1, phase=Phase.ACCEPTED, stage=1)
    live = frozenset({1, 2, 3, 5})
    done = as_completed_stage(submitted_row, COMES, live)
    assert (done.replicas, done.reassigning, done.isr) == ((1, 2, 3), False, COMES.isr)
    waiting = MoveRow(STAGED, MoveState.WAITING, attempt=1, stage=1)
    assert not as_completed_stage(waiting, COMES, live).reassigning
    assert as_completed_stage(waiting, COMES, live - {1}) is COMES
    for row, seen in (
        (MoveRow(STAGED, MoveState.SUBMITTED, attempt=1, phase=Phase.CANCELLING, stage=1), COMES),
        (MoveRow(STAGED, MoveState.SUBMITTED, attempt=1, phase=Phase.ACCEPTED), COMES),
        (submitted_row, Partition("t", 0, (1, 2, 3), frozenset({1, 2}), 1, adding=(3,))),
        (submitted_row, Partition("t", 0, (3, 1, 2), frozenset({1, 3}), 1, adding=(3,), removing=(2,))),
        (submitted_row, Partition("t", 0, (1, 2, 5), frozenset({1, 5}), 1, adding=(5,))),
        (submitted_row, replace(COMES, offline=frozenset({1}))),
    ):
        assert as_completed_stage(row, seen, live) is seen


def test_what_is_in_flight_is_the_stage_with_all_new_replicas_and_then_the_rest() -> None:
    row = MoveRow(STAGED, MoveState.SUBMITTED, attempt=1, phase=Phase.ACCEPTED, stage=1)
    first = part_in_flight(row, COMES)
    assert (first.before, first.after) == ((1, 2), (1, 2, 3))
    last = part_in_flight(row, Partition("t", 0, (3, 1, 2), frozenset({1, 2, 3}), 1, removing=(2,)))
    assert (last.before, last.after, last.adding) == ((3, 1, 2), (3, 1), frozenset())


def test_when_the_only_replica_in_sync_dies_the_better_of_the_others_leads(mode: str) -> None:
    simulator = unclean(mode, "12")
    lags(simulator, 2, by=20)
    world = applied(simulator, "12", "31")
    world.step()
    simulator.tick()
    assert simulator.topics[T0].held[3] == 30
    simulator.kill(1)
    simulator.tick()
    assert (simulator.topics[T0].leader, simulator.topics[T0].size) == (2, 160), "3 has 30 of 180 messages"
    simulator.restart(1)
    assert world.run().status is PlanStatus.COMPLETED
    assert (world.replicas("t-0"), simulator.topics[T0].size) == ((3, 1), 160)


def test_the_move_completes_although_what_leaves_never_catches_up(mode: str) -> None:
    simulator = unclean(mode, "12")
    lags(simulator, 2, by=20)
    world = applied(simulator, "12", "31")
    assert world.run().status is PlanStatus.COMPLETED
    assert submitted(world) == [([1, 2], [1, 2, 3]), ([1, 2, 3], [3, 1])]
    assert (world.replicas("t-0"), simulator.topics[T0].size) == ((3, 1), 180)
    assert world.row("t-0").attempt == 2


def test_a_topic_that_forbids_unclean_elections_moves_at_once(mode: str) -> None:
    simulator = unclean(mode, "12")
    simulator.topic_settings["t"][UNCLEAN] = "false"
    world = applied(simulator, "12", "31")
    assert world.run().status is PlanStatus.COMPLETED
    assert submitted(world) == [([1, 2], [3, 1])]


def test_a_heal_moves_at_once_where_one_replica_is_left(mode: str) -> None:
    simulator = unclean(mode, "12")
    simulator.kill(1)
    world = World(simulator, memory_journal(simulator), heal_moves(simulator, 1, 3), settings=UNTHROTTLED, failed=(1,))
    assert world.run().status is PlanStatus.COMPLETED
    assert submitted(world) == [([1, 2], [3, 2])]


def test_a_heal_puts_what_is_left_before_the_new_replica_until_that_is_in_sync(mode: str) -> None:
    simulator = unclean(mode, "123")
    simulator.kill(1)
    lags(simulator, 3, by=10)
    world = World(simulator, memory_journal(simulator), heal_moves(simulator, 1, 4), settings=UNTHROTTLED, failed=(1,))
    world.step()
    simulator.tick()
    assert simulator.topics[T0].leader == 2
    simulator.kill(2)
    assert (simulator.topics[T0].leader, simulator.topics[T0].size) == (3, 170)
    simulator.restart(2)
    assert world.run().status is PlanStatus.COMPLETED
    assert world.replicas("t-0") == (4, 2, 3)
    assert [after for _, after in submitted(world)] == [[2, 3, 4], [4, 2, 3]]


@pytest.mark.parametrize("steps", range(12))
@pytest.mark.parametrize(("before", "after"), [("12", "31"), ("12", "34"), ("12", "312"), ("123", "451")])
def test_a_cancel_at_any_moment_ends_at_the_originals_in_their_order(
    mode: str, steps: int, before: str, after: str
) -> None:
    simulator = unclean(mode, before)
    lags(simulator, 2, by=20)
    world = applied(simulator, before, after)
    for _ in range(steps):
        world.step()
        simulator.tick()
    simulator.broker_settings[2].clear()
    request_cancel(world.journal, world.digest, who=WHO, reason="stop", scope="plan")
    progress = world.run()
    assert progress.status in {PlanStatus.ROLLED_BACK, PlanStatus.CANCELLED}
    assert (world.replicas("t-0"), simulator.reassignments()) == (tuple(map(int, before)), {})
    assert simulator.topics[T0].size == 180


def test_between_the_stages_the_switch_holds_and_a_crash_changes_nothing(mode: str) -> None:
    simulator = unclean(mode, "12")
    lags(simulator, 2, by=20)
    world = applied(simulator, "12", "31")
    world.step()
    create_document(world.journal.mailbox, paths.REASSIGN_CANCEL, "")
    simulator.tick(8)
    for _ in range(3):
        world.runner = world.new_runner()
        world.step()
    assert (world.states(), simulator.topics[T0].replicas) == ({"t-0": "held"}, (1, 2, 3))
    delete_document(world.journal.mailbox, paths.REASSIGN_CANCEL)
    world.runner = world.new_runner()
    assert world.run().status is PlanStatus.COMPLETED
    assert world.replicas("t-0") == (3, 1)


def test_a_rollback_is_staged_too(mode: str) -> None:
    simulator = unclean(mode, "12")
    world = applied(simulator, "12", "31")
    assert world.run().completed == 1
    request_cancel(world.journal, world.digest, who=WHO, reason="stop", scope="plan")
    assert world.run().status is PlanStatus.ROLLED_BACK
    rows = world.journal.audit.rows(plan=str(world.record().rolled_back_by), action="submit")
    assert [tuple(row.entry.after) for row in rows] == [(3, 1, 2), (1, 2)]


def test_the_minimum_isr_of_the_move_is_that_of_its_originals(mode: str) -> None:
    simulator = unclean(mode, "12")
    simulator.topic_settings["t"]["min.insync.replicas"] = "2"
    world = applied(simulator, "12", "34")
    assert world.run().status is PlanStatus.COMPLETED
    final: Assignment = world.replicas("t-0")
    assert final == (3, 4)


@pytest.mark.parametrize("auto_generated", [True, False])
def test_a_replica_in_a_failed_log_directory_leaves_in_the_first_stage(mode: str, *, auto_generated: bool) -> None:
    simulator = unclean(mode, "123")
    simulator.fail_disk(2, T0)
    world = applied(simulator, "123", "143", auto_generated=auto_generated)
    assert world.run().status is PlanStatus.COMPLETED
    assert [after for _, after in submitted(world)] == [[1, 3, 4], [1, 4, 3]]


@pytest.mark.parametrize("cancels", [False, True])
def test_a_completed_stage_that_a_broker_still_shows_in_flight_is_nobody_elses(mode: str, *, cancels: bool) -> None:
    simulator = unclean(mode, "123")
    simulator.kill(2)
    world = World(simulator, memory_journal(simulator), heal_moves(simulator, 2, 5), settings=UNTHROTTLED, failed=(2,))
    world.step()
    shown = replace(simulator.snapshot().partitions[T0], adding=(), removing=())
    simulator.run()
    current, recent = simulator.snapshot(), MetadataReconciler()
    recent.on_accepted({T0: (1, 3, 5)}, 0)
    late = recent.reconcile({T0: shown}, {})
    assert (late[T0].replicas, late[T0].adding, late[T0].removing) == ((1, 3, 5, 2), (), (2,))
    if cancels:
        request_cancel(world.journal, world.digest, who=WHO, reason="stop")
    with patch.object(simulator, "snapshot", return_value=replace(current, partitions={**current.partitions, **late})):
        world.step()
    assert world.run().status is (PlanStatus.CANCELLED if cancels else PlanStatus.COMPLETED)
    assert world.row("t-0").cause is not Cause.REASSIGNED_ELSEWHERE


@pytest.mark.parametrize("after", ["13", "32", "132", "134", "1324"])
def test_a_kept_replica_that_lags_comes_before_no_better_one(mode: str, after: str) -> None:
    simulator = unclean(mode, "123")
    lags(simulator, 2, by=10)
    lags(simulator, 3, by=170)
    simulator.topic_settings["t"][FOLLOWERS] = "0:2,0:3"
    world = applied(simulator, "123", after)
    world.step()
    simulator.tick()
    simulator.kill(1)
    simulator.tick()
    assert (simulator.topics[T0].leader, simulator.topics[T0].size) == (2, 170), "3 has 10 of 180 messages"
    simulator.restart(1)
    for settings in simulator.broker_settings.values():
        settings.clear()
    assert world.run().status is PlanStatus.COMPLETED
    assert world.replicas("t-0") == tuple(map(int, after))


def test_a_move_that_waits_for_a_replica_that_never_catches_up_is_named_and_the_plan_ends(mode: str) -> None:
    simulator = unclean(mode, "123")
    lags(simulator, 3, by=170)
    world = applied(simulator, "123", "132", settings=Settings(throttle=0, max_attempts=3))
    assert world.run().status is PlanStatus.FAILED
    assert "its replica on broker 3 is out of sync" in world.row("t-0").detail
    assert world.replicas("t-0") == (1, 2, 3)


def test_while_the_only_source_has_announced_its_restart_nothing_is_put_beside_it(mode: str) -> None:
    simulator = unclean(mode, "1")
    world = applied(simulator, "1", "2")
    announce_restart(world.journal, 1, who=WHO)
    (held,) = world.step().held
    assert held.sentence.startswith("t-0 was not moved: broker 1 announced a restart; it is retried")
    simulator.kill(1)
    simulator.restart(1)
    assert (simulator.topics[T0].leader, simulator.topics[T0].size) == (1, 180)


def rested(simulator: Simulator, before: str, after: str, **settings: Any) -> World:
    """A move that has reached the end of its first stage, and goes on when the switch is put back."""
    world = applied(simulator, before, after, settings=Settings(throttle=0, max_attempts=3, **settings))
    world.step()
    create_document(world.journal.mailbox, paths.REASSIGN_CANCEL, "")
    simulator.run()
    world.step()
    assert (simulator.reassignments(), world.row("t-0").stage) == ({}, len(world.moves[0].adding))
    return world


def test_a_move_that_has_begun_waits_for_a_replica_that_lags_as_one_in_flight_does(mode: str) -> None:
    simulator = unclean(mode, "123")
    world = rested(simulator, "123", "314")
    delete_document(world.journal.mailbox, paths.REASSIGN_CANCEL)
    lags(simulator, 3, by=100)
    for _ in range(10):
        progress = world.step()
        simulator.tick()
    assert ([held.code for held in progress.held], progress.status) == ([HoldReason.OUT_OF_SYNC], PlanStatus.RUNNING)
    assert world.replicas("t-0") == (1, 2, 3, 4)
    simulator.broker_settings[3].clear()
    assert world.run().status is PlanStatus.COMPLETED
    assert world.replicas("t-0") == (3, 1, 4)


@pytest.mark.parametrize("when_stalled", ["fail", "cancel"])
def test_one_that_waits_so_for_long_stalls_as_one_in_flight_does(mode: str, when_stalled: str) -> None:
    simulator = unclean(mode, "123")
    world = rested(simulator, "123", "314", when_stalled=when_stalled, stall_after=20)
    delete_document(world.journal.mailbox, paths.REASSIGN_CANCEL)
    lags(simulator, 3, by=100)
    for _ in range(30):
        progress = world.step()
        if progress.stops or progress.ended:
            break
        simulator.tick()
    if when_stalled == "fail":
        assert progress.stops
        assert "t-0 made no progress for 20 s" in progress.sentence
    else:
        assert progress.status is PlanStatus.FAILED
        assert world.row("t-0").detail.endswith("; it keeps [1, 2, 3, 4], which it has between its stages")
    assert (world.replicas("t-0"), simulator.reassignments()) == ((1, 2, 3, 4), {})


def test_a_stalled_stage_that_completes_after_all_is_followed_by_the_next(mode: str) -> None:
    simulator = unclean(mode, "12")
    world = applied(simulator, "12", "31", settings=Settings(throttle=0, when_stalled="cancel", stall_after=20))
    world.step()
    lags(simulator, 3, by=180)
    for _ in range(60):
        if world.step().stalled:
            break
        simulator.tick()
    simulator.broker_settings[3].clear()
    simulator.run()
    assert world.run().status is PlanStatus.COMPLETED
    assert world.replicas("t-0") == (3, 1)


@pytest.mark.parametrize("auto_generated", [True, False])
def test_a_stage_stays_in_flight_while_the_broker_of_a_kept_replica_is_dead(mode: str, *, auto_generated: bool) -> None:
    simulator = unclean(mode, "125")
    simulator.kill(5)
    settings = Settings(throttle=0, max_attempts=3)
    world = applied(simulator, "125", "134", settings=settings, auto_generated=auto_generated)
    world.step()
    lags(simulator, 2, by=100)
    while not simulator.topics[T0].isr >= {3, 4}:
        simulator.tick()
    simulator.kill(1)
    world.confirm_deaths()
    for _ in range(10):
        progress = world.step()
        assert "t-0 stays in flight: target broker 1 failed, and a cancel would take it offline" in progress.sentence
        assert (progress.status, list(simulator.reassignments())) == (PlanStatus.RUNNING, [T0])
        simulator.tick()
    simulator.restart(1)
    assert world.run().status is PlanStatus.COMPLETED
    assert world.replicas("t-0") == (1, 3, 4)


@pytest.mark.parametrize("when_stalled", ["fail", "cancel"])
def test_a_stage_stays_in_flight_while_kafka_refuses_the_next_one(
    mode: str, when_stalled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulator = unclean(mode, "12")
    settings = Settings(throttle=0, max_attempts=3, when_stalled=when_stalled, stall_after=20)
    world = applied(simulator, "12", "31", settings=settings)
    world.step()
    lags(simulator, 2, by=100)
    simulator.run(20)
    refusal = refusal_error(INVALID_ASSIGNMENT, None, "moving t-0")
    monkeypatch.setattr(simulator, "alter", lambda targets, **_: dict.fromkeys(targets, refusal))
    assert [held.code for held in world.step().held] == [HoldReason.KAFKA_REFUSED]
    for _ in range(10):
        progress = world.step()
        simulator.tick()
    assert (progress.status, list(simulator.reassignments())) == (PlanStatus.RUNNING, [T0])
    assert len(submitted(world)) == 2, "it is not asked for again and again"
    for _ in range(30):
        progress = world.step()
        if progress.stops or progress.ended:
            break
        simulator.tick()
    stops = when_stalled == "fail"
    assert (progress.stops, list(simulator.reassignments())) == (stops, [T0] if stops else [])
    assert world.row("t-0").cause is (None if stops else Cause.STALLED)


def test_a_stage_in_flight_does_not_stall_while_people_have_switched_reassignments_off(mode: str) -> None:
    simulator = unclean(mode, "12")
    settings = Settings(throttle=0, max_attempts=3, when_stalled="cancel", stall_after=20)
    world = applied(simulator, "12", "31", settings=settings)
    world.step()
    lags(simulator, 2, by=100)
    simulator.run(20)
    create_document(world.journal.mailbox, paths.REASSIGN_CANCEL, "")
    for _ in range(30):
        progress = world.step()
        simulator.tick()
    assert ([held.code for held in progress.held], progress.stalled) == ([HoldReason.CLUSTER_DISABLED], ())
    delete_document(world.journal.mailbox, paths.REASSIGN_CANCEL)
    assert world.run().status is PlanStatus.COMPLETED


@pytest.mark.parametrize("dead", [True, False])
def test_a_move_that_has_begun_waits_in_vain_for_a_replica_that_is_gone(mode: str, *, dead: bool) -> None:
    simulator = unclean(mode, "123")
    world = rested(simulator, "123", "1432")
    delete_document(world.journal.mailbox, paths.REASSIGN_CANCEL)
    if dead:
        simulator.kill(3)
    else:
        simulator.fail_disk(3, T0)
    assert world.run().status is PlanStatus.STUCK
    gone = "which is not live" if dead else "whose log directory failed"
    assert f"its replica on broker 3, {gone}, is out of sync" in world.row("t-0").detail


def test_a_last_stage_that_kafka_refuses_for_good_is_named_with_what_stays() -> None:
    simulator = unclean("kraft", "12")
    world = rested(simulator, "12", "132")
    simulator.unregister(2)
    delete_document(world.journal.mailbox, paths.REASSIGN_CANCEL)
    assert world.run().status is PlanStatus.FAILED
    assert "; restart that broker, or move its replica to another one; it keeps [1, 2, 3]" in world.row("t-0").detail


def test_a_source_in_a_failed_log_directory_is_none(mode: str) -> None:
    simulator = unclean(mode, "12")
    simulator.fail_disk(2, T0)
    world = applied(simulator, "12", "34")
    announce_restart(world.journal, 1, who=WHO)
    (held,) = world.step().held
    assert held.code is HoldReason.TARGET_RESTARTING


@pytest.mark.parametrize("scope", ["pending", "plan"])
def test_a_cancel_between_stages_restores_an_original_whose_broker_is_back(mode: str, scope: Scope) -> None:
    simulator = unclean(mode, "123")
    simulator.kill(2)
    world = rested(simulator, "123", "413")
    assert world.replicas("t-0") == (1, 3, 4)
    simulator.restart(2)
    request_cancel(world.journal, world.digest, who=WHO, reason="stop", scope=scope)
    assert world.run().status in {PlanStatus.CANCELLED, PlanStatus.ROLLED_BACK}
    assert (world.replicas("t-0"), simulator.reassignments()) == ((1, 2, 3), {})


def test_an_original_that_a_cancel_restores_stands_behind_better_ones_until_it_is_in_sync(mode: str) -> None:
    simulator = unclean(mode, "123")
    simulator.kill(2)
    world = rested(simulator, "123", "413")
    simulator.restart(2)
    lags(simulator, 3, by=20)
    request_cancel(world.journal, world.digest, who=WHO, reason="stop")
    while not simulator.reassignments():
        world.step()
    assert simulator.topics[T0].replicas == (1, 3, 4, 2)
    simulator.tick()
    world.step()
    for broker in (4, 1):
        simulator.kill(broker)
    assert (simulator.topics[T0].leader, simulator.topics[T0].size) == (3, 160), "2 has less"
    for broker in (4, 1):
        simulator.restart(broker)
    simulator.broker_settings[3].clear()
    assert world.run().status is PlanStatus.CANCELLED
    assert (world.replicas("t-0"), simulator.reassignments()) == ((1, 2, 3), {})


@pytest.mark.parametrize("dead", ["2", "12"])
def test_no_empty_original_comes_before_a_better_one_whichever_new_replicas_are_dead(mode: str, dead: str) -> None:
    simulator = unclean(mode, "534")
    simulator.kill(3)
    world = rested(simulator, "534", "214")
    simulator.restart(3)
    for broker in map(int, dead):
        simulator.kill(broker)
    lags(simulator, 4, by=10)
    request_cancel(world.journal, world.digest, who=WHO, reason="stop")
    while not simulator.reassignments():
        world.step()
    simulator.tick()
    for broker in {5, 1} & simulator.alive:
        simulator.kill(broker)
    assert (simulator.topics[T0].leader, simulator.topics[T0].size) == (4, 170), "3 has less"
    for broker in (5, 1, 2):
        simulator.restart(broker)
    simulator.broker_settings[4].clear()
    assert world.run().status is PlanStatus.CANCELLED
    assert (world.replicas("t-0"), simulator.reassignments()) == ((5, 3, 4), {})


@pytest.mark.parametrize("after", ["243", "45"])
def test_a_cancel_that_waits_for_an_original_that_lags_names_it_and_the_rate_that_slows_it(
    mode: str, after: str
) -> None:
    simulator = unclean(mode, "123")
    world = rested(simulator, "123", after)
    delete_document(world.journal.mailbox, paths.REASSIGN_CANCEL)
    lags(simulator, 2, by=100)
    request_cancel(world.journal, world.digest, who=WHO, reason="stop")
    for _ in range(4):
        progress = world.step()
        simulator.tick()
    waits = (
        "is being cancelled: stop. t-0 stays in flight until its original broker 2, which is out of sync, is in sync"
    )
    assert progress.sentence.startswith(f"Plan {world.digest[:12]} {waits}")
    assert (
        "Broker 2 has follower.replication.throttled.rate 0 bytes/s, set by someone else: it slows" in progress.sentence
    )
    assert world.record().reason == progress.sentence, "what status and show print"
    assert [rate.broker for rate in progress.external_rates] == [2]
    simulator.broker_settings[2].clear()
    assert world.run().status is PlanStatus.CANCELLED
    assert (world.replicas("t-0"), simulator.reassignments()) == ((1, 2, 3), {})


def test_a_cancel_ends_and_names_what_stays_when_the_log_directory_of_an_original_has_failed(mode: str) -> None:
    simulator = unclean(mode, "12")
    world = rested(simulator, "12", "31")
    simulator.fail_disk(2, T0)
    request_cancel(world.journal, world.digest, who=WHO, reason="stop")
    assert world.run().status is PlanStatus.CANCELLED
    assert world.row("t-0").detail == "cancelled: stop; it keeps [1, 2, 3], which it has between its stages"
    (left,) = verify_undone(simulator, world.journal, world.digest).left_alone
    assert left.why == "a log directory of its original broker 2 failed, so it keeps the replicas [1, 2, 3]"


def test_a_move_is_complete_although_the_log_directory_of_a_target_fails_before_that_is_seen(mode: str) -> None:
    simulator = Simulator.of("1a 2b 3c", "t: 12", mode=mode, size=180, bandwidth=30)
    world = applied(simulator, "12", "13")
    world.step()
    simulator.run()
    simulator.fail_disk(3, T0)
    assert world.step().status is PlanStatus.COMPLETED
    assert world.row("t-0").detail.startswith("complete; the broker or the log directory of a replica")


def test_a_stage_that_someone_else_cancels_while_an_original_is_dead_is_named_with_what_stays(mode: str) -> None:
    simulator = Simulator.of("1a 2b 3c 4a 5b 6c", "t: 123", mode=mode, size=180, bandwidth=30)
    world = applied(simulator, "123", "456", settings=Settings(throttle=0, one_replica_at_a_time=True))
    while simulator.topics[T0].adding != (5,):
        world.step()
        simulator.tick()
    simulator.kill(1)
    simulator.cancel([T0])
    assert world.run().status is PlanStatus.FAILED
    why = "someone else cancelled it; an original broker is dead or its log directory failed, so it keeps [1, 2, 3, 4]"
    assert world.row("t-0").detail == why
    (left,) = verify_undone(simulator, world.journal, world.digest).left_alone
    assert left.why == why
