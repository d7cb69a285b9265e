"""Alerts: of what people are told, when again, and of its end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.execution.alerts import (
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
    list_untold,
    plan_conditions,
    read_plan_conditions,
    record_told,
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


def changed(
    found: list[Condition], known: dict[str, AlertRecord], now_ms: int
) -> tuple[dict[str, Any], tuple[str, ...]]:
    decision = decide_alerts(found, known, now_ms)
    return dict(decision.changes), decision.due


def test_a_new_condition_is_recorded_and_announced_at_once() -> None:
    record = AlertRecord(5, STUCK.sentence, announced_ms=5)
    assert changed([STUCK], {}, 5) == ({"stuck.3f2a91": record}, ("stuck.3f2a91",))


def test_one_that_may_pass_is_announced_after_its_delay_only() -> None:
    record = AlertRecord(5, LATE.sentence, delay_ms=OVERDUE_MS)
    assert changed([LATE], {}, 5) == ({"heal_overdue": record}, ())
    assert changed([LATE], {"heal_overdue": record}, 4 + OVERDUE_MS) == ({}, ())
    announced = replace(record, announced_ms=5 + OVERDUE_MS)
    assert changed([LATE], {"heal_overdue": record}, 5 + OVERDUE_MS) == ({"heal_overdue": announced}, ("heal_overdue",))
    assert changed([], {"heal_overdue": record}, 6) == ({"heal_overdue": None}, ())


def test_until_a_run_has_told_people_it_is_announced_again_and_again() -> None:
    known = AlertRecord(5, STUCK.sentence, announced_ms=5)
    assert changed([STUCK], {STUCK.key: known}, 4 + RETRIED_MS) == ({}, ())
    assert changed([STUCK], {STUCK.key: known}, 5 + RETRIED_MS)[1] == (STUCK.key,)


def test_once_they_were_told_it_is_announced_an_hour_later_with_its_new_sentence() -> None:
    known = AlertRecord(5, STUCK.sentence, announced_ms=5, notified_ms=9)
    now = replace(STUCK, sentence="Plan 3f2a is still stuck.")
    assert changed([now], {STUCK.key: known}, 8 + REPEATED_MS) == ({}, ())
    changes, due = changed([now], {STUCK.key: known}, 9 + REPEATED_MS)
    assert due == (STUCK.key,)
    assert changes[STUCK.key] == replace(known, announced_ms=9 + REPEATED_MS, sentence="Plan 3f2a is still stuck.")


def test_its_end_is_announced_if_people_know_of_it_until_they_know_of_the_end() -> None:
    known = AlertRecord(5, STUCK.sentence, announced_ms=5, notified_ms=9)
    ended = replace(known, ended_ms=20, announced_ms=20)
    assert changed([], {STUCK.key: known}, 20) == ({STUCK.key: ended}, (STUCK.key,))
    assert changed([], {STUCK.key: ended}, 21) == ({}, ())
    assert changed([], {STUCK.key: ended}, 20 + RETRIED_MS)[1] == (STUCK.key,)


def test_the_end_of_what_nobody_knows_of_is_no_news() -> None:
    assert changed([], {STUCK.key: AlertRecord(5, announced_ms=5)}, 20) == ({STUCK.key: None}, ())


def test_what_begins_again_before_people_know_of_its_end_lasts() -> None:
    ended = AlertRecord(5, STUCK.sentence, announced_ms=20, notified_ms=9, ended_ms=20)
    assert changed([STUCK], {STUCK.key: ended}, 30) == ({STUCK.key: replace(ended, ended_ms=None)}, ())


def test_what_a_run_has_told_is_to_be_told_no_more(simulator: Simulator, journal: Journal) -> None:
    assert list(update_alerts(journal, [STUCK], simulator.now_ms)) == [STUCK.key]
    (alert,) = list_untold(journal)
    assert (split_key(alert.key[0]), alert.document.sentence) == (("stuck", "3f2a91"), STUCK.sentence)
    assert record_told(journal, alert)
    assert list_untold(journal) == []
    assert not record_told(journal, alert), "another run told them: its record stays"
    simulator.tick()
    update_alerts(journal, [], simulator.now_ms)
    (end,) = list_untold(journal)
    assert record_told(journal, end)
    assert ALERTS.list_valid(journal.tree) == []


def test_an_unreadable_alert_is_replaced(simulator: Simulator, journal: Journal) -> None:
    journal.tree.create(ALERTS.path(STUCK.key), "{")
    assert list(update_alerts(journal, [STUCK], simulator.now_ms)) == [STUCK.key]
    assert list_untold(journal)[0].document.sentence == STUCK.sentence


def test_people_are_told_of_the_end_of_what_they_were_told_without_the_journal(
    simulator: Simulator, journal: Journal
) -> None:
    failing = Condition("watch_failing", "The journal is away.", "alerts")
    record_unrecorded_outage(journal, failing, simulator.now_ms)
    simulator.tick()
    assert list(update_alerts(journal, [], simulator.now_ms)) == ["watch_failing.alerts"]
    assert list_untold(journal)[0].document.ended_ms == simulator.now_ms


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
    (stall,) = STALLS.list_valid(journal.tree)
    assert [each.kind for each in plan_conditions([running], {running.digest: stall.document}, "")] == ["stalled"]
    recorder.record(journal, progress(1, busy=True))
    assert STALLS.list_valid(journal.tree), "a step that did nothing knows nothing"
    recorder.record(journal, progress(2))
    assert STALLS.list_valid(journal.tree) == []


def test_another_process_removes_the_stall_that_a_crashed_one_left(journal: Journal) -> None:
    journal.tree.create(STALLS.path(progress(1).digest), Stall(5, "Stalled.").to_json())
    StallRecorder().record(journal, progress(1))
    assert STALLS.list_valid(journal.tree) == []


def test_the_stall_of_a_plan_that_has_ended_is_deleted(journal: Journal) -> None:
    journal.tree.create(STALLS.path("3f2a91"), Stall(5, "Stalled.").to_json())
    assert read_plan_conditions(journal) == []
    assert STALLS.list_valid(journal.tree) == []
