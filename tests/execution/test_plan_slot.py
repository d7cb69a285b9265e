"""Who may have the plan slot, and which plan is meant when none is named."""

from __future__ import annotations

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import PlanError, SlotTaken
from kafka_steward.execution.plan_resolution import resolve_plan
from kafka_steward.execution.plan_slot import (
    ClaimOutcome,
    claim_slot,
    current_plans,
    decide_claim,
    may_share_slot,
    refuse_taken_slot,
    release_slot,
    waiting_reason,
)
from kafka_steward.journal.records import ASKED, ROLLS_BACK, MoveState, PlanRecord, PlanStatus
from kafka_steward.journal.store import Journal
from tests.simulated_plan import WHO, move


def record(digest: str, **more: object) -> PlanRecord:
    return PlanRecord(digest * 64, "simulated", **{"operation": "apply", **more})  # type: ignore[arg-type]


HEAL: dict[str, object] = {"auto_generated": True}
ASKED_FOR: dict[str, object] = {"extra": {ASKED: {}}}
BY_HAND: dict[str, object] = {}


@pytest.mark.parametrize(
    ("wanted", "holder", "claim"),
    [
        (HEAL, None, ClaimOutcome.FREE),
        (HEAL, BY_HAND, ClaimOutcome.PREEMPTS),
        (HEAL, ASKED_FOR, ClaimOutcome.PREEMPTS),
        (HEAL, HEAL, ClaimOutcome.REFUSED),
        (ASKED_FOR, ASKED_FOR, ClaimOutcome.REFUSED),
        (ASKED_FOR, HEAL, ClaimOutcome.REFUSED),
        (BY_HAND, HEAL, ClaimOutcome.REFUSED),
        (BY_HAND, ASKED_FOR, ClaimOutcome.REFUSED),
        (BY_HAND, BY_HAND, ClaimOutcome.REFUSED),
    ],
)
def test_a_heal_goes_first_and_others_wait(
    wanted: dict[str, object], holder: dict[str, object] | None, claim: ClaimOutcome
) -> None:
    held = None if holder is None else record("b", **holder)
    assert decide_claim(record("a", **wanted), held) is claim
    assert decide_claim(record("b", **wanted), held) is ClaimOutcome.FREE


@pytest.mark.parametrize(
    ("holder", "claim"),
    [(BY_HAND, ClaimOutcome.BESIDE), (ASKED_FOR, ClaimOutcome.BESIDE), (HEAL, ClaimOutcome.REFUSED)],
)
def test_what_has_no_partition_in_common_starts_beside_all_but_a_heal(
    holder: dict[str, object], claim: ClaimOutcome
) -> None:
    assert decide_claim(record("a"), record("b", **holder), disjoint=True) is claim


def test_only_what_names_its_moves_or_takes_moves_back_starts_beside_others() -> None:
    kinds = ("apply", "rebalance", "expand", "drain", "fill", "set-replication-factor", "heal")
    assert [kind for kind in kinds if may_share_slot(PlanRecord("a", "c", kind))] == ["apply"]
    assert may_share_slot(PlanRecord("a", "c", "rollback", extra={ROLLS_BACK: "b"}))


@pytest.mark.parametrize(("wanted", "claim"), [(HEAL, ClaimOutcome.REPLACES), (BY_HAND, ClaimOutcome.REFUSED)])
def test_only_a_heal_replaces_a_heal_that_nobody_steps(wanted: dict[str, object], claim: ClaimOutcome) -> None:
    assert decide_claim(record("a", **wanted), record("b", **HEAL), holder_abandoned=True) is claim


def test_plans_that_ended_while_they_had_the_slot_make_room_one_after_the_other(journal: Journal) -> None:
    """Their processes died before they released it."""
    for digest in "abc":
        journal.plans.publish(record(digest), [])
        journal.slot.preempt_with(digest * 64)
    for digest in "bc":
        journal.plans.update(journal.plans.get(digest * 64) or record(digest), status=PlanStatus.COMPLETED)
    assert current_plans(journal) == []
    wanted = record("d", operation="rebalance")
    with pytest.raises(SlotTaken, match="Plan d was not published: plan aaaaaaaaaaaa holds the plan slot; wait until"):
        refuse_taken_slot(journal, wanted, (), WHO, not_done="Plan d was not published")
    assert (journal.slot.holders(), journal.slot.preempted_plans()) == (("a" * 64,), ())
    why = "Plan dddddddddddd waits: plan aaaaaaaaaaaa holds the plan slot until it ends."
    assert waiting_reason(journal, wanted, (), WHO) == why
    journal.slot.release("a" * 64)
    assert waiting_reason(journal, wanted, (), WHO) == ""
    assert journal.slot.holders() == ("d" * 64,)


def test_a_plan_shares_the_slot_as_long_as_no_partition_is_in_common(journal: Journal) -> None:
    first = journal.plans.publish(record("a", operation="rebalance"), [move("t-0", "12", "23")])
    claim_slot(journal, first, WHO)
    beside = journal.plans.publish(record("b"), [move("t-1", "12", "23")])
    refuse_taken_slot(journal, beside, {TopicPartition("t", 1)}, WHO, not_done="")
    claim_slot(journal, beside, WHO)
    assert journal.slot.holders() == (first.digest, beside.digest)
    late = journal.plans.publish(record("c"), [move("t-0", "12", "14"), move("t-2", "12", "23")])
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
    rebalance = journal.plans.publish(record("a", operation="rebalance"), [move("t-0", "12", "23")])
    beside = journal.plans.publish(record("b"), [move("t-1", "12", "23")])
    heal = journal.plans.publish(record("e", operation="heal", **HEAL), [move("t-2", "12", "23")])
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
        journal.plans.publish(record(digest), [])
    with pytest.raises(PlanError, match="have not ended: aaaaaaaaaaaa, bbbbbbbbbbbb; name the one to cancel"):
        resolve_plan(journal, None, "cancel")
    journal.slot.acquire("b" * 64)
    assert resolve_plan(journal, None, "throttle").digest == "b" * 64
    journal.slot.acquire("a" * 64, beside=["b" * 64])
    with pytest.raises(PlanError, match="have not ended: bbbbbbbbbbbb, aaaaaaaaaaaa; name the one to throttle"):
        resolve_plan(journal, None, "throttle")
    assert resolve_plan(journal, "aaa", "throttle").digest == "a" * 64


def test_to_take_back_a_plan_whose_rollback_is_under_way_means_that_plan(journal: Journal) -> None:
    ended = journal.plans.publish(record("a"), [])
    journal.plans.update(ended, status=PlanStatus.COMPLETED)
    journal.plans.publish(record("b", extra={ROLLS_BACK: "a" * 64}), [])
    found = [resolve_plan(journal, None, "cancel", scope=scope).digest for scope in ("plan", "pending")]
    assert found == ["a" * 64, "b" * 64]
