"""Alerts: of what people are told, when again, and of its end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.execution.watch.alerts import (
    ALERTS,
    OVERDUE_MS,
    PAUSED_MS,
    REPEATED_MS,
    RETRIED_MS,
    STALLS,
    AlertRecord,
    Condition,
    Stall,
    StallRecorder,
    decide_alerts,
    list_unnotified,
    plan_conditions,
    read_plan_conditions,
    record_notified,
    record_unrecorded_outage,
    split_key,
    update_alerts,
)
from kafka_steward.journal.records import PlanRecord, PlanStatus
from kafka_steward.journal.store import Journal
from tests.simulator import Simulator
from tests.triggers.progress_values import progress

STUCK = Condition("stuck", "Plan 3f2a is stuck.", "3f2a91")
LATE = Condition("heal_overdue", "No plan heals broker 3.", delay_ms=OVERDUE_MS)


ANNOUNCED = AlertRecord(5, STUCK.sentence, announced_ms=5)
NOTIFIED = replace(ANNOUNCED, notified_ms=9)
ENDED = replace(NOTIFIED, ended_ms=20, announced_ms=20)
DELAYED = AlertRecord(5, LATE.sentence, delay_ms=OVERDUE_MS)
STILL = replace(STUCK, sentence="Plan 3f2a is still stuck.")
AGAIN = replace(NOTIFIED, announced_ms=9 + REPEATED_MS, sentence=STILL.sentence)
#: A condition and whether it lasts, the record of it, the time, its record then, and whether it is announced.
DECISIONS = {
    "a new condition": (STUCK, True, None, 5, ANNOUNCED, True),
    "a new one that may pass": (LATE, True, None, 5, DELAYED, False),
    "before its delay": (LATE, True, DELAYED, 4 + OVERDUE_MS, DELAYED, False),
    "after it": (LATE, True, DELAYED, 5 + OVERDUE_MS, replace(DELAYED, announced_ms=5 + OVERDUE_MS), True),
    "passed before it": (LATE, False, DELAYED, 6, None, False),
    "no run has notified yet": (STUCK, True, ANNOUNCED, 4 + RETRIED_MS, ANNOUNCED, False),
    "for long": (STUCK, True, ANNOUNCED, 5 + RETRIED_MS, replace(ANNOUNCED, announced_ms=5 + RETRIED_MS), True),
    "notified within the hour": (STILL, True, NOTIFIED, 8 + REPEATED_MS, NOTIFIED, False),
    "an hour ago, with its new sentence": (STILL, True, NOTIFIED, 9 + REPEATED_MS, AGAIN, True),
    "its end": (STUCK, False, NOTIFIED, 20, ENDED, True),
    "its end was announced": (STUCK, False, ENDED, 21, ENDED, False),
    "its end, of which no run notified": (
        STUCK,
        False,
        ENDED,
        20 + RETRIED_MS,
        replace(ENDED, announced_ms=20 + RETRIED_MS),
        True,
    ),
    "the end of what nobody was notified of": (STUCK, False, ANNOUNCED, 20, None, False),
    "begins again before the end was notified": (STUCK, True, ENDED, 30, replace(ENDED, ended_ms=None), False),
}


@pytest.mark.parametrize("case", DECISIONS)
def test_when_a_condition_is_announced_and_what_is_recorded_of_it(case: str) -> None:
    condition, lasts, known, now_ms, then, due = DECISIONS[case]
    records = {} if known is None else {condition.key: known}
    decision = decide_alerts([condition] if lasts else [], records, now_ms)
    assert dict(decision.changes) == ({} if then == known else {condition.key: then})
    assert decision.due == ((condition.key,) if due else ())


def test_what_a_run_has_notified_of_is_notified_of_no_more(simulator: Simulator, journal: Journal) -> None:
    assert list(update_alerts(journal, [STUCK], simulator.now_ms)) == [STUCK.key]
    (alert,) = list_unnotified(journal)
    assert (split_key(alert.key), alert.value.sentence) == (("stuck", "3f2a91"), STUCK.sentence)
    assert record_notified(journal, alert)
    assert list_unnotified(journal) == []
    assert not record_notified(journal, alert), "another run told them: its record stays"
    simulator.tick()
    update_alerts(journal, [], simulator.now_ms)
    (end,) = list_unnotified(journal)
    assert record_notified(journal, end)
    assert journal.rows(ALERTS).all() == []


def test_the_end_of_an_outage_announced_without_the_journal_is_announced(
    simulator: Simulator, journal: Journal
) -> None:
    failing = Condition("watch_failing", "The journal is away.", "alerts")
    record_unrecorded_outage(journal, failing, simulator.now_ms)
    simulator.tick()
    assert list(update_alerts(journal, [], simulator.now_ms)) == ["watch_failing.alerts"]
    assert list_unnotified(journal)[0].value.ended_ms == simulator.now_ms


@pytest.mark.parametrize(
    ("status", "disabled", "kinds"),
    [
        (PlanStatus.RUNNING, "", []),
        (PlanStatus.STUCK, "", ["stuck"]),
        (PlanStatus.IDLE, "", ["no_process"]),
        (PlanStatus.PREEMPTED, "", ["paused"]),
        (PlanStatus.RUNNING, "by ada", ["paused"]),
        (PlanStatus.STUCK, "by ada", ["stuck"]),
    ],
)
def test_the_condition_of_a_plan_is_its_status(status: PlanStatus, disabled: str, kinds: list[str]) -> None:
    found = plan_conditions([PlanRecord("3f2a91", "c", "heal", status, reason="Why.")], {}, disabled)
    assert [each.kind for each in found] == kinds
    assert all(each.subject == "3f2a91" for each in found)
    assert all(each.delay_ms == (PAUSED_MS if each.kind == "paused" else 0) for each in found)


def test_a_plan_stalls_while_the_process_that_steps_it_says_so(journal: Journal) -> None:
    running = PlanRecord(progress(1).digest, "c", "heal", PlanStatus.RUNNING)
    recorder = StallRecorder()
    for stalled in ((), (TopicPartition("t", 0),), (TopicPartition("t", 0),)):
        recorder.record(journal, progress(1, stalled=stalled))
    (stall,) = journal.rows(STALLS).all()
    assert [each.kind for each in plan_conditions([running], {running.digest: stall.value}, "")] == ["stalled"]
    recorder.record(journal, progress(1, busy=True))
    assert journal.rows(STALLS).all(), "a step that did nothing knows nothing"
    recorder.record(journal, progress(2))
    assert journal.rows(STALLS).all() == []


def test_another_process_removes_the_stall_that_a_crashed_one_left(journal: Journal) -> None:
    journal.rows(STALLS).put(progress(1).digest, Stall(5, "Stalled."), None)
    StallRecorder().record(journal, progress(1))
    assert journal.rows(STALLS).all() == []


def test_the_stall_of_a_plan_that_has_ended_is_deleted(journal: Journal) -> None:
    journal.rows(STALLS).put("3f2a91", Stall(5, "Stalled."), None)
    assert read_plan_conditions(journal) == []
    assert journal.rows(STALLS).all() == []
