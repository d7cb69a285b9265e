"""The plan slot: the plan that holds it may submit moves, all others wait. Who holds it, and who gets it next.

The journal stores the slot (`journal/locks.py`). A plan whose process crashed between its end and the release still
holds it: the next plan that needs the slot releases it. A heal preempts any other plan. So does a plan of request
documents, but none is published while a plan of another kind holds the plan slot (`document_api/document_plans.py`):
what it preempts is an earlier plan of documents. A preempted plan gets the slot back when the other one ends.
"""

from __future__ import annotations

from enum import Enum, auto

from kafka_steward.errors import SlotTaken
from kafka_steward.execution.failures import is_plan_abandoned
from kafka_steward.journal.audit import Action, Actor, AuditRecord
from kafka_steward.journal.records import ASKED, PlanRecord, PlanStatus
from kafka_steward.journal.store import Journal
from kafka_steward.settings import Settings


class ClaimOutcome(Enum):
    """The result of a plan's claim on the plan slot."""

    #: No other plan holds the slot.
    FREE = auto()
    #: The holder is preempted.
    PREEMPTS = auto()
    #: The holder is a heal that no process steps any more: it is abandoned for the new heal.
    REPLACES = auto()
    #: The holder keeps the slot until it ends.
    REFUSED = auto()


def decide_claim(wanted: PlanRecord, holder: PlanRecord | None, *, holder_abandoned: bool = False) -> ClaimOutcome:
    """Return the result of the claim of `wanted` on the slot that `holder` has; None if it is free. Pure."""
    if holder is None or holder.digest == wanted.digest:
        return ClaimOutcome.FREE
    if (wanted.auto_generated or ASKED in wanted.extra) and not holder.auto_generated:
        return ClaimOutcome.PREEMPTS
    return ClaimOutcome.REPLACES if wanted.auto_generated and holder_abandoned else ClaimOutcome.REFUSED


def current_plan(journal: Journal) -> PlanRecord | None:
    """Return the plan that holds the plan slot and has not ended; None if the slot is free."""
    owner = journal.slot.owner()
    record = None if owner is None else journal.plans.get(owner)
    return None if record is None or record.status.finished else record


def refuse_taken_slot(
    journal: Journal, wanted: PlanRecord, who: Actor, *, not_done: str, settings: Settings | None = None
) -> PlanRecord | None:
    """Raise SlotTaken if `wanted`, which need not be published yet, may not have the plan slot.

    `not_done` is the beginning of the message. Returns the holder that is to be abandoned first, None if there is none;
    without `settings`, no holder is.
    """
    holder = _find_slot_holder(journal, who)
    if holder is None:
        return None
    abandoned = settings is not None and is_plan_abandoned(holder, journal.now_ms(), settings)
    claim = decide_claim(wanted, holder, holder_abandoned=abandoned)
    if claim is ClaimOutcome.REFUSED:
        raise SlotTaken(holder.digest, not_done)
    return holder if claim is ClaimOutcome.REPLACES else None


def claim_slot(journal: Journal, record: PlanRecord, who: Actor) -> None:
    """Give the plan slot to a published plan, which may preempt the holder. Raises SlotTaken if it may not."""
    claim = decide_claim(record, _find_slot_holder(journal, who))
    if claim is not ClaimOutcome.PREEMPTS:
        journal.slot.acquire(record.digest)
        return
    preempted = journal.slot.preempt_with(record.digest)
    other = None if preempted is None else journal.plans.get(preempted)
    # A plan of documents has nobody who waits for it: preempted by another one, it keeps its status.
    if other is None or other.status.finished or other.status is PlanStatus.PREEMPTED or not record.auto_generated:
        return
    sentence = f"it was preempted by the heal {record.digest[:12]}"
    journal.audit.record(
        AuditRecord(Action.PAUSE, sentence, plan=other.digest, attempt=journal.now_ms() // 1000, who=who)
    )
    # A plan that is being stepped at this moment finds at its next step that it no longer holds the plan slot.
    journal.plans.try_update(other, status=PlanStatus.PREEMPTED, reason=f"Plan {other.digest[:12]} waits: {sentence}.")


def waiting_reason(journal: Journal, digest: str, owner: str | None, who: Actor) -> str:
    """Return why a plan that is being stepped must not submit moves; empty if it holds the plan slot.

    `owner` is the holder as last read. A free slot is taken.
    """
    if owner == digest:
        return ""
    holder = _find_slot_holder(journal, who)
    if holder is not None and holder.digest != digest:
        return f"Plan {digest[:12]} waits: {SlotTaken.reason(holder.digest)} until it ends."
    journal.slot.acquire(digest)
    return ""


def release_slot(journal: Journal, digest: str, who: Actor) -> None:
    """Release the plan slot of a plan that has ended; resume the plan that was preempted for it."""
    journal.plans.delete_leftover_chunks(digest)
    following = journal.slot.release(digest)
    record = None if following is None else journal.plans.get(following)
    if record is None or not record.status.waits:
        return
    sentence = f"plan {digest[:12]}, which preempted it, has ended"
    journal.audit.record(
        AuditRecord(Action.RESUME, sentence, plan=record.digest, attempt=journal.now_ms() // 1000, who=who)
    )
    journal.plans.try_update(record, status=PlanStatus.RUNNING, reason=sentence)  # unless a step has changed it already


def _find_slot_holder(journal: Journal, who: Actor) -> PlanRecord | None:
    """Return the plan that holds the slot and has not ended; None if the slot is free.

    If the holder has ended and its process crashed before it released the slot, the slot is released here.
    """
    while (owner := journal.slot.owner()) is not None:
        record = journal.plans.get(owner)
        if record is not None and not record.status.finished:
            return record
        release_slot(journal, owner, who)
    return None
