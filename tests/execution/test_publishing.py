"""Publishing: what is refused, who gets the plan slot, which plan is meant, and which plans need an approval."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_steward.assignment import Move, MoveReason, TopicPartition
from kafka_steward.errors import PlanError, SlotTaken
from kafka_steward.execution.failures.records import FAILED_LOG_DIRS, FAILURES
from kafka_steward.execution.failures.rules import EndedHeal, Failure
from kafka_steward.execution.moves.states import HoldReason
from kafka_steward.execution.plans.approval import approval_exemption, approve_plan, refuse_unapproved, reject_plan
from kafka_steward.execution.plans.lifecycle import abandon_plan, request_cancel, resume_plan
from kafka_steward.execution.plans.publishing import publish_plan
from kafka_steward.execution.plans.resolution import resolve_plan
from kafka_steward.execution.plans.runner import PlanRunner
from kafka_steward.execution.plans.slot import (
    ClaimOutcome,
    claim_slot,
    current_plans,
    decide_claim,
    may_share_slot,
    refuse_taken_slot,
    release_slot,
    waiting_reason,
)
from kafka_steward.execution.plans.snapshot import take_snapshot
from kafka_steward.execution.plans.summary import make_approval_request, plan_summary
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.watch.failure_detector import FailureDetector
from kafka_steward.journal.records import Approval, MoveState, PlanRecord, PlanStatus
from kafka_steward.journal.state import Noun
from kafka_steward.journal.store import Journal
from kafka_steward.planning.files.formats import PlanFolder, read_snapshot
from kafka_steward.settings import Settings
from tests.builders import cluster, plan_with, snapshot_of
from tests.local_plan import planned
from tests.present import present
from tests.simulated_plan import WHO, memory_journal, move, plan_of, simulated
from tests.simulator import Simulator
from tests.watching import tick_of


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
    assert len(journal.mailbox.children("/admin/reassign_chunks")) == 1


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
    journal.rows(FAILURES).put(7, Failure(1, reported=True), None)
    assert len(publish(simulator, journal, many).failed_brokers) == 11, "a person reported one of them"


HEALED = EndedHeal(1, 1)


@pytest.mark.parametrize(
    ("kind", "failure", "named", "hopeless", "published"),
    [
        (FAILURES, Failure(1), (), False, False),
        (FAILURES, Failure(1, reported=True), (), False, True),
        (FAILURES, Failure(1, healed=HEALED), (), False, True),
        (FAILED_LOG_DIRS, Failure(1), (), False, False),
        (FAILED_LOG_DIRS, Failure(1, reported=True), (), False, True),
        (FAILED_LOG_DIRS, Failure(1, healed=HEALED), (), False, True),
        (FAILURES, Failure(1), (2,), False, True),
        (FAILURES, Failure(1), (3,), False, False),
        (FAILURES, Failure(1), (), True, True),
    ],
)
def test_at_publication_the_brokers_count_that_count_as_an_outage(
    *, kind: Noun[int, Failure], failure: Failure, named: Sequence[int], hopeless: bool, published: bool
) -> None:
    simulator, journal = simulated("1a 2b 3c 4a", "t: 3" if hopeless else "t: 134 234")
    simulator.create("only", [(2,)])
    simulator.kill(2)
    journal.rows(kind).put(2, failure, None)
    heals = {"failed": (1,), "log_dirs_failed": [2]} if kind is FAILED_LOG_DIRS else {"failed": (1, 2)}
    plan = plan_of(simulator, [move("t-0", "134", "234")], **heals)
    desk = ClusterContext(simulator, journal, Settings(max_failed_brokers=1), WHO)
    with nullcontext() if published else pytest.raises(PlanError, match="heals 2 brokers at once"):
        assert publish_plan(desk, plan, named=named).failed_brokers == (1, 2)


def test_a_heal_counts_only_for_the_brokers_that_failed(simulator: Simulator, journal: Journal, tmp_path: Path) -> None:
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
    assert (record.left, record.postponed, record.live_brokers) == (1, record.failed_brokers, (1, 2, 3, 4))
    assert record.postponed


def test_only_the_brokers_of_what_is_in_flight_wait_for_another_heal(tmp_path: Path) -> None:
    simulator = Simulator.of("1a 2b 3c 4a 5b 6c", "u: 31 41", size=1000)
    simulator.alter({TopicPartition("u", 0): (3, 2)})
    for broker in (3, 4):
        simulator.kill(broker)
    take_snapshot(simulator, str(tmp_path), failed={3, 4}, now_ms=simulator.now_ms)
    snapshot = read_snapshot(str(tmp_path))
    record = publish(simulator, memory_journal(simulator), planned(snapshot), snapshot=snapshot)
    assert (record.failed_brokers, record.postponed) == ((3, 4), (3,))


def test_a_second_plan_waits_for_the_first(simulator: Simulator, journal: Journal) -> None:
    first, second = a_heal(simulator), asked_for(simulator)
    publish(simulator, journal, first)
    with pytest.raises(SlotTaken, match=f"plan {first.digest[:12]} holds the plan slot") as error:
        publish(simulator, journal, second)
    assert error.value.owner == first.digest
    assert journal.plans.get(second.digest) is None


def test_a_plan_that_another_one_forestalls_while_it_is_written_is_not_published(
    simulator: Simulator, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = a_heal(simulator), asked_for(simulator)
    written = journal.plans.publish

    def forestalled(record: PlanRecord, moves: Sequence[Move]) -> PlanRecord:
        monkeypatch.undo()
        published = written(record, moves)
        publish(simulator, journal, first)
        return published

    monkeypatch.setattr(journal.plans, "publish", forestalled)
    with pytest.raises(SlotTaken, match=f"plan {first.digest[:12]} holds the plan slot"):
        publish(simulator, journal, second)
    assert (journal.plans.get(second.digest), journal.plans.rows(second.digest)) == (None, [])
    assert len(journal.mailbox.children("/admin/reassign_chunks")) == 1
    assert journal.slot.holders() == (first.digest,)


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


def test_a_plan_that_is_abandoned_is_not_rolled_back_although_that_was_requested_before(
    simulator: Simulator, journal: Journal
) -> None:
    plan = asked_for(simulator)
    publish(simulator, journal, plan)
    runner = PlanRunner(ClusterContext(simulator, journal, Settings(throttle=0), WHO), plan.digest)
    runner.step()
    request_cancel(journal, plan.digest, who=WHO, reason="enough", scope="plan")
    abandon_plan(journal, plan.digest, WHO, "it takes too long")
    assert runner.step().ended
    simulator.run()
    record = present(journal.plans.get(plan.digest))
    assert (record.status, record.rolled_back_by) == (PlanStatus.ABANDONED, None)
    # What was in flight went on, and a request that comes later takes it back.
    name = TopicPartition("t", 0)
    assert simulator.topics[name].replicas == (4, 2, 3)
    request_cancel(journal, plan.digest, who=WHO, reason="enough", scope="plan")
    for _ in range(6):
        runner.step()
        simulator.tick()
    assert (simulator.topics[name].replicas, status(journal, plan)) == ((1, 2, 3), PlanStatus.ROLLED_BACK)


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
    tick_of(simulator, journal, Settings())
    assert journal.mailbox.children("/admin/reassignments") == []
    assert not any("throttled" in key for of in simulator.topic_settings.values() for key in of)


def test_a_stuck_heal_waits_for_a_person(simulator: Simulator, journal: Journal) -> None:
    simulator.kill(1)
    first = a_heal(simulator)
    journal.plans.update(publish(simulator, journal, first), status=PlanStatus.STUCK)
    simulator.now_ms += 1_200_000
    assert FailureDetector(simulator, journal, Settings(), WHO).poll().handled == (1,)
    with pytest.raises(SlotTaken):
        publish(simulator, journal, a_heal(simulator, "t-0"))


def of(digest: str, **more: object) -> PlanRecord:
    return PlanRecord(digest * 64, "simulated", **{"operation": "apply", **more})  # type: ignore[arg-type]


HEAL: dict[str, object] = {"auto_generated": True}
ASKED_FOR: dict[str, object] = {"sources": ("/a@1",)}
BY_HAND: dict[str, object] = {}


@pytest.mark.parametrize(
    ("wanted", "holder", "more", "claim"),
    [
        (HEAL, None, {}, ClaimOutcome.FREE),
        (HEAL, BY_HAND, {}, ClaimOutcome.PREEMPTS),
        (HEAL, ASKED_FOR, {}, ClaimOutcome.PREEMPTS),
        (HEAL, HEAL, {}, ClaimOutcome.REFUSED),
        (ASKED_FOR, ASKED_FOR, {}, ClaimOutcome.REFUSED),
        (ASKED_FOR, HEAL, {}, ClaimOutcome.REFUSED),
        (BY_HAND, HEAL, {}, ClaimOutcome.REFUSED),
        (BY_HAND, ASKED_FOR, {}, ClaimOutcome.REFUSED),
        (BY_HAND, BY_HAND, {}, ClaimOutcome.REFUSED),
        (BY_HAND, BY_HAND, {"disjoint": True}, ClaimOutcome.BESIDE),
        (BY_HAND, ASKED_FOR, {"disjoint": True}, ClaimOutcome.BESIDE),
        (BY_HAND, HEAL, {"disjoint": True}, ClaimOutcome.REFUSED),
        (HEAL, HEAL, {"holder_abandoned": True}, ClaimOutcome.REPLACES),
        (BY_HAND, HEAL, {"holder_abandoned": True}, ClaimOutcome.REFUSED),
    ],
)
def test_a_heal_goes_first_and_others_wait_or_start_beside_what_has_no_partition_in_common(
    wanted: dict[str, object], holder: dict[str, object] | None, more: dict[str, bool], claim: ClaimOutcome
) -> None:
    held = None if holder is None else of("b", **holder)
    assert decide_claim(of("a", **wanted), held, **more) is claim
    assert decide_claim(of("b", **wanted), held) is ClaimOutcome.FREE


def test_only_what_names_its_moves_or_takes_moves_back_starts_beside_others() -> None:
    kinds = ("apply", "rebalance", "expand", "drain", "fill", "set-replication-factor", "heal")
    assert [kind for kind in kinds if may_share_slot(PlanRecord("a", "c", kind))] == ["apply"]
    assert may_share_slot(PlanRecord("a", "c", "rollback", rolls_back="b"))


def test_plans_that_ended_while_they_had_the_slot_make_room_one_after_the_other(journal: Journal) -> None:
    """Their processes died before they released it."""
    for digest in "abc":
        journal.plans.publish(of(digest), [])
        journal.slot.preempt_with(digest * 64)
    for digest in "bc":
        journal.plans.update(journal.plans.get(digest * 64) or of(digest), status=PlanStatus.COMPLETED)
    assert current_plans(journal) == []
    wanted = of("d", operation="rebalance")
    with pytest.raises(SlotTaken, match="Plan d was not published: plan aaaaaaaaaaaa holds the plan slot; wait until"):
        refuse_taken_slot(journal, wanted, (), WHO, not_done="Plan d was not published")
    assert (journal.slot.holders(), journal.slot.preempted_plans()) == (("a" * 64,), ())
    why = "Plan dddddddddddd waits: plan aaaaaaaaaaaa holds the plan slot until it ends."
    assert waiting_reason(journal, wanted, (), WHO) == why
    journal.slot.release("a" * 64)
    assert waiting_reason(journal, wanted, (), WHO) == ""
    assert journal.slot.holders() == ("d" * 64,)


def test_a_plan_shares_the_slot_as_long_as_no_partition_is_in_common(journal: Journal) -> None:
    first = journal.plans.publish(of("a", operation="rebalance"), [move("t-0", "12", "23")])
    claim_slot(journal, first, WHO)
    beside = journal.plans.publish(of("b"), [move("t-1", "12", "23")])
    refuse_taken_slot(journal, beside, {TopicPartition("t", 1)}, WHO, not_done="")
    claim_slot(journal, beside, WHO)
    assert journal.slot.holders() == (first.digest, beside.digest)
    late = journal.plans.publish(of("c"), [move("t-0", "12", "14"), move("t-2", "12", "23")])
    with pytest.raises(SlotTaken, match="plan aaaaaaaaaaaa holds the plan slot and moves t-0, too; wait"):
        refuse_taken_slot(journal, late, {TopicPartition("t", 0), TopicPartition("t", 2)}, WHO, not_done="")
    with pytest.raises(SlotTaken):
        claim_slot(journal, late, WHO)
    assert waiting_reason(journal, late, journal.slot.holders(), WHO).startswith("Plan cccccccccccc waits: plan aaaa")
    journal.plans.set_move_states(first.digest, [TopicPartition("t", 0)], MoveState.COMPLETED, fence=None)
    assert waiting_reason(journal, late, journal.slot.holders(), WHO) == "", "what has settled is in nobody's way"
    assert journal.slot.holders() == (first.digest, beside.digest, late.digest)


def test_what_shared_the_slot_before_a_heal_shares_it_again_after_it(journal: Journal) -> None:
    """Whatever its kind: it has started before."""
    rebalance = journal.plans.publish(of("a", operation="rebalance"), [move("t-0", "12", "23")])
    beside = journal.plans.publish(of("b"), [move("t-1", "12", "23")])
    heal = journal.plans.publish(of("e", operation="heal", **HEAL), [move("t-2", "12", "23")])
    for plan in (rebalance, beside, heal):
        claim_slot(journal, plan, WHO)
    assert journal.slot.holders() == (heal.digest,)
    assert journal.slot.preempted_plans() == (beside.digest, rebalance.digest)
    found = [journal.plans.get(each.digest) for each in (rebalance, beside)]
    assert [each.status for each in found if each is not None] == [PlanStatus.PREEMPTED] * 2
    for plan in (rebalance, beside):
        assert "waits: plan eeeeeeeeeeee holds" in waiting_reason(journal, plan, (heal.digest,), WHO)
    journal.plans.update(heal, status=PlanStatus.COMPLETED)
    release_slot(journal, heal.digest, WHO)
    assert journal.slot.holders() == (rebalance.digest,)
    assert waiting_reason(journal, beside, journal.slot.holders(), WHO) == ""
    assert (journal.slot.holders(), journal.slot.preempted_plans()) == ((rebalance.digest, beside.digest), ())


def test_of_several_plans_that_have_not_ended_the_one_that_has_the_slot_is_meant(journal: Journal) -> None:
    for digest in "ab":
        journal.plans.publish(of(digest), [])
    with pytest.raises(PlanError, match="have not ended: aaaaaaaaaaaa, bbbbbbbbbbbb; name the one to cancel"):
        resolve_plan(journal, None, "cancel")
    journal.slot.acquire("b" * 64)
    assert resolve_plan(journal, None, "throttle").digest == "b" * 64
    journal.slot.acquire("a" * 64, beside=["b" * 64])
    with pytest.raises(PlanError, match="have not ended: bbbbbbbbbbbb, aaaaaaaaaaaa; name the one to throttle"):
        resolve_plan(journal, None, "throttle")
    assert resolve_plan(journal, "aaa", "throttle").digest == "a" * 64


def test_to_take_back_a_plan_whose_rollback_is_under_way_means_that_plan(journal: Journal) -> None:
    ended = journal.plans.publish(of("a"), [])
    journal.plans.update(ended, status=PlanStatus.COMPLETED)
    journal.plans.publish(of("b", rolls_back="a" * 64), [])
    found = [resolve_plan(journal, None, "cancel", scope=scope).digest for scope in ("plan", "pending")]
    assert found == ["a" * 64, "b" * 64]


DIGEST = "3f2a91c0" * 8
OTHER = "77b1d2ee" * 8
YES = Approval(DIGEST, "ann", "looks right", 5)


def test_the_first_approval_of_a_digest_counts_and_a_retry_changes_nothing(journal: Journal) -> None:
    assert approve_plan(journal, YES, WHO) == refuse_unapproved(journal, DIGEST) == YES
    (row,) = journal.audit.rows(plan=DIGEST)
    assert (row.entry.action.value, row.entry.who.person, row.entry.who.dag_id) == ("approve", "ann", "heal")
    assert row.entry.after["answered_ms"] == 5
    with pytest.raises(PlanError, match="Plan 77b1d2ee77b1 was not submitted: it is not approved"):
        refuse_unapproved(journal, OTHER)
    again = approve_plan(journal, Approval(DIGEST, "bob", "me too", 9), WHO)
    assert (again.person, refuse_unapproved(journal, DIGEST).person) == ("ann", "ann")
    assert [row.entry.who.person for row in journal.audit.rows(plan=DIGEST)] == ["ann", "bob"]
    approve_plan(journal, YES, replace(WHO, try_number=2))
    assert len(journal.audit.rows(plan=DIGEST)) == 2


def test_a_rejection_is_recorded_and_approves_nothing(journal: Journal) -> None:
    reject_plan(journal, DIGEST, WHO, person=None, reason="nobody answered")
    (row,) = journal.audit.rows(plan=DIGEST)
    assert (row.entry.action.value, row.entry.who.person, row.entry.reason) == (
        "reject", None, "rejected: nobody answered",
    )  # fmt: skip
    with pytest.raises(PlanError):
        refuse_unapproved(journal, DIGEST)


def test_a_plan_is_published_only_with_its_own_approval() -> None:
    simulator, journal = simulated("1a 2b 3c 4a", "t: 123 231")
    plan = plan_of(simulator, [move("t-0", "123", "423")], operation="rebalance")

    def publish() -> PlanRecord:
        return publish_plan(ClusterContext(simulator, journal, Settings(), WHO), plan, require_approval=True)

    with pytest.raises(PlanError, match="it is not approved"):
        publish()
    assert (journal.plans.get(plan.digest), journal.slot.holders()) == (None, ())
    approve_plan(journal, Approval(plan.digest, "ann"), WHO)
    assert publish().digest == plan.digest


@pytest.mark.parametrize(
    ("moves", "unattended", "above", "without"),
    [
        ([move("t-0", "12", "34", size=5)], True, 10, "a scheduled run moves 10 bytes; approval is required above 10"),
        ([move("t-0", "12", "34", size=5), move("t-1", "12", "13", size=1)], True, 10, ""),
        ([], True, None, ""),
        ([], True, 0, "a scheduled run moves 0 bytes; approval is required above 0"),
        ([move("t-0", "12", "34", size=5)], False, 10, ""),
        ([replace(move("t-0", "12", "13"), size_bytes=None)], True, 10, ""),
        (
            [replace(move("t-0", "12", "21"), size_bytes=None)],
            True,
            10,
            "a scheduled run moves 0 bytes; approval is required above 10",
        ),
    ],
)
def test_only_a_small_plan_of_a_scheduled_run_goes_without_a_person(
    moves: list[Move], unattended: bool, above: int | None, without: str
) -> None:
    assert approval_exemption(moves, unattended=unattended, approve_above=above) == without


ONE_AT_A_TIME = Settings(throttle=0, max_in_per_broker=1, max_attempts=3)


def published() -> tuple[Simulator, Journal, str]:
    """Two partitions, one after the other, of a plan that was approved."""
    simulator, journal = simulated("1a 2b 3c 4a", "t: 123 231")
    moves = [move("t-0", "123", "423"), move("t-1", "231", "431", position=1)]
    plan = plan_of(simulator, moves, operation="rebalance")
    approve_plan(journal, Approval(plan.digest, "ann"), WHO)
    record = publish_plan(ClusterContext(simulator, journal, ONE_AT_A_TIME, WHO), plan, require_approval=True)
    assert record.needs_approval
    return simulator, journal, plan.digest


def withdraw_approval(journal: Journal, digest: str) -> None:
    """Delete an approval, as a person may in the database."""
    stored: Any = journal.plans._plans
    del stored._approvals[digest]


def test_what_is_in_flight_completes_and_nothing_begins_while_the_approval_is_gone() -> None:
    simulator, journal, digest = published()
    runner = PlanRunner(ClusterContext(simulator, journal, ONE_AT_A_TIME, WHO), digest)
    runner.step()
    withdraw_approval(journal, digest)
    for _ in range(12):
        simulator.tick()
        progress = runner.step()
    assert (progress.status, progress.completed, progress.waiting) == (PlanStatus.RUNNING, 1, 1)
    assert [held.code for held in progress.held] == [HoldReason.NOT_APPROVED]
    assert f"plan {digest[:12]} is not approved" in progress.sentence
    resume_plan(journal, digest, WHO)
    assert PlanRunner(ClusterContext(simulator, journal, ONE_AT_A_TIME, WHO), digest).step().in_flight == 0
    approve_plan(journal, Approval(digest, "bob"), WHO)
    assert runner.step().in_flight == 1


def test_a_cancel_needs_no_approval() -> None:
    simulator, journal, digest = published()
    runner = PlanRunner(ClusterContext(simulator, journal, ONE_AT_A_TIME, WHO), digest)
    runner.step()
    withdraw_approval(journal, digest)
    request_cancel(journal, digest, who=WHO, reason="enough")
    for _ in range(5):
        progress = runner.step()
    assert progress.status is PlanStatus.CANCELLED
    assert simulator.topics[next(iter(simulator.topics))].replicas == (1, 2, 3)


def test_a_plan_that_was_published_without_the_demand_needs_none() -> None:
    simulator, journal = simulated("1a 2b 3c 4a", "t: 123")
    plan = plan_of(simulator, [move("t-0", "123", "423")], operation="apply")
    record = publish_plan(ClusterContext(simulator, journal, ONE_AT_A_TIME, WHO), plan)
    assert not record.needs_approval
    assert PlanRunner(ClusterContext(simulator, journal, ONE_AT_A_TIME, WHO), plan.digest).step().in_flight == 1


SNAPSHOT = cluster("1a 2b 3b 4", "a_b: 123 123")
MOVES = [Move("a_b", n, (1, 2, 3), (1, 2, 4), 0, n, MoveReason.BALANCE, size_bytes=1_500) for n in range(20)]


@pytest.mark.parametrize(
    ("operation", "states", "what"),
    [
        ("drain", {3: "draining"}, "drain broker 3"),
        # Of one that is dead, nothing may be left to move: what no plan can repair stays there.
        ("drain", {4: "draining", 3: "draining"}, "drain broker 3"),
        ("heal", {2: "failed", 3: "draining"}, "heal broker 2"),
        ("heal", {2: "failed", 3: "failed"}, "heal brokers 2, 3"),
        ("expand", {4: "new"}, "expand broker 4"),
        ("rebalance", {4: "new"}, "rebalance"),
    ],
)
def test_the_subject_names_cluster_brokers_and_cost(operation: str, states: dict[int, str], what: str) -> None:
    rows = [{**row, "state": states.get(row["broker"], "live")} for row in SNAPSHOT.brokers.to_pylist()]
    snapshot = snapshot_of(rows, SNAPSHOT.partitions.to_pylist())
    draining = [broker for broker, state in states.items() if state == "draining"]
    proof = {"operation": operation, "replicas_moved": 20, "bytes_moved": 30_000, "brokers_draining": draining}
    of_one = proof | {"replicas_moved": 1, "bytes_moved": None}
    for each, cost in ((proof, "20 replicas, 30.0 kB"), (of_one, "1 replica, 0 B")):
        plan = plan_with(DIGEST, each, MOVES)
        request = make_approval_request(plan, snapshot, connection="production", requested_by="ann")
        assert request.subject == f"production: {what}: move {cost}?"


@pytest.mark.parametrize("operation", ["demote", "promote"])
def test_the_subject_of_a_demotion_names_its_brokers_and_that_nothing_is_copied(operation: str) -> None:
    proof = {"operation": operation, "options": {operation: [2, 3]}, "leader_changes": 1, "replicas_moved": 0}
    request = make_approval_request(
        plan_with(DIGEST, {**proof, "bytes_moved": 0}, []), SNAPSHOT, connection="p", requested_by="ann"
    )
    assert request.subject == f"p: {operation} brokers 2, 3: change 1 leader and copy nothing?"


def test_the_page_says_who_asked_and_lists_few_moves_above_the_buttons() -> None:
    plan = plan_with(DIGEST, {"operation": "apply", "replicas_moved": 20, "bytes_moved": 0}, MOVES)
    request = make_approval_request(plan, SNAPSHOT, connection="p_1", requested_by="*ann*")
    head, _, page = request.body.partition("\n\n")
    assert head == "Cluster: connection **p\\_1**. Requested by \\*ann\\*."
    assert page == plan_summary(plan, SNAPSHOT, moves_shown=8)
    assert page.count("| 1, 2, 3 | 1, 2, 4 |") == 8
    assert page.endswith("… and 12 more.")
