"""A log directory of a live broker fails, or an operator reports a failure: what is healed, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.state import BrokerLogDirs, Directory
from kafka_steward.errors import RequestError
from kafka_steward.execution.failure_detector import DetectionResult, FailureDetector
from kafka_steward.execution.failure_reports import report_broker, report_log_dirs, withdraw_log_dirs, withdraw_report
from kafka_steward.execution.failures import FailureDecision, LivenessView, decide_log_dir_failures, log_dir_message
from kafka_steward.execution.health import check_health, health_message, validate_limits, violated_limits
from kafka_steward.execution.lifecycle import abandon_plan, is_fully_replicated
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.publishing import publish_plan
from kafka_steward.execution.readiness import announce_restart
from kafka_steward.execution.runner import PlanRunner
from kafka_steward.execution.snapshot import take_snapshot
from kafka_steward.journal import paths
from kafka_steward.journal.records import MoveRow
from kafka_steward.journal.store import Journal
from kafka_steward.planning.files.formats import read_snapshot
from kafka_steward.settings import Settings
from tests.local_plan import plan_folder
from tests.simulated_plan import WHO, World, heal_moves, memory_journal, move, plan_of
from tests.simulator import Simulator

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
GRACE_S = 10
NODE = "/steward/failed_log_dirs/2"
WELL = "Every broker that has replicas is live."
FAILED = f"{WELL} Broker 2 is live, but its log directory /disk-2 has failed, with 2 replicas"


def look(simulator: Simulator, journal: Journal, *, announce: bool = True, **more: Any) -> DetectionResult:
    given = {"heal_failure_interval": GRACE_S, "heal_retry_interval": 60, "heal_failed_disks": True, **more}
    return FailureDetector(simulator, journal, Settings(**given), WHO).poll(announce=announce)


def test_it_is_named_and_not_healed_unless_that_was_asked_for(simulator: Simulator, journal: Journal) -> None:
    simulator.fail_disk(2, T0, T1)
    for _ in range(2):
        verdict = look(simulator, journal, heal_failed_disks=False)
        assert verdict.sentence == f"{FAILED}; they are not healed (heal_failed_disks)."
        assert (verdict.due, verdict.failed, verdict.disks) == ((), (), {2: ("/disk-2",)})
        assert journal.tree.children("/steward/failed_log_dirs") == []
        simulator.tick(2 * GRACE_S)


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
    assert journal.tree.get(NODE) is None
    assert [row.entry.action.value for row in journal.audit.rows()] == ["detect", "clear"]


def test_what_a_person_garbled_dates_from_its_writing(simulator: Simulator, journal: Journal) -> None:
    simulator.fail_disk(2, T0)
    journal.tree.create(NODE, "no JSON")
    simulator.tick(GRACE_S)
    assert look(simulator, journal).due == (2,)
    node = journal.tree.get(NODE)
    assert node is not None
    assert json.loads(node.data)["announced_ms"] == simulator.now_ms


def test_it_is_healed_as_a_brokers_replicas_are_and_then_seen_to(
    simulator: Simulator, journal: Journal, tmp_path: Path
) -> None:
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
    for _ in range(20):
        if runner.step().ended:
            break
        simulator.tick()
    assert all(2 not in simulator.topics[name].replicas for name in (T0, T2))
    assert simulator.topics[T1].replicas == (2, 3, 1)
    verdict = look(simulator, journal)
    assert (verdict.due, verdict.failed) == ((), ())
    assert verdict.sentence.endswith("its log directory /disk-2 has failed, with 0 replicas.")
    assert journal.tree.get(NODE) is None


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


def decided(settings: Settings, *, first_seen_ms: int, now_ms: int, outage: bool = False) -> FailureDecision:
    return decide_log_dir_failures(
        lost_disks(b2=3),
        first_seen_ms={2: first_seen_ms},
        announced_ms={},
        handled=frozenset(),
        outage=outage,
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
    outage = settings.max_failed_brokers < 2 or settings.max_failed_fraction * 4 < 2
    assert decided(settings, first_seen_ms=0, now_ms=10_000, outage=outage).due == due


def test_health_names_failed_directories_cordoned_brokers_and_hidden_topics(
    simulator: Simulator, journal: Journal
) -> None:
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


def test_a_broker_that_does_not_tell_which_directory_is_counted_by_its_offline_replicas(
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
    decision = decided(settings, first_seen_ms=5_000, now_ms=5_000)
    assert (decision.due, decision.announce, decision.waiting) == ((2,), (2,), {})
    assert log_dir_message(lost_disks(b2=3), decision, settings, 5_000).endswith("3 replicas, which will be healed.")


def test_a_failure_that_was_never_announced_is_announced_whatever_the_clock_says() -> None:
    settings = Settings(heal_failed_disks=True, heal_failure_interval=0, heal_retry_interval=600)
    assert decided(settings, first_seen_ms=0, now_ms=0).announce == (2,)


def test_in_an_outage_the_end_of_the_grace_period_is_told_only_until_it_is_reached() -> None:
    settings = Settings(heal_failed_disks=True, heal_failure_interval=10)
    told = {}
    for now_ms in (9_000, 10_000):
        decision = decided(settings, first_seen_ms=0, now_ms=now_ms, outage=True)
        assert decision.due == ()
        told[now_ms] = log_dir_message(lost_disks(b2=3), decision, settings, now_ms).partition("3 replicas; ")[2]
    assert told == {
        9_000: "the grace period ends in 1 s.",
        10_000: "this counts as an outage, and nothing is healed until some brokers return.",
    }


def test_each_broker_with_a_failed_directory_has_a_sentence_of_its_own() -> None:
    settings = Settings(heal_failed_disks=False)
    assert log_dir_message(lost_disks(b3=1, b2=3), FailureDecision(), settings, 0) == (
        "Broker 2 is live, but its log directory /disk-2 has failed, with 3 replicas; they are not healed "
        "(heal_failed_disks). "
        "Broker 3 is live, but its log directory /disk-3 has failed, with 1 replicas; they are not healed "
        "(heal_failed_disks)."
    )


REPORTED_GRACE_S = 600
ENTRY, DISKS = paths.failed_broker(1), "/steward/failed_log_dirs/2"
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
    node = journal.tree.get(ENTRY)
    assert node is not None
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
    journal.tree.create(ENTRY, f'{{"failure_timestamp": {simulator.now_ms}, "reported": true}}')
    assert look_after(simulator, journal).due == (1,)


def test_the_report_outlives_a_heal_that_was_abandoned(simulator: Simulator, journal: Journal) -> None:
    simulator.kill(1)
    report_broker(context(simulator, journal), 1)
    look_after(simulator, journal)
    plan = plan_of(simulator, heal_moves(simulator, 1, 4), failed=(1,))
    record = publish_plan(context(simulator, journal), plan)
    assert journal.tree.get(ENTRY) is None
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
    assert journal.tree.children(paths.FAILED_BROKERS) == []
    assert look_after(simulator, journal).failed == ()


def test_one_that_too_few_see_as_down_is_refused(
    simulator: Simulator, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulator.kill(1)
    monkeypatch.setattr(simulator, "live_views", lambda asked: {each: frozenset({1, 2, 3, 4}) for each in asked})
    with pytest.raises(RequestError, match=r"too few live brokers see it as down yet; report it again in some seconds"):
        report_broker(context(simulator, journal), 1)


def test_in_an_outage_the_report_says_that_nothing_is_healed(simulator: Simulator, journal: Journal) -> None:
    simulator.kill(1)
    simulator.kill(2)
    assert report_broker(context(simulator, journal), 1).startswith(f"{REPORTED} So many brokers are down that this")
    assert look_after(simulator, journal).due == ()


def test_a_withdrawn_report_calls_the_heal_off_until_it_is_reported_again(
    simulator: Simulator, journal: Journal
) -> None:
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
    verdict = look_after(simulator, journal, heal_failed_disks=True)
    assert verdict.sentence.endswith("with 1 replicas; the grace period ends in 600 s.")
    assert verdict.failed == ()
    assert look_after(simulator, journal).failed == ()
    assert journal.tree.get(DISKS) is None
