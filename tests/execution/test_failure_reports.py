"""A failure that an operator reports is healed at once, if Kafka sees it too; a report can be withdrawn."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import RequestError
from kafka_steward.execution.failure_detector import DetectionResult, FailureDetector
from kafka_steward.execution.failure_reports import (
    report_broker,
    report_log_dirs,
    withdraw_log_dirs,
    withdraw_report,
)
from kafka_steward.execution.lifecycle import abandon_plan
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.publishing import publish_plan
from kafka_steward.execution.readiness import announce_restart
from kafka_steward.journal import paths
from kafka_steward.journal.store import Journal
from kafka_steward.settings import Settings
from tests.simulated_plan import WHO, heal_moves, plan_of
from tests.simulator import Simulator

GRACE_S = 600
ENTRY, DISKS = paths.failed_broker(1), "/steward/failed_log_dirs/2"
REPORTED = "Broker 1 is reported as failed: its heal is due at once, without the grace period."
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def context(simulator: Simulator, journal: Journal, **more: Any) -> ClusterContext:
    return ClusterContext(simulator, journal, Settings(**{"heal_failure_interval": GRACE_S, **more}), WHO)


def look(simulator: Simulator, journal: Journal, **more: Any) -> DetectionResult:
    return FailureDetector(simulator, journal, context(simulator, journal, **more).settings, WHO).poll()


def test_a_reported_broker_is_due_at_the_next_poll(simulator: Simulator, journal: Journal) -> None:
    simulator.kill(1)
    assert look(simulator, journal).waiting != {}
    assert report_broker(context(simulator, journal), 1, reason="its host burnt down") == REPORTED
    verdict = look(simulator, journal)
    assert (verdict.due, verdict.failed, verdict.waiting) == ((1,), (1,), {})
    node = journal.tree.get(ENTRY)
    assert node is not None
    entry = json.loads(node.data)
    assert (entry["reported"], entry["person"], entry["reason"]) == (True, "ada", "its host burnt down")
    asked = [row.entry for row in journal.audit.rows() if row.entry.action.value == "request"]
    assert [(each.reason, each.broker, each.who.person) for each in asked] == [
        (f"{REPORTED[:-1]}: its host burnt down", 1, "ada")
    ]


def test_it_need_not_have_been_detected_before(simulator: Simulator, journal: Journal) -> None:
    simulator.kill(1)
    report_broker(context(simulator, journal), 1)
    assert look(simulator, journal).due == (1,)


def test_an_announced_restart_does_not_delay_it(simulator: Simulator, journal: Journal) -> None:
    announce_restart(journal, 1, who=WHO, lasts_ms=3_600_000)
    simulator.kill(1)
    assert look(simulator, journal).due == ()
    report_broker(context(simulator, journal), 1)
    assert look(simulator, journal).due == (1,)


def test_an_entry_written_by_hand_may_say_the_same(simulator: Simulator, journal: Journal) -> None:
    simulator.kill(1)
    journal.tree.create(ENTRY, f'{{"failure_timestamp": {simulator.now_ms}, "reported": true}}')
    assert look(simulator, journal).due == (1,)


def test_the_report_outlives_a_heal_that_was_abandoned(simulator: Simulator, journal: Journal) -> None:
    simulator.kill(1)
    report_broker(context(simulator, journal), 1)
    look(simulator, journal)
    plan = plan_of(simulator, heal_moves(simulator, 1, 4), failed=(1,))
    record = publish_plan(context(simulator, journal), plan)
    assert journal.tree.get(ENTRY) is None
    with pytest.raises(RequestError, match=r"^Broker 1 was not reported as failed: a plan heals it already"):
        report_broker(context(simulator, journal), 1)
    abandon_plan(journal, record.digest, WHO, "a better one is needed")
    assert look(simulator, journal).failed == (1,)
    simulator.restart(1)
    look(simulator, journal)
    simulator.kill(1)
    assert look(simulator, journal).failed == (), "the next failure has its grace period"


@pytest.mark.parametrize(
    ("broker", "words"),
    [
        (2, "Broker 2 was not reported as failed: it is live; to move its replicas to other brokers, drain it"),
        (9, "Broker 9 was not reported as failed: the cluster has no live broker and no replica of that id."),
    ],
)
def test_a_broker_that_kafka_does_not_see_as_down_is_refused(
    simulator: Simulator, journal: Journal, broker: int, words: str
) -> None:
    simulator.kill(1)
    with pytest.raises(RequestError) as refused:
        report_broker(context(simulator, journal), broker)
    assert str(refused.value).startswith(words)
    assert journal.tree.children(paths.FAILED_BROKERS) == []
    assert look(simulator, journal).failed == ()


def test_one_that_too_few_see_as_down_is_refused(
    simulator: Simulator, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulator.kill(1)
    monkeypatch.setattr(simulator, "live_views", lambda asked: {each: frozenset({1, 2, 3, 4}) for each in asked})
    with pytest.raises(RequestError, match=r"too few live brokers see it as down yet; report it again in some seconds"):
        report_broker(context(simulator, journal), 1)


def test_nothing_is_reported_while_healing_is_disabled(simulator: Simulator, journal: Journal) -> None:
    simulator.kill(1)
    with pytest.raises(
        RequestError, match=r"^Nothing was reported: healing is disabled \(heal_failure_interval is -1\)"
    ):
        report_broker(context(simulator, journal, heal_failure_interval=-1), 1)


def test_in_an_outage_the_report_says_that_nothing_is_healed(simulator: Simulator, journal: Journal) -> None:
    simulator.kill(1)
    simulator.kill(2)
    assert report_broker(context(simulator, journal), 1).startswith(f"{REPORTED} So many brokers are down that this")
    assert look(simulator, journal).due == ()


def test_a_withdrawn_report_calls_the_heal_off_until_it_is_reported_again(
    simulator: Simulator, journal: Journal
) -> None:
    simulator.kill(1)
    report_broker(context(simulator, journal), 1)
    words = "The heal of broker 1 is called off until the broker is live again."
    assert withdraw_report(journal, 1, who=WHO, reason="it may come back") == words
    simulator.tick(2 * GRACE_S)
    verdict = look(simulator, journal)
    assert (verdict.called_off, verdict.failed) == ((1,), ())
    asked = [row.entry.reason for row in journal.audit.rows() if row.entry.action.value == "request"]
    assert asked == [REPORTED, f"{words[:-1]}: it may come back"]
    with pytest.raises(RequestError, match=r"^There is no entry /admin/failed_brokers/1 to withdraw"):
        withdraw_report(journal, 1, who=WHO)
    report_broker(context(simulator, journal), 1)
    verdict = look(simulator, journal)
    assert (verdict.called_off, verdict.due) == ((), (1,))


def test_a_reported_log_directory_is_due_at_once_although_disks_are_not_healed(
    simulator: Simulator, journal: Journal
) -> None:
    simulator.fail_disk(2, T0, T1)
    assert look(simulator, journal).failed == ()
    told = report_log_dirs(context(simulator, journal), 2, ["/disk-2"], reason="it clicks")
    assert told == (
        "The log directory /disk-2 of broker 2 is reported as failed: the heal of its 2 replicas is due at once, "
        "without the grace period."
    )
    verdict = look(simulator, journal)
    assert (verdict.due, verdict.failed, verdict.down) == ((2,), (2,), ())
    assert verdict.sentence.endswith("has failed, with 2 replicas, which will be healed.")
    assert look(simulator, journal).failed == (2,), "it stays reported"
    simulator.failed_dirs.clear()
    simulator.topics[T0].offline.clear()
    simulator.topics[T1].offline.clear()
    look(simulator, journal)
    assert journal.tree.get(DISKS) is None


@pytest.mark.parametrize(
    ("broker", "log_dirs", "words"),
    [
        (2, ["/disk-1"], "/disk-1 of broker 2 was not reported as failed: Kafka reports /disk-2 of it as failed."),
        (3, ["/disk-2"], "/disk-2 of broker 3 was not reported as failed: Kafka reports no log directory of it as"),
        (1, ["/disk-2"], "/disk-2 of broker 1 was not reported as failed: the broker is not live; report the broker"),
    ],
)
def test_a_log_directory_that_kafka_does_not_report_as_failed_is_refused(
    simulator: Simulator, journal: Journal, broker: int, log_dirs: list[str], words: str
) -> None:
    simulator.kill(1)
    simulator.fail_disk(2, T0)
    with pytest.raises(RequestError) as refused:
        report_log_dirs(context(simulator, journal), broker, log_dirs)
    assert str(refused.value).startswith(words)
    assert journal.tree.children("/steward/failed_log_dirs") == []


def test_one_that_holds_nothing_any_more_is_refused(simulator: Simulator, journal: Journal) -> None:
    simulator.fail_disk(2)
    with pytest.raises(RequestError, match=r"was not reported as failed: no replica is left in it\.$"):
        report_log_dirs(context(simulator, journal), 2, ["/disk-2"])


def test_a_withdrawn_log_directory_is_left_to_the_setting(simulator: Simulator, journal: Journal) -> None:
    simulator.fail_disk(2, T0)
    with pytest.raises(RequestError, match=r"^No log directory of broker 2 is reported as failed"):
        withdraw_log_dirs(journal, 2, who=WHO)
    report_log_dirs(context(simulator, journal), 2, ["/disk-2"])
    assert "heal_failed_disks decides about their heal" in withdraw_log_dirs(journal, 2, who=WHO)
    verdict = look(simulator, journal, heal_failed_disks=True)
    assert verdict.sentence.endswith("with 1 replicas; the grace period ends in 600 s.")
    assert verdict.failed == ()
    assert look(simulator, journal).failed == ()
    assert journal.tree.get(DISKS) is None
