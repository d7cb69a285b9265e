"""A plan outside its maintenance window: nothing new begins, what flies ends, and it goes on when the window opens."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_steward.assignment import Operation
from kafka_steward.execution.concurrency import outside_window_reason
from kafka_steward.journal.records import PlanRecord, PlanStatus
from kafka_steward.settings import Settings
from tests.simulated_plan import World, memory_journal, move
from tests.simulator import Simulator

#: The simulator's clock begins at 1970-01-01 00:16:40 UTC.
SHUT = Settings(throttle=0, maintenance_window="02:00-04:00", max_in_flight=1)
TEN_TO_TWO_MS = (60 + 50) * 60_000


def world(settings: Settings = SHUT, *, heal: bool = False) -> World:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 231 312")
    moves = [move("t-0", "123", "423"), move("t-1", "231", "234"), move("t-2", "312", "342")]
    return World(simulator, memory_journal(simulator), moves, settings, auto_generated=heal)


def test_outside_the_window_nothing_is_submitted_and_it_says_when_it_opens() -> None:
    closed = world()
    for _ in range(3):
        told = closed.step()
        closed.simulator.tick()
    assert (told.in_flight, told.waiting, told.waits_for_person, told.ended) == (0, 3, False, False)
    assert told.sentence == (
        "0 of 3 partitions settled, 0 in flight, 3 waiting. Nothing new is submitted outside the maintenance window "
        "02:00-04:00; it opens 1970-01-01 02:00 (UTC)."
    )
    assert closed.simulator.reassignments() == {}
    assert (told.status, closed.journal.plans.get(closed.digest).attempts) == (PlanStatus.RUNNING, 0)  # type: ignore[union-attr]


def test_it_goes_on_when_the_window_opens() -> None:
    closed = world()
    closed.step()
    closed.simulator.now_ms = 2 * 3_600_000
    assert closed.step().in_flight == 1
    assert closed.run().status is PlanStatus.COMPLETED


def test_what_flies_when_it_closes_is_let_finish() -> None:
    closed = world(replace(SHUT, maintenance_window="00:00-02:00"))
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
    urgent = world(heal=True)
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
    closed = world()
    record = closed.journal.plans.get(closed.digest)
    assert record is not None
    closed.journal.plans.update(record, status=PlanStatus.PREEMPTED)
    assert not closed.step().waits_for_person
