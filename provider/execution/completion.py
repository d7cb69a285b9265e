"""Completion of a plan: its unfinished partitions, its final message, and the release of the plan slot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kafka_steward.assignment import Operation
from kafka_steward.cluster.state import Snapshot
from kafka_steward.journal.audit import Action, Actor, AuditRecord
from kafka_steward.journal.locks import Fence
from kafka_steward.journal.moves import Cause, MoveRow, MoveState
from kafka_steward.journal.open import Journal
from kafka_steward.journal.records import PlanRecord, PlanStatus
from kafka_steward.journal.retention import delete_old
from kafka_steward.settings import Settings

__all__ = ["PlanCompletion", "completion_of", "end_plan", "release_slot", "current_slot_owner", "purge_old"]

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
#: Causes set by an external actor; a new plan would conflict with it.
_EXTERNAL_CAUSES = {Cause.CANCELLED_ELSEWHERE, Cause.REASSIGNED_ELSEWHERE}


@dataclass(frozen=True)
class PlanCompletion:
    """The completion of a plan. `left` counts the partitions that are not fully replicated after it.

    `live_brokers` are the brokers with which nothing more could be done: a broker that this plan heals counts as
    handled until the live brokers change. The field is empty when a new plan could do more at once.
    """

    left: int
    live_brokers: tuple[int, ...]
    sentence: str
    status: PlanStatus = PlanStatus.COMPLETED


def completion_of(
    record: PlanRecord, rows: Sequence[MoveRow], snapshot: Snapshot, owing: Sequence[int], *, cancelled: bool = False
) -> PlanCompletion:
    """Return the completion of a plan whose rows are all settled. Pure.

    `owing` are dead brokers that still have our throttle.
    """
    status = PlanStatus.CANCELLED if cancelled else PlanStatus.COMPLETED
    broken = [row for row in rows if not _whole(row, snapshot)]
    # Moves that a person cancelled must not be planned again without being requested.
    again = not cancelled and any(row.cause not in _EXTERNAL_CAUSES for row in broken)
    left = record.left + len(broken)
    sentence = _sentence(record, rows, left, owing, "cancelled" if cancelled else "complete")
    return PlanCompletion(left, () if again else record.live_brokers, sentence, status)


def end_plan(journal: Journal, record: PlanRecord, ending: PlanCompletion, *, who: Actor, fence: Fence) -> PlanRecord:
    """Record the completion and release the plan slot; return the final record.

    If the process crashes in between, the next step finishes it.
    """
    entry = AuditRecord(Action.FINISH, ending.sentence, plan=record.digest, after={"left": ending.left}, who=who)
    with journal.together():
        journal.audit.record(entry)
        ended = journal.plans.update(
            record,
            fence=fence,
            status=ending.status,
            reason=ending.sentence,
            attempts=0,
            stepped_ms=journal.now_ms(),
            left=ending.left,
            live_brokers=ending.live_brokers,
        )
    release_slot(journal, record.digest, who)
    return ended


def release_slot(journal: Journal, digest: str, who: Actor) -> None:
    """Release the plan slot of a plan that has ended; resume the plan that was preempted for it."""
    journal.plans.tidy(digest)
    following = journal.slot.release(digest)
    record = None if following is None else journal.plans.get(following)
    if record is None or record.status is not PlanStatus.PAUSED:
        return
    sentence = f"plan {digest[:12]}, which it made way for, has ended"
    journal.audit.record(
        AuditRecord(Action.RESUME, sentence, plan=record.digest, attempt=journal.now_ms() // 1000, who=who)
    )
    journal.plans.try_update(record, status=PlanStatus.RUNNING, reason=sentence)  # unless a step has changed it already


def purge_old(journal: Journal, settings: Settings) -> None:
    """Delete the plans that ended longer ago than `plan_retention` days, but at least one hour ago.

    Processes that still read them have that hour. Their approvals are deleted with them, and so are quarantined
    documents of the same age.
    """
    kept_ms = max(int(settings.plan_retention * _DAY_MS), _HOUR_MS)
    before_ms = journal.now_ms() - kept_ms
    journal.plans.purge(before_ms)
    delete_old(journal.tree, before_ms, is_known=lambda digest: journal.plans.get(digest) is not None)


def current_slot_owner(journal: Journal, who: Actor) -> str | None:
    """Return the plan that holds the plan slot, or None.

    If that plan has ended and its process crashed before it released the slot, the slot is released first.
    """
    owner = journal.slot.owner()
    record = None if owner is None else journal.plans.get(owner)
    if owner is None or (record is not None and not record.status.finished):
        return owner
    release_slot(journal, owner, who)
    return journal.slot.owner()


def _whole(row: MoveRow, snapshot: Snapshot) -> bool:
    partition = snapshot.partitions.get(row.topic_partition)
    return partition is None or frozenset(partition.replicas) <= snapshot.live - partition.offline


def _sentence(record: PlanRecord, rows: Sequence[MoveRow], left: int, owing: Sequence[int], how: str) -> str:
    counts = Counter(row.state for row in rows)
    parts = [f"{counts[MoveState.COMPLETED]} of {len(rows)} partitions moved"]
    words = {
        MoveState.SATISFIED: "needed nothing any more",
        MoveState.DROPPED: "dropped",
        MoveState.FAILED: "taken over by others",
    }
    parts += [f"{counts[state]} {word}" for state, word in words.items() if counts[state]]
    if left:
        undoing = record.operation == Operation.ROLLBACK.value
        parts.append(f"{left} {'left alone' if undoing else 'still without all their replicas'}")
    if owing:
        parts.append(f"the throttle of broker {', '.join(map(str, owing))} is given back when it returns")
    return f"Plan {record.digest[:12]} is {how}: {', '.join(parts)}."
