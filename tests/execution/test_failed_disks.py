"""A log directory of a live broker fails: it is named, counted, and healed by option, with the grace of a broker's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.state import BrokerLogDirs, Directory
from kafka_steward.execution.failure_detector import DetectionResult, FailureDetector
from kafka_steward.execution.failures import LivenessView, decide_log_dir_failures
from kafka_steward.execution.health import (
    check_health,
    health_message,
    validate_limits,
    violated_limits,
)
from kafka_steward.execution.lifecycle import _is_fully_replicated
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.publishing import publish_plan
from kafka_steward.execution.runner import PlanRunner
from kafka_steward.execution.snapshot import take_snapshot
from kafka_steward.journal.records import MoveRow
from kafka_steward.journal.store import Journal
from kafka_steward.planning.files.formats import read_snapshot
from kafka_steward.settings import Settings
from tests.local_plan import plan_folder
from tests.simulated_plan import WHO, World, memory_journal, move
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
    assert _is_fully_replicated(row, simulator.snapshot())
    simulator.fail_disk(2, T0)
    assert not _is_fully_replicated(row, simulator.snapshot())


def sight(*failed: int, **lost: int) -> LivenessView:
    counts = {int(name[1:]): count for name, count in lost.items()}
    return LivenessView(
        frozenset(failed), frozenset({1, 2, 3, 4}) - set(failed), frozenset({1, 2, 3, 4}), {}, {}, counts
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
    seen = sight(3, b2=1)
    judged = decide_log_dir_failures(
        seen,
        first_seen_ms={2: 0},
        announced_ms={},
        handled=frozenset(),
        outage=settings.max_failed_brokers < 2 or settings.max_failed_fraction * 4 < 2,
        now_ms=10_000,
        settings=settings,
    )
    assert judged.due == due


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
