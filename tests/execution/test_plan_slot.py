"""Who may have the plan slot, and which plan is meant when none is named."""

from __future__ import annotations

import pytest

from kafka_steward.errors import PlanError, SlotTaken
from kafka_steward.execution.plan_resolution import resolve_plan
from kafka_steward.execution.plan_slot import (
    ClaimOutcome,
    current_plan,
    decide_claim,
    refuse_taken_slot,
    waiting_reason,
)
from kafka_steward.journal.records import ASKED, ROLLS_BACK, PlanRecord, PlanStatus
from kafka_steward.journal.store import Journal
from tests.simulated_plan import WHO


def record(digest: str, **more: object) -> PlanRecord:
    return PlanRecord(digest * 64, "simulated", "apply", **more)  # type: ignore[arg-type]


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
        (ASKED_FOR, ASKED_FOR, ClaimOutcome.PREEMPTS),
        (ASKED_FOR, HEAL, ClaimOutcome.REFUSED),
        (BY_HAND, HEAL, ClaimOutcome.REFUSED),
        (BY_HAND, ASKED_FOR, ClaimOutcome.REFUSED),
        (BY_HAND, BY_HAND, ClaimOutcome.REFUSED),
    ],
)
def test_a_heal_goes_first_and_a_later_document_before_an_earlier(
    wanted: dict[str, object], holder: dict[str, object] | None, claim: ClaimOutcome
) -> None:
    held = None if holder is None else record("b", **holder)
    assert decide_claim(record("a", **wanted), held) is claim
    assert decide_claim(record("b", **wanted), held) is ClaimOutcome.FREE


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
    assert current_plan(journal) is None
    with pytest.raises(SlotTaken, match="Plan d was not published: plan aaaaaaaaaaaa holds the plan slot; wait until"):
        refuse_taken_slot(journal, record("d"), WHO, not_done="Plan d was not published")
    assert (journal.slot.owner(), journal.slot.preempted_plans()) == ("a" * 64, ())
    why = "Plan dddddddddddd waits: plan aaaaaaaaaaaa holds the plan slot until it ends."
    assert waiting_reason(journal, "d" * 64, None, WHO) == why
    journal.slot.release("a" * 64)
    assert waiting_reason(journal, "d" * 64, None, WHO) == ""
    assert journal.slot.owner() == "d" * 64


def test_of_several_plans_that_have_not_ended_the_one_that_has_the_slot_is_meant(journal: Journal) -> None:
    for digest in "ab":
        journal.plans.publish(record(digest), [])
    with pytest.raises(PlanError, match="have not ended: aaaaaaaaaaaa, bbbbbbbbbbbb; name the one to cancel"):
        resolve_plan(journal, None, "cancel")
    journal.slot.acquire("b" * 64)
    assert resolve_plan(journal, None, "throttle").digest == "b" * 64
    assert resolve_plan(journal, "aaa", "throttle").digest == "a" * 64


def test_to_take_back_a_plan_whose_rollback_is_under_way_means_that_plan(journal: Journal) -> None:
    ended = journal.plans.publish(record("a"), [])
    journal.plans.update(ended, status=PlanStatus.COMPLETED)
    journal.plans.publish(record("b", extra={ROLLS_BACK: "a" * 64}), [])
    found = [resolve_plan(journal, None, "cancel", scope=scope).digest for scope in ("plan", "pending")]
    assert found == ["a" * 64, "b" * 64]
