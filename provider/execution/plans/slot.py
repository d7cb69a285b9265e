"""The plan slot: the plans that hold it may submit moves, all others wait. Who holds it, and who gets it next.

The journal stores the slot (`journal/locks.py`). It has one holder, or several that move different partitions: a plan
of `apply`, of request documents, or of a rollback starts beside the holders if it shares no partition with them
(KIP-236). What all of them have in flight counts towards the same limits per broker, because each step counts what
Kafka shows.

A heal preempts all other plans, and nothing starts beside it: lost replicas come first. A preempted plan gets the slot
back when the heal ends. A plan whose process crashed between its end and the release still holds the slot: the next
plan that needs it releases it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum, auto

from kafka_steward.assignment import Operation, TopicPartition
from kafka_steward.errors import SlotTaken
from kafka_steward.execution.failures.rules import is_plan_abandoned
from kafka_steward.journal.audit import Action, Actor, AuditRecord, event_number
from kafka_steward.journal.records import PlanRecord, PlanStatus
from kafka_steward.journal.store import Journal
from kafka_steward.settings import Settings


class ClaimOutcome(Enum):
    """The result of a plan's claim on the plan slot."""

    #: No other plan holds the slot.
    FREE = auto()
    #: The plan shares the slot with its holders.
    BESIDE = auto()
    #: The holders are preempted.
    PREEMPTS = auto()
    #: The holder is a heal that no process steps any more: it is abandoned for the new heal.
    REPLACES = auto()
    #: A holder keeps the slot until it ends.
    REFUSED = auto()


def decide_claim(
    wanted: PlanRecord, holder: PlanRecord | None, *, disjoint: bool = False, holder_abandoned: bool = False
) -> ClaimOutcome:
    """Return the result of the claim of `wanted` on the slot that `holder` has; None if it is free. Pure.

    `disjoint` is set if `wanted` may share the slot, and both move no partition in common.
    """
    if holder is None or holder.digest == wanted.digest:
        return ClaimOutcome.FREE
    if wanted.auto_generated and not holder.auto_generated:
        return ClaimOutcome.PREEMPTS
    if disjoint and not holder.auto_generated:
        return ClaimOutcome.BESIDE
    return ClaimOutcome.REPLACES if wanted.auto_generated and holder_abandoned else ClaimOutcome.REFUSED


def may_share_slot(record: PlanRecord) -> bool:
    """Return whether a plan may start beside others. Pure.

    It may if its moves were named by somebody, or take back what was done. Other plans were made from the state of the
    whole cluster, which a plan beside them changes.
    """
    return record.operation == Operation.APPLY.value or record.rolls_back is not None


def current_plans(journal: Journal) -> list[PlanRecord]:
    """Return the plans that hold the plan slot and have not ended, the first of them first."""
    records = (journal.plans.get(digest) for digest in journal.slot.holders())
    return [record for record in records if record is not None and not record.status.finished]


def refuse_taken_slot(
    journal: Journal,
    wanted: PlanRecord,
    partitions: Collection[TopicPartition],
    who: Actor,
    *,
    not_done: str,
    settings: Settings | None = None,
) -> PlanRecord | None:
    """Raise SlotTaken if `wanted`, which moves `partitions` and need not be published yet, may not have the plan slot.

    `not_done` is the beginning of the message. Returns the holder that is to be abandoned first, None if there is none;
    without `settings`, no holder is.
    """
    sharing = may_share_slot(wanted)
    for holder in _find_slot_holders(journal, who):
        abandoned = settings is not None and is_plan_abandoned(holder, journal.now_ms(), settings)
        shared = journal.plans.unsettled_partitions(holder.digest) & set(partitions) if sharing else set()
        claim = decide_claim(wanted, holder, disjoint=sharing and not shared, holder_abandoned=abandoned)
        if claim is ClaimOutcome.REFUSED:
            raise SlotTaken(holder.digest, not_done, shared=str(min(shared, default="")))
        if claim is ClaimOutcome.REPLACES:
            return holder
    return None


def claim_slot(journal: Journal, record: PlanRecord, who: Actor) -> None:
    """Give the plan slot to a published plan, which may preempt its holders. Raises SlotTaken if it may not have it."""
    holders = _find_slot_holders(journal, who)
    if not any(decide_claim(record, holder) is ClaimOutcome.PREEMPTS for holder in holders):
        _join_holders(journal, record, holders)
        return
    sentence = f"it was preempted by the heal {record.digest[:12]}"
    for preempted in map(journal.plans.get, journal.slot.preempt_with(record.digest)):
        if preempted is None or preempted.status.finished or preempted.status is PlanStatus.PREEMPTED:
            continue
        entry = AuditRecord(Action.PAUSE, sentence, plan=preempted.digest, attempt=event_number(), who=who)
        journal.audit.record(entry)
        # A plan that is being stepped at this moment finds at its next step that it no longer holds the plan slot.
        reason = f"Plan {preempted.digest[:12]} waits: {sentence}."
        journal.plans.try_update(preempted, status=PlanStatus.PREEMPTED, reason=reason)


def waiting_reason(journal: Journal, record: PlanRecord, holders: Sequence[str], who: Actor) -> str:
    """Return why a plan that is being stepped must not submit moves; empty if it holds the plan slot.

    `holders` are those last read. A free slot is taken, or one that the plan may share.
    """
    if record.digest in holders:
        return ""
    try:
        _join_holders(journal, record, _find_slot_holders(journal, who))
    except SlotTaken as taken:
        return f"Plan {record.digest[:12]} waits: {taken.reason(taken.owner)} until it ends."
    return ""


def _join_holders(journal: Journal, record: PlanRecord, holders: Sequence[PlanRecord]) -> None:
    """Acquire the slot, beside those holders that share no partition with the plan. Raises SlotTaken for another.

    A plan that was preempted has started before, and may share the slot whatever its kind.
    """
    beside: list[str] = []
    if holders and (may_share_slot(record) or record.digest in journal.slot.preempted_plans()):
        wanted = journal.plans.unsettled_partitions(record.digest)
        for holder in holders:
            disjoint = wanted.isdisjoint(journal.plans.unsettled_partitions(holder.digest))
            if decide_claim(record, holder, disjoint=disjoint) is ClaimOutcome.BESIDE:
                beside.append(holder.digest)
    journal.slot.acquire(record.digest, beside=beside)


def release_slot(journal: Journal, digest: str, who: Actor) -> None:
    """Release the plan slot of a plan that has ended; resume the plan that was preempted for it."""
    journal.plans.delete_leftover_chunks(digest)
    following = journal.slot.release(digest)
    record = None if following is None else journal.plans.get(following)
    if record is None or not record.status.waits:
        return
    sentence = f"plan {digest[:12]}, which preempted it, has ended"
    journal.audit.record(AuditRecord(Action.RESUME, sentence, plan=record.digest, attempt=event_number(), who=who))
    journal.plans.try_update(record, status=PlanStatus.RUNNING, reason=sentence)  # unless a step has changed it already


def _find_slot_holders(journal: Journal, who: Actor) -> list[PlanRecord]:
    """Return the plans that hold the slot and have not ended; those that have are released.

    The process of a holder that has ended crashed before it released the slot.
    """
    holders, seen = list[PlanRecord](), set[str]()
    # A release may give the slot to a plan that waited, which may have ended, too.
    while (digest := next((holder for holder in journal.slot.holders() if holder not in seen), None)) is not None:
        seen.add(digest)
        record = journal.plans.get(digest)
        if record is None or record.status.finished:
            release_slot(journal, digest, who)
        else:
            holders.append(record)
    return holders
