"""Publishing: what is refused, and who gets the cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_steward.errors import PlanError, SlotTaken
from kafka_steward.execution.failure_detector import FailureDetector
from kafka_steward.execution.lifecycle import abandon_plan, resume_plan
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.publishing import publish_plan
from kafka_steward.execution.runner import PlanRunner
from kafka_steward.execution.snapshot import take_snapshot
from kafka_steward.journal.records import PlanRecord, PlanStatus
from kafka_steward.journal.store import Journal
from kafka_steward.planning.files.formats import PlanFolder, read_snapshot
from kafka_steward.settings import Settings
from tests.local_plan import planned
from tests.simulated_plan import WHO, move, plan_of
from tests.simulator import Simulator


def publish(simulator: Simulator, journal: Journal, plan: PlanFolder, **more: Any) -> PlanRecord:
    return publish_plan(ClusterContext(simulator, journal, Settings(), WHO), plan, **more)


def asked_for(simulator: Simulator) -> PlanFolder:
    return plan_of(simulator, [move("t-0", "123", "423")], operation="apply")


def a_heal(simulator: Simulator, name: str = "t-1", **proof: Any) -> PlanFolder:
    return plan_of(simulator, [move(name, "231", "234")], failed=(1,), **proof)


def status(journal: Journal, plan: PlanFolder) -> PlanStatus:
    record = journal.plans.get(plan.digest)
    assert record is not None
    return record.status


def test_a_plan_is_written_down_and_gets_the_cluster(simulator: Simulator, journal: Journal) -> None:
    plan = a_heal(simulator, unplaced=[{"topic": "t", "partition": 2, "reason": "too_few_brokers"}])
    record = publish(simulator, journal, plan)
    assert (record.status, record.failed_brokers, record.auto_generated) == (PlanStatus.PUBLISHED, (1,), True)
    assert (record.left, record.live_brokers, record.who) == (1, (1, 2, 3, 4), WHO)
    assert journal.slot.holders() == (plan.digest,)
    assert len(journal.tree.children("/admin/reassign_chunks")) == 1


def test_publishing_twice_is_publishing_once(simulator: Simulator, journal: Journal) -> None:
    plan = a_heal(simulator)
    assert publish(simulator, journal, plan) == publish(simulator, journal, plan)
    assert [row.entry.action.value for row in journal.audit.rows(plan=plan.digest)] == ["publish"]


def test_a_plan_of_another_cluster_is_refused(simulator: Simulator, journal: Journal) -> None:
    plan = a_heal(simulator)
    foreign = replace(plan, proof={**plan.proof, "cluster_id": "elsewhere"})
    with pytest.raises(PlanError, match="was made for cluster elsewhere, and this is simulated; make a plan from a"):
        publish(simulator, journal, foreign)
    assert journal.slot.holders() == ()


def test_a_heal_of_more_brokers_than_allowed_is_refused(simulator: Simulator, journal: Journal) -> None:
    plan = a_heal(simulator)
    many = replace(plan, proof={**plan.proof, "brokers_failed": list(range(11))})
    with pytest.raises(PlanError, match="heals 11 brokers at once, and max_failed_brokers is 10"):
        publish(simulator, journal, many)


def test_a_heal_counts_for_the_brokers_that_had_failed_and_no_others(
    simulator: Simulator, journal: Journal, tmp_path: Path
) -> None:
    simulator.kill(3)
    take_snapshot(simulator, str(tmp_path), failed={3}, now_ms=simulator.now_ms)
    snapshot = read_snapshot(str(tmp_path))
    plan = planned(snapshot)
    others = replace(plan, proof={**plan.proof, "brokers_failed": [2, 3]})
    with pytest.raises(PlanError, match=r"brokers_failed = \[2, 3\]; the snapshot says \[3\]\. Make a new plan"):
        publish(simulator, journal, others, snapshot=snapshot)
    assert journal.plans.latest(1) == []
    record = publish(simulator, journal, plan, snapshot=snapshot)
    assert (record.failed_brokers, record.live_brokers) == ((3,), (1, 2, 4))


def test_what_was_in_flight_is_not_what_cannot_be_healed(simulator: Simulator, journal: Journal) -> None:
    plan = a_heal(simulator, pinned=[{"topic": "t", "partition": 2, "reason": "in_flight"}])
    record = publish(simulator, journal, plan)
    assert (record.left, record.live_brokers) == (1, ())


def test_a_second_plan_waits_for_the_first(simulator: Simulator, journal: Journal) -> None:
    first, second = a_heal(simulator), asked_for(simulator)
    publish(simulator, journal, first)
    with pytest.raises(SlotTaken, match=f"plan {first.digest[:12]} holds the plan slot") as error:
        publish(simulator, journal, second)
    assert error.value.owner == first.digest
    assert journal.plans.get(second.digest) is None


def test_a_heal_goes_first_and_gives_the_cluster_back(simulator: Simulator, journal: Journal) -> None:
    asked, heal = asked_for(simulator), a_heal(simulator)
    publish(simulator, journal, asked)
    publish(simulator, journal, heal)
    assert status(journal, asked) is PlanStatus.PREEMPTED
    assert journal.slot.holders() == (heal.digest,)
    PlanRunner(ClusterContext(simulator, journal, Settings(), WHO), heal.digest).step()
    simulator.restart(1)
    simulator.tick(5)
    assert PlanRunner(ClusterContext(simulator, journal, Settings(), WHO), heal.digest).step().ended
    assert journal.slot.holders() == (asked.digest,)
    assert status(journal, asked) is PlanStatus.RUNNING
    told = [row.entry.action.value for row in journal.audit.rows(plan=asked.digest)]
    assert told == ["publish", "pause", "resume"]


def test_a_slot_that_an_ended_plan_left_behind_is_free(simulator: Simulator, journal: Journal) -> None:
    first, second = asked_for(simulator), a_heal(simulator)
    record = publish(simulator, journal, first)
    journal.plans.update(record, status=PlanStatus.COMPLETED)
    publish(simulator, journal, second)
    assert journal.slot.holders() == (second.digest,)
    assert journal.slot.preempted_plans() == ()


def test_a_person_resumes_what_is_stuck(simulator: Simulator, journal: Journal) -> None:
    plan = asked_for(simulator)
    record = publish(simulator, journal, plan)
    journal.plans.update(record, status=PlanStatus.STUCK, attempts=100)
    resumed = resume_plan(journal, plan.digest, WHO)
    assert (resumed.status, resumed.attempts) == (PlanStatus.RUNNING, 0)
    assert resume_plan(journal, plan.digest, WHO) == resumed
    with pytest.raises(PlanError, match="There is no plan 0000"):
        resume_plan(journal, "0000", WHO)


def test_a_person_abandons_a_plan_and_the_cluster_is_free(simulator: Simulator, journal: Journal) -> None:
    plan = asked_for(simulator)
    publish(simulator, journal, plan)
    ended = abandon_plan(journal, plan.digest, WHO, "no longer wanted")
    assert ended.reason == f"Plan {plan.digest[:12]} was abandoned: no longer wanted"
    assert journal.slot.holders() == ()
    with pytest.raises(PlanError, match="has already ended"):
        abandon_plan(journal, plan.digest, WHO, "again")


def test_a_heal_that_nobody_steps_any_more_is_superseded_by_the_next(simulator: Simulator, journal: Journal) -> None:
    simulator.kill(1)
    first, second = a_heal(simulator), a_heal(simulator, "t-0", note="another")
    publish(simulator, journal, first)
    slow = Settings(throttle=1)
    PlanRunner(ClusterContext(simulator, journal, slow, WHO), first.digest).step()
    detector = FailureDetector(simulator, journal, Settings(heal_failure_interval=0), WHO)
    simulator.now_ms += 600_000
    assert detector.poll().handled == (1,)
    simulator.now_ms += 1
    assert detector.poll().failed == (1,)
    publish(simulator, journal, second)
    assert status(journal, first) is PlanStatus.ABANDONED
    assert journal.slot.holders() == (second.digest,)
    detector.poll()
    assert journal.tree.children("/admin/reassignments") == []
    assert not any("throttled" in key for of in simulator.topic_settings.values() for key in of)


def test_a_stuck_heal_waits_for_a_person(simulator: Simulator, journal: Journal) -> None:
    simulator.kill(1)
    first = a_heal(simulator)
    journal.plans.update(publish(simulator, journal, first), status=PlanStatus.STUCK)
    simulator.now_ms += 1_200_000
    assert FailureDetector(simulator, journal, Settings(), WHO).poll().handled == (1,)
    with pytest.raises(SlotTaken):
        publish(simulator, journal, a_heal(simulator, "t-0"))
