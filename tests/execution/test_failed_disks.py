"""Health, log directories that fail, and failures that an operator reports: what is healed, what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.state import BrokerLogDirs, Directory
from kafka_steward.commands import command_line
from kafka_steward.errors import KafkaRefused, RequestError
from kafka_steward.execution.announcements import announce_restart
from kafka_steward.execution.failures.records import FAILED_LOG_DIRS, FAILURES
from kafka_steward.execution.failures.rules import (
    FailureDecision,
    LivenessView,
    decide_log_dir_failures,
    log_dir_message,
)
from kafka_steward.execution.plans.drive import DrivePolicy, run_to_end
from kafka_steward.execution.plans.lifecycle import abandon_plan, is_fully_replicated
from kafka_steward.execution.plans.publishing import publish_plan
from kafka_steward.execution.plans.readiness import LeftOut, check_readiness
from kafka_steward.execution.plans.runner import PlanRunner
from kafka_steward.execution.plans.snapshot import take_snapshot
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.topics.creation import TopicSpec, create_topic
from kafka_steward.execution.watch.failure_detector import (
    DetectionResult,
    FailureDetector,
    report_broker,
    report_log_dirs,
    withdraw_log_dirs,
    withdraw_report,
)
from kafka_steward.execution.watch.health import (
    DEFAULT_LIMITS,
    check_health,
    health_message,
    partition_lines,
    partition_names,
    validate_limits,
    violated_limits,
)
from kafka_steward.journal import paths
from kafka_steward.journal.mailbox import read_one
from kafka_steward.journal.records import MoveRow
from kafka_steward.journal.store import Journal
from kafka_steward.planning.files.formats import read_snapshot
from kafka_steward.settings import Settings
from tests.documents import create_document
from tests.local_plan import plan_folder
from tests.present import present
from tests.simulated_plan import WHO, World, heal_moves, memory_journal, move, plan_of, simulated
from tests.simulator import Simulator

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
GRACE_S = 10
WELL = "Every broker that has replicas is live."
FAILED = f"{WELL} Broker 2 is live, but its log directory /disk-2 has failed, with 2 replicas"


def look(simulator: Simulator, journal: Journal, *, announce: bool = True, **more: Any) -> DetectionResult:
    given = {"heal_failure_interval": GRACE_S, "heal_retry_interval": 60, "heal_failed_disks": True, **more}
    return FailureDetector(simulator, journal, Settings(**given), WHO).poll(announce=announce)


def test_it_is_named_and_not_healed_unless_that_was_asked_for(simulator: Simulator, journal: Journal) -> None:
    simulator.fail_disk(2, T0, T1)
    for _ in range(2):
        verdict = look(simulator, journal, heal_failed_disks=False)
        assert verdict.sentence == f"{FAILED}; no heal replaces them (heal_failed_disks)."
        assert (verdict.due, verdict.failed, verdict.disks) == ((), (), {2: ("/disk-2",)})
        assert journal.rows(FAILED_LOG_DIRS).all() == []
        simulator.tick(2 * GRACE_S)


def test_offline_replicas_of_a_broker_that_does_not_answer_say_nothing_of_its_disks(
    simulator: Simulator, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As just after it was killed, while it is listed as live still."""
    simulator.fail_disk(2, T0, T1)
    simulator.mute.add(2)
    assert "of unknown path has failed" in look(simulator, journal).sentence, (
        "it answers, without the right to see them"
    )
    views = simulator.live_views
    monkeypatch.setattr(
        simulator, "live_views", lambda brokers, **_: {b: v for b, v in views(brokers).items() if b != 2}
    )
    verdict = look(simulator, journal)
    assert (verdict.sentence, verdict.due, verdict.failed, verdict.disks) == (WELL, (), (), {})


def test_it_is_due_after_the_grace_period_and_announced_again(simulator: Simulator, journal: Journal) -> None:
    simulator.fail_disk(2, T0, T1)
    assert look(simulator, journal).sentence == f"{FAILED}; the grace period ends in {GRACE_S} s."
    simulator.now_ms += GRACE_S * 1000 - 1
    assert look(simulator, journal).failed == ()
    simulator.now_ms += 1
    verdict = look(simulator, journal)
    assert (verdict.due, verdict.failed, verdict.down) == ((2,), (2,), ())
    assert verdict.sentence == f"{FAILED}, which will be healed."
    assert look(simulator, journal).due == ()
    simulator.tick(60)
    assert look(simulator, journal, announce=False).failed == (2,)
    assert look(simulator, journal).due == (2,)
    actions = [row.entry.action.value for row in journal.audit.rows()]
    assert actions == ["detect", "announce", "announce"]


def test_a_disk_that_comes_back_is_forgotten(simulator: Simulator, journal: Journal) -> None:
    simulator.fail_disk(2, T0)
    look(simulator, journal)
    simulator.failed_dirs.clear()
    simulator.topics[T0].offline.clear()
    assert look(simulator, journal).sentence == WELL
    assert journal.rows(FAILED_LOG_DIRS).get(2) is None
    assert [row.entry.action.value for row in journal.audit.rows()] == ["detect", "clear"]


def test_it_is_healed_as_a_brokers_replicas_are(simulator: Simulator, journal: Journal, tmp_path: Path) -> None:
    simulator.fail_disk(2, T0, T2)
    look(simulator, journal)
    simulator.tick(GRACE_S)
    verdict = look(simulator, journal, announce=False)
    uri = str(tmp_path / "snapshot")
    take_snapshot(simulator, uri, failed=verdict.failed, now_ms=1, failed_disks_of=verdict.failed)
    plan = plan_folder(uri, tmp_path / "plan")
    assert {move.topic_partition: move.removing for move in plan.moves} == {T0: {2}, T2: {2}}
    record = publish_plan(ClusterContext(simulator, journal, Settings(), WHO), plan, snapshot=read_snapshot(uri))
    assert record.failed_brokers == (2,)
    sentence = look(simulator, journal).sentence
    assert sentence.endswith("with 2 replicas, which a plan handles.")
    runner = PlanRunner(ClusterContext(simulator, journal, Settings(), WHO), record.digest)
    run_to_end(runner.step, lambda _: simulator.tick(), DrivePolicy(interval_s=lambda: 1))
    assert all(2 not in simulator.topics[name].replicas for name in (T0, T2))
    assert simulator.topics[T1].replicas == (2, 3, 1)
    verdict = look(simulator, journal)
    assert (verdict.due, verdict.failed) == ((), ())
    assert (verdict.sentence, verdict.failed_log_dir_count) == (WELL, 1), "status and doctor name it"
    assert journal.rows(FAILED_LOG_DIRS).get(2) is None


def test_what_another_broker_loses_goes_to_no_broker_with_a_failed_disk(tmp_path: Path) -> None:
    simulator = Simulator.of("1a 2a 3a 4a 5a", "t: 123 431 513")
    simulator.fail_disk(2, T0)
    simulator.kill(3)
    uri = str(tmp_path / "snapshot")
    take_snapshot(simulator, uri, failed=(3,), now_ms=1)
    plan = plan_folder(uri, tmp_path / "plan")
    assert {move.topic_partition: sorted(move.adding) for move in plan.moves if move.topic_partition != T0} == {
        T1: [5],
        T2: [4],
    }
    assert any(note.startswith("A log directory of broker 2 has failed") for note in plan.proof["notes"])


def test_a_disk_whose_heal_did_what_it_could_stays_handled_when_the_plan_is_archived(
    simulator: Simulator, journal: Journal
) -> None:
    rules: dict[str, Any] = {"max_failed_fraction": 0.3}
    simulator.fail_disk(2, T0)
    look(simulator, journal)
    simulator.tick(GRACE_S)
    assert look(simulator, journal).failed == (2,)
    plan = plan_of(
        simulator, [move("t-1", "231", "431")], log_dirs_failed=[2], unplaced=[{"topic": "t", "partition": 0}]
    )
    record = publish_plan(ClusterContext(simulator, journal, Settings(), WHO), plan)
    runner = PlanRunner(ClusterContext(simulator, journal, Settings(), WHO), record.digest)
    run_to_end(runner.step, lambda _: simulator.tick(), DrivePolicy(interval_s=lambda: 1))
    for purge in (False, True):
        if purge:
            journal.plans.purge(simulator.now_ms + 1)
            assert journal.plans.latest(1) == []
        simulator.tick(100)
        verdict = look(simulator, journal, **rules)
        assert verdict.failed == ()
        assert verdict.sentence.endswith(", of which the last heal left only what no further one would repair."), purge
        assert "airflow kafka-steward failed 2 --disk DIR." in verdict.sentence
        found = check_readiness(simulator, journal, Settings())
        assert (found.reasons, found.left_out) == ((), {T0: LeftOut.HEALED})
    report_log_dirs(ClusterContext(simulator, journal, Settings(), WHO), 2, ["/disk-2"])
    verdict = look(simulator, journal, **rules)
    assert verdict.failed == (2,), "a person reported it since"
    assert present(present(journal.rows(FAILED_LOG_DIRS).get(2)).value.healed).left == 1
    simulator.kill(1)
    look(simulator, journal, **rules)
    assert not look(simulator, journal, **rules, heal_failure_interval=0).outage, "it counts towards no outage"


def test_without_the_option_a_heal_leaves_a_live_brokers_disk_alone(simulator: Simulator, tmp_path: Path) -> None:
    simulator.fail_disk(2, T0)
    for number, (failed, asked) in enumerate((([2], []), ([1], [1]))):
        uri = str(tmp_path / f"snapshot-{number}")
        take_snapshot(simulator, uri, failed=failed, now_ms=1, failed_disks_of=asked)
        assert set(read_snapshot(uri).partitions["offline"].to_pylist()) == {None}


def test_a_move_whose_receiver_loses_its_disk_is_taken_back_and_begins_again(simulator: Simulator) -> None:
    world = World(simulator, memory_journal(simulator), [move("t-0", "123", "423")], auto_generated=False)
    runner = world.new_runner()
    simulator.bandwidth = 10
    runner.step()
    simulator.tick()
    simulator.fail_disk(4, T0)
    runner.step()
    runner.step()
    assert not simulator.topics[T0].reassigning
    assert simulator.topics[T0].replicas == (1, 2, 3)
    cancels = [row.entry.reason for row in world.journal.audit.rows() if row.entry.action.value == "cancel"]
    assert cancels == ["a log directory of target broker 4 failed"]
    assert world.run().completed == 1


@pytest.mark.parametrize("told", ["refused", "nothing"])
def test_a_disk_of_which_its_broker_says_nothing_counts_as_failed_once_the_metadata_has_said_so_for_a_while(
    simulator: Simulator, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(simulator, memory_journal(simulator), [move("t-0", "123", "423")], auto_generated=False)
    simulator.bandwidth = 10
    world.step()
    simulator.fail_disk(4, T0)
    error = KafkaRefused(31, "Cluster authorization failed.", "Kafka refused: Cluster authorization failed.")
    answers = Mock(side_effect=error if told == "refused" else None, return_value={})
    monkeypatch.setattr(simulator, "directories", answers)
    world.step()
    assert simulator.topics[T0].reassigning, "one look shows nothing"
    simulator.now_ms += 10_000
    world.step()
    assert not simulator.topics[T0].reassigning


def test_a_heal_that_leaves_a_replica_in_a_failed_directory_has_something_left(simulator: Simulator) -> None:
    row = MoveRow(move("t-0", "123", "423"))
    assert is_fully_replicated(row, simulator.snapshot())
    simulator.fail_disk(2, T0)
    assert not is_fully_replicated(row, simulator.snapshot())


def lost_disks(**lost: int) -> LivenessView:
    """`lost_disks(b2=3)`: broker 2 has lost three replicas with its directory `/disk-2`."""
    found = {int(name[1:]): count for name, count in lost.items()}
    live = frozenset({1, 2, 3})
    return LivenessView(frozenset(), live, live, disks={each: (f"/disk-{each}",) for each in found}, lost=found)


def decided(settings: Settings, *, first_seen_ms: int, now_ms: int, down: int = 0) -> FailureDecision:
    look = lost_disks(b2=3)
    return decide_log_dir_failures(
        replace(look, failed=frozenset(range(4, 4 + down)), known=look.known | frozenset(range(4, 4 + down))),
        first_seen_ms={2: first_seen_ms},
        announced_ms={},
        handled=frozenset(),
        now_ms=now_ms,
        settings=settings,
    )


@pytest.mark.parametrize(
    ("changes", "due"),
    [
        ({}, (2,)),
        ({"heal_failed_disks": False}, ()),
        ({"heal_failure_interval": -1}, ()),
        ({"max_failed_brokers": 1}, ()),
        ({"max_failed_fraction": 0.25}, ()),
    ],
)
def test_nothing_is_due_where_brokers_are_not_healed_either(changes: dict[str, Any], due: tuple[int, ...]) -> None:
    settings = Settings(
        **{"heal_failed_disks": True, "heal_failure_interval": 10, "max_failed_fraction": 0.5, **changes}
    )
    assert decided(settings, first_seen_ms=0, now_ms=10_000, down=1).due == due


def test_health_names_failed_disks_cordoned_brokers_and_hidden_topics(simulator: Simulator, journal: Journal) -> None:
    simulator.fail_disk(2, T0, T1)
    simulator.cordoned.add(4)
    simulator.create("secret", [(1, 3)])
    simulator.hidden.add("secret")
    health, _ = check_health(simulator, journal, thorough=True)
    assert {name: health.measures[name] for name in ("failed_log_dirs", "cordoned_brokers", "hidden_topics")} == {
        "failed_log_dirs": 1,
        "cordoned_brokers": 1,
        "hidden_topics": 1,
    }
    above = violated_limits(health, validate_limits(None))
    assert above == ["under_replicated_partitions", "failed_log_dirs", "hidden_topics"]
    told = health_message(health)
    assert "Log directory /disk-2 of broker 2 has failed. Broker 4 is cordoned." in told
    assert "1 topics are hidden from us (secret): grant our principal DESCRIBE on every topic" in told
    quick, _ = check_health(simulator, journal)
    assert "hidden_topics" not in quick.measures
    assert violated_limits(quick, validate_limits(None)) == above[:2]


def test_a_broker_that_does_not_report_which_directory_is_counted_by_its_offline_replicas(
    simulator: Simulator, journal: Journal
) -> None:
    simulator.fail_disk(2, T0)
    simulator.mute.add(2)
    health, _ = check_health(simulator, journal)
    assert health.measures["failed_log_dirs"] == 1
    assert "Log directory of unknown path of broker 2 has failed." in health_message(health)
    assert look(simulator, journal).disks == {2: ()}


def test_a_directory_that_failed_is_none_that_is_cordoned() -> None:
    failed = Directory("/a", error=56)
    assert BrokerLogDirs({}, directories=(failed, Directory("/b"))).failed_paths == ("/a",)
    assert not BrokerLogDirs({}, directories=(failed, Directory("/b"))).cordoned


def test_without_a_grace_period_replicas_are_healed_at_once() -> None:
    settings = Settings(heal_failed_disks=True, heal_failure_interval=0)
    for now_ms in (0, 5_000):  # never announced, whatever the clock says
        decision = decided(settings, first_seen_ms=now_ms, now_ms=now_ms)
        assert (decision.due, decision.announce, decision.waiting) == ((2,), (2,), {})
    assert log_dir_message(lost_disks(b2=3), decision, settings, 5_000).endswith("3 replicas, which will be healed.")


def test_in_an_outage_the_end_of_the_grace_period_is_stated_only_until_it_is_reached() -> None:
    settings = Settings(heal_failed_disks=True, heal_failure_interval=10, max_failed_fraction=0.3)
    told = {}
    for now_ms in (9_000, 10_000):
        decision = decided(settings, first_seen_ms=0, now_ms=now_ms)
        assert decision.due == ()
        told[now_ms] = log_dir_message(lost_disks(b2=3), decision, settings, now_ms).partition("3 replicas")[2]
    assert told[9_000] == "; the grace period ends in 1 s."
    assert told[10_000].startswith(": 1 of 3 brokers, more than max_failed_fraction (0.3) allows; this counts as an")


def test_each_broker_with_a_failed_directory_has_a_sentence_of_its_own() -> None:
    settings = Settings(heal_failed_disks=False)
    assert log_dir_message(lost_disks(b3=1, b2=3), FailureDecision(), settings, 0) == (
        "Broker 2 is live, but its log directory /disk-2 has failed, with 3 replicas; no heal replaces them "
        "(heal_failed_disks). "
        "Broker 3 is live, but its log directory /disk-3 has failed, with 1 replica; no heal replaces them "
        "(heal_failed_disks)."
    )


REPORTED_GRACE_S = 600
ENTRY = paths.failed_broker(1)
REPORTED = "Broker 1 is reported as failed: its heal is due at once, without the grace period."


def context(simulator: Simulator, journal: Journal, **more: Any) -> ClusterContext:
    return ClusterContext(simulator, journal, Settings(**{"heal_failure_interval": REPORTED_GRACE_S, **more}), WHO)


def look_after(simulator: Simulator, journal: Journal, **more: Any) -> DetectionResult:
    return FailureDetector(simulator, journal, context(simulator, journal, **more).settings, WHO).poll()


def test_a_reported_broker_is_due_at_the_next_poll(simulator: Simulator, journal: Journal) -> None:
    simulator.kill(1)
    assert look_after(simulator, journal).waiting != {}
    assert report_broker(context(simulator, journal), 1, reason="its host burnt down") == REPORTED
    verdict = look_after(simulator, journal)
    assert (verdict.due, verdict.failed, verdict.waiting) == ((1,), (1,), {})
    node = present(read_one(journal.mailbox, ENTRY))
    entry = json.loads(node.data)
    assert (entry["reported"], entry["person"], entry["reason"]) == (True, "ada", "its host burnt down")
    asked = [row.entry for row in journal.audit.rows() if row.entry.action.value == "request"]
    assert [(each.reason, each.broker, each.who.person) for each in asked] == [
        (f"{REPORTED[:-1]}: its host burnt down", 1, "ada")
    ]


def test_an_announced_restart_does_not_delay_it(simulator: Simulator, journal: Journal) -> None:
    announce_restart(journal, 1, who=WHO, lasts_ms=3_600_000)
    simulator.kill(1)
    assert look_after(simulator, journal).due == ()
    report_broker(context(simulator, journal), 1)
    assert look_after(simulator, journal).due == (1,)


def test_an_entry_written_by_hand_may_say_the_same(simulator: Simulator, journal: Journal) -> None:
    simulator.kill(1)
    by_hand = f'{{"failure_timestamp": {simulator.now_ms}, "reported": true}}'
    create_document(journal.mailbox, ENTRY, by_hand)
    assert look_after(simulator, journal).due == (1,)
    published = publish_plan(
        context(simulator, journal),
        plan_of(simulator, heal_moves(simulator, 1, 4)[1:], failed=(1,), unplaced=[{"topic": "t", "partition": 0}]),
    )
    runner = PlanRunner(context(simulator, journal), published.digest)
    run_to_end(runner.step, lambda _: simulator.tick(), DrivePolicy(interval_s=lambda: 1))
    assert look_after(simulator, journal).handled == (1,), "the heal that did what it could is newer than the report"
    simulator.tick()
    create_document(journal.mailbox, ENTRY, by_hand)
    assert look_after(simulator, journal).failed == (1,), "the entry was written again, which reports it again"
    assert present(journal.rows(FAILURES).get(1)).value.reported_ms == simulator.now_ms


def test_the_report_outlives_a_heal_that_was_abandoned(simulator: Simulator, journal: Journal) -> None:
    simulator.kill(1)
    report_broker(context(simulator, journal), 1)
    look_after(simulator, journal)
    plan = plan_of(simulator, heal_moves(simulator, 1, 4), failed=(1,))
    record = publish_plan(context(simulator, journal), plan)
    assert read_one(journal.mailbox, ENTRY) is None
    with pytest.raises(RequestError, match=r"^Broker 1 was not reported as failed: a plan heals it already"):
        report_broker(context(simulator, journal), 1)
    abandon_plan(journal, record.digest, WHO, "a better one is needed")
    assert look_after(simulator, journal).failed == (1,)
    simulator.restart(1)
    look_after(simulator, journal)
    simulator.kill(1)
    assert look_after(simulator, journal).failed == (), "the next failure has its grace period"


@pytest.mark.parametrize(
    ("broker", "settings", "words"),
    [
        (2, {}, "Broker 2 was not reported as failed: it is live; to move its replicas to other brokers, drain it"),
        (9, {}, "Broker 9 was not reported as failed: the cluster has no live broker and no replica of that id."),
        (1, {"heal_failure_interval": -1}, "Nothing was reported: healing is disabled (heal_failure_interval is -1)"),
    ],
)
def test_a_broker_that_kafka_does_not_see_as_down_is_refused(
    simulator: Simulator, journal: Journal, broker: int, settings: dict[str, Any], words: str
) -> None:
    simulator.kill(1)
    with pytest.raises(RequestError) as refused:
        report_broker(context(simulator, journal, **settings), broker)
    assert str(refused.value).startswith(words)
    assert journal.mailbox.children(paths.FAILED_BROKERS) == []
    assert look_after(simulator, journal).failed == ()


def test_one_that_few_see_down_is_refused(
    simulator: Simulator, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulator.kill(1)
    monkeypatch.setattr(simulator, "live_views", lambda asked: {each: frozenset({1, 2, 3, 4}) for each in asked})
    with pytest.raises(RequestError, match=r"too few live brokers see it as down yet; report it again in some seconds"):
        report_broker(context(simulator, journal), 1)


def test_in_an_outage_a_report_is_taken_at_its_word_and_says_what_holds_for_the_others(
    simulator: Simulator, journal: Journal
) -> None:
    simulator.kill(1)
    simulator.kill(2)
    words = f"{REPORTED} It is healed all the same, although others are down: 2 of 4 brokers, more than max_failed_f"
    assert report_broker(context(simulator, journal), 1).startswith(words)
    verdict = look_after(simulator, journal)
    assert (verdict.due, verdict.outage) == ((1,), True)
    assert verdict.sentence.endswith("failed 2. Broker 1 is healed all the same.")
    for told in (report_broker(context(simulator, journal), 1), verdict.sentence):
        assert "and nothing else is healed until some brokers return" in told
    report_broker(context(simulator, journal), 2)
    verdict = look_after(simulator, journal)
    assert verdict.due == (1, 2)
    assert "To heal all the same" not in verdict.sentence, "there is no other one to report"


def test_a_failed_disk_counts_towards_an_outage_only_if_disks_are_healed(
    simulator: Simulator, journal: Journal
) -> None:
    simulator.fail_disk(2, T0, T1)
    simulator.kill(1)
    assert report_broker(context(simulator, journal), 1) == REPORTED
    assert not look_after(simulator, journal).outage
    healing_disks = context(simulator, journal, heal_failed_disks=True)
    told = report_broker(healing_disks, 1)
    assert "and nothing else is healed until some brokers return" in told
    assert f"report disks that will not return: {command_line('failed 2 --disk DIR', None)}." in told
    told = report_log_dirs(healing_disks, 2, ["/disk-2"])
    assert "nothing else is healed" in told
    assert "To heal all the same" not in told, "the heal of both is due"


def test_what_is_healed_in_an_outage_is_said_of_disks_too(simulator: Simulator, journal: Journal) -> None:
    simulator.fail_disk(3, T0)
    simulator.kill(1)
    simulator.kill(2)
    report_log_dirs(context(simulator, journal), 3, ["/disk-2"])
    told = look_after(simulator, journal).sentence
    assert "nothing else is healed until some brokers return" in told
    assert "Broker 3 is live, but its log directory /disk-2 has failed, with 1 replica, which will be healed." in told


def test_a_withdrawn_report_calls_the_heal_off_until_another_report(simulator: Simulator, journal: Journal) -> None:
    simulator.kill(1)
    report_broker(context(simulator, journal), 1)
    words = "The heal of broker 1 is called off until the broker is live again."
    assert withdraw_report(journal, 1, who=WHO, reason="it may come back") == words
    simulator.tick(2 * REPORTED_GRACE_S)
    verdict = look_after(simulator, journal)
    assert (verdict.called_off, verdict.failed) == ((1,), ())
    asked = [row.entry.reason for row in journal.audit.rows() if row.entry.action.value == "request"]
    assert asked == [REPORTED, f"{words[:-1]}: it may come back"]
    with pytest.raises(RequestError, match=r"^There is no entry /admin/failed_brokers/1 to withdraw"):
        withdraw_report(journal, 1, who=WHO)
    report_broker(context(simulator, journal), 1)
    verdict = look_after(simulator, journal)
    assert (verdict.called_off, verdict.due) == ((), (1,))


def test_a_reported_log_directory_is_due_at_once_although_disks_are_not_healed(
    simulator: Simulator, journal: Journal
) -> None:
    simulator.fail_disk(2, T0, T1)
    assert look_after(simulator, journal).failed == ()
    told = report_log_dirs(context(simulator, journal), 2, ["/disk-2"], reason="it clicks")
    assert told == (
        "The log directory /disk-2 of broker 2 is reported as failed: the heal of its 2 replicas is due at once, "
        "without the grace period."
    )
    verdict = look_after(simulator, journal)
    assert (verdict.due, verdict.failed, verdict.down) == ((2,), (2,), ())
    assert verdict.sentence.endswith("has failed, with 2 replicas, which will be healed.")
    assert look_after(simulator, journal).failed == (2,), "it stays reported"
    simulator.failed_dirs.clear()
    simulator.topics[T0].offline.clear()
    simulator.topics[T1].offline.clear()
    look_after(simulator, journal)
    assert journal.rows(FAILED_LOG_DIRS).get(2) is None


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
    assert journal.rows(FAILED_LOG_DIRS).all() == []


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
    verdict = look_after(simulator, journal, heal_failed_disks=True)
    assert verdict.sentence.endswith("with 1 replica; the grace period ends in 600 s.")
    assert verdict.failed == ()
    assert look_after(simulator, journal).failed == ()
    assert journal.rows(FAILED_LOG_DIRS).get(2) is None


def test_a_whole_cluster_is_healthy() -> None:
    simulator = Simulator.of("1a 2b 3c", "t: 123 231")
    health, _ = check_health(simulator, memory_journal(simulator))
    assert violated_limits(health, DEFAULT_LIMITS) == []
    assert health_message(health) == (
        "Of 2 partitions 0 are under-replicated, 0 are under min ISR, 0 are offline. None is being reassigned."
    )


def test_a_killed_broker_is_seen_and_a_reassignment_is_not_held_for_one() -> None:
    simulator, journal = simulated("1a 2b 3c 4a", "t: 123 231", bandwidth=10)
    simulator.alter({TopicPartition("t", 0): (1, 2, 4)})
    _, copies = check_health(simulator, journal)
    simulator.tick()
    health, _ = check_health(simulator, journal, copies)
    assert violated_limits(health, DEFAULT_LIMITS) == []
    assert (health.measures["reassigning_partitions"], health.max_lag) == (1, 90)
    assert health_message(health).endswith(
        " 1 is being reassigned, at most 90 messages behind, 0.0 MB/s. Not spread over the racks as well as can be, "
        "and left: t-0 (is being reassigned; look again when that has ended)."
    )
    simulator.kill(2)
    simulator.topic_settings["t"]["min.insync.replicas"] = "3"
    health, _ = check_health(simulator, journal)
    assert violated_limits(health, DEFAULT_LIMITS) == ["under_replicated_partitions", "under_min_isr_partitions"]
    assert "2 are under-replicated (t-0, t-1)" in health_message(health)
    assert health_message(health).endswith("Broker 2 is down.")


def test_a_replication_factor_that_grows_is_under_min_isr_until_enough_new_replicas_are_in_sync() -> None:
    simulator = Simulator.of("1a 2b 3c", "t: 1", bandwidth=100)
    journal, name = memory_journal(simulator), TopicPartition("t", 0)
    simulator.topic_settings["t"] |= {"min.insync.replicas": "2", "follower.replication.throttled.replicas": "0:3"}
    simulator.broker_settings[3]["follower.replication.throttled.rate"] = "10"
    assert violated_limits(check_health(simulator, journal)[0], DEFAULT_LIMITS) == [], "one replica is all that it has"
    simulator.alter({name: (1, 2, 3)})
    health, _ = check_health(simulator, journal)
    assert (health.under_min_isr, health.under_replicated) == ((name,), ())
    assert "1 is under min ISR (t-0)" in health_message(health)
    simulator.tick()
    health, _ = check_health(simulator, journal)
    assert (health.reassigning, violated_limits(health, DEFAULT_LIMITS)) == ((name,), []), (
        "broker 2 is in sync, broker 3 is not yet"
    )
    simulator.run()
    simulator.kill(3)
    assert check_health(simulator, journal)[0].under_replicated == (name,), "it has three replicas now"


def test_a_partition_with_all_its_replicas_in_sync_is_never_under_min_isr() -> None:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 12 34")
    simulator.topic_settings["t"]["min.insync.replicas"] = "3"
    simulator.kill(2)
    health, _ = check_health(simulator, memory_journal(simulator))
    assert health.under_min_isr == (TopicPartition("t", 0),)


def test_pending_replicas_are_measured_stated_in_the_sentence_and_held_to_a_limit() -> None:
    simulator, journal = simulated("1a 2b 3c", mode="zookeeper", lost=(3,))
    create_topic(simulator, journal, TopicSpec("t", 2, 3), allowed=True, who=WHO)
    health, _ = check_health(simulator, journal)
    assert health.measures["pending_replicas"] == 2
    assert health_message(health).endswith("None is being reassigned. 2 replicas are pending.")
    assert violated_limits(health, {"pending_replicas": 1}) == ["pending_replicas"]
    assert violated_limits(health, {"pending_replicas": 2}) == []


def test_a_pending_replica_is_unhealthy_by_default_until_it_is_no_longer_pending() -> None:
    simulator, journal = simulated("1a 2b 3c", mode="zookeeper", lost=(3,))
    create_topic(simulator, journal, TopicSpec("t", 2, 3), allowed=True, who=WHO)
    assert violated_limits(check_health(simulator, journal)[0], DEFAULT_LIMITS) == ["pending_replicas"]
    assert DEFAULT_LIMITS["pending_replicas"] == 0
    simulator.restart(3)
    simulator.alter({TopicPartition("t", 0): (1, 2, 3)})
    assert check_health(simulator, journal)[0].pending == 2, "one is on its way, and not there"
    simulator.run()
    assert check_health(simulator, journal)[0].pending == 1, "the record is obsolete, though no fill has removed it"
    simulator.alter({TopicPartition("t", 1): (2, 1, 3)})
    simulator.run()
    assert violated_limits(check_health(simulator, journal)[0], DEFAULT_LIMITS) == []


def test_to_its_users_a_topic_with_pending_replicas_is_whole() -> None:
    simulator, journal = simulated("1a 2b 3c", mode="zookeeper", lost=(3,))
    wanted = TopicSpec("t", 2, 3, {"min.insync.replicas": "2"})
    create_topic(simulator, journal, wanted, allowed=True, who=WHO)
    simulator.tick(60)
    health, _ = check_health(simulator, journal)
    assert (health.under_replicated, health.under_min_isr, health.offline) == ((), (), ())
    assert [set(each.isr) for each in simulator.topics.values()] == [{1, 2}, {1, 2}]


@pytest.mark.parametrize(
    ("happens", "pending"), [(Simulator.delete, 0), (lambda each, topic: each.hidden.add(topic), 2)]
)
def test_replicas_of_a_topic_that_is_gone_are_not_pending_and_those_of_a_hidden_one_are(
    happens: Callable[[Simulator, str], object], pending: int
) -> None:
    simulator, journal = simulated("1a 2b 3c", mode="zookeeper", lost=(3,))
    create_topic(simulator, journal, TopicSpec("t", 2, 3), allowed=True, who=WHO)
    happens(simulator, "t")
    simulator.tick(120)
    assert check_health(simulator, journal)[0].pending == pending, "though no fill has removed the records"


def test_a_move_that_begins_and_ends_between_two_checks_is_counted_once() -> None:
    simulator, journal = simulated("1a 2b 3c 4a", "t: 123 231", bandwidth=100)
    _, copies = check_health(simulator, journal)
    simulator.alter({TopicPartition("t", 0): (1, 2, 4)})
    simulator.tick(2)
    health, copies = check_health(simulator, journal, copies)
    assert (health.reassigning, health.bytes_in) == ((), {1: 0, 2: 0, 3: 0, 4: 50})
    assert health.bytes_out == {1: 50, 2: 0, 3: 0, 4: 0}
    simulator.tick()
    health, _ = check_health(simulator, journal, copies)
    assert set(health.bytes_in.values()) == {0}


def test_every_partition_is_named_by_its_condition_in_the_log_and_the_first_hundred_in_the_result() -> None:
    simulator, journal = simulated("1a 2b 3c 4a", "t: " + " ".join(["123"] * 130))
    simulator.alter({TopicPartition("t", 7): (1, 2, 4)})
    simulator.kill(3)
    health, _ = check_health(simulator, journal)
    names = partition_names(health)
    assert {condition: len(named) for condition, named in names.items()} == {
        "under_replicated": 100,
        "under_min_isr": 0,
        "offline": 0,
        "reassigning": 1,
        "rack_violations": 0,
    }
    assert (names["under_replicated"][99], names["reassigning"]) == ("t-99", ["t-7"])
    lines = list(partition_lines(health))
    assert [line.partition(":")[0] for line in lines] == [
        "under replicated, 1 to 50 of 130",
        "under replicated, 51 to 100 of 130",
        "under replicated, 101 to 130 of 130",
        "reassigning, 1 to 1 of 1",
    ]
    assert lines[2].endswith("t-128, t-129")


def test_limits_are_held_to_known_measures() -> None:
    assert validate_limits(None) == DEFAULT_LIMITS
    assert validate_limits({"reassignment_max_lag": 1000}) == {"reassignment_max_lag": 1000}
    with pytest.raises(RequestError, match="There is no measure 'lag'"):
        validate_limits({"lag": 1})
